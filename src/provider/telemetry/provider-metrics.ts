/** The metrics of the sending side. Labels of endpoints: the names in the config, and `api` for all endpoints that were created with the API. */
import type { Registry } from '@prometheus-io/client';
import type { Milliseconds } from '../../core/clock.ts';
import { CounterFamily, GaugeFamily, HistogramFamily } from '../../telemetry/metrics/series.ts';
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

/** Of an accepted event. */
export type AcceptResult = Exclude<AppendResult, 'conflict'>;

const SETTLED_RESULTS = ['delivered', 'dead', 'skipped'] as const;
const ENDPOINT_STATES = ['enabled', 'failing', 'disabled'] as const;

/** The label of endpoints that were created with the API: their number is not bounded by the config. */
export const API_LABEL = 'api';

const ALERTED_OUTCOMES = ['delivered', 'server_error', 'timeout', 'connect'] as const;
const DURATION_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30];
const DELAY_BUCKETS = [0.01, 0.1, 1, 10, 60, 600, 3_600, 21_600, 86_400, 432_000];

export type ProviderMetrics = ReturnType<typeof createProviderMetrics>;

/** Registers the metrics. */
export function createProviderMetrics(registers: readonly Registry[]) {
  return {
    ...createEventMetrics(registers),
    ...createEndpointMetrics(registers),
    ...createQueueMetrics(registers),
    /** The series exist only if the config has an outbox. */
    watchOutbox: () => createOutboxMetrics(registers),
  };
}

function createOutboxMetrics(registers: readonly Registry[]) {
  const up = gauge(registers, 'outbox_up', '1 if events are taken from the outbox, otherwise 0.').series();
  const rejected = counter(registers, 'outbox_rejected_total', 'Invalid rows of the outbox.').series();
  const waiting = gauge(registers, 'outbox_waiting', 'Rows in the outbox, counted up to 100,000.').series();
  const help = 'How long the oldest row has been in the outbox; 0: it is empty.';
  const oldestAge = gauge(registers, 'outbox_oldest_age_seconds', help).series();
  return {
    up(isUp: boolean): void {
      up.value = isUp ? 1 : 0;
    },
    rejected: (count: number): void => rejected.add(count),
    figures(count: number, age: number): void {
      waiting.value = count;
      oldestAge.value = Math.max(0, age);
    },
  };
}

function createEventMetrics(registers: readonly Registry[]) {
  const events = counter(registers, 'events_total', 'Accepted events, by whether the ID was new.', ['result']);
  const unrouted = counter(registers, 'unrouted_events_total', 'Stored events that no endpoint selected.').series();
  const rejections = counter(registers, 'rejected_requests_total', 'Requests of the app that were not accepted, by reason.', [
    'reason',
  ]);
  const deliveryDelay = new HistogramFamily({
    name: 'sidegate_provider_delivery_delay_seconds',
    help: 'Time from the creation of an event to its acknowledgement by an endpoint.',
    buckets: DELAY_BUCKETS,
    registers,
  }).series();
  const requests = counter(registers, 'api_requests_total', 'Requests to the API, by operation and class of the status.', [
    'operation',
    'status',
  ]);
  const requestDuration = new HistogramFamily({
    name: 'sidegate_provider_api_request_duration_seconds',
    help: 'Duration of requests to the API.',
    buckets: DURATION_BUCKETS,
    registers,
  }).series();
  for (const result of ['stored', 'duplicate']) events.series(result);
  for (const reason of EVENT_REJECTIONS) rejections.series(reason);
  return {
    accepted: (result: AcceptResult, count: number): void => events.series(result).add(count),
    /** Stored events that no endpoint selects. */
    unrouted: (count: number): void => unrouted.add(count),
    rejected: (reason: EventRejection): void => rejections.series(reason).add(),
    /** `operation`: from the OpenAPI document. */
    apiRequest(operation: string, status: number, took: Milliseconds): void {
      requests.series(operation, `${Math.floor(status / 100)}xx`).add();
      requestDuration.observe(took / 1_000);
    },
    /** From the acceptance of the event to its acknowledgement. */
    delivered: (delay: Milliseconds): void => deliveryDelay.observe(Math.max(0, delay) / 1_000),
  };
}

