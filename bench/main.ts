/** `npm run bench -- [NAME] [options]`: prepares what a benchmark needs, and runs it. Without a name, the one of webhooks. */
import { execFileSync } from 'node:child_process';
import { execPath } from 'node:process';

interface Benchmark {
  /** It runs the built program, or those of the cluster tests. Default: the sources. */
  readonly needs?: 'build' | 'cluster';
  readonly run: () => Promise<unknown>;
}

const BENCHMARKS: Readonly<Record<string, Benchmark>> = {
  webhooks: { needs: 'build', run: () => import('./run.ts') },
  attacks: { needs: 'build', run: () => import('./attacks/run.ts') },
  builds: { run: () => import('./builds.ts') },
  delivery: { run: () => import('./provider/delivery.ts') },
  fairness: { run: () => import('./provider/fairness.ts') },
  footprint: { needs: 'build', run: () => import('./footprint.ts') },
  node: { needs: 'cluster', run: () => import('./node/run.ts') },
  'provider-memory': { run: () => import('./provider/limits.ts') },
  queue: { run: () => import('./queue/run.ts') },
  scale: { run: () => import('./scale/run.ts') },
  sizing: { run: () => import('./sizing/run.ts') },
};

const name = process.argv[2] ?? '';
const found = Object.hasOwn(BENCHMARKS, name) ? BENCHMARKS[name] : undefined;
// The benchmark reads its options from what is left.
if (found !== undefined) process.argv.splice(2, 1);
else if (/^[a-z]/.test(name)) throw new Error(`there is no benchmark ${name}; there are ${Object.keys(BENCHMARKS).join(', ')}`);
const { needs, run } = found ?? (BENCHMARKS['webhooks'] as Benchmark);
const script = { build: ['scripts/build.ts'], cluster: ['test/prepare/prepare-test.ts', 'cluster'] };
if (needs !== undefined) execFileSync(execPath, script[needs], { stdio: 'inherit' });
await run();
