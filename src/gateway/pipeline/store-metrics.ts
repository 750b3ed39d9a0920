/** The metrics of claims, ordering and capacity. */
import { Gauge, type Registry } from '@prometheus-io/client';
import type { Milliseconds } from '../../core/clock.ts';
import { CounterFamily, GaugeFamily, HistogramFamily, OWN_BUCKETS } from '../../telemetry/metrics/series.ts';

/** How a dedup operation ended. */
export const DEDUP_OUTCOMES = [
  'new',
  'duplicate',
  'in_progress',
  'taken_over',
  'confirmed',
  'released',
  'held',
  'fenced',
  'id_reused',
  'kinds_exhausted',
  'replayed_under_new_id',
  'unidentified',
  'bypassed',
  'unavailable',
  'settle_retried',
  'settle_lost',
] as const;
type DedupOutcome = (typeof DEDUP_OUTCOMES)[number];

/** The outcomes that alerts and dashboards use; exported from the start. */
const WATCHED_DEDUP_OUTCOMES: readonly DedupOutcome[] = [
  'new',
  'duplicate',
  'taken_over',
  'confirmed',
  'id_reused',
  'kinds_exhausted',
  'replayed_under_new_id',
  'unidentified',
  'bypassed',
  'unavailable',
];

/** How an ordered event ended. */
export const ORDER_OUTCOMES = [
  'entered',
  'stale',
  'busy',
  'unordered',
  'confirmed',
  'released',
  'held',
  'fenced',
  'bypassed',
  'unavailable',
  'settle_retried',
  'settle_lost',
] as const;
type OrderOutcome = (typeof ORDER_OUTCOMES)[number];

/** The same for `order`. */
const WATCHED_ORDER_OUTCOMES: readonly OrderOutcome[] = ['entered', 'stale', 'busy', 'unordered', 'bypassed'];

export interface StoreMetrics {
  dedup(outcome: DedupOutcome): void;
  dedupDuration(duration: Milliseconds): void;
  order(outcome: OrderOutcome): void;
  storeUp(isUp: boolean): void;
  inFlight(delta: 1 | -1): void;
  queued(delta: 1 | -1): void;
}

/** Registers the metrics. */
export function createStoreMetrics(registers: Registry[]): StoreMetrics & { readonly showOrder: () => void } {
  const families = {
    dedup: new CounterFamily({
      name: 'sidegate_dedup_operations_total',
      help: 'Claims and settlements of event IDs.',
      labelNames: ['outcome'],
      registers,
    }),
    dedupDuration: new HistogramFamily({
      name: 'sidegate_dedup_duration_seconds',
      help: 'Duration of a claim in the store.',
      buckets: OWN_BUCKETS,
      registers,
    }),
    order: new CounterFamily({
      name: 'sidegate_order_operations_total',
      help: 'Events of routes with `order`, by outcome.',
      labelNames: ['outcome'],
      registers,
    }),
    dedupUp: new Gauge({ name: 'sidegate_dedup_up', help: '1 while the store is available.', registers }),
    inFlight: new GaugeFamily({ name: 'sidegate_http_requests_in_flight', help: 'Requests that an app is handling.', registers }),
    queued: new GaugeFamily({
      name: 'sidegate_http_requests_queued',
      help: 'Verified requests that wait for capacity.',
      registers,
    }),
  };
  for (const outcome of WATCHED_DEDUP_OUTCOMES) families.dedup.series(outcome);
  const dedupDuration = families.dedupDuration.series();
  const inFlight = families.inFlight.series();
  const queued = families.queued.series();
  return {
    dedup: (outcome) => families.dedup.series(outcome).add(),
    dedupDuration: (duration) => dedupDuration.observe(duration / 1000),
    order: (outcome) => families.order.series(outcome).add(),
    storeUp: (isUp) => families.dedupUp.set(isUp ? 1 : 0),
    inFlight: (delta) => inFlight.add(delta),
    queued: (delta) => queued.add(delta),
    showOrder() {
      for (const outcome of WATCHED_ORDER_OUTCOMES) families.order.series(outcome);
    },
  };
}
