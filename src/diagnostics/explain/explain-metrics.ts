/** The metrics of rejected deliveries: why their signatures were rejected, and which ones were captured. */

import type { Registry } from '@prometheus-io/client';
import {
  BoundCounters,
  type CounterFamily,
  createFamilies,
  PerRoute,
  type RouteIdentity,
  type RouteSeries,
} from '../../telemetry/metrics/series.ts';

/** Causes of rejected signatures (docs/explain.md). */
export const EXPLAIN_CAUSES = [
  'headers_missing',
  'headers_malformed',
  'headers_swapped',
  'header_family',
  'signature_header',
  'signature_prefix',
  'signature_encoding',
  'signature_algorithm',
  'signed_pieces',
  'other_preset',
  'timestamp_unit',
  'clock_skew',
  'late',
  'url',
  'key_expired',
  'key_not_yet_valid',
  'other_route_key',
  'secret_encoding',
  'secret_prefix',
  'secret_whitespace',
  'body_whitespace',
  'body_line_ends',
  'body_bom',
  'body_charset',
  'body_reserialised',
  'body_escapes',
  'body_compression',
  'body_form',
  'body_base64',
  'body_empty',
  'token_claims',
  'unknown',
  'skipped',
] as const;
export type ExplainCause = (typeof EXPLAIN_CAUSES)[number];

export interface ExplainMetrics {
  /** Counts a cause that the analysis of a rejection found. */
  explained(route: string, cause: ExplainCause): void;
}

/** Of one route. */
class ExplainedSeries implements RouteSeries<RouteIdentity> {
  readonly causes: BoundCounters;

  constructor(family: CounterFamily, { name }: RouteIdentity) {
    this.causes = new BoundCounters(family, name);
  }

  initialize(): void {
    // Most causes never occur, so no series is exported from the start.
  }

  remove(): void {
    this.causes.remove();
  }
}

/** Registers the metrics. */
export function createExplainMetrics(
  registers: Registry[],
): ExplainMetrics & { readonly setRoutes: (routes: readonly RouteIdentity[]) => void } {
  const explained = createFamilies(registers).counter(
    'sidegate_explained_total{route,cause}',
    'Causes of rejected signatures, as found by the analysis; `skipped`: not analyzed.',
  );
  const routes = new PerRoute<RouteIdentity, ExplainedSeries>((route) => new ExplainedSeries(explained, route));
  return {
    explained: (route, cause) => routes.get(route).causes.get(cause).add(),
    setRoutes: (next) => routes.set(next),
  };
}

// The metrics of captured deliveries.

/** The outcome of a rejected delivery on a route with `capture: failures`. */
const CAPTURE_OUTCOMES = ['kept', 'dropped'] as const;
export type CaptureOutcome = (typeof CAPTURE_OUTCOMES)[number];

export interface CaptureMetrics {
  captured(outcome: CaptureOutcome): void;
}

/** Registers the metrics. */
export function createCaptureMetrics(registers: Registry[]): CaptureMetrics {
  const captures = createFamilies(registers).counter(
    'sidegate_captures_total{outcome}',
    'Rejected deliveries on routes with `capture: failures`; `dropped`: over the rate or size that may be captured.',
  );
  for (const outcome of CAPTURE_OUTCOMES) captures.series(outcome);
  return { captured: (outcome) => captures.series(outcome).add() };
}
