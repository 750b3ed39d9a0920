/** Turns what the parts of the sending side report into metrics, log lines, journal entries and spans. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import type { AttemptEntry, AttemptJournal } from '../../telemetry/journal/attempt-journal.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Span } from '../../telemetry/tracing/span.ts';
import type { ApiHooks } from '../api/api-parts.ts';
import type { AttemptResult } from '../attempt/attempt.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { EncryptionReport } from '../endpoints/stored-registry.ts';
import type { LaneHooks } from '../lanes/lane-hooks.ts';
import type { OutboxHooks } from '../outbox/outbox.ts';
import { PostgresError } from '../postgres/connection.ts';
import type { QueueHooks } from '../queue/create-queue.ts';
import type { Delivery } from '../queue/delivery-queue.ts';
import type { Decision } from '../schedule/schedule.ts';
import type { ProviderLogEvent } from '../telemetry/log-events.ts';
import { API_LABEL, type ProviderMetrics } from '../telemetry/provider-metrics.ts';
import { toAttemptSpan } from './attempt-span.ts';
import type { FailingEndpoints } from './failing-endpoints.ts';
import type { QueueCondition } from './queue-condition.ts';

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

/** Endpoints that a log line names. */
const MAX_NAMED = 10;
const ALTERED_HINT = 'its deliveries wait: restore the queue from a backup, or delete the endpoint and create it again';
const RESET_HINT = 'the receiver needs a new secret (sidegate endpoints rotate); set its headers, then enable it';

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
      if (state === 'closed') failing.delete(endpoint.id);
    },
    onFailing: ({ id }, until) => failing.add(id, until),
    onOperationalEventLost(type, error) {
      logger.error('operational_event_lost', { type, error: toErrorText(error) });
    },
  };
}

/** The hooks of the queue. */
export function createQueueHooks({ logger, condition }: TelemetryParts): QueueHooks {
  return {
    onFatal(error) {
      logger.error('queue_failed', { error: toErrorText(error), hint: 'restart the pod; accepted events are stored' });
      condition.fail('thread', toErrorText(error));
    },
    onUnavailable: (error) => condition.fail('writes', error),
    onAvailable: () => condition.recover('writes'),
    onRunError: (endpoint, error) => logger.error('provider_failed', { endpoint, error: toErrorText(error) }),
  };
}

/** The hooks of the outbox. An outage is logged once, and its end. */
export function createOutboxHooks({ logger, metrics }: TelemetryParts): OutboxHooks {
  const outbox = metrics.watchOutbox();
  let isDown = false;
  return {
    onUp() {
      outbox.up(true);
      if (isDown) logger.info('outbox_up');
      isDown = false;
    },
    onDown(error) {
      outbox.up(false);
      if (!isDown)
        logger.error('outbox_down', { error: toErrorText(error), hint: error instanceof PostgresError ? error.hint : undefined });
      isDown = true;
    },
    onMoved(stored, duplicates) {
      if (stored > 0) metrics.accepted('stored', stored);
      if (duplicates > 0) metrics.accepted('duplicate', duplicates);
    },
    onRejected(count, { row: { seq }, reason }) {
      outbox.rejected(count);
      logger.warn('outbox_rejected', { rows: count, seq, reason, hint: 'see the table sidegate_outbox_rejected' });
    },
    onHeld: (error) => logger.warn('outbox_held', { error, hint: 'the rows stay in the outbox until the queue accepts them' }),
    onFigures: ({ waiting, oldestAgeSeconds }) => outbox.figures(waiting, oldestAgeSeconds),
  };
}

/** The hooks of the API. */
export function createApiHooks({ clock, logger, metrics }: TelemetryParts): ApiHooks {
  let unrouted = 0;
  let unroutedAt = Number.NEGATIVE_INFINITY;
  return {
    onRequest: (operation, status, duration) => metrics.apiRequest(operation, status, duration),
    onAccepted: (result, count) => metrics.accepted(result, count),
    onUnrouted(type, count) {
      metrics.unrouted(count);
      unrouted += count;
      if (clock.monotonic() - unroutedAt < UNROUTED_INTERVAL_MS) return;
      logger.warn('events_unrouted', { events: unrouted, type, hint: 'sidegate events list --unrouted' });
      [unrouted, unroutedAt] = [0, clock.monotonic()];
    },
    onRejected: (reason) => metrics.rejected(reason),
    onEndpointChanged: (endpoint, change) => logger.info('endpoint_changed', { endpoint, change }),
    onError: (operation, error) => logger.error('provider_failed', { operation, error: toErrorText(error) }),
  };
}

/** Logs what happened to endpoints because of `provider.encryption`. */
export function createEncryptionLog(logger: Logger<ProviderLogEvent>): (report: EncryptionReport) => void {
  return (report) => {
    switch (report.kind) {
      case 'key_missing': {
        const { key, endpoints } = report;
        const hint = 'add the key to provider.encryption.keys: deliveries to these endpoints wait, and the next start fails';
        logger.error('encryption_key_missing', { key, count: endpoints.length, endpoints: endpoints.slice(0, MAX_NAMED), hint });
        break;
      }
      case 'altered':
        for (const endpoint of report.endpoints) logger.error('endpoint_secrets_altered', { endpoint, hint: ALTERED_HINT });
        break;
      case 'reset':
        for (const endpoint of report.endpoints) logger.error('endpoint_secrets_reset', { endpoint, hint: RESET_HINT });
        break;
      case 'complete':
        if (report.reencrypted > 0 || report.unusedKeys.length > 0)
          logger.info('endpoint_secrets_encrypted', {
            count: report.reencrypted,
            key: report.key,
            unusedKeys: report.unusedKeys,
          });
        break;
      case 'plain':
        logger.warn('endpoint_secrets_plain', { count: report.endpoints, hint: 'set provider.encryption.keys' });
    }
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
