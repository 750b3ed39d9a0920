import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { formatBytes } from '../bench/figures.ts';
import { readScaleRun, renderScalePage } from '../bench/scale/page.ts';
import { compareLoads, findObstacle, TARGET_UTILIZATION, TOLERANCE, toIdBytes, toNeeds } from '../bench/scale/results.ts';

const ROOT = join(import.meta.dirname, '..');
const run = readScaleRun();

describe('the page on scale', () => {
  test('is generated from the last run', () => {
    expect(readFileSync(join(ROOT, 'docs', 'scale.md'), 'utf8')).toBe(renderScalePage());
  });

  test('rounds its figures', () => {
    expect(renderScalePage()).not.toMatch(/\d\.\d{3}/);
  });

  test('has a simulation that runs the measured operations, and names each load at which Redis was busier or less busy', () => {
    const compared = run.comparisons.filter((one) => findObstacle(one) === undefined);
    expect(compared.length).toBeGreaterThanOrEqual(3);
    const page = renderScalePage();
    for (const one of compared) {
      const { operations, utilization } = compareLoads(one);
      expect(operations, `${one.eventsPerSecond} events/s`).toBeLessThan(TOLERANCE);
      const named = /does not reach that: at (.+) events\/s/.exec(page)?.[1]?.split(' and ') ?? [];
      expect(named.includes(one.eventsPerSecond.toLocaleString('en-US'))).toBe(utilization > TOLERANCE);
    }
  });

  test('has a fleet of 1,000 gates and 10,000 senders', () => {
    expect(run.fleets.some(({ gates, senders }) => gates === 1_000 && senders === 10_000)).toBe(true);
  });
});

describe('the needs of a fleet', () => {
  test('grow with the events, and keep each Redis below its share', () => {
    const rates = [100, 1_000, 10_000, 100_000, 1_000_000];
    const needs = rates.map((rate) => toNeeds(run, 1_000, rate));
    expect(needs.map(({ shards }) => shards)).toEqual(needs.map(({ shards }) => shards).toSorted((a, b) => a - b));
    for (const { utilization } of needs) expect(utilization).toBeLessThanOrEqual(TARGET_UTILIZATION + 1e-9);
  });

  test('count two calls for each accepted event, and those of idle gates', () => {
    const idle = toNeeds(run, 1_000, 0).calls;
    expect(idle).toBeGreaterThan(0);
    expect(toNeeds(run, 1_000, 500).calls).toBeCloseTo(1_000 + idle, 6);
  });

  test('include the memory of all IDs over their retention', () => {
    expect(toIdBytes(run, 10, 2)).toBe(10 * 2 * 86_400 * run.id.bytesAtWorst);
  });
});

test('bytes have decimal units', () => {
  expect([0.5, 999, 1_500, 52_000_000_000_000].map(formatBytes)).toEqual(['0.5 bytes', '1,000 bytes', '1.5 KB', '52 TB']);
});
