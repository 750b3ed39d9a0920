/** All metrics of a gate, each created by the area that owns it (docs/metrics.md). */
import { Registry } from '@prometheus-io/client';
import { type AdminMetrics, createAdminMetrics } from '../admin/admin-metrics.ts';
import { type CaptureMetrics, createCaptureMetrics } from '../diagnostics/explain/capture-metrics.ts';
import { createExplainMetrics, type ExplainMetrics } from '../diagnostics/explain/explain-metrics.ts';
import { createProxyMetrics, type ProxyMetrics } from '../gateway/egress-proxy/proxy-metrics.ts';
import {
  type AuthRequestMetrics,
  type AuthRouteLabels,
  createAuthRequestMetrics,
} from '../gateway/forward-auth/auth-request-metrics.ts';
import { createRoutesMetrics, type RouteLabels, type RoutesMetrics } from '../gateway/pipeline/route-metrics.ts';
import { createStoreMetrics, type StoreMetrics } from '../gateway/pipeline/store-metrics.ts';
import { createServerMetrics, type ServerMetrics } from '../gateway/server-metrics.ts';
import { type BodyMetrics, createBodyMetrics } from '../telemetry/journal/body-metrics.ts';
import { createEscapedErrorMetrics, type EscapedErrorMetrics } from '../telemetry/log/escaped-error-metrics.ts';
import { type Exposition, toExposition } from '../telemetry/metrics/openmetrics.ts';
import { collectProcessMetrics, createBuildInfo } from '../telemetry/metrics/process-metrics.ts';
import { createTracingMetrics, type TracingMetrics } from '../telemetry/tracing/tracing-metrics.ts';
import { type ConfigMetrics, createConfigMetrics } from './config-metrics.ts';

/** The properties of a route that decide which series it has from the start. */
export interface GateRouteLabels extends RouteLabels, AuthRouteLabels {
  /** It forwards events in order. */
  readonly isOrdered?: boolean;
}

/** The gate's metrics. */
export interface Metrics
  extends RoutesMetrics,
    StoreMetrics,
    ServerMetrics,
    AuthRequestMetrics,
    ProxyMetrics,
    ExplainMetrics,
    CaptureMetrics,
    BodyMetrics,
    AdminMetrics,
    ConfigMetrics,
    TracingMetrics,
    EscapedErrorMetrics,
    Exposition {
  /** The registry, for metrics of parts that a config may not have. */
  readonly registers: readonly Registry[];
  /** Exports the series of these routes, starting at 0, and removes those of all other routes. */
  setRoutes(routes: readonly GateRouteLabels[]): void;
}

/** Creates the metrics in a new registry. */
export function createMetrics(options: {
  readonly version: string;
  /** The commit; undefined if it is unknown. */
  readonly revision?: string | undefined;
  /** Includes process_* and nodejs_*. */
  readonly processMetrics: boolean;
}): Metrics {
  const registry = new Registry();
  const registers = [registry];
  createBuildInfo(registers, options.version, options.revision);
  if (options.processMetrics) collectProcessMetrics(registry);
  const routes = createRoutesMetrics(registers);
  const store = createStoreMetrics(registers);
  const authRequests = createAuthRequestMetrics(registers);
  const explain = createExplainMetrics(registers);
  return {
    registers,
    ...routes,
    ...store,
    ...createServerMetrics(registers),
    ...authRequests,
    ...createProxyMetrics(registers),
    ...explain,
    ...createCaptureMetrics(registers),
    ...createBodyMetrics(registers),
    ...createAdminMetrics(registers),
    ...createConfigMetrics(registers),
    ...createTracingMetrics(registers),
    ...createEscapedErrorMetrics(registers),
    setRoutes(next) {
      if (next.some(({ isOrdered }) => isOrdered)) store.showOrder();
      for (const area of [routes, authRequests, explain]) area.setRoutes(next);
    },
    exposition: (format = 'text') => toExposition(registry, format),
  };
}
