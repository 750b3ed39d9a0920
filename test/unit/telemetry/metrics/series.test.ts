import { Counter, Gauge, Histogram, Registry } from '@prometheus-io/client';
import { expect, test } from 'vitest';
import { CounterFamily, GaugeFamily, HistogramFamily } from '../../../../src/telemetry/metrics/series.ts';
import { fc } from '../../../support/property.ts';

// Not -1: the library takes a bucket of that bound for the one without a bound.
const BUCKETS = [-2, 0, 0.5, 2];
const NAMES = { name: 'sidegate_test', help: 'A "test"\nof \\.', labelNames: ['route', 'code'] };

/** The lines of an exposition with the labels of each in order, and whole bounds as OpenMetrics writes them: neither carries a meaning. */
async function expose(registry: Registry): Promise<string[]> {
  const text = await registry.metrics();
  return text
    .replaceAll(/le="(-?\d+)"/g, 'le="$1.0"')
    .split('\n')
    .map((line) =>
      line.replace(
        /\{(.*)\}/,
        (_, labels: string) =>
          `{${labels
            .split(/,(?=[a-z]+=")/)
            .toSorted()
            .join(',')}}`,
      ),
    );
}

const value = fc.oneof(fc.constantFrom(...BUCKETS), fc.double({ min: -5, max: 5, noNaN: true }));
const observations = fc.array(fc.tuple(fc.constantFrom('a', 'b\\"', 'c\nd'), fc.constantFrom('200', '503'), value), {
  minLength: 1,
});

test('a histogram equals that of the client library for the same observations', async () => {
  await fc.assert(
    fc.asyncProperty(observations, async (all) => {
      const [ours, theirs] = [new Registry(), new Registry()];
      const family = new HistogramFamily({ ...NAMES, buckets: BUCKETS, registers: [ours] });
      const histogram = new Histogram({ ...NAMES, buckets: BUCKETS, registers: [theirs] });
      for (const [route, code, observed] of all) {
        family.series(route, code).observe(observed);
        histogram.labels(route, code).observe(observed);
      }
      expect(await expose(ours)).toEqual(await expose(theirs));
    }),
    { numRuns: 50 },
  );
});

test('counters and gauges equal those of the client library for the same sums', async () => {
  await fc.assert(
    fc.asyncProperty(observations, async (all) => {
      const [ours, theirs] = [new Registry(), new Registry()];
      const counters = new CounterFamily({ ...NAMES, registers: [ours] });
      const gauges = new GaugeFamily({ ...NAMES, name: 'sidegate_level', registers: [ours] });
      const counter = new Counter({ ...NAMES, registers: [theirs] });
      const gauge = new Gauge({ ...NAMES, name: 'sidegate_level', registers: [theirs] });
      for (const [route, code, added] of all) {
        counters.series(route, code).add(Math.abs(added));
        counter.labels(route, code).inc(Math.abs(added));
        gauges.series(route, code).value = added;
        gauge.labels(route, code).set(added);
      }
      expect(await expose(ours)).toEqual(await expose(theirs));
    }),
    { numRuns: 50 },
  );
});

test('shows a series from its creation until it is removed', async () => {
  const registry = new Registry();
  const family = new CounterFamily({ ...NAMES, registers: [registry] });
  family.series('a', '200');
  expect(await registry.metrics()).toContain('sidegate_test{route="a",code="200"} 0');
  family.remove('a', '200');
  expect(await registry.metrics()).not.toContain('route="a"');
});

test('a metric without labels has one series', async () => {
  const registry = new Registry();
  new HistogramFamily({ name: 'sidegate_test', help: 'T', buckets: [1], registers: [registry] }).series().observe(2);
  expect((await registry.metrics()).trim().split('\n')).toEqual([
    '# HELP sidegate_test T',
    '# TYPE sidegate_test histogram',
    'sidegate_test_bucket{le="1.0"} 0',
    'sidegate_test_bucket{le="+Inf"} 1',
    'sidegate_test_sum 2',
    'sidegate_test_count 1',
  ]);
});
