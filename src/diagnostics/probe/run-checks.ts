/** Runs all checks: the first alone, then several in parallel, then those that evaluate all responses. */

import { type Check, type CheckFinding, type ContextOptions, createContexts, type Group, type ProbeExchange } from './check.ts';
import { FORGED_CHECKS } from './checks/forged.ts';
import { MALFORMED_CHECKS } from './checks/malformed.ts';
import { ONCE_CHECKS } from './checks/once.ts';
import { RESPONSE_CHECKS } from './checks/responses.ts';
import { TIME_CHECKS } from './checks/time.ts';
import { VALID_CHECKS } from './checks/valid.ts';
import type { NoResponse } from './client.ts';
import type { CheckResult, ProbeReport } from './report.ts';

/** In the order of the report. */
export const CHECKS: readonly Check[] = [
  ...VALID_CHECKS,
  ...FORGED_CHECKS,
  ...MALFORMED_CHECKS,
  ...TIME_CHECKS,
  ...ONCE_CHECKS,
  ...RESPONSE_CHECKS,
];

/** Some checks send several requests at once; with more in parallel, the total would exceed eight. */
export const MAX_PARALLEL = 5;

/** The endpoint could not be reached, so nothing can be said about its conformance. */
interface Unreachable {
  readonly unreachable: string;
}

const BASELINE = 'valid';
const WRONG_KEY = 'wrong-key';

/** Runs the checks. */
export async function runChecks(
  options: ContextOptions & {
    /** For the report. */
    readonly target: string;
    /** IDs of checks; empty: all. */
    readonly only: readonly string[];
    readonly parallel: number;
  },
): Promise<ProbeReport | Unreachable> {
  const { clock, only } = options;
  const begun = clock.monotonic();
  const startedAt = clock.now();
  const toContext = createContexts(options);
  const results = new Map<string, CheckResult>();
  const run = async (check: Check): Promise<void> => {
    const from = clock.monotonic();
    const finding = await check.run(toContext(check.id));
    results.set(check.id, toResult(check, finding, clock.monotonic() - from));
  };
  const [baseline, ...rest] = CHECKS.filter(({ id }) => id === BASELINE || only.length === 0 || only.includes(id));
  if (baseline === undefined) return { unreachable: 'there are no checks' };
  await run(baseline);
  const first = toContext(BASELINE).exchanges[0] as ProbeExchange;
  if (isUnreachable(first)) return { unreachable: first.reply.failure };
  const isPassed = (id: string): boolean => results.get(id)?.outcome === 'passed';
  const skip = (checks: readonly Check[], reason: string): void => {
    for (const check of checks)
      if (!results.has(check.id)) results.set(check.id, toResult(check, { outcome: 'skipped', actual: reason }, 0));
  };
  // An endpoint that rejects everything would pass most checks; only the first response itself can be evaluated.
  if (!isPassed(BASELINE))
    skip(
      rest.filter((check) => !isEvaluation(check)),
      NOT_ACCEPTED,
    );
  const forged = rest.find(({ id }) => id === WRONG_KEY);
  if (isPassed(BASELINE) && forged !== undefined) {
    await run(forged);
    if (results.get(WRONG_KEY)?.outcome === 'failed')
      skip(
        rest.filter(({ group }) => NEEDS_KEY.has(group)),
        NOT_VERIFIED,
      );
  }
  const { exchanges } = toContext(BASELINE);
  await runAll(
    rest.filter(({ id, isLast }) => isLast !== true && !results.has(id)),
    options.parallel,
    async (check) => (exchanges.some(isUnreachable) ? skip([check], GONE) : run(check)),
  );
  for (const check of rest) if (!results.has(check.id)) await run(check);
  await finishLater(results);
  return {
    target: options.target,
    address: 'address' in first.reply ? first.reply.address : '',
    scheme: options.scheme.description.name,
    startedAt,
    durationMs: clock.monotonic() - begun,
    requests: toContext(BASELINE).exchanges.length,
    checks: CHECKS.flatMap(({ id }) => results.get(id) ?? []),
  };
}

const NOT_ACCEPTED = 'not sent: the valid delivery was not accepted, so a rejection would prove nothing';
const NOT_VERIFIED = 'not sent: a delivery signed with another key was accepted, so nothing else that is signed is verified';
const GONE = 'not sent: the endpoint no longer accepts connections';
/** The groups in which every check fails without a verification. */
const NEEDS_KEY: ReadonlySet<Group> = new Set(['forged', 'time']);

function isEvaluation(check: Check): boolean {
  return check.isLast === true && check.id !== 'survives';
}

function isUnreachable(exchange: ProbeExchange): exchange is ProbeExchange & { reply: NoResponse } {
  return 'failure' in exchange.reply && !exchange.reply.isConnected;
}

async function runAll(checks: readonly Check[], parallel: number, run: (check: Check) => Promise<void>): Promise<void> {
  const waiting = [...checks];
  const work = async (): Promise<void> => {
    for (let check = waiting.shift(); check !== undefined; check = waiting.shift()) await run(check);
  };
  await Promise.all(Array.from({ length: parallel }, work));
}

/** Completes the checks that could not be decided before everything was sent. */
async function finishLater(results: Map<string, CheckResult>): Promise<void> {
  for (const [id, { later, ...result }] of results) {
    if (later !== undefined) results.set(id, { ...result, ...(await later()) });
  }
}

function toResult(
  { id, group, severity, sent, expected, impact }: Check,
  finding: CheckFinding,
  durationMs: number,
): CheckResult {
  return { id, group, severity, sent, expected, impact, durationMs, ...finding };
}
