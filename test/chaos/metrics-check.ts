/** Compares the metrics of the gates with the ledger and the logs. */
import { type Evidence, findLife } from './causes.ts';
import { type Life, sumSeries } from './gate-lives.ts';
import type { LedgerEntry } from './ledger.ts';
import type { GateLogs } from './logs.ts';

const REQUESTS = 'sidegate_http_requests_total';
const DECISIONS = 'sidegate_auth_decisions_total';
const UPSTREAM_ERRORS = 'sidegate_upstream_errors_total';
const DEDUP = 'sidegate_dedup_operations_total';

/** The lines of one turn of a busy event loop, which are written together. */
const MAX_UNWRITTEN_LINES = 60;

type Check = (isTrue: boolean, text: string) => void;

/** Returns what does not add up. */
export function checkMetrics(run: Evidence & { readonly ledger: readonly LedgerEntry[] }): string[] {
  const { ledger, logs, lives } = run;
  const problems: string[] = [];
  const arrivals = groupByLife(run);
  for (const life of lives) {
    const name = `gate ${life.gate}, process ${life.pid} from ${new Date(life.startedAt).toISOString()}`;
    checkLife(life, arrivals.get(life) ?? [], logs, (isTrue, text) => {
      if (!isTrue) problems.push(`${name}: ${text}`);
    });
    if (life.end === 'crashed') problems.push(`${name}: ended by itself`);
  }
  const handled = new Set(ledger.filter(({ isHandled }) => isHandled).map(({ requestId }) => requestId));
  for (const [requestId, { status, reason }] of logs.requests)
    if (reason === 'ok' && status === 200 && !handled.has(requestId))
      problems.push(`request ${requestId} got 200 from the app, but the ledger does not have it as handled`);
  return problems;
}

function groupByLife({ ledger, lives }: Parameters<typeof checkMetrics>[0]): Map<Life, LedgerEntry[]> {
  const groups = new Map<Life, LedgerEntry[]>();
  for (const entry of ledger) {
    const life = findLife(entry, lives);
    if (life === undefined) continue;
    const group = groups.get(life);
    if (group === undefined) groups.set(life, [entry]);
    else group.push(entry);
  }
  return groups;
}

function checkLife(life: Life, arrivals: readonly LedgerEntry[], logs: GateLogs, check: Check): void {
  if (life.scrape === undefined) return;
  const { text, at } = life.scrape;
  const admitted = sumSeries(text, DECISIONS, 'decision="allow"', 'reason="ok"');
  const failed = sumSeries(text, UPSTREAM_ERRORS);
  const inFlight = sumSeries(text, 'sidegate_http_requests_in_flight');
  // Every event that the gate admitted reached the app, except for what failed on the way or is on it.
  const least = admitted - failed - inFlight;
  check(least <= arrivals.length, `${admitted} admitted, ${failed} failed, but the app got ${arrivals.length}`);
  const before = arrivals.filter((entry) => entry.at < at).length;
  check(before <= admitted, `the app got ${before} until the metrics were read, but only ${admitted} were admitted`);
  for (const [status, lines] of logs.statuses.get(life) ?? []) {
    const counted = sumSeries(text, REQUESTS, `code="${status}"`);
    // A killed process had counted its last requests, but not yet written their lines.
    const isRight = life.end === 'killed' ? counted <= lines + MAX_UNWRITTEN_LINES : counted <= lines;
    check(life.end !== undefined || counted === lines, `${counted} requests with ${status} at rest, but ${lines} log lines`);
    check(isRight, `${counted} requests with ${status}, but ${lines} log lines`);
  }
  if (life.end === undefined) checkAtRest(life, text, logs, check);
}

/** Every claim is settled. */
function checkAtRest(life: Life, text: string, logs: GateLogs, check: Check): void {
  let handled = 0;
  for (const request of logs.requests.values())
    if (request.life === life && request.reason === 'ok' && request.status === 200) handled++;
  const count = (outcome: string): number => sumSeries(text, DEDUP, `outcome="${outcome}"`);
  const confirmed = count('confirmed');
  const isRight = confirmed <= handled && handled <= confirmed + count('fenced') + count('settle_lost');
  check(isRight, `${handled} handled, but ${confirmed} confirmed, ${count('fenced')} fenced`);
  for (const gauge of ['sidegate_http_requests_in_flight', 'sidegate_http_requests_queued', 'sidegate_buffered_bytes'])
    check(sumSeries(text, gauge) === 0, `${gauge} is ${sumSeries(text, gauge)} at rest`);
}
