/** What the gates logged of the requests that they forwarded or rejected. */
import { readFileSync } from 'node:fs';
import type { Life } from './gate-lives.ts';

/** The log line of a request. Times are those of this machine's clock, also while the gate's was stepped. */
export interface LoggedRequest {
  readonly life: Life;
  readonly status: number;
  readonly code: string;
  readonly reason: string;
  /** When the request arrived, before it claimed its event. */
  readonly startedAt: number;
  /** When the gate began to forward it, after it had claimed its event; if it was not forwarded, when it ended. */
  readonly forwardedAt: number;
}

/** The lines of all lives. */
export interface GateLogs {
  /** By request ID. */
  readonly requests: ReadonlyMap<string, LoggedRequest>;
  /** Number of requests by life, and by status. */
  readonly statuses: ReadonlyMap<Life, ReadonlyMap<number, number>>;
  /** Lines of errors that must not happen. */
  readonly errors: readonly string[];
  /** The store keys of events whose outcome could not be recorded before the gate stopped. */
  readonly lostSettlements: ReadonlySet<string>;
}

interface Line {
  readonly time: number;
  readonly msg: string;
  readonly requestId: string;
  readonly status: number;
  readonly code: string;
  readonly reason: string;
  readonly durationMs: number;
  readonly upstreamMs?: number;
  readonly key: string;
}

const UNEXPECTED = new Set(['escaped_error', 'internal_error', 'log_lines_dropped']);

/** Reads the logs of all lives. The last line of a killed one can be cut. */
export function readLogs(lives: readonly Life[]): GateLogs {
  const requests = new Map<string, LoggedRequest>();
  const statuses = new Map<Life, Map<number, number>>();
  const errors: string[] = [];
  const lostSettlements = new Set<string>();
  for (const life of lives) {
    const counts = new Map<number, number>();
    statuses.set(life, counts);
    for (const text of readFileSync(life.logFile, 'utf8').split('\n').slice(0, -1)) {
      const line = JSON.parse(text) as Line;
      if (UNEXPECTED.has(line.msg)) errors.push(text);
      if (line.msg === 'settlement_lost') lostSettlements.add(line.key);
      if (line.msg !== 'request') continue;
      counts.set(line.status, (counts.get(line.status) ?? 0) + 1);
      requests.set(line.requestId, toRequest(line, life));
    }
  }
  return { requests, statuses, errors, lostSettlements };
}

function toRequest({ time, status, code, reason, durationMs, upstreamMs = 0 }: Line, life: Life): LoggedRequest {
  const endedAt = toTrueTime(time, life);
  return { life, status, code, reason, startedAt: endedAt - durationMs, forwardedAt: endedAt - upstreamMs };
}

/** A step is longer than the life of a gate, so only one of the steps gives a time within it. */
function toTrueTime(time: number, { steps, startedAt, endedAt }: Life): number {
  const end = Math.min(endedAt, Date.now());
  const step = [0, ...steps].find((each) => time - each >= startedAt - 1_000 && time - each <= end + 1_000);
  return time - (step ?? 0);
}
