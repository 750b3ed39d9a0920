/** Runs a benchmark from the command line: measures the load of the machine, runs the scenarios, writes the report. */
import { writeFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import type { RunFacts } from './figures.ts';
import { BusyMeter } from './machine.ts';
import { type BenchDefaults, type BenchOptions, readOptions, toHelp } from './options.ts';

/** A benchmark. */
export interface Bench {
  /** The command that runs it, before its options. */
  readonly command: string;
  readonly defaults: BenchDefaults;
  /** Ensures that all requirements are met, or throws an error with the fix. */
  readonly prepare: (options: BenchOptions) => void;
  readonly play: (options: BenchOptions) => Promise<Played>;
}

/** The result of a run. */
export interface Played {
  readonly isWrong: boolean;
  readonly toReport: (facts: RunFacts) => string;
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
  prepare(options);
  const meter = new BusyMeter();
  await pause(LOOK_AROUND_MS);
  const facts: RunFacts = { ...options, busyBefore: meter.lap(), date: new Date().toISOString().slice(0, 10) };
  const { toReport, isWrong } = await play(options);
  if (options.out === undefined) console.log(`\n${toReport(facts)}`);
  else writeFileSync(options.out, toReport(facts));
  if (isWrong) process.exitCode = 1;
}
