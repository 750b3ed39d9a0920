/** The metrics of the sending side. Labels of endpoints: the names in the config, and `api` for all endpoints that were created with the API. */
import type { Registry } from '@prometheus-io/client';
import type { Milliseconds } from '../../core/clock.ts';
import { createFamilies, type Families } from '../../telemetry/metrics/series.ts';
import { ATTEMPT_OUTCOMES, type AttemptOutcome } from '../attempt/attempt.ts';
import type { AppendResult, EndpointBacklog, QueueStats } from '../queue/delivery-queue.ts';

/** Why the API did not accept events. */
export const EVENT_REJECTIONS = [
  'invalid',
  'conflict',
  'too_large',
  'unauthorized',
  'queue_full',
  'queue_unavailable',
  'busy',
] as const;
export type EventRejection = (typeof EVENT_REJECTIONS)[number];

const SETTLED_RESULTS = ['delivered', 'dead', 'skipped'] as const;
const ENDPOINT_STATES = ['enabled', 'failing', 'disabled'] as const;

/** The label of endpoints that were created with the API: their number is not bounded by the config. */
export const API_LABEL = 'api';

const ALERTED_OUTCOMES = ['delivered', 'server_error', 'timeout', 'connect'] as const;
const DURATION_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30];
const DELAY_BUCKETS = [0.01, 0.1, 1, 10, 60, 600, 3_600, 21_600, 86_400, 432_000];

export type ProviderMetrics = ReturnType<typeof createProviderMetrics>;

export function createProviderMetrics(registers: readonly Registry[]) {
  const families = createFamilies(registers, 'sidegate_provider_');
  return {
    ...createEventMetrics(families),
    ...createEndpointMetrics(families),
    ...createQueueMetrics(families),
    /** The series exist only if the config has an outbox. */
    watchOutbox: () => createOutboxMetrics(families),
  };
}

function createOutboxMetrics({ counter, gauge }: Families) {
  return {
    up: gauge('outbox_up', '1 if events are taken from the outbox, otherwise 0.').series(),
    rejected: counter('outbox_rejected_total', 'Invalid rows of the outbox.').series(),
    waiting: gauge('outbox_waiting', 'Rows in the outbox, counted up to 100,000.').series(),
    oldestAge: gauge(
      'outbox_oldest_age_seconds',
      'How long the outbox has not moved past its oldest row; 0: it is empty.',
    ).series(),
  };
}

function createEventMetrics({ counter, histogram }: Families) {
  const events = counter('events_total{result}', 'Accepted events, by whether the ID was new.');
  const unrouted = counter('unrouted_events_total', 'Stored events that no endpoint selected.').series();
  const rejections = counter('rejected_requests_total{reason}', 'Requests of the app that were not accepted, by reason.');
  const deliveryDelay = histogram(
    'delivery_delay_seconds',
    'Time from the creation of an event to its acknowledgement by an endpoint.',
    DELAY_BUCKETS,
  ).series();
  const requests = counter('api_requests_total{operation,status}', 'Requests to the API, by operation and class of the status.');
  const requestDuration = histogram(
    'api_request_duration_seconds',
    'Duration of requests to the API.',
    DURATION_BUCKETS,
  ).series();
  for (const result of ['stored', 'duplicate']) events.series(result);
  for (const reason of EVENT_REJECTIONS) rejections.series(reason);
  return {
    accepted: (result: Exclude<AppendResult, 'conflict'>, count: number): void => events.series(result).add(count),
    unrouted: (count: number): void => unrouted.add(count),
    rejected: (reason: EventRejection): void => rejections.series(reason).add(),
    /** `operation`: from the OpenAPI document. */
    apiRequest(operation: string, status: number, took: Milliseconds): void {
      requests.series(operation, `${Math.floor(status / 100)}xx`).add();
      requestDuration.observe(took / 1_000);
    },
    delivered: (delay: Milliseconds): void => deliveryDelay.observe(Math.max(0, delay) / 1_000),
  };
}

