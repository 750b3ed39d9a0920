/**
 * The test of one topology of the store. `CHAOS_SEED` repeats a run, `CHAOS_EVENTS` changes the number of events of all topologies together, and
 * `CHAOS_WRITE=1` puts the figures in bench/RESULTS-chaos.json.
 */
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { writeRunResults } from '../support/run-results.ts';
import type { Double } from './causes.ts';
import { type ChaosResult, runChaos } from './run-chaos.ts';
import type { ChaosStore } from './stores.ts';
import { judge, type Verdict } from './verdict.ts';

const EVENTS = Number(process.env['CHAOS_EVENTS'] ?? 100_000);
const SEED = Number(process.env['CHAOS_SEED'] ?? Math.floor(Math.random() * 2 ** 31));

/** Where the report of each run is written, with every event that was handled twice. */
const REPORTS = join(import.meta.dirname, '..', '..', '.cache', 'reports');

/** Defines the test. `share`: of the events of all topologies. */
export function testSurvival(name: string, share: number, start: () => Promise<ChaosStore>): void {
  describe(`faults in the order of seed ${SEED}`, () => {
    test(`lose no event with ${name}, and no event is handled twice without a cause`, async () => {
      const events = Math.ceil(EVENTS * share);
      const run = await runChaos({ seed: SEED, events, store: await start(), isFaulty: true });
      const verdict = judge(run);
      report(name, run, verdict);
      if (verdict.problems.length > 0) keepEvidence(name, run);
      expect(verdict.problems).toEqual([]);
    });
  });
}

function report(name: string, run: ChaosResult, { problems, doubles, handled }: Verdict): void {
  const acknowledged = run.sent.filter(({ acknowledgedAt }) => acknowledgedAt !== undefined).length + run.accepted.length;
  const summary = {
    seed: SEED,
    events: run.sent.length + run.accepted.length,
    acknowledged,
    handled,
    attacks: run.attacks.length,
    processes: run.lives.length,
    seconds: Math.round(run.durationMs / 1_000),
    faults: run.faults.length,
    faultsByKind: countBy(run.faults, ({ kind }) => kind),
    handledTwice: doubles.length,
    handledTwiceByCause: countBy(doubles, ({ cause = 'unexplained' }) => cause),
    responsesToSender: Object.fromEntries(run.responses),
    resources: run.resources,
  };
  if (process.env['CHAOS_WRITE'] === '1') writeRunResults('chaos', { [name]: { ...summary, problems } });
  console.log(name, JSON.stringify(summary, undefined, 2));
  mkdirSync(REPORTS, { recursive: true });
  const all = {
    ...summary,
    problems,
    faults: run.faults,
    doubles: doubles.map(toReported),
  };
  writeFileSync(join(REPORTS, `chaos-${toFileName(name)}.log`), `${JSON.stringify(all, undefined, 1)}\n`);
}

/** Keeps the ledger and the logs of a bad run. */
function keepEvidence(name: string, { ledgerFile, lives }: ChaosResult): void {
  const folder = join(REPORTS, `chaos-${toFileName(name)}-${SEED}`);
  rmSync(folder, { recursive: true, force: true });
  cpSync(ledgerFile, join(folder, 'ledger'));
  for (const { gate, pid, logFile } of lives) cpSync(logFile, join(folder, `gate-${gate}-${pid}.log`));
  writeFileSync(join(folder, 'lives.json'), JSON.stringify(lives, undefined, 1));
}

const toFileName = (name: string): string => name.replaceAll(' ', '-').toLowerCase();

function toReported({ id, cause, evidence, first, second }: Double): object {
  return { id, cause, evidence, forwardedAt: [first.forwardedAt, second.forwardedAt], at: [first.entry.at, second.entry.at] };
}

function countBy<T>(items: readonly T[], toKey: (item: T) => string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const item of items) counts[toKey(item)] = (counts[toKey(item)] ?? 0) + 1;
  return counts;
}
