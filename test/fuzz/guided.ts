/** Runs a target with mutated inputs, and keeps those that run new code for further mutations. */
import { Coverage } from './coverage.ts';
import { makeInput, shrink, toSource } from './mutate.ts';
import { Random } from './random.ts';

/** Something that reads input from outside. */
export interface Target {
  readonly name: string;
  /** Valid inputs, and interesting ones. */
  readonly seeds: readonly Buffer[];
  /** Pieces of the input's language, as Latin-1. */
  readonly pieces: readonly string[];
  /** Throws if a property does not hold. */
  readonly check: (input: Buffer) => void | Promise<void>;
  /** Of an input; 2,048 by default. */
  readonly maxBytes?: number;
}

/** How long to run: until the first of the two. */
export interface Budget {
  readonly seed: number;
  readonly inputs: number;
  readonly seconds: number;
}

/** What came of a run. */
export interface FuzzRun {
  readonly inputs: number;
  /** Inputs that ran new code. */
  readonly kept: number;
  /** The first failure, with an input that a test can repeat. */
  readonly failure: string | undefined;
}

/** Equal in each run of CI, so that it fails for a change and not by chance; `npm run fuzz` tries others. */
export const CI_SEED = 20_261_123;

/** Reading the coverage takes milliseconds, so it is read once for many inputs; if it has grown, they run again, one by one. */
const BATCH = 100;
/** One input may take this long; only a parser in trouble comes near it. */
const MAX_INPUT_MS = 1_000;
const DEFAULT_MAX_BYTES = 2_048;
const MIB = 1_048_576;
/** The heap of all inputs together is garbage; what remains must be small. */
const MAX_GROWTH = 256 * MIB;

/** Runs a target. */
export async function fuzzTarget(target: Target, { seed, inputs, seconds }: Budget): Promise<FuzzRun> {
  const random = new Random(seed);
  const corpus = [...target.seeds];
  const material = { corpus, pieces: target.pieces, maxBytes: target.maxBytes ?? DEFAULT_MAX_BYTES };
  const coverage = new Coverage();
  const heapBefore = process.memoryUsage().heapUsed;
  const end = performance.now() + seconds * 1_000;
  let done = 0;
  try {
    let batch: readonly Buffer[] = target.seeds;
    while (done < inputs && performance.now() < end) {
      const failure = await runBatch(target, batch);
      if (failure !== undefined) return { inputs: done, kept: corpus.length - target.seeds.length, failure };
      done += batch.length;
      const { mark } = coverage;
      if (coverage.hasGrown()) {
        coverage.mark = mark;
        for (const input of batch) {
          await run(target, input);
          if (coverage.hasGrown()) corpus.push(input);
        }
      }
      batch = Array.from({ length: BATCH }, () => makeInput(random, material));
    }
  } finally {
    coverage.close();
  }
  const growth = process.memoryUsage().heapUsed - heapBefore;
  const failure = growth > MAX_GROWTH ? `${target.name}: the heap grew by ${Math.round(growth / MIB)} MiB` : undefined;
  return { inputs: done, kept: corpus.length - target.seeds.length, failure };
}

/** Describes the first failure of a batch. */
async function runBatch(target: Target, batch: readonly Buffer[]): Promise<string | undefined> {
  for (const input of batch) {
    const message = await run(target, input);
    if (message === undefined) continue;
    // The numbers of a message may change with the input, and a shorter input may fail for another reason.
    const kind = toKind(message);
    const smallest = await shrink(input, async (smaller) => toKind((await run(target, smaller)) ?? '') === kind);
    return `${target.name}: ${(await run(target, smallest)) ?? message}\n  input: ${toSource(smallest)}`;
  }
  return undefined;
}

async function run({ check }: Target, input: Buffer): Promise<string | undefined> {
  const start = performance.now();
  try {
    await check(input);
  } catch (thrown) {
    return thrown instanceof Error
      ? `${thrown.message}\n${thrown.stack?.split('\n    at ').slice(1, 4).join('\n')}`
      : String(thrown);
  }
  const took = performance.now() - start;
  return took > MAX_INPUT_MS ? `took ${Math.round(took)} ms` : undefined;
}

const toKind = (message: string): string => message.split('\n')[0]?.replace(/["'`].*|\d+/g, '') ?? '';
