/** Runs simulated worlds in processes of their own. `SIM_SEED` is the first seed, `SIM_HOURS` the simulated time. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { MUTANTS } from './mutants.ts';

const SEED = Number(process.env['SIM_SEED'] ?? 1);
const HOURS = Number(process.env['SIM_HOURS'] ?? 1_000);
/** Of these many hours, a mutant must survive none. */
const MUTANT_HOURS = 400;
/** Below the time limit of the tests, for a machine that is busy with other work. */
const MAX_RUN_MS = 560_000;
const PROCESSES = 2;
const MAIN = join(import.meta.dirname, 'main.ts');

interface WorldReport {
  readonly seed: number;
  readonly hash: string;
  readonly hours: number;
  readonly executed: number;
  /** Seconds. */
  readonly cpu: number;
  readonly violations: readonly string[];
  readonly counts: Readonly<Record<string, number>>;
}

interface Run {
  readonly worlds: readonly WorldReport[];
  /** The trace of a world that failed, or whatever the process said. */
  readonly errors: string;
}

function simulate(...args: readonly string[]): Promise<Run> {
  const command = ['--disable-warning=ExperimentalWarning', MAIN, ...args];
  return new Promise((resolve) => {
    execFile(process.execPath, command, { maxBuffer: 2 ** 28, timeout: MAX_RUN_MS }, (error, stdout, stderr) => {
      const worlds = stdout.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as WorldReport]));
      const isSilent = error !== null && worlds.every(({ violations }) => violations.length === 0);
      resolve({ worlds, errors: isSilent ? `${error.message}\n${stderr}` : stderr });
    });
  });
}

/** What to do about a world that failed; undefined if none did. */
function describeFailure({ worlds, errors }: Run): string | undefined {
  const failed = worlds.find(({ violations }) => violations.length > 0);
  if (failed === undefined) return errors === '' ? undefined : errors;
  return [
    `the world of seed ${failed.seed} violates its promises; repeat it with`,
    `  SIM_SEED=${failed.seed} SIM_HOURS=1 npm test -- simulation`,
    `or with all of its trace: node test/simulation/main.ts --seed ${failed.seed} --trace`,
    ...failed.violations.map((violation) => `- ${violation}`),
    'the end of the trace:',
    errors,
  ].join('\n');
}

function sum(worlds: readonly WorldReport[], isCounted: (name: string) => boolean): number {
  return worlds
    .flatMap(({ counts }) => Object.entries(counts))
    .reduce((total, [name, count]) => total + (isCounted(name) ? count : 0), 0);
}

test(`keeps every promise in ${HOURS} simulated hours from seed ${SEED} on`, async () => {
  const started = performance.now();
  const runs = await Promise.all(
    Array.from({ length: PROCESSES }, (_, index) =>
      simulate('--seed', String(SEED + index), '--step', String(PROCESSES), '--hours', String(HOURS / PROCESSES)),
    ),
  );
  const worlds = runs.flatMap((run) => run.worlds);
  const hours = worlds.reduce((total, world) => total + world.hours, 0);
  const cpu = worlds.reduce((total, world) => total + world.cpu, 0);
  const seconds = (performance.now() - started) / 1_000;
  const count = (name: string): number => sum(worlds, (each) => each === name);
  console.log(
    `${Math.floor(hours)} simulated hours in ${seconds.toFixed(0)} s (${cpu.toFixed(0)} s of CPU): ${worlds.length} worlds, ${count('attempts')} deliveries, ${count('attacks')} attacks, ` +
      `${sum(worlds, (name) => name.startsWith('fault '))} faults, ${count('explained doubles')} doubles, each explained by a fault`,
  );
  expect(runs.map(describeFailure).find((failure) => failure !== undefined)).toBeUndefined();
  expect(hours).toBeGreaterThanOrEqual(HOURS);
});

test('gives the same trace for the same seed, in another process and after other worlds', async () => {
  const [batch, alone, other] = await Promise.all([
    simulate('--seed', String(SEED), '--hours', '20'),
    simulate('--seed', String(SEED)),
    simulate('--seed', String(SEED + 1)),
  ]);
  const hashes = batch.worlds.slice(0, 2).map(({ hash }) => hash);
  expect([alone, other].map(({ worlds }) => worlds[0]?.hash)).toEqual(hashes);
  expect(new Set(hashes).size).toBe(2);
});

describe('finds a program that', () => {
  test.concurrent.for(MUTANTS)('$name', async ({ name }) => {
    const { worlds, errors } = await simulate('--hours', String(MUTANT_HOURS), '--mutant', name);
    expect(worlds.at(-1)?.violations ?? [], errors).not.toEqual([]);
  });
});
