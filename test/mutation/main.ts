/** `npm run mutation`: changes the verification path in small ways, and reports the changes that no test notices. */
import { globSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { toClosingLine } from '../../scripts/report.ts';
import { findMutants, type Mutant, sampleMutants } from './mutants.ts';
import { ImportGraph } from './nearest-tests.ts';
import { ROUNDS, TARGETS } from './targets.ts';
import { type Outcome, Workbench } from './workbench.ts';

/** A survivor that need not be killed. */
interface Accepted {
  readonly file: string;
  readonly code: string;
  readonly mutation: string;
  /** The change makes no difference that a test could see. */
  readonly isEquivalent: boolean;
  readonly reason: string;
}

interface Result {
  readonly mutant: Mutant;
  readonly outcome: Outcome | { readonly kind: 'accepted'; readonly isEquivalent: boolean };
}

const ROOT = resolve(import.meta.dirname, '../..');
const REPORT = '.cache/reports/mutation.json';
/** Of the mutants that make a difference, in percent. */
const MIN_KILLED = 95;
const USAGE = `npm run mutation -- [--mutants N] [--seed S] [--files GLOB] [--seconds N] [--workers N] [--list]
  --mutants N  how many to try (default 100)
  --seed S     which sample (default 1)
  --files GLOB only in these files, e.g. 'src/**/dedup.ts'
  --seconds N  ends the run then; mutants that are not done are left out (default: no end)
  --rounds N   only the first rounds of tests; a mutant that passes them is left out
  --workers N  how many are tried at once (default: the number of cores)
  --list       prints the sample and tries none of it`;

const { values } = parseArgs({
  options: {
    mutants: { type: 'string', default: '100' },
    seed: { type: 'string', default: '1' },
    files: { type: 'string' },
    seconds: { type: 'string' },
    workers: { type: 'string', default: String(availableParallelism()) },
    rounds: { type: 'string' },
    list: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

function findFiles(): string[] {
  const all = TARGETS.flatMap((target) =>
    statSync(join(ROOT, target)).isFile() ? [target] : globSync(`${target}/**/*.ts`, { cwd: ROOT }),
  );
  const chosen = values.files === undefined ? undefined : new Set(globSync(values.files, { cwd: ROOT }));
  return all.filter((file) => chosen?.has(file) ?? true).toSorted();
}

function readAccepted(): Accepted[] {
  return JSON.parse(readFileSync(join(import.meta.dirname, 'accepted.json'), 'utf8')) as Accepted[];
}

const toText = ({ file, line, mutation }: Mutant): string => `${file}:${line} ${mutation}`;

/** Round after round for all mutants, so that those that few tests kill do not take the time of the others. */
async function judgeAll(sample: readonly Mutant[], accepted: readonly Accepted[]): Promise<Result[]> {
  const results: Result[] = [];
  const put = (mutant: Mutant, outcome: Result['outcome']): void => {
    results.push({ mutant, outcome });
    console.log(`${outcome.kind.padEnd(10)} ${toText(mutant)}${'by' in outcome ? ` (${outcome.by})` : ''}`);
  };
  let open = sample.filter((mutant) => {
    const known = findAccepted(mutant, accepted);
    if (known !== undefined) put(mutant, { kind: 'accepted', isEquivalent: known.isEquivalent });
    return known === undefined;
  });
  const benches = openBenches();
  try {
    const rounds = Math.min(Number(values.rounds ?? ROUNDS.length), ROUNDS.length);
    for (let round = 0; round < rounds; round++) {
      const passed: Mutant[] = [];
      await Promise.all(
        benches.map(async (bench) => {
          for (let mutant = open.shift(); mutant !== undefined; mutant = open.shift()) {
            const outcome = await bench.judge(mutant, round);
            if (outcome === undefined) passed.push(mutant);
            else put(mutant, outcome);
          }
        }),
      );
      open = passed;
    }
    for (const mutant of open) put(mutant, { kind: rounds < ROUNDS.length ? 'unfinished' : 'survived' });
  } finally {
    for (const bench of benches) bench.close();
  }
  return results;
}

function findAccepted({ file, code, mutation }: Mutant, accepted: readonly Accepted[]): Accepted | undefined {
  return accepted.find((each) => basename(each.file) === basename(file) && each.code === code && each.mutation === mutation);
}

/** One for each worker; they end with this process. */
function openBenches(): Workbench[] {
  const deadline = values.seconds === undefined ? Number.POSITIVE_INFINITY : Date.now() + Number(values.seconds) * 1_000;
  const graph = new ImportGraph(ROOT);
  const benches = Array.from({ length: Number(values.workers) }, () => new Workbench(ROOT, graph, deadline));
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => {
      for (const bench of benches) bench.close();
      process.exit(1);
    });
  return benches;
}

/** Prints the result, and writes it as the other suites write theirs. */
function report(results: readonly Result[]): void {
  const of = (kind: Result['outcome']['kind']): Result[] => results.filter(({ outcome }) => outcome.kind === kind);
  const killed = of('killed').length;
  const survived = of('survived');
  const harmless = results.filter(({ outcome }) => outcome.kind === 'accepted' && !outcome.isEquivalent).length;
  const share = (100 * killed) / Math.max(1, killed + survived.length + harmless);
  for (const { mutant } of survived) console.log(`\nsurvived: ${toText(mutant)}\n  ${mutant.code}`);
  const counts = ['killed', 'timed out', 'survived', 'accepted', 'unfinished'] as const;
  console.log(`\n${counts.map((kind) => `${of(kind).length} ${kind}`).join(', ')}; ${share.toFixed(1)} % killed`);
  // Of a part of the sample, the share says little.
  const isTooFew = share < MIN_KILLED && of('unfinished').length === 0;
  if (isTooFew) console.log(`at least ${MIN_KILLED} % must be killed`);
  const failed = survived.length + (isTooFew && survived.length === 0 ? 1 : 0);
  const totals = { passed: killed, failed, skipped: 0 };
  mkdirSync(join(ROOT, '.cache/reports'), { recursive: true });
  const json = {
    numPassedTests: killed,
    numFailedTests: failed,
    numPendingTests: 0,
    success: failed === 0 && killed > 0,
    testResults: survived.map(({ mutant }) => ({ name: mutant.file, status: 'failed', message: `survived: ${toText(mutant)}` })),
  };
  writeFileSync(join(ROOT, REPORT), JSON.stringify(json));
  console.log(toClosingLine(totals));
  process.exitCode = json.success ? 0 : 1;
}

if (values.help) {
  console.log(USAGE);
} else {
  const mutants = findFiles().flatMap((file) => findMutants(file, readFileSync(join(ROOT, file), 'utf8')));
  const sample = sampleMutants(mutants, Number(values.mutants), Number(values.seed));
  console.log(`${sample.length} of ${mutants.length} mutants`);
  if (values.list) for (const mutant of sample) console.log(toText(mutant));
  else report(await judgeAll(sample, readAccepted()));
}
