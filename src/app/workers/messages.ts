/** Messages between the first worker, in the main thread, and the others, whose reports the admin port of the first one shows. */

import type { MessagePort } from 'node:worker_threads';
import type { Registry } from '@prometheus-io/client';
import type { Overrides } from '../../config/load/load.ts';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { LocatedProblem } from '../../core/problem.ts';
import { Secret } from '../../core/secret.ts';
import type { Capture, Captures } from '../../diagnostics/explain/captures.ts';
import type { RouteMetrics } from '../../gateway/pipeline/route-metrics.ts';
import type { ListenPhase } from '../../http/server/server.ts';
import type { Journal, RecordedDecision } from '../../telemetry/journal/journal.ts';
import {
  addChanges,
  type Combinations,
  type FamilyChanges,
  type Gauges,
  readGauges,
  takeChanges,
} from '../../telemetry/metrics/thread-metrics.ts';
import type { OfferedTokens } from '../../verify/handshakes/offered-tokens.ts';
import type { JoinedPorts } from './share.ts';

// The interface through which the first worker uses the others.

/** The workers other than the first. */
export interface OtherWorkers {
  /** Sets what receives their reports. */
  onReport(receive: (report: WorkerReport) => void): void;
  /** Resolves when all of them serve the ports; `hash`: of the config. */
  start(ports: JoinedPorts, hash: string): Promise<void>;
  /** Each reads the config; resolves with the problems of those that cannot apply it, or read another one. */
  prepare(hash: string): Promise<readonly LocatedProblem[]>;
  /** All apply the config that they read, then `apply` does so for the first worker. */
  commit(apply: () => void): Promise<void>;
  /** Reload these files, which the config refers to. */
  reloadFiles(changed: readonly string[]): Promise<void>;
  enter(phase: ListenPhase): void;
  /** Resolves when all have reported what they recorded, or when one is too busy to do so. */
  collect(hasGauges: boolean): Promise<void>;
  /** The gauges of each worker at the last `collect` that asked for them. */
  readonly gauges: readonly Gauges[];
  /** See EventLoopMonitor; of the worker that has been stuck longest. */
  readonly stuckFor: Milliseconds | undefined;
  /** Drains and ends them; true if every request in flight was finished. */
  stop(): Promise<boolean>;
}

/** Of a process with one worker. */
export const NO_OTHER_WORKERS: OtherWorkers = {
  onReport: () => undefined,
  start: async () => undefined,
  prepare: async () => [],
  commit: async (apply) => apply(),
  reloadFiles: async () => undefined,
  enter: () => undefined,
  collect: async () => undefined,
  gauges: [],
  stuckFor: undefined,
  stop: async () => true,
};

// The messages.

/** The data of a worker at its start. */
export interface WorkerStart {
  /** Threads of other kinds have other data. */
  readonly kind: 'gate-worker';
  readonly index: number;
  readonly file: string;
  readonly overrides: Overrides | undefined;
  readonly ports: JoinedPorts;
  /** Of the config that the first worker has. */
  readonly hash: string;
  /** For lines of the log, separate from the other messages: they must be readable while the process exits. */
  readonly lines: MessagePort;
  /** One number; it increases once a worker has passed on its last lines. */
  readonly flushed: SharedArrayBuffer;
}

/** A task for a worker; each gets one result. */
export type WorkerTask =
  | { readonly name: 'prepare'; readonly hash: string }
  | { readonly name: 'commit' }
  | { readonly name: 'reload-files'; readonly changed: readonly string[] }
  | { readonly name: 'report'; readonly hasGauges: boolean }
  | { readonly name: 'stop' };

/** The result of a task; only the property that belongs to it is set. */
export interface TaskResult {
  /** Of `prepare`: why this worker cannot apply the config; empty if it can. */
  readonly problems?: readonly LocatedProblem[];
  /** Of `commit`. */
  readonly hasCommitted?: boolean;
  /** Of `report` and `stop`. */
  readonly report?: WorkerReport;
  /** Of `stop`: all requests in flight were finished. */
  readonly isFinished?: boolean;
}

/** To a worker. `received`: the next report may follow. */
export type ToWorker =
  | { readonly kind: 'task'; readonly id: number; readonly task: WorkerTask }
  | { readonly kind: 'enter'; readonly phase: ListenPhase }
  | { readonly kind: 'received' }
  | { readonly kind: 'flush' };

/** From a worker. `failed`: it cannot start, or had an exception that nothing handled. */
export type FromWorker =
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly message: string }
  | { readonly kind: 'result'; readonly id: number; readonly value: TaskResult }
  | { readonly kind: 'report'; readonly report: WorkerReport };

