import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Registry } from '@prometheus-io/client';
import { expect, onTestFinished, test, vi } from 'vitest';
import { collectProcessMetrics } from '../../../../src/telemetry/metrics/process-metrics.ts';
import { until } from '../../../support/gate.ts';

const MEASURED = [
  'process_resident_memory_bytes',
  'nodejs_heap_size_used_bytes',
  'nodejs_external_memory_bytes',
  'nodejs_eventloop_lag_p50_seconds',
  'nodejs_eventloop_lag_p99_seconds',
  'nodejs_eventloop_lag_max_seconds',
];

test('every metric of the process has a value', async () => {
  const registry = new Registry();
  collectProcessMetrics(registry);
  const readValue = async (name: string): Promise<number> => (await registry.getSingleMetric(name)?.get())?.values[0]?.value ?? 0;
  // The lag has a value after two samples. A scrape takes all samples: repeated scrapes would always come too early.
  const lag = monitorEventLoopDelay({ resolution: 10 });
  lag.enable();
  onTestFinished(() => void lag.disable());
  await until(() => lag.count > 0);
  const text = await registry.metrics();
  for (const name of MEASURED) expect(Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]), name).toBeGreaterThan(0);
  const used = await readValue('nodejs_heap_size_used_bytes');
  expect(Math.abs(used / process.memoryUsage().heapUsed - 1)).toBeLessThan(0.5);
});

test('starts no timer that would wake an idle process', () => {
  const intervals: unknown[] = [];
  const start = vi.spyOn(globalThis, 'setInterval').mockImplementation((_callback, interval) => {
    intervals.push(interval);
    return { unref: () => undefined } as unknown as ReturnType<typeof setInterval>;
  });
  onTestFinished(() => start.mockRestore());
  collectProcessMetrics(new Registry());
  expect(intervals.filter((interval) => Number(interval) < 60_000)).toEqual([]);
});