function createEndpointMetrics(registers: readonly Registry[]) {
  const attempts = counter(registers, 'attempts_total', 'Delivery attempts, by endpoint and outcome.', ['endpoint', 'outcome']);
  const settled = counter(registers, 'deliveries_total', 'Deliveries that ended, by endpoint and result.', [
    'endpoint',
    'result',
  ]);
  const duration = new HistogramFamily({
    name: 'sidegate_provider_attempt_duration_seconds',
    help: 'Duration of delivery attempts.',
    buckets: DURATION_BUCKETS,
    registers,
  }).series();
  const waiting = gauge(registers, 'endpoint_waiting', 'Waiting deliveries of an endpoint.', ['endpoint']);
  const states = gauge(
    registers,
    'endpoints',
    'Endpoints by state; failing: unreachable, asking for less, or failing almost everything.',
    ['state'],
  );
  const slots = gauge(registers, 'attempts_in_flight', 'Attempts in flight; slow: for more than a second.', ['speed']);
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

function createQueueMetrics(registers: readonly Registry[]) {
  const deliveries = gauge(registers, 'queue_deliveries', 'Deliveries in the queue, by state.', ['state']);
  const events = gauge(registers, 'queue_events', 'Undelivered events.').series();
  const eventsLimit = gauge(
    registers,
    'queue_events_limit',
    'Maximum number of undelivered events (provider.queue.maxEvents).',
  ).series();
  const bytes = gauge(registers, 'queue_bytes', 'Bytes of the undelivered events.').series();
  const bytesLimit = gauge(
    registers,
    'queue_bytes_limit',
    'Maximum size of the undelivered events (provider.queue.maxBytes).',
  ).series();
  const storedEvents = gauge(registers, 'queue_stored_events', 'All stored events, delivered ones included.').series();
  const storedBytes = gauge(registers, 'queue_stored_bytes', 'Bytes of all stored events.').series();
  const help = 'How long the oldest due delivery has been waiting; 0: none is due.';
  const oldestDue = gauge(registers, 'queue_oldest_due_age_seconds', help).series();
  const up = gauge(registers, 'queue_up', '1 if the queue can store events, otherwise 0.').series();
  const fullHelp =
    'When the queue is full if undelivered events go on growing as in the last ten minutes; +Inf: they do not grow.';
  const fullIn = gauge(registers, 'queue_full_in_seconds', fullHelp).series();
  fullIn.value = Number.POSITIVE_INFINITY;
  const wentBack = counter(registers, 'queue_went_back_total', 'How often stored events were missing.').series();
  const diskFree = gauge(registers, 'queue_disk_free_bytes', 'Free space of the file system with the SQLite file.');
  const diskSize = gauge(registers, 'queue_disk_bytes', 'Size of the file system with the SQLite file.');
  return {
    /** Seconds; infinity: it does not fill up. */
    queueFullIn(seconds: number): void {
      fullIn.value = seconds;
    },
    queueWentBack: (): void => wentBack.add(),
    /** Of the file system with a queue in SQLite; the series exist from the first call. */
    queueDisk(freeBytes: number, totalBytes: number): void {
      diskFree.series().value = freeBytes;
      diskSize.series().value = totalBytes;
    },
    queue(stats: QueueStats, oldestDueAge: Milliseconds): void {
      for (const state of ['waiting', 'dead', 'skipped'] as const) deliveries.series(state).value = stats[state];
      events.value = stats.events;
      eventsLimit.value = stats.maxEvents;
      bytes.value = stats.bytes;
      bytesLimit.value = stats.maxBytes;
      oldestDue.value = oldestDueAge / 1_000;
      storedEvents.value = stats.storedEvents;
      storedBytes.value = stats.storedBytes;
    },
    queueUp(isUp: boolean): void {
      up.value = isUp ? 1 : 0;
    },
  };
}

function counter(registers: readonly Registry[], name: string, help: string, labelNames: readonly string[] = []): CounterFamily {
  return new CounterFamily({ name: `sidegate_provider_${name}`, help, labelNames, registers });
}

function gauge(registers: readonly Registry[], name: string, help: string, labelNames: readonly string[] = []): GaugeFamily {
  return new GaugeFamily({ name: `sidegate_provider_${name}`, help, labelNames, registers });
}
