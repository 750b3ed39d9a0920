/** Finds why the app handled an event twice: only an outcome that was unknown to the gate, or that the store forgot, explains it. */
import type { FaultRecord } from './faults.ts';
import type { Life } from './gate-lives.ts';
import type { LedgerEntry } from './ledger.ts';
import type { GateLogs, LoggedRequest } from './logs.ts';
import { APP_TIMEOUT_MS, LEASE_MS } from './settings.ts';

/** Two handlings of one event. */
export interface Double {
  readonly id: string;
  /** The request that claimed the event first; the app may have got it later. */
  readonly first: Handling;
  readonly second: Handling;
  /** Undefined: a bug. */
  readonly cause: string | undefined;
  /** The fault, and what the gate logged. */
  readonly evidence: string;
}

/** What is known of a run. */
export interface Evidence {
  readonly logs: GateLogs;
  readonly faults: readonly FaultRecord[];
  readonly lives: readonly Life[];
}

/** A ledger entry, and what its gate knew of it. */
export interface Handling {
  readonly entry: LedgerEntry;
  readonly logged: LoggedRequest | undefined;
  /** The process that forwarded it. */
  readonly life: Life | undefined;
  /** When it was forwarded, at the latest. */
  readonly forwardedAt: number;
}

interface Found {
  readonly cause: string;
  readonly fault?: FaultRecord | undefined;
}

/** A store that fails loses writes of so long before. */
const RECENT_MS = 2_500;
/** Writes and replies may be on their way for so long. */
const MARGIN_MS = 1_000;
/** Gates write each line at once, as far as the machine lets them. */
const LOG_DELAY_MS = 1_000;
/** The times to wait for a claim, to connect and to respond, together. */
const LONGEST_REQUEST_MS = APP_TIMEOUT_MS + 1_500;
/** Timers are not exact, and a busy machine can stop a gate between measuring a duration and reading the time of its log line. */
const SLACK_MS = 150;
/** What the gate logs if it cannot know whether the app handled the event. */
const UNKNOWN_OUTCOMES: ReadonlySet<string> = new Set(['upstream_timeout', 'upstream_reset', 'upstream_protocol']);

/** Joins a ledger entry with the log. */
export function toHandling(entry: LedgerEntry, { logs, lives }: Evidence): Handling {
  const logged = logs.requests.get(entry.requestId);
  const life = findLife(entry, lives);
  // What a process forwarded before it was killed can reach the app much later, even after the next forwarding of the event.
  const latest = life?.end === 'killed' ? Math.min(entry.at, findSilence(life)) : entry.at;
  return { entry, logged, life, forwardedAt: Math.min(latest, logged?.forwardedAt ?? latest) };
}

/** When a process that was killed did something for the last time. */
function findSilence({ pauses, endedAt }: Life): number {
  return pauses.find(({ to }) => to >= endedAt)?.from ?? endedAt;
}

/** The process that forwarded it. */
export function findLife(entry: LedgerEntry, lives: readonly Life[]): Life | undefined {
  return lives.filter(({ gate }) => gate === entry.gate)[entry.life];
}

/** Explains the second handling. */
export function explain(first: Handling, second: Handling, evidence: Evidence): Double {
  const found =
    (isWithinLease(first, second) ? undefined : findUnknown(first, second, evidence)) ??
    findForgotten(first, second, evidence) ??
    findLateForward(first, second);
  const line = first.logged === undefined ? 'no log line' : `${first.logged.status} ${first.logged.code} ${first.logged.reason}`;
  const fault = found?.fault === undefined ? '' : `; ${found.fault.kind} (${found.fault.target})`;
  const action = `app: ${first.entry.action}`;
  return { id: first.entry.id, first, second, cause: found?.cause, evidence: `first: ${line}, ${action}${fault}` };
}

/**
 * The store lost the ID: it was emptied, or failed over before it had replicated what it confirmed. The first request may have claimed it from its
 * arrival on: the reply of a store that was killed can still be on its way.
 */
