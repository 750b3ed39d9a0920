/** Builds tracing from its config: the tracer, and the exporter that sends spans to a collector. */
import { randomUUID } from 'node:crypto';
import type { Config } from '../config/schema/config.ts';
import type { OtlpRead } from '../config/sources/otlp-settings.ts';
import type { Clock, Milliseconds } from '../core/clock.ts';
import { createPost, SpanExporter } from '../telemetry/tracing/otlp.ts';
import { Tracer, type Tracing } from '../telemetry/tracing/tracer.ts';
import type { GateLogger } from './log-events.ts';
import type { Metrics } from './metrics.ts';

/** Tracing that can be closed. */
export interface BuiltTracing extends Tracing {
  /** Sends the remaining spans, for at most this long. */
  close(timeout: Milliseconds): Promise<void>;
}

/** Builds tracing; without a config, trace contexts of trusted callers are passed on and none are created. */
export function buildTracing(
  config: Config['tracing'],
  { settings }: OtlpRead,
  parts: {
    readonly clock: Clock;
    readonly logger: GateLogger;
    readonly metrics: Metrics;
    readonly version: string;
  },
): BuiltTracing {
  const nothing = async (): Promise<void> => undefined;
  if (config === undefined) return { tracer: new Tracer({ part: 'pass', sampleRatio: 0 }), close: nothing };
  const { sampleRatio, otlp } = config;
  if (otlp === undefined || settings === undefined)
    return { tracer: new Tracer({ part: 'propagate', sampleRatio }), close: nothing };
  const { clock, logger, metrics, version } = parts;
  const { url, readHeaders, ca } = settings;
  const post = createPost({ url, readHeaders, ca, timeout: otlp.timeout, userAgent: `sidegate/${version}` }, clock);
  const resource = {
    'service.instance.id': randomUUID(),
    'service.version': version,
    ...settings.resource,
    'telemetry.sdk.language': 'nodejs',
    'telemetry.sdk.name': 'sidegate',
    'telemetry.sdk.version': version,
  };
  const { interval, maxQueued } = otlp;
  const exporter = new SpanExporter({ source: { resource, version }, interval, maxQueued }, post, clock, {
    onSpans: (outcome, count) => metrics.traceSpans(outcome, count),
    onFailure: (message) => logger.warn('tracing_export_failed', { message }),
    onRecovery: () => logger.info('tracing_export_recovered'),
  });
  return {
    tracer: new Tracer({ part: 'record', sampleRatio }),
    onSpan: (span) => exporter.add(span),
    close: (timeout) => exporter.close(timeout),
  };
}
