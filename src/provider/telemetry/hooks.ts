/** Turns what the parts of the sending side report into metrics, log lines, journal entries and spans. Hooks never throw. */
import { randomBytes } from 'node:crypto';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { TokenBucket } from '../../core/throttle.ts';
import { PostgresError } from '../../state/postgres.ts';
import type { AttemptJournal } from '../../telemetry/journal/attempt-journal.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import { parseTraceparent, SAMPLED } from '../../telemetry/tracing/trace-context.ts';
import type { Span } from '../../telemetry/tracing/tracer.ts';
import type { AttemptResult, DeadReason, Decision } from '../attempt/attempt.ts';
import type { DisabledReason, Endpoint } from '../endpoints/endpoint.ts';
import type { RegistryLogEvent } from '../endpoints/stored-registry.ts';
import { INBOX_PREFIX, readTraceHeaders } from '../events/event.ts';
import type { Delivery, InboxBacklog, NewEvent } from '../queue/delivery-queue.ts';
import { isDiskFull, type QueueHooks } from '../queue/store-client.ts';
import { API_LABEL, type ProviderMetrics } from './provider-metrics.ts';

/** Log lines about events without an endpoint: an app that posts many of them would fill the log. */
const UNROUTED_INTERVAL_MS: Milliseconds = 60_000;

export interface TelemetryParts {
  readonly clock: Clock;
  readonly logger: Logger<ProviderLogEvent>;
  readonly metrics: ProviderMetrics;
  readonly onSpan: ((span: Span) => void) | undefined;
  readonly journal: Pick<AttemptJournal, 'add'>;
  readonly failing: FailingEndpoints;
  readonly condition: QueueCondition;
}

/** The metric label of an endpoint: its name if the config names it, one label for all others. */
export function toLabel({ id, source }: Pick<Endpoint, 'id' | 'source'>): string {
  return source === 'config' ? id : API_LABEL;
}

export type LaneHooks = ReturnType<typeof createLaneHooks>;

/** `find`: undefined for an endpoint that does not exist. */
export function createLaneHooks(
  { logger, metrics, onSpan, journal, failing }: TelemetryParts,
  find: (id: string) => Endpoint | undefined,
) {
  return {
    /** An attempt ended. `decision` is undefined if it was aborted, by a shutdown for one; then it is made again. */
    onAttempt(endpoint: Endpoint, delivery: Delivery, result: AttemptResult, decision: Decision | undefined): void {
      const { startedAt, outcome, status, duration, detail } = result;
      const label = toLabel(endpoint);
      metrics.attempt(label, outcome, duration);
      const retryAt = decision?.kind === 'retry' ? decision.due : undefined;
      const next = decision?.kind === 'delivered' ? 'none' : (decision?.kind ?? 'retry');
      const attempt = { endpoint: endpoint.id, event: delivery.event, attempt: delivery.attempt + 1, next, retryAt } as const;
      journal.add({ at: startedAt, outcome, status, duration, detail, ...attempt });
      const span = onSpan && toAttemptSpan(delivery, endpoint, result);
      if (span !== undefined) onSpan?.(span);
      if (decision?.kind !== 'delivered') return;
      failing.delete(endpoint.id);
      metrics.settled(label, 'delivered');
      metrics.delivered(startedAt + duration - delivery.createdAt);
    },
    onExhausted(endpoint: Endpoint, { event, type, attempt }: Delivery, reason: DeadReason): void {
      metrics.settled(toLabel(endpoint), 'dead');
      logger.warn('message_exhausted', { event, type, endpoint: endpoint.id, reason, attempts: attempt + 1 });
    },
    /** Deliveries were not sent because the endpoint is disabled or deleted, or has another tenant. */
    onSkipped(id: string, count: number): void {
      metrics.settled(toLabel(find(id) ?? { id, source: 'api' }), 'skipped', count);
    },
    /** The endpoint was disabled by its responses. */
    onDisabled({ id }: Endpoint, reason: DisabledReason): void {
      logger.error('endpoint_disabled', { endpoint: id, reason, hint: `sidegate endpoints enable ${id}` });
    },
    /** `open`: the endpoint is unreachable, asks for less, or fails almost everything (see lane-state.ts). `closed`: no longer. */
    onBreaker({ id }: Endpoint, state: 'open' | 'closed'): void {
      if (state === 'open') return logger.warn('breaker_opened', { endpoint: id });
      logger.info('breaker_closed', { endpoint: id });
      failing.delete(id);
    },
    /** An attempt failed while the breaker is open, or opened it, or the endpoint is still away. No replica starts the next attempt before `until`. */
    onFailing: ({ id }: Endpoint, until: EpochMilliseconds): unknown => failing.add(id, until),
    /** An operational event could not be stored, for instance because the queue is full. */
    onOperationalEventLost: (type: string, error: unknown): void =>
      logger.error('operational_event_lost', { type, error: toErrorText(error) }),
  };
}

