/** Reports of the other workers to the first one, whose admin port shows them: counts, decisions, captures, offered tokens. */
import type { Registry } from '@prometheus-io/client';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { Secret } from '../../core/secret.ts';
import type { Capture, Captures } from '../../diagnostics/explain/captures.ts';
import type { RouteMetrics } from '../../gateway/pipeline/route-metrics.ts';
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
