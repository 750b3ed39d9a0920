/** Turns what the parts of the sending side report into metrics, log lines, journal entries and spans. */
import { toErrorText } from '../../core/errors.ts';
import type { AttemptEntry, AttemptJournal } from '../../telemetry/journal/attempt-journal.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Span } from '../../telemetry/tracing/span.ts';
import type { ApiHooks } from '../api/api-parts.ts';
import type { AttemptResult } from '../attempt/attempt.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { LaneHooks } from '../lanes/lane-hooks.ts';
import type { QueueHooks } from '../queue/create-queue.ts';
import type { Delivery } from '../queue/delivery-queue.ts';
import type { Decision } from '../schedule/schedule.ts';
import type { ProviderLogEvent } from '../telemetry/log-events.ts';
import { API_LABEL, type ProviderMetrics } from '../telemetry/provider-metrics.ts';
import { toAttemptSpan } from './attempt-span.ts';
import type { FailingEndpoints } from './failing-endpoints.ts';

export interface TelemetryParts {
  readonly logger: Logger<ProviderLogEvent>;
  readonly metrics: ProviderMetrics;
  readonly onSpan: ((span: Span) => void) | undefined;
  readonly journal: Pick<AttemptJournal, 'add'>;
  readonly failing: FailingEndpoints;
}

/** The metric label of an endpoint: its name if the config names it, one label for all others. */
export function toLabel({ id, source }: Pick<Endpoint, 'id' | 'source'>): string {
  return source === 'config' ? id : API_LABEL;
}

/** The hooks of the lanes. */
export function createLaneHooks(
  { logger, metrics, onSpan, journal, failing }: TelemetryParts,
  find: (id: string) => Endpoint | undefined,
): LaneHooks {
  return {
    onAttempt(endpoint, delivery, result, decision) {
      const label = toLabel(endpoint);
      metrics.attempt(label, result.outcome, result.duration);
      journal.add(toJournalEntry(endpoint, delivery, result, decision));
      if (onSpan !== undefined) reportSpan(onSpan, delivery, endpoint, result);
      if (decision?.kind !== 'delivered') return;
      failing.delete(endpoint.id);
      metrics.settled(label, 'delivered');
      metrics.delivered(result.startedAt + result.duration - delivery.createdAt);
    },
    onExhausted(endpoint, { event, type, attempt }, reason) {
      metrics.settled(toLabel(endpoint), 'dead');
      logger.warn('message_exhausted', { event, type, endpoint: endpoint.id, reason, attempts: attempt + 1 });
    },
    onSkipped(id, count) {
      const endpoint = find(id);
      metrics.settled(endpoint === undefined ? API_LABEL : toLabel(endpoint), 'skipped', count);
    },
    onDisabled(endpoint, reason) {
      logger.error('endpoint_disabled', { endpoint: endpoint.id, reason, hint: `sidegate endpoints enable ${endpoint.id}` });
    },
    onBreaker(endpoint, state) {
      if (state === 'open') logger.warn('breaker_opened', { endpoint: endpoint.id });
      else logger.info('breaker_closed', { endpoint: endpoint.id });
    },
    onFailing: ({ id }, until) => failing.add(id, until),
    onOperationalEventLost(type, error) {
      logger.error('operational_event_lost', { type, error: toErrorText(error) });
    },
  };
}

/** The hooks of the queue. */
export function createQueueHooks({ logger, metrics }: TelemetryParts): QueueHooks {
  return {
    onFatal(error) {
      metrics.queueUp(false);
      logger.error('queue_failed', { error: toErrorText(error), hint: 'restart the pod; accepted events are stored' });
    },
    onUnavailable(error) {
      metrics.queueUp(false);
      logger.error('queue_down', { error });
    },
    onAvailable() {
      metrics.queueUp(true);
      logger.info('queue_up');
    },
    onRunError: (endpoint, error) => logger.error('provider_failed', { endpoint, error: toErrorText(error) }),
  };
}

/** The hooks of the API. */
export function createApiHooks({ logger, metrics }: TelemetryParts): ApiHooks {
  return {
    onRequest: (operation, status, duration) => metrics.apiRequest(operation, status, duration),
    onAccepted: (result, count) => metrics.accepted(result, count),
    onRejected: (reason) => metrics.rejected(reason),
    onEndpointChanged: (endpoint, change) => logger.info('endpoint_changed', { endpoint, change }),
    onError: (operation, error) => logger.error('provider_failed', { operation, error: toErrorText(error) }),
  };
}

function reportSpan(onSpan: (span: Span) => void, delivery: Delivery, endpoint: Endpoint, result: AttemptResult): void {
  const span = toAttemptSpan(delivery, endpoint, result);
  if (span !== undefined) onSpan(span);
}

/** An attempt without a decision was aborted, and is made again soon. */
function toJournalEntry(
  { id }: Endpoint,
  { event, attempt }: Delivery,
  { startedAt, outcome, status, duration, detail }: AttemptResult,
  decision: Decision | undefined,
): AttemptEntry {
  const kind = decision?.kind ?? 'retry';
  return {
    at: startedAt,
    endpoint: id,
    event,
    attempt: attempt + 1,
    outcome,
    status,
    duration,
    detail,
    next: kind === 'delivered' ? 'none' : kind,
    retryAt: decision?.kind === 'retry' ? decision.due : undefined,
  };
}
