/** The metrics of tracing. */
import type { Registry } from '@prometheus-io/client';
import { CounterFamily } from '../metrics/series.ts';

/** Outcomes of spans. `dropped`: the queue was full; `rejected`: by the collector; `failed`: the collector could not be reached. */
const SPAN_OUTCOMES = ['exported', 'dropped', 'rejected', 'failed'] as const;
export type SpanOutcome = (typeof SPAN_OUTCOMES)[number];

export interface TracingMetrics {
  traceSpans(outcome: SpanOutcome, count: number): void;
}

/** Registers the metrics. */
export function createTracingMetrics(registers: Registry[]): TracingMetrics {
  const spans = new CounterFamily({
    name: 'sidegate_trace_spans_total',
    help: 'Spans of sampled requests, by outcome.',
    labelNames: ['outcome'],
    registers,
  });
  for (const outcome of SPAN_OUTCOMES) spans.series(outcome);
  return { traceSpans: (outcome, count) => spans.series(outcome).add(count) };
}
