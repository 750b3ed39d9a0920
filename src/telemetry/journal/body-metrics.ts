/** The metrics of stored bodies. */
import type { Registry } from '@prometheus-io/client';
import { createFamilies, watchGauge } from '../metrics/series.ts';

/** The outcome for the body of a forwarded event, on a route with `storeBody`; `evicted`: newer bodies needed the memory of a stored one. */
const BODY_OUTCOMES = ['stored', 'not_stored', 'evicted'] as const;
export type BodyStored = (typeof BODY_OUTCOMES)[number];

export interface BodyMetrics {
  bodyStored(outcome: BodyStored): void;
  /** `read` returns the memory of all stored bodies; called on each scrape. */
  watchStoredBodies(read: () => number): void;
}

/** Registers the metrics. */
export function createBodyMetrics(registers: Registry[]): BodyMetrics {
  const bodies = createFamilies(registers).counter(
    'sidegate_stored_bodies_total{outcome}',
    'Bodies of forwarded events on routes with `storeBody`; `evicted`: newer bodies needed the memory of a stored one.',
  );
  for (const outcome of BODY_OUTCOMES) bodies.series(outcome);
  return {
    bodyStored: (outcome) => bodies.series(outcome).add(),
    watchStoredBodies: (read) => watchGauge('sidegate_stored_body_bytes', 'Memory of the stored bodies.', registers, read),
  };
}
