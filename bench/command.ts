/** Runs a benchmark from the command line: measures the load of the machine, runs the scenarios, writes the report. */
import { writeFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import type { RunFacts } from './figures.ts';
import { BusyMeter } from './machine.ts';

/** A benchmark. */
export interface Bench {
  /** The command that runs it, before its options. */
  readonly command: string;
  readonly defaults: BenchDefaults;
  /** Ensures that all requirements are met, or throws an error with the fix. */
  readonly prepare?: () => void;
  readonly play: (
    options: BenchOptions,
  ) => Promise<{ readonly isWrong: boolean; readonly toReport: (facts: RunFacts) => string }>;
}

const LOOK_AROUND_MS = 1_000;

/** Never rejects; the exit code reports wrong responses. */
export async function runBench(bench: Bench): Promise<void> {
  try {
    await runWith(bench, readOptions(bench.defaults));
  } catch (thrown) {
    console.error(thrown instanceof Error ? thrown.message : thrown);
    process.exitCode = 1;
  }
}

async function runWith({ command, defaults, prepare, play }: Bench, options: BenchOptions | undefined): Promise<void> {
  if (options === undefined) {
    console.log(toHelp(command, defaults));
    return;
  }
  prepare?.();
  const meter = new BusyMeter();
  await pause(LOOK_AROUND_MS);
  const facts: RunFacts = { ...options, busyBefore: meter.lap(), date: new Date().toISOString().slice(0, 10) };
  const { toReport, isWrong } = await play(options);
  if (options.out === undefined) console.log(`\n${toReport(facts)}`);
  else writeFileSync(options.out, toReport(facts));
  if (isWrong) process.exitCode = 1;
}

/** The parsed options. */
export interface BenchOptions {
  readonly rounds: number;
  readonly seconds: number;
  readonly warmUpSeconds: number;
  /** The selected participants; empty: all. */
  readonly only: readonly string[];
  /** The file for the report; undefined: it is only printed. */
  readonly out: string | undefined;
}

/** The options that differ between the benchmarks. */
export interface BenchDefaults {
  /** The names that `--only` accepts. */
  readonly names: readonly string[];
  readonly seconds: number;
  readonly warmUpSeconds: number;
  /** The file for the report of a complete run. */
  readonly out: string;
}

const QUICK_SECONDS = 2;
const QUICK_WARM_UP_SECONDS = 3;

/** The help for all options; `command` is what they follow. */
function toHelp(command: string, { names, seconds, warmUpSeconds, out }: BenchDefaults): string {
  const file = out.slice(out.lastIndexOf('/') + 1);
  return `Usage: ${command} [options]

  --rounds N      rounds, each with fresh processes (default 5)
  --seconds N     length of each load (default ${seconds})
  --warm-up N     seconds of requests that come before (default ${warmUpSeconds})
  --quick         one round of 2 s, hardly warmed up, for a first look; ${file} stays as it is
  --only LIST     scenarios and rivals to take part, with commas between:
                  ${names.join(', ')}
  --out FILE      where the report goes (default bench/${file}, for a whole run only)
`;
}

/** Parses the command line; undefined if it requests help. Throws if it is invalid. */
function readOptions(defaults: BenchDefaults): BenchOptions | undefined {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      'warm-up': { type: 'string' },
      quick: { type: 'boolean', default: false },
      only: { type: 'string', default: '' },
      out: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return undefined;
  const { quick } = values;
  const only = readOnly(values.only, defaults.names);
  return {
    rounds: readCount('--rounds', values.rounds ?? (quick ? '1' : '5')),
    seconds: readCount('--seconds', values.seconds ?? String(quick ? QUICK_SECONDS : defaults.seconds)),
    warmUpSeconds: readCount('--warm-up', values['warm-up'] ?? String(quick ? QUICK_WARM_UP_SECONDS : defaults.warmUpSeconds)),
    only,
    out: values.out ?? (quick || only.length > 0 ? undefined : defaults.out),
  };
}

/** The named ones of `all`; all of them if none is named. */
export function pickNamed<Item>(all: readonly Item[], only: readonly string[], nameOf: (item: Item) => string): readonly Item[] {
  const picked = all.filter((item) => only.includes(nameOf(item)));
  return picked.length === 0 ? all : picked;
}

function readCount(option: string, text: string): number {
  const count = Number(text);
  if (!Number.isInteger(count) || count < 1 || count > 100) throw new Error(`${option} must be an integer from 1 to 100`);
  return count;
}

function readOnly(text: string, known: readonly string[]): readonly string[] {
  const only = text.split(',').filter(Boolean);
  const unknown = only.filter((name) => !known.includes(name));
  if (unknown.length > 0) throw new Error(`--only knows ${known.join(', ')}; not ${unknown.join(', ')}`);
  return only;
}
