import { Gauge, Registry } from '@prometheus-io/client';
import { expect, test } from 'vitest';
import { createRoutesMetrics, type RouteMetrics } from '../../../../src/gateway/pipeline/route-metrics.ts';
import { CounterFamily, GaugeFamily, HistogramFamily } from '../../../../src/telemetry/metrics/series.ts';
import {
  addChanges,
  combineGauges,
  type FamilyChanges,
  readGauges,
  takeChanges,
} from '../../../../src/telemetry/metrics/thread-metrics.ts';

interface RoutesThread {
  readonly registry: Registry;
  readonly metrics: ReturnType<typeof createRoutesMetrics>;
  readonly route: RouteMetrics;
}

const create = () => {
  const registry = new Registry();
  const registers = [registry];
  return {
    registry,
    counter: new CounterFamily({ name: 'c_total', help: 'c', labelNames: ['route', 'code'], registers }),
    histogram: new HistogramFamily({ name: 'h', help: 'h', labelNames: ['route'], buckets: [1, 2], registers }),
    gauge: new GaugeFamily({ name: 'g', help: 'g', labelNames: ['route'], registers }),
    plain: new Gauge({ name: 'plain', help: 'p', registers }),
  };
};

test('what a thread counted is added once, also to series that only it has', async () => {
  const [first, second] = [create(), create()];
  first.counter.series('a', '200').add(2);
  second.counter.series('a', '200').add(3);
  second.counter.series('a', '503').add();
  second.counter.series('a', '404');
  for (const value of [0.5, 1.5, 9]) second.histogram.series('a').observe(value);
  addChanges(first.registry, structuredClone(takeChanges(second.registry)));
  addChanges(first.registry, structuredClone(takeChanges(second.registry)));
  second.counter.series('a', '200').add();
  addChanges(first.registry, structuredClone(takeChanges(second.registry)));
  const text = await first.registry.metrics();
  expect(text).toContain('c_total{route="a",code="200"} 6');
  expect(text).toContain('c_total{route="a",code="503"} 1');
  expect(text).not.toContain('404');
  expect(text).toContain('h_bucket{le="1.0",route="a"} 1');
  expect(text).toContain('h_bucket{le="+Inf",route="a"} 3');
  expect(text).toContain('h_sum{route="a"} 11');
});

test('a series that was removed and created again starts at 0', () => {
  const { registry, counter } = create();
  counter.series('a', '200').add(5);
  takeChanges(registry);
  counter.remove('a', '200');
  counter.series('a', '200').add(2);
  expect(takeChanges(registry)).toEqual([{ name: 'c_total', changes: [{ labels: ['a', '200'], added: [2] }] }]);
});

test('exemplars of a thread are shown by the first', () => {
  const [first, second] = [create(), create()];
  second.histogram.series('a').observe(0.5, { traceId: 'abc', at: 1_000 });
  addChanges(first.registry, structuredClone(takeChanges(second.registry)));
  expect(first.histogram.series('a').exemplars[0]).toEqual({ labelSet: { trace_id: 'abc' }, value: 0.5, timestamp: 1 });
});

test.each([
  ['sum', 'g{route="a"} 5', 'plain 3'],
  ['max', 'g{route="a"} 4', 'plain 2'],
  ['min', 'g{route="a"} 1', 'plain 1'],
] as const)('gauges are combined: %s', async (combination, ...expected) => {
  const [first, second] = [create(), create()];
  first.gauge.series('a').value = 1;
  second.gauge.series('a').value = 4;
  second.gauge.series('b').value = 7;
  first.plain.set(2);
  second.plain.set(1);
  const combinations = { g: combination, plain: combination, absent: combination };
  const others = structuredClone(await readGauges(second.registry, combinations));
  combineGauges(first.registry, combinations, () => [others]);
  const text = await first.registry.metrics();
  for (const line of expected) expect(text).toContain(line);
  expect(text).not.toContain('route="b"');
});

test('a route counts what only other threads counted, and none of it is exported after the route is removed', async () => {
  const [first, second] = [0, 1].map(() => {
    const registry = new Registry();
    const metrics = createRoutesMetrics([registry]);
    metrics.setRoutes([{ name: 'billing', scheme: 'standard-webhooks', keys: [], methods: ['POST'] }]);
    return { registry, metrics, route: metrics.route('billing') };
  }) as [RoutesThread, RoutesThread];
  const count = (): FamilyChanges[] => {
    second.route.decision('deny', 'malformed_signature');
    second.route.request('POST', 502, 1);
    return structuredClone(takeChanges(second.registry)).filter(({ name }) => /decisions|http_requests/.test(name));
  };
  addChanges(first.registry, count());
  addChanges(first.registry, count());
  expect([first.route.decided('deny'), first.route.errors()]).toEqual([2, 2]);
  first.route.request('POST', 502, 1);
  expect(first.route.errors()).toBe(3);
  first.metrics.setRoutes([]);
  addChanges(first.registry, count());
  expect(await first.registry.metrics()).not.toMatch(/^sidegate_(?:auth_decisions|http_requests)_total\{route="billing"/m);
});
