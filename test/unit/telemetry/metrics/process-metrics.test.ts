import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Registry } from '@prometheus-io/client';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { Clock } from '../../../../src/core/clock.ts';
import { collectProcessMetrics, EventLoopMonitor } from '../../../../src/telemetry/metrics/process-metrics.ts';
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

describe('EventLoopMonitor', () => {
  /** An event loop whose turns take as long as a test says. */
  function makeLoop() {
    let now = 0;
    let check = (): void => undefined;
    const clock: Clock = {
      now: () => now,
      monotonic: () => now,
      after: () => () => undefined,
      every: (_interval, action) => {
        check = action;
        return () => {
          check = () => undefined;
        };
      },
    };
    const monitor = new EventLoopMonitor(clock);
    const turn = (...durations: number[]): void => {
      for (const duration of durations) {
        now += duration;
        check();
      }
    };
    return { monitor, turn };
  }

  test('a loop with an occasional turn of a second is not stuck', () => {
    const { monitor, turn } = makeLoop();
    turn(...Array<number>(100).fill(1_500), 1_000, 1_999, 2_000);
    expect(monitor.stuckFor).toBeUndefined();
  });

  test('a single pause of any length does not count, because the machine was suspended or the process stopped', () => {
    const { monitor, turn } = makeLoop();
    turn(3_600_000);
    expect(monitor.stuckFor).toBeUndefined();
    turn(1_000);
    expect(monitor.stuckFor).toBeUndefined();
  });

  test('a loop whose every turn is late is stuck after half a minute, and not before', () => {
    const { monitor, turn } = makeLoop();
    turn(...Array<number>(10).fill(3_000), 2_999);
    expect(monitor.stuckFor).toBeUndefined();
    turn(3_000);
    expect(monitor.stuckFor).toBe(32_999);
  });

  test('a single turn in time ends the stuck state', () => {
    const { monitor, turn } = makeLoop();
    turn(...Array<number>(20).fill(3_000));
    expect(monitor.stuckFor).toBe(57_000);
    turn(1_000);
    expect(monitor.stuckFor).toBeUndefined();
    turn(...Array<number>(5).fill(3_000));
    expect(monitor.stuckFor).toBeUndefined();
  });
});
