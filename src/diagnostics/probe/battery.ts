/** All checks, and how they are run: the first alone, then several at a time, then those that judge the answers of all. */
import { type BenchOptions, createBenches, type Exchange } from './bench.ts';
import type { Check, Finding } from './check.ts';
import { ANSWER_CHECKS } from './checks/answers.ts';
import { FORGED_CHECKS } from './checks/forged.ts';
import { GENUINE_CHECKS } from './checks/genuine.ts';
import { MALFORMED_CHECKS } from './checks/malformed.ts';
import { ONCE_CHECKS } from './checks/once.ts';
import { TIME_CHECKS } from './checks/time.ts';
import type { Silence } from './client.ts';
import type { CheckResult, Report } from './report.ts';

/** In the order of the report. */
export const CHECKS: readonly Check[] = [
  ...GENUINE_CHECKS,
  ...FORGED_CHECKS,
  ...MALFORMED_CHECKS,
  ...TIME_CHECKS,
  ...ONCE_CHECKS,
  ...ANSWER_CHECKS,
];

/** With more, the checks that send several requests at once would go beyond eight. */
export const MOST_PARALLEL = 5;

/** What is to be run. */
export interface BatteryOptions extends BenchOptions {
  /** For the report. */
  readonly target: string;
  /** Ids of checks; all where it is empty. */
  readonly only: readonly string[];
  readonly parallel: number;
}

/** Nobody answered at all: what is wrong is not the endpoint's conformance. */
export interface Unreachable {
  readonly unreachable: string;
}

const BASELINE = 'valid';

/** Runs the checks. */
export async function runBattery(options: BatteryOptions): Promise<Report | Unreachable> {
  const { clock, only } = options;
  const begun = clock.monotonic();
  const startedAt = clock.now();
  const toBench = createBenches(options);
  const results = new Map<string, CheckResult>();
  const run = async (check: Check): Promise<void> => {
    const from = clock.monotonic();
    const finding = await check.run(toBench(check.id));
    results.set(check.id, toResult(check, finding, clock.monotonic() - from));
  };
  const [baseline, ...rest] = CHECKS.filter(({ id }) => id === BASELINE || only.length === 0 || only.includes(id));
  if (baseline === undefined) return { unreachable: 'there is no check' };
  await run(baseline);
  const first = toBench(BASELINE).exchanges[0] as Exchange;
  if (isUnreachable(first)) return { unreachable: first.reply.failure };
  // Refusals by what refuses everything prove nothing; what the first answer itself shows is still judged.
  const isOpen = results.get(BASELINE)?.verdict === 'holds';
  for (const check of rest) if (!isOpen && !isJudging(check)) results.set(check.id, toResult(check, SKIPPED, 0));
  if (isOpen)
    await runAll(
      rest.filter(({ isLast }) => isLast !== true),
      options.parallel,
      run,
    );
  for (const check of rest) if (!results.has(check.id)) await run(check);
  await settle(results);
  return {
    target: options.target,
    address: 'address' in first.reply ? first.reply.address : '',
    scheme: options.anatomy.description.name,
    startedAt,
    durationMs: clock.monotonic() - begun,
    requests: toBench(BASELINE).exchanges.length,
    checks: CHECKS.flatMap(({ id }) => results.get(id) ?? []),
  };
}

const SKIPPED: Finding = {
  verdict: 'skipped',
  came: 'not sent: the genuine delivery was not accepted, so this would prove nothing',
};

function isJudging(check: Check): boolean {
  return check.isLast === true && check.id !== 'survives';
}

function isUnreachable(exchange: Exchange): exchange is Exchange & { reply: Silence } {
  return 'failure' in exchange.reply && !exchange.reply.isConnected;
}

async function runAll(checks: readonly Check[], parallel: number, run: (check: Check) => Promise<void>): Promise<void> {
  const waiting = [...checks];
  const work = async (): Promise<void> => {
    for (let check = waiting.shift(); check !== undefined; check = waiting.shift()) await run(check);
  };
  await Promise.all(Array.from({ length: parallel }, work));
}

/** What could not be judged before everything was sent. */
async function settle(results: Map<string, CheckResult>): Promise<void> {
  for (const [id, { later, ...result }] of results) {
    if (later !== undefined) results.set(id, { ...result, ...(await later()) });
  }
}

function toResult({ id, group, severity, sent, expected, cost }: Check, finding: Finding, durationMs: number): CheckResult {
  return { id, group, severity, sent, expected, cost, durationMs, ...finding };
}
