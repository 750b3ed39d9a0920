import { beforeEach, expect, test } from 'vitest';
import { BudgetedExposition } from '../../../../src/admin/api/health.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const COST_MS = 20;
let clock: FakeClock;
/** When each rendering started. */
let starts: number[];
let metrics: BudgetedExposition;

beforeEach(() => {
  clock = new FakeClock();
  starts = [];
  const render = async (format = 'text'): Promise<{ contentType: string; text: string }> => {
    starts.push(clock.monotonic());
    const text = String(starts.length);
    clock.pass(COST_MS);
    return { contentType: format, text };
  };
  metrics = new BudgetedExposition({ exposition: render }, clock);
});

async function scrape(count: number): Promise<string[]> {
  const rendered = await Promise.all(Array.from({ length: count }, () => metrics.exposition()));
  return rendered.map(({ text }) => text);
}

test('renders once for all scrapes that wait', async () => {
  expect(await scrape(30)).toEqual(Array.from({ length: 30 }, () => '1'));
  expect(await scrape(1)).toEqual(['2']);
});

test('renders again for a scrape that comes during a rendering, whose values may be older', async () => {
  const text = await new Promise((resolve) => {
    const isSlow = {
      async exposition() {
        starts.push(0);
        if (starts.length === 1) resolve(slow.exposition().then((rendered) => rendered.text));
        return { contentType: '', text: String(starts.length) };
      },
    };
    const slow = new BudgetedExposition(isSlow, clock);
    void slow.exposition();
  });
  expect(text).toBe('2');
});

test('renders each format for itself', async () => {
  const both = await Promise.all([metrics.exposition('openmetrics'), metrics.exposition()]);
  expect(both.map(({ contentType }) => contentType)).toEqual(['openmetrics', 'text']);
});

test('spends at most a tenth of the time after a burst', async () => {
  let isOver = false;
  const scraper = (async () => {
    while (!isOver) await metrics.exposition();
  })();
  while (clock.monotonic() < 10_000) await clock.advance(1);
  const spent = starts.length * COST_MS;
  expect(spent).toBeGreaterThan(1_000);
  expect(spent).toBeLessThanOrEqual(1_120);
  isOver = true;
  await clock.advance(1_000);
  await scraper;
});

test('lets eight scrapes wait, and gives all others the last rendering while it is recent', async () => {
  for (let i = 0; i < 6; i++) await metrics.exposition();
  const waiting = scrape(8);
  expect(await scrape(20)).toEqual(Array.from({ length: 20 }, () => '6'));
  await clock.advance(1_000);
  expect(await waiting).toEqual(Array.from({ length: 8 }, () => '7'));
});

test('renders for all scrapes if the last rendering is older', async () => {
  await metrics.exposition();
  await clock.advance(2_000);
  expect(await scrape(20)).toEqual(Array.from({ length: 20 }, () => '2'));
});

test('makes no scrape wait for more than a second, however long a rendering takes', async () => {
  const slow = new BudgetedExposition(
    {
      async exposition() {
        clock.pass(60_000);
        return { contentType: '', text: '' };
      },
    },
    clock,
  );
  await slow.exposition();
  const second = slow.exposition();
  await clock.advance(1_000);
  expect((await second).text).toBe('');
});

test('serves the next scrape after a failure', async () => {
  let calls = 0;
  const failing = new BudgetedExposition(
    {
      async exposition() {
        if (++calls === 1) throw new Error('broken');
        return { contentType: '', text: 'ok' };
      },
    },
    clock,
  );
  await expect(failing.exposition()).rejects.toThrow('broken');
  expect((await failing.exposition()).text).toBe('ok');
});
