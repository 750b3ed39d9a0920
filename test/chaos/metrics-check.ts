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
  const late = countLate(logs);
  for (const life of lives) {
    const name = `gate ${life.gate}, process ${life.pid} from ${new Date(life.startedAt).toISOString()}`;
    checkLife(life, { arrivals: arrivals.get(life) ?? [], late: late.get(life) ?? 0, logs }, (isTrue, text) => {
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

/** A gate that was paused after it had admitted a request rejects it if the lease of its claim has ended. */
function countLate({ requests }: GateLogs): Map<Life, number> {
  const counts = new Map<Life, number>();
  for (const { life, reason } of requests.values()) if (reason === 'lease_expired') counts.set(life, (counts.get(life) ?? 0) + 1);
  return counts;
}

/** What is known of one life besides its metrics. */
interface Traces {
  readonly arrivals: readonly LedgerEntry[];
  /** The number of requests that were admitted, but not sent, as it was too late. */
  readonly late: number;
  readonly logs: GateLogs;
}

function checkLife(life: Life, { arrivals, late, logs }: Traces, check: Check): void {
  if (life.scrape === undefined) return;
  const { text, at } = life.scrape;
  const admitted = sumSeries(text, DECISIONS, 'decision="allow"', 'reason="ok"');
  const failed = sumSeries(text, UPSTREAM_ERRORS);
  const inFlight = sumSeries(text, 'sidegate_http_requests_in_flight');
  const statuses = logs.statuses.get(life) ?? new Map<number, number>();
  // A killed process had counted its last requests, but not yet written their lines: those with 503 may have been late, too.
  const unwritten = Math.max(0, sumSeries(text, REQUESTS, 'code="503"') - (statuses.get(503) ?? 0));
  // Every event that the gate admitted reached the app, except for what failed on the way, is on it, or was late.
  const least = admitted - failed - inFlight - late - unwritten;
  check(least <= arrivals.length, `${admitted} admitted, ${failed} failed, ${late} late, but the app got ${arrivals.length}`);
  const before = arrivals.filter((entry) => entry.at < at).length;
  check(before <= admitted, `the app got ${before} until the metrics were read, but only ${admitted} were admitted`);
  for (const [status, lines] of statuses) {
    const counted = sumSeries(text, REQUESTS, `code="${status}"`);
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
