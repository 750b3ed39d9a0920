/** The metrics of all workers, as the admin port of the first one exposes them. */
import type { Registry } from '@prometheus-io/client';
import { combineGauges } from '../../telemetry/metrics/thread-metrics.ts';
import type { Metrics } from '../metrics.ts';
import type { OtherWorkers } from './other-workers.ts';
import { COMBINED_GAUGES } from './report.ts';

/** Each exposition first collects what the others counted. */
export function toCombined(metrics: Metrics, others: OtherWorkers): Metrics {
  const [registry] = metrics.registers as readonly [Registry];
  combineGauges(registry, COMBINED_GAUGES, () => others.gauges);
  return {
    ...metrics,
    async exposition(format) {
      await others.collect(true);
      return metrics.exposition(format);
    },
  };
}
