import { afterEach, beforeEach, expect, test } from 'vitest';
import type { DeliveryState } from '../../../../src/provider/queue/delivery-queue.ts';
import { hastenStep, pruneStep } from '../../../../src/provider/queue/sql/repair.ts';
import { findDeliveries, findEvents } from '../../../../src/provider/queue/sql/select.ts';
import { Store } from '../../../../src/provider/queue/sql/store.ts';
import { SqliteDatabase } from '../../../../src/provider/queue/sqlite/sqlite-database.ts';
import { makeQueueFolder, WIDE_BOUNDS } from '../../../support/queue/sqlite-store.ts';

const COMMON = { type: 'a', createdAt: 1, metadata: '{}', bodyLength: 1, comparedFrom: 0 };
let [folder, database, store] = [undefined, undefined, undefined] as unknown as [
  ReturnType<typeof makeQueueFolder>,
  SqliteDatabase,
  Store,
];

beforeEach(async () => {
  folder = makeQueueFolder();
  database = await SqliteDatabase.open(folder.path);
  store = new Store(database, WIDE_BOUNDS);
});
afterEach(() => {
  database.close();
  folder.remove();
});

async function append(count: number, fanOut: number, isSkipped: boolean, now = 1, tenant = 'acme'): Promise<void> {
  const targets = Array.from({ length: fanOut }, (_, i) => ({ endpoint: `e${i}`, isSkipped }));
  for (let at = 0; at < count; at += 500) {
    const ids = Array.from({ length: Math.min(500, count - at) }, (_, i) => `msg_${tenant}_${fanOut}_${at + i}`);
    const events = ids.map((id) => ({ ...COMMON, id, tenant, targets }));
    const [reply] = await store.write([
      { operation: { kind: 'append', events, now }, bodies: events.map(() => new Uint8Array(1)) },
    ]);
    expect(reply).toMatchObject({ isDone: true });
  }
}

async function list(states: readonly DeliveryState[]) {
  const { found, next } = await findEvents(database, { filter: { states }, page: { limit: 100 } });
  return [found.length, next];
}

test('a step of a list of events reads a bounded number of their deliveries, and none where the figures of the event decide', async () => {
  await append(20, 900, true);
  // Of each, up to 900 skipped ones are read to find one that is dead.
  expect(await list(['dead'])).toEqual([0, '18.0']);
  expect(await list(['delivered'])).toEqual([0, undefined]);
  expect(await list(['waiting'])).toEqual([0, undefined]);
  expect(await list(['dead', 'skipped'])).toEqual([20, undefined]);
  expect(await list(['skipped', 'waiting'])).toEqual([3, '18.0']);
});

test('a step of a list of deliveries of a tenant reads a bounded number of its events, also of those without a delivery', async () => {
  await append(4_500, 0, false);
  await append(1, 1, true);
  const filter = { tenant: 'acme', states: ['dead'] } as const;
  const steps: (string | undefined)[] = [];
  for (let after: string | undefined; steps.length === 0 || after !== undefined; steps.push(after))
    after = (await findDeliveries(database, { filter, page: { limit: 10, after } })).next;
  expect(steps).toEqual(['2502.0', '503.0', undefined]);
});

test('a step of the comparison with the clock reads a bounded number of deliveries, however few wait too long', async () => {
  await append(2_100, 1, false);
  await append(1, 2, false, 5_000);
  const all: unknown[] = [];
  for (let after: { readonly event: number; readonly lane: number } | undefined = { event: 0, lane: 0 }; after !== undefined; ) {
    const { endpoints, next } = await hastenStep(database, { now: 9, after });
    all.push(endpoints, next && { event: next.event, lane: next.lane });
    after = next;
  }
  expect(all).toEqual([[], { event: 2_000, lane: 1 }, ['e0', 'e1'], undefined]);
});

test('a step of pruning reads a bounded number of events, none of which waits, and the next one goes on after them', async () => {
  await append(2_500, 1, false);
  await append(4_500, 0, false, 1, 'other');
  await append(100, 0, false);
  const statements: [sql: string, values: readonly unknown[]][] = [];
  const sql = new Proxy(database, {
    get(target, name) {
      const value = Reflect.get(target, name, target) as unknown;
      if (name !== 'all') return typeof value === 'function' ? value.bind(target) : value;
      return (text: string, values: readonly unknown[]) => {
        if (text.startsWith('SELECT seq')) statements.push([text, values]);
        return target.all(text, values as never);
      };
    },
  });
  const maxBytes = 512 * 7_000;
  const prune = { settledBefore: 0, deadBefore: 0, most: 200 };
  const bounds = { ...WIDE_BOUNDS, maxBytes, tenantShare: 0.1 };
  await database.run("UPDATE tenant SET stored_bytes = stored_bytes + 1e7 WHERE name = 'acme'");
  const removed: [number, unknown][] = [];
  for (let after: Awaited<ReturnType<typeof pruneStep>>['after'], isDone = false; !isDone && removed.length < 9; ) {
    const step = await pruneStep(sql, { ...prune, after }, { bounds });
    removed.push([step.removed, step.after?.seq]);
    ({ after, isDone } = step);
  }
  expect(removed.slice(0, 4)).toEqual([
    [0, 4_500],
    [0, 6_500],
    [100, 0],
    [200, 2_700],
  ]);
  for (const [text, values] of statements) {
    const [{ detail }] = (await database.all<{ detail: string }>(`EXPLAIN QUERY PLAN ${text}`, values as never)) as [
      { detail: string },
    ];
    expect(detail).toMatch(/^SEARCH event USING INDEX event_(delivered|failed)|^SCAN event USING INDEX event_(delivered|failed)/);
  }
});
