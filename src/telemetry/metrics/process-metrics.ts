/** What the process says of itself: as much as an operator looks at, as each line counts against the gate's budget of series. */
import { collectDefaultMetrics, type Registry } from '@prometheus-io/client';

/** Of what the client library collects. The rest is detail for profilers, and some of it grows with the load. */
const KEPT: ReadonlySet<string> = new Set([
  'process_cpu_seconds_total',
  'process_start_time_seconds',
  'process_resident_memory_bytes',
  'process_open_fds',
  'process_max_fds',
  'nodejs_eventloop_lag_p50_seconds',
  'nodejs_eventloop_lag_p99_seconds',
  'nodejs_eventloop_lag_max_seconds',
  'nodejs_heap_size_used_bytes',
  'nodejs_external_memory_bytes',
  'nodejs_version_info',
]);

/** Adds `process_*` and `nodejs_*`. */
export function collectProcessMetrics(registry: Registry): void {
  const own = new Set(registry.getMetricsAsArray().map(({ name }) => name));
  collectDefaultMetrics({ register: registry });
  for (const { name } of registry.getMetricsAsArray()) if (!own.has(name) && !KEPT.has(name)) registry.removeSingleMetric(name);
}