export function createQueueHooks(parts: Parameters<typeof reportLoss>[0] & Pick<TelemetryParts, 'clock'>): QueueHooks {
  const { logger, condition } = parts;
  // While the store is down, the runs of all endpoints fail, again each second.
  const mayLog = new TokenBucket(0.1, 10, parts.clock);
  return {
    onFatal(error) {
      logger.error('queue_failed', { error: toErrorText(error), hint: 'restart the pod; accepted events are stored' });
      condition.fail('thread', toErrorText(error));
    },
    onUnavailable: (error) => condition.fail('writes', error),
    onAvailable: () => condition.recover('writes'),
    onLost: (hint) => reportLoss(parts, { hint }),
    onRunError(endpoint, error) {
      if (mayLog.take()) logger.error('provider_failed', { endpoint, error: toErrorText(error) });
    },
    onNoMemory(endpoint, bytes) {
      const hint = 'for 5 s, there was no memory to read a delivery: raise the memory limit of replicas that send';
      logger.warn('delivery_held', { endpoint, bytes, hint });
    },
  };
}

/** Until the next restart, /readyz names the loss. */
export function reportLoss(
  { logger, metrics, condition }: Pick<TelemetryParts, 'logger' | 'metrics' | 'condition'>,
  details: Parameters<typeof logger.error>[1],
): void {
  metrics.queueWentBack();
  condition.note('losses', 'events that the queue had stored are missing');
  logger.error('queue_went_back', details);
}

/** As for the alert. */
const MAX_ROW_AGE_S = 300;

export type OutboxHooks = ReturnType<typeof createOutboxHooks>;

/** An outage is logged once, and its end. */
export function createOutboxHooks({ logger, metrics, condition }: TelemetryParts, onAccepted: ApiHooks['onAccepted']) {
  const outbox = metrics.watchOutbox();
  return {
    onUp(): void {
      outbox.up.value = 1;
      if (condition.note('outbox', undefined)) logger.info('outbox_up');
    },
    /** Called for each attempt that failed, until `onUp`. */
    onDown(error: unknown): void {
      outbox.up.value = 0;
      condition.note('rows', undefined);
      if (condition.note('outbox', 'events in the outbox are not taken'))
        logger.error('outbox_down', { error: toErrorText(error), hint: error instanceof PostgresError ? error.hint : undefined });
    },
    onAccepted,
    /** `row`: the first of those that were rejected together. */
    onRejected(count: number, { row, reason }: { readonly row: { readonly seq: string }; readonly reason: string }): void {
      outbox.rejected.add(count);
      logger.warn('outbox_rejected', { rows: count, seq: row.seq, reason, hint: 'see the table sidegate_outbox_rejected' });
    },
    /** The queue rejected events, which stay in the table. Once, until all rows are moved. */
    onHeld: (error: string): void =>
      logger.warn('outbox_held', { error, hint: 'the rows stay in the outbox until the queue accepts them' }),
    onFigures(waiting: number, oldestAgeSeconds: number): void {
      outbox.waiting.value = waiting;
      outbox.oldestAge.value = Math.max(0, oldestAgeSeconds);
      condition.note('rows', oldestAgeSeconds > MAX_ROW_AGE_S ? 'events wait in the outbox' : undefined);
    },
  };
}

export type ApiHooks = ReturnType<typeof createApiHooks>;

