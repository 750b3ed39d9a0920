import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readSizingRun, renderSizingPage } from '../bench/sizing/page.ts';
import { LIMITS, type LoadFacts, type Measurement, recommend, type SizingRun, toShares } from '../bench/sizing/results.ts';
import { ChartValues } from '../chart/values.ts';
import { toMemoryBudget } from '../src/http/server/memory.ts';
import { DEFAULT_MEMORY_LIMIT, DEFAULT_MEMORY_REQUEST } from '../src/kubernetes/injector/kubernetes-values.ts';

const ROOT = join(import.meta.dirname, '..');
const MIB = 1024 * 1024;
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const run = readSizingRun();

describe('the page on sizing', () => {
  test('is generated from the last run, the defaults and the budgets in the code', () => {
    expect(read('docs/sizing.md')).toBe(renderSizingPage());
  });

  test('has every load under every limit, without OOM kills', () => {
    const measured = run.measurements.map(({ limit, load }) => `${load} ${limit}`).sort();
    expect(measured).toEqual(run.loads.flatMap(({ name }) => LIMITS.map((limit) => `${name} ${limit}`)).sort());
    expect(run.measurements.filter(({ oomKills }) => oomKills !== 0)).toEqual([]);
  });
});

describe('the default memory of a sidecar', () => {
  test('follows from the measurements by the rules', () => {
    const { request, limit } = recommend(run) ?? {};
    expect([DEFAULT_MEMORY_REQUEST, DEFAULT_MEMORY_LIMIT]).toEqual([`${request}Mi`, `${limit}Mi`]);
  });

  test('is the same in the chart, the library chart and the page on memory', () => {
    const { requests, limits } = ChartValues.parse({}).sidecar.resources;
    expect([requests.memory, limits.memory]).toEqual([DEFAULT_MEMORY_REQUEST, DEFAULT_MEMORY_LIMIT]);
    const library = read('chart/sidegate-lib/templates/_helpers.tpl');
    expect(library).toContain(`"memoryRequest" (toString (default "${DEFAULT_MEMORY_REQUEST}" .memoryRequest))`);
    expect(library).toContain(`"memoryLimit" (toString (default "${DEFAULT_MEMORY_LIMIT}" .memoryLimit))`);
    expect(read('docs/memory.md')).toContain(`${Number.parseInt(DEFAULT_MEMORY_LIMIT, 10)} MiB is the default of the chart`);
  });

  test('leaves the memory for bodies that the page on memory says', () => {
    const rows = [...read('docs/memory.md').matchAll(/^\| (\d+)Mi \| (\d+)Mi \| (\d+) \|$/gm)];
    expect(rows.length).toBeGreaterThanOrEqual(LIMITS.length);
    for (const [, limit, bytes, places] of rows) {
      const budget = toMemoryBudget({}, Number(limit) * MIB);
      expect([budget.maxBufferedBytes, budget.maxLargeBodies]).toEqual([Number(bytes) * MIB, Number(places)]);
    }
  });
});

const LOADS: readonly LoadFacts[] = [
  { name: 'common', title: '', kind: 'usual' },
  { name: 'large', title: '', kind: 'normal' },
  { name: 'flood', title: '', kind: 'excessive' },
];

/** A run in which each load takes 70 MiB and is served, but for what `change` says. */
function makeRun(change: (one: Measurement) => Partial<Measurement>): SizingRun {
  const measurements = LIMITS.flatMap((limit) =>
    LOADS.map(({ name }): Measurement => {
      const memory = { rss: 90, workingSet: 70, sockets: 0, heap: 20 };
      const one = {
        limit,
        load: name,
        ...memory,
        perSecond: 1,
        statuses: { 200: 99_999 },
        failed: 0,
        limitHits: {},
        oomKills: 0,
      };
      return { ...one, ...change(one) };
    }),
  );
  return { date: '', machine: '', cgroups: 'v1', loads: LOADS, measurements };
}

describe('the rules recommend', () => {
  test.each<[string, (one: Measurement) => Partial<Measurement>, number, number]>([
    ['the smallest limit if every load is served', () => ({}), 96, 96],
    ['the next limit if a load was killed', ({ limit }) => (limit === 96 ? { oomKills: 1 } : {}), 96, 128],
    [
      'a limit above each one that a load exceeds with the buffers of sockets',
      ({ limit, load }) => (limit === 128 && load === 'flood' ? { sockets: 59 } : {}),
      96,
      192,
    ],
    [
      'a limit that serves normal loads',
      ({ limit, load }) => (limit === 96 && load === 'large' ? { statuses: { 200: 999, 503: 1 } } : {}),
      96,
      128,
    ],
    [
      'a limit that leaves no normal request without a response',
      ({ limit, load }) => (limit === 96 && load === 'common' ? { failed: 11 } : {}),
      96,
      128,
    ],
    ['the same limit if only a flood is shed', ({ load }) => (load === 'flood' ? { statuses: { 401: 1, 503: 9 } } : {}), 96, 96],
    ['a request that covers the usual loads', ({ load }) => (load === 'common' ? { workingSet: 64.1 } : {}), 96, 96],
    ['a request rounded up to 32 MiB', ({ load }) => (load === 'common' ? { workingSet: 64 } : {}), 64, 96],
  ])('%s', (_title, change, request, limit) => {
    expect(recommend(makeRun(change))).toEqual({ request, limit });
  });

  test('nothing if the largest limit is too small', () => {
    expect(recommend(makeRun(() => ({ oomKills: 1 })))).toBeUndefined();
  });

  test('values by the shares of all requests', () => {
    const [one] = makeRun(() => ({ statuses: { 200: 5, 401: 2, 503: 1 }, failed: 2 })).measurements;
    expect(one && toShares(one)).toEqual({ served: 0.5, shed: 0.1 });
  });
});
