/** The metrics of the forward proxy. */
import type { Registry } from '@prometheus-io/client';
import { CounterFamily } from '../../telemetry/metrics/series.ts';

/** The metrics. */
export interface ProxyMetrics {
  /** Counts the bytes of a finished tunnel or request; `rule`: the name of the rule that allowed it. */
  proxyBytes(rule: string, totals: { readonly bytesSent: number; readonly bytesReceived: number }): void;
}

/** Registers the metrics. */
export function createProxyMetrics(registers: Registry[]): ProxyMetrics {
  const proxyBytes = new CounterFamily({
    name: 'sidegate_proxy_bytes_total',
    help: 'Bytes through the forward proxy: of tunnels, and the bodies of other requests and responses; by the rule that allowed them.',
    labelNames: ['rule', 'direction'],
    registers,
  });
  return {
    proxyBytes(rule, { bytesSent, bytesReceived }) {
      proxyBytes.series(rule, 'sent').add(bytesSent);
      proxyBytes.series(rule, 'received').add(bytesReceived);
    },
  };
}