function findForgotten(first: Handling, second: Handling, { faults }: Evidence): Found | undefined {
  const claimedFrom = (first.logged?.startedAt ?? first.forwardedAt) - SLACK_MS;
  const fault = faults.find(({ forgets, from, to }) => {
    if (forgets === undefined || second.entry.at < from || claimedFrom > to) return false;
    return forgets === 'all' || first.entry.at >= from - RECENT_MS;
  });
  return fault && { cause: 'the store lost the ID', fault };
}

/** Without a loss of the store, no event may be forwarded again before its lease has ended. It began after the first request arrived. */
function isWithinLease(first: Handling, second: Handling): boolean {
  const startedAt = first.logged?.startedAt;
  return startedAt !== undefined && second.forwardedAt < startedAt + LEASE_MS - SLACK_MS;
}

function findUnknown(first: Handling, second: Handling, evidence: Evidence): Found | undefined {
  const { logged, entry } = first;
  const overlapping = (pattern: RegExp): FaultRecord | undefined =>
    evidence.faults.find(({ kind, from, to }) => {
      return pattern.test(kind) && from <= second.entry.at && to >= first.forwardedAt - MARGIN_MS;
    });
  if (logged === undefined)
    return isInFlightAtKill(first)
      ? { cause: 'the gate was killed with the request in flight', fault: overlapping(/^gate .*killed$/) }
      : undefined;
  if (UNKNOWN_OUTCOMES.has(logged.reason)) {
    const fault = entry.action === 'handle' ? overlapping(/^(app|network|gate paused)/) : overlapping(/^app/);
    // Without a fault, this machine was too slow for the app's timeout.
    return { cause: `outcome unknown to the gate: ${logged.reason}${fault === undefined ? ', without a fault' : ''}`, fault };
  }
  if (logged.reason !== 'ok') return undefined;
  return findUnconfirmed(first, second, logged.life, evidence);
}

/**
 * Whether the process was killed before it could log the request. The app may get it much later, because the network or the app held it back; but
 * a request that it got long before must have been logged.
 */
function isInFlightAtKill({ entry, life }: Handling): boolean {
  if (life?.end !== 'killed') return false;
  return entry.at >= findSilence(life) - LOG_DELAY_MS - LONGEST_REQUEST_MS;
}

const isPausedDuring = ({ pauses }: Life, from: number, to: number): boolean =>
  pauses.some((pause) => pause.from <= to && pause.to >= from);

/** The gate got the app's 2xx, but the store did not record it before the lease ended. */
function findUnconfirmed(first: Handling, second: Handling, life: Life, { faults, logs }: Evidence): Found | undefined {
  const handledAt = first.entry.at;
  const isNear = ({ from, to }: { from: number; to: number }): boolean =>
    from <= handledAt + MARGIN_MS && to >= handledAt - MARGIN_MS;
  const outage = faults.find((fault) => /^(Redis|failover|slots)/.test(fault.kind) && isNear(fault));
  const network = faults.find((fault) => fault.target === 'network store' && isNear(fault));
  const fault = outage ?? network;
  const isPaused = isPausedDuring(life, handledAt, handledAt + MARGIN_MS);
  if (life.end === 'killed' && life.endedAt >= handledAt && life.endedAt <= second.entry.at) {
    if (life.endedAt - handledAt < MARGIN_MS) return { cause: 'the gate was killed before it had confirmed' };
    if (fault !== undefined) return { cause: 'the gate was killed while the store was unavailable', fault };
    if (isPaused) return { cause: 'the gate was paused, then killed before it had confirmed' };
  }
  if (life.end === 'stopped' && [...logs.lostSettlements].some((key) => key.endsWith(`:${first.entry.id}`)))
    return { cause: 'the gate stopped while the store was unavailable', fault };
  if (isPaused) return { cause: 'the gate was paused before it had confirmed' };
  return fault && { cause: 'the store was unavailable for the rest of the lease', fault };
}

/** The gate had claimed the event, and was paused until after its lease. */
function findLateForward(first: Handling, second: Handling): Found | undefined {
  for (const handling of [first, second]) {
    const { logged, forwardedAt } = handling;
    if (logged !== undefined && isPausedDuring(logged.life, logged.startedAt, forwardedAt))
      return { cause: 'the gate was paused between claiming and forwarding' };
  }
  return undefined;
}