// Reports to the first worker: counts, decisions, captures, offered tokens.

/** A rejection that was analyzed after its decision was reported. */
export interface ExplanationLines {
  readonly requestId: string;
  readonly lines: readonly string[];
}

/** When a key was last used. */
interface KeyTime {
  readonly route: string;
  readonly key: string;
  readonly at: EpochMilliseconds;
}

/** Everything since the last report; a message between threads, so it has only plain values. */
export interface WorkerReport {
  readonly counts: readonly FamilyChanges[];
  readonly keys: readonly KeyTime[];
  readonly decisions: readonly RecordedDecision[];
  readonly explanations: readonly ExplanationLines[];
  readonly captures: readonly Capture[];
  readonly offers: readonly {
    readonly route: string;
    readonly receivedAt: EpochMilliseconds;
    readonly client: string;
    readonly token: Uint8Array;
  }[];
  /** See EventLoopMonitor. */
  readonly stuckFor: Milliseconds | undefined;
  /** Only if they were asked for: reading some of them resets them. */
  readonly gauges: Gauges | undefined;
}

/** The parts of a gate that reports are made of, and added to. */
export interface ReportedParts {
  readonly telemetry: {
    readonly journal: Journal;
    readonly captures: Captures;
  };
  readonly metrics: {
    readonly registers: readonly Registry[];
    route(name: string): Pick<RouteMetrics, 'keyUse' | 'keySeen'>;
  };
  readonly routeParts: { readonly offeredTokens: OfferedTokens };
  readonly eventLoopMonitor: { readonly stuckFor: Milliseconds | undefined };
}

/** How the gauges of all workers are combined; all others are those of the first worker, or of the process. */
export const COMBINED_GAUGES: Combinations = {
  sidegate_connections: 'sum',
  sidegate_buffered_bytes: 'sum',
  sidegate_http_requests_in_flight: 'sum',
  sidegate_http_requests_queued: 'sum',
  sidegate_password_checks_pending: 'sum',
  nodejs_heap_size_used_bytes: 'sum',
  nodejs_external_memory_bytes: 'sum',
  sidegate_dedup_up: 'min',
  sidegate_route_ready: 'min',
  sidegate_users_last_reload_successful: 'min',
  sidegate_users_usable: 'min',
  nodejs_eventloop_lag_p50_seconds: 'max',
  nodejs_eventloop_lag_p99_seconds: 'max',
  nodejs_eventloop_lag_max_seconds: 'max',
};

/** Takes what happened since the last report; `explanations` is emptied. */
export async function takeReport(
  { telemetry, metrics, routeParts, eventLoopMonitor }: ReportedParts,
  explanations: ExplanationLines[],
  hasGauges: boolean,
): Promise<WorkerReport> {
  const [registry] = metrics.registers as readonly [Registry];
  const gauges = hasGauges ? await readGauges(registry, COMBINED_GAUGES) : undefined;
  const counts = takeChanges(registry);
  return {
    counts,
    keys: toKeyTimes(counts, metrics),
    decisions: telemetry.journal.takeAll(),
    explanations: explanations.splice(0),
    captures: telemetry.captures.takeAll(),
    offers: routeParts.offeredTokens.takeAll().map(({ token, ...offer }) => ({ ...offer, token: token.expose() })),
    stuckFor: eventLoopMonitor.stuckFor,
    gauges,
  };
}

/** Adds a report to what the first worker recorded itself. */
export function addReport({ telemetry, metrics, routeParts }: ReportedParts, report: WorkerReport): void {
  const [registry] = metrics.registers as readonly [Registry];
  addChanges(registry, report.counts);
  for (const { route, key, at } of report.keys) metrics.route(route).keySeen(key, at);
  for (const { at, line, details } of report.decisions) telemetry.journal.add(at, line, details);
  for (const { requestId, lines } of report.explanations) telemetry.journal.explain(requestId, lines);
  telemetry.captures.adopt(report.captures);
  for (const { route, receivedAt, client, token } of report.offers)
    routeParts.offeredTokens.add(route, new Secret(Buffer.from(token)), client, receivedAt);
}

/** The keys whose matches were counted. */
function toKeyTimes(counts: readonly FamilyChanges[], metrics: ReportedParts['metrics']): KeyTime[] {
  const matches = counts.find(({ name }) => name === 'sidegate_key_matches_total')?.changes ?? [];
  return matches.flatMap(({ labels: [route = '', key = ''] }) => {
    const { lastUsed } = metrics.route(route).keyUse(key);
    return lastUsed === undefined ? [] : [{ route, key, at: lastUsed }];
  });
}