export function createApiHooks({ clock, logger, metrics }: TelemetryParts) {
  let unrouted = 0;
  let unroutedAt = Number.NEGATIVE_INFINITY;
  return {
    /** `operation`: its ID in the OpenAPI document, or `none` for requests that match no operation. */
    onRequest: metrics.apiRequest,
    /** `stored`: without those that were stored before, which `duplicates` counts. */
    onAccepted(stored: readonly Pick<NewEvent, 'type' | 'targets'>[], duplicates: number): void {
      if (stored.length > 0) metrics.accepted('stored', stored.length);
      if (duplicates > 0) metrics.accepted('duplicate', duplicates);
      const unselected = stored.filter(({ targets }) => targets.length === 0);
      if (unselected[0] === undefined) return;
      const { type } = unselected[0];
      metrics.unrouted(unselected.length);
      unrouted += unselected.length;
      if (clock.monotonic() - unroutedAt < UNROUTED_INTERVAL_MS) return;
      logger.warn('events_unrouted', { events: unrouted, type, hint: 'sidegate events list --unrouted' });
      [unrouted, unroutedAt] = [0, clock.monotonic()];
    },
    onRejected: metrics.rejected,
    /** By hand. */
    onEndpointChanged(endpoint: string, change: 'created' | 'updated' | 'deleted' | 'rotated' | 'enabled' | 'disabled'): void {
      logger.info('endpoint_changed', { endpoint, change });
    },
    /** A request failed because of a bug or a fault of the environment. */
    onError: (operation: string, error: unknown): void =>
      logger.error('provider_failed', { operation, error: toErrorText(error) }),
  };
}

const MAX_NAMED = 10;

/** Logs what becomes of deliveries whose route no longer exists. `isShared`: another replica may have it. */
export function createInboxLog(logger: Logger<ProviderLogEvent>, isShared: boolean) {
  const reported = new Set<string>();
  const fate = isShared ? 'its deliveries wait until a replica has it' : 'its deliveries die at the end of provider.schedule';
  return {
    /** At the start, and after each reload. */
    onMissing(inboxes: readonly InboxBacklog[]): void {
      reported.clear();
      if (inboxes.length === 0) return;
      const routes = inboxes.slice(0, MAX_NAMED).map(({ endpoint }) => endpoint.slice(INBOX_PREFIX.length));
      const deliveries = inboxes.reduce((sum, { waiting }) => sum + waiting, 0);
      const hint = `give a webhook route this name again, or purge them: ${fate}`;
      logger.warn('inbox_routes_missing', { count: inboxes.length, routes, deliveries, hint });
    },
    /** Once for each route. */
    onDead(endpoint: string): void {
      if (reported.has(endpoint)) return;
      reported.add(endpoint);
      const hint = `give a webhook route this name again, then run: sidegate deliveries retry --endpoint ${endpoint}`;
      logger.error('inbox_deliveries_dead', { route: endpoint.slice(INBOX_PREFIX.length), hint });
    },
  };
}

const SPAN_ID_BYTES = 8;

/** The span of an attempt, by OpenTelemetry's conventions: part of the trace in which the app created the event. Undefined if the event has no trace, or one that the app did not record. */
function toAttemptSpan(delivery: Delivery, endpoint: Endpoint, result: AttemptResult): Span | undefined {
  const headers = new Map(readTraceHeaders(delivery.metadata));
  const traceparent = headers.get('traceparent');
  const parent = traceparent === undefined ? undefined : parseTraceparent([traceparent]);
  if (parent === undefined || (parent.flags & SAMPLED) === 0) return undefined;
  const isDelivered = result.outcome === 'delivered';
  return {
    traceId: parent.traceId,
    spanId: randomBytes(SPAN_ID_BYTES).toString('hex'),
    flags: parent.flags,
    tracestate: headers.get('tracestate'),
    parentId: parent.parentId,
    isParentRemote: true,
    kind: 'client',
    name: 'POST',
    startedAt: result.startedAt,
    endedAt: result.startedAt + result.duration,
    attributes: {
      'http.request.method': 'POST',
      ...(result.status === undefined ? undefined : { 'http.response.status_code': result.status }),
      ...(isDelivered ? undefined : { 'error.type': result.status === undefined ? result.outcome : String(result.status) }),
      'http.request.resend_count': delivery.attempt,
      'messaging.message.id': delivery.event,
      'sidegate.endpoint': endpoint.id,
    },
    isError: !isDelivered,
    link: undefined,
  };
}

