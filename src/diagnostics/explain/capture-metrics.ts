/** The metrics of captured deliveries. */
import type { Registry } from '@prometheus-io/client';
import { CounterFamily } from '../../telemetry/metrics/series.ts';

/** The outcome of a rejected delivery on a route with `capture: failures`. */
const CAPTURE_OUTCOMES = ['kept', 'dropped'] as const;
export type CaptureOutcome = (typeof CAPTURE_OUTCOMES)[number];

export interface CaptureMetrics {
  captured(outcome: CaptureOutcome): void;
}

/** Registers the metrics. */
export function createCaptureMetrics(registers: Registry[]): CaptureMetrics {
  const captures = new CounterFamily({
    name: 'sidegate_captures_total',
    help: 'Rejected deliveries on routes with `capture: failures`; `dropped`: over the rate or size that may be captured.',
    labelNames: ['outcome'],
    registers,
  });
  for (const outcome of CAPTURE_OUTCOMES) captures.series(outcome);
  return { captured: (outcome) => captures.series(outcome).add() };
}