function createEndpointMetrics({ counter, gauge, histogram }: Families) {
  const attempts = counter('attempts_total{endpoint,outcome}', 'Delivery attempts, by endpoint and outcome.');
  const settled = counter('deliveries_total{endpoint,result}', 'Deliveries that ended, by endpoint and result.');
  const duration = histogram('attempt_duration_seconds', 'Duration of delivery attempts.', DURATION_BUCKETS).series();
  const waiting = gauge('endpoint_waiting{endpoint}', 'Waiting deliveries of an endpoint.');
  const states = gauge(
    'endpoints{state}',
    'Endpoints by state; failing: unreachable, asking for less, or failing almost everything.',
  );
  const slots = gauge('attempts_in_flight{speed}', 'Attempts in flight; slow: for more than a second.');
  let known: readonly string[] = [];
  const show = (label: string): void => {
    // The outcomes that alerts read; the others appear when they happen.
    for (const outcome of ALERTED_OUTCOMES) attempts.series(label, outcome);
    for (const result of SETTLED_RESULTS) settled.series(label, result);
    waiting.series(label);
  };
  const forget = (label: string): void => {
    for (const outcome of ATTEMPT_OUTCOMES) attempts.remove(label, outcome);
    for (const result of SETTLED_RESULTS) settled.remove(label, result);
    waiting.remove(label);
  };
  return {
    /** Exports the series of these endpoint labels, and removes those of all others. */
    setEndpoints(labels: readonly string[]): void {
      const next = new Set(labels);
      for (const label of known) if (!next.has(label)) forget(label);
      for (const label of labels) show(label);
      known = labels;
    },
    attempt(endpoint: string, outcome: AttemptOutcome, took: Milliseconds): void {
      attempts.series(endpoint, outcome).add();
      duration.observe(took / 1_000);
    },
    settled: (endpoint: string, result: (typeof SETTLED_RESULTS)[number], count = 1): void =>
      settled.series(endpoint, result).add(count),
    backlog(endpoint: string, backlog: EndpointBacklog): void {
      waiting.series(endpoint).value = backlog.waiting;
    },
    endpointStates(counts: Readonly<Record<(typeof ENDPOINT_STATES)[number], number>>): void {
      for (const state of ENDPOINT_STATES) states.series(state).value = counts[state];
    },
    slots(fast: number, slow: number): void {
      slots.series('fast').value = fast;
      slots.series('slow').value = slow;
    },
  };
}

function createQueueMetrics({ counter, gauge }: Families) {
  const deliveries = gauge('queue_deliveries{state}', 'Deliveries in the queue, by state.');
  const figures = {
    events: gauge('queue_events', 'Undelivered events.').series(),
    maxEvents: gauge('queue_events_limit', 'Maximum number of undelivered events (provider.queue.maxEvents).').series(),
    bytes: gauge('queue_bytes', 'Bytes of the undelivered events.').series(),
    maxBytes: gauge('queue_bytes_limit', 'Maximum size of the undelivered events (provider.queue.maxBytes).').series(),
    storedEvents: gauge('queue_stored_events', 'All stored events, delivered ones included.').series(),
    storedBytes: gauge('queue_stored_bytes', 'Bytes of all stored events.').series(),
  };
  const sharesHelp = 'The used part of the share of the endpoint, or of the tenant, with the fullest one.';
  const shares = gauge('queue_share_used_ratio{share}', sharesHelp);
  const help = 'How long the oldest due delivery has been waiting; 0: none is due.';
  const oldestDue = gauge('queue_oldest_due_age_seconds', help).series();
  const up = gauge('queue_up', '1 if the queue can store events, otherwise 0.').series();
  const fullHelp =
    'When the queue is full if undelivered events go on growing as in the last ten minutes; +Inf: they do not grow.';
  const fullIn = gauge('queue_full_in_seconds', fullHelp).series();
  fullIn.value = Number.POSITIVE_INFINITY;
  const wentBack = counter('queue_went_back_total', 'How often stored events were missing.').series();
  const diskFree = gauge('queue_disk_free_bytes', 'Free space of the file system with the SQLite file.');
  const diskSize = gauge('queue_disk_bytes', 'Size of the file system with the SQLite file.');
  return {
    queueWentBack: (): void => wentBack.add(),
    /** Of the file system with a queue in SQLite; the series exist from the first call. */
    queueDisk(freeBytes: number, totalBytes: number): void {
      diskFree.series().value = freeBytes;
      diskSize.series().value = totalBytes;
    },
    /** `fullInSeconds`: infinity: it does not fill up. */
    queue(stats: QueueStats, oldestDueAge: Milliseconds, fullInSeconds: number): void {
      for (const state of ['waiting', 'dead', 'skipped'] as const) deliveries.series(state).value = stats[state];
      for (const [name, series] of Object.entries(figures)) series.value = stats[name as keyof typeof figures];
      for (const share of ['endpoint', 'tenant'] as const) shares.series(share).value = stats.usedShares[share];
      oldestDue.value = oldestDueAge / 1_000;
      fullIn.value = fullInSeconds;
    },
    queueUp(isUp: boolean): void {
      up.value = isUp ? 1 : 0;
    },
  };
}