/**
 * With a shared queue, a lane moves between replicas, and the one that made the last attempt knows best. A replica therefore forgets an
 * endpoint if the next attempt has been possible for so long, and another replica must have made it.
 */
const FORGET_AFTER_MS: Milliseconds = 10 * 60_000;

type FailingEndpoints = ReturnType<typeof createFailingEndpoints>;

/** The endpoints whose breaker is open, as far as this replica knows. `isShared`: other replicas serve the same queue. */
export function createFailingEndpoints(clock: Clock, isShared: boolean) {
  const untils = new Map<string, EpochMilliseconds>();
  return {
    /** An attempt failed; the next one does not start before `until`. */
    add: (endpoint: string, until: EpochMilliseconds): unknown => untils.set(endpoint, until),
    delete: (endpoint: string): boolean => untils.delete(endpoint),
    /** How many of these endpoints are failing; forgets all others. */
    count(endpoints: readonly string[]): number {
      const current = new Set(endpoints);
      const oldest = isShared ? clock.now() - FORGET_AFTER_MS : Number.NEGATIVE_INFINITY;
      for (const [endpoint, until] of untils) if (!current.has(endpoint) || until < oldest) untils.delete(endpoint);
      return untils.size;
    },
  };
}

/** Each part that can fail, the most important one first, and its problem in public words: the log has the cause. */
const PROBLEMS = {
  thread: 'the queue has stopped',
  writes: 'the queue cannot store events',
  pruning: 'the queue cannot remove events',
  figures: 'the queue cannot be read',
  file: 'the file of the queue was deleted or replaced',
} as const;
type Part = keyof typeof PROBLEMS;
const PARTS = Object.keys(PROBLEMS) as Part[];

export type QueueCondition = ReturnType<typeof createQueueCondition>;

/** The problems of the queue, for /readyz, the metric and the log. Each part fails and recovers by itself: figures that can be read do not mean that events can be written. */
export function createQueueCondition(metrics: Pick<ProviderMetrics, 'queueUp'>, logger: Logger<ProviderLogEvent>) {
  const failed = new Map<Part, string>();
  const others = new Map<'outbox' | 'losses' | 'disk' | 'rows', string>();
  return {
    /** A problem that does not keep the queue from storing events; undefined: there is none. Whether that is new. */
    note(part: 'outbox' | 'losses' | 'disk' | 'rows', problem: string | undefined): boolean {
      const had = others.delete(part);
      if (problem !== undefined) others.set(part, problem);
      return had === (problem === undefined);
    },
    /** In the words of /readyz; undefined if there is none. */
    get problem(): string | undefined {
      return [...PARTS.flatMap((part) => failed.get(part) ?? []), ...others.values()][0];
    },
    /** An outage is logged once, with the first cause. */
    fail(part: Part, error: string): void {
      if (failed.size === 0) logger.error('queue_down', { error });
      failed.set(part, isDiskFull(error) ? `${PROBLEMS[part]}: its disk is full` : PROBLEMS[part]);
      metrics.queueUp(false);
    },
    recover(part: Part): void {
      const hadFailed = failed.delete(part);
      if (failed.size > 0) return;
      metrics.queueUp(true);
      if (hadFailed) logger.info('queue_up');
    },
  };
}

export type ProviderLogEvent =
  | RegistryLogEvent
  | 'breaker_closed'
  | 'breaker_opened'
  | 'delivery_held'
  | 'endpoint_changed'
  | 'endpoint_disabled'
  | 'events_unrouted'
  | 'inbox_deliveries_dead'
  | 'inbox_routes_missing'
  | 'message_exhausted'
  | 'operational_event_lost'
  | 'outbox_down'
  | 'outbox_held'
  | 'outbox_rejected'
  | 'outbox_up'
  | 'provider_failed'
  | 'queue_down'
  | 'queue_failed'
  | 'queue_up'
  | 'queue_warning'
  | 'queue_went_back';
