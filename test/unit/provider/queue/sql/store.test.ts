import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { Sql } from '../../../../../src/provider/queue/sql/database.ts';
import { type Operation, Store, Taker } from '../../../../../src/provider/queue/sql/store.ts';
import { SqliteDatabase } from '../../../../../src/provider/queue/sqlite/sqlite-database.ts';
import { measureHeap } from '../../../../support/heap.ts';
import { makeQueueFolder, WIDE_BOUNDS } from '../../../../support/queue/sqlite-store.ts';

test('so many deliveries at most change their rank at once, and in each second, of all endpoints together', async () => {
  const { path, remove } = makeQueueFolder();
  const database = await SqliteDatabase.open(path);
  const store = new Store(database, WIDE_BOUNDS);
  const endpoints = Array.from({ length: 20 }, (_, i) => `e${i}`);
  const targets = endpoints.map((endpoint) => ({ endpoint }));
  const event = { type: 'bad', tenant: 'acme', createdAt: 1, metadata: '{}', targets, bodyLength: 1, comparedFrom: 0 };
  const events = Array.from({ length: 200 }, (_, i) => ({ ...event, id: `msg_${i}` }));
  await store.write([{ operation: { kind: 'append', events, now: 1 }, bodies: events.map(() => new Uint8Array(1)) }]);
  const countBehind = async (): Promise<number> => {
    const [row] = await database.all<{ n: number }>('SELECT count(*) AS n FROM delivery WHERE rank = 1');
    return row?.n ?? 0;
  };
  /** Each endpoint has an attempt, of which nothing is stored. Returns how many deliveries changed their rank. */
  const settle = async (at: number, failingTypes: readonly string[]): Promise<number> => {
    const before = await countBehind();
    const state = JSON.stringify({ failures: 0, isProven: true, since: 0, failingTypes });
    const facts = { key: null, tenant: undefined, bytes: 1, waiting: 1, replay: 0 };
    const late = { event: 'msg_none', seq: 9_999, attempt: 1, due: 1, at, record: undefined, facts };
    const settled = [{ ...late, settlement: { kind: 'delivered' } as const }];
    const replies = await store.write(
      endpoints.map((endpoint) => ({
        operation: { kind: 'settle', endpoint, run: 1, holder: null, settled, state },
        bodies: [],
      })),
    );
    expect(replies.filter(({ isDone }) => !isDone)).toEqual([]);
    return Math.abs((await countBehind()) - before);
  };
  expect(await settle(1_000, ['bad'])).toBe(500);
  expect(await settle(1_000, ['bad'])).toBe(0);
  expect(await settle(1_100, [])).toBe(200);
  let moved = 0;
  for (let at = 1_100; at <= 3_100; at += 50) moved += await settle(at, at % 200 < 100 ? ['bad'] : []);
  expect(moved).toBeGreaterThan(1_000);
  expect(moved).toBeLessThanOrEqual(4_000);
  // A clock that was set back neither adds to it nor stops it.
  expect(await settle(100, ['bad'])).toBeLessThanOrEqual(20);
  expect(await settle(200, ['bad'])).toBeGreaterThan(0);
  database.close();
  remove();
});

test('what is committed stays so if the file cannot shrink afterwards', async () => {
  const { path, remove } = makeQueueFolder();
  const database = await SqliteDatabase.open(path);
  database.shrink = () => Promise.reject(Object.assign(new Error('database or disk is full'), { errcode: 13 }));
  const store = new Store(database, WIDE_BOUNDS);
  const event = { id: 'msg_1', type: 'paid', createdAt: 1, metadata: '{}', bodyLength: 1, comparedFrom: 0 };
  const events = [{ ...event, targets: [{ endpoint: 'a' }] }];
  const replies = await store.write([
    { operation: { kind: 'append', events, now: 1 }, bodies: [new Uint8Array(1)] },
    { operation: { kind: 'pruneStep', settledBefore: 0, deadBefore: 0, most: 1, after: undefined }, bodies: [] },
  ]);
  expect(replies).toMatchObject([{ isDone: true, result: ['stored'] }, { isDone: true }]);
  database.close();
  remove();
});

test('forgets the endpoints and figures of a transaction that failed', async () => {
  const { path, remove } = makeQueueFolder();
  const database = await SqliteDatabase.open(path);
  const store = new Store(database, WIDE_BOUNDS);
  const append = (endpoint: string, type: string | null) => {
    const event = { id: `msg_${endpoint}`, createdAt: 1, metadata: '{}', bodyLength: 1, comparedFrom: 0 };
    const events = [{ ...event, type: type as string, targets: [{ endpoint }] }];
    return store.write([{ operation: { kind: 'append', events, now: 1 }, bodies: [new Uint8Array(1)] }]);
  };
  expect(await append('a', null)).toMatchObject([{ isDone: false }]);
  // Gets the number that the first endpoint would have got.
  expect(await append('b', 'paid')).toMatchObject([{ isDone: true }]);
  expect(await append('a', 'paid')).toMatchObject([{ isDone: true }]);
  const backlogs = await store.read({ kind: 'backlogs', endpoints: ['a', 'b'], now: 1 }, []);
  expect(backlogs).toMatchObject({ result: [{ waiting: 1 }, { waiting: 1 }] });
  expect(await store.read({ kind: 'stats', now: 1 }, [])).toMatchObject({ result: { waiting: 2, events: 2, storedEvents: 2 } });
  database.close();
  remove();
});

test('each step of an erasure reads a bounded number of events, and continues after those of the step before', async () => {
  const { path, remove } = makeQueueFolder();
  const database = await SqliteDatabase.open(path);
  const store = new Store(database, WIDE_BOUNDS);
  const events = Array.from({ length: 7 }, (_, i) => ({
    id: `msg_${i}`,
    type: 'a',
    tenant: i === 2 ? 'other' : 'acme',
    createdAt: 1,
    metadata: '{}',
    targets: [],
    bodyLength: 1,
    comparedFrom: 0,
  }));
  const bodies = events.map(() => new Uint8Array(1));
  await store.write([{ operation: { kind: 'append', events, now: 1 }, bodies }]);
  const erase = async (after: number) =>
    (await store.write([{ operation: { kind: 'eraseStep', tenant: 'acme', now: 1, after, most: 2 }, bodies: [] }]))[0];
  expect(await erase(0)).toMatchObject({ isDone: true, result: { erased: 2, next: 2 } });
  // Again from the start: what was erased is read, and not erased again.
  expect(await erase(0)).toMatchObject({ isDone: true, result: { erased: 0, next: 2 } });
  expect(await erase(2)).toMatchObject({ isDone: true, result: { erased: 2, next: 5 } });
  expect(await erase(5)).toMatchObject({ isDone: true, result: { erased: 2, next: 7 } });
  expect(await erase(7)).toMatchObject({ isDone: true, result: { erased: 0, next: undefined } });
  database.close();
  remove();
});

test('each step of an erasure and of pruning changes a bounded number of deliveries, however many an event has', async () => {
  const { path, remove } = makeQueueFolder();
  const database = await SqliteDatabase.open(path);
  const store = new Store(database, WIDE_BOUNDS);
  const targets = Array.from({ length: 400 }, (_, i) => ({ endpoint: `e${i}` }));
  const event = { type: 'a', tenant: 'acme', createdAt: 1, metadata: '{}', targets, bodyLength: 1, comparedFrom: 0 };
  const events = Array.from({ length: 3 }, (_, i) => ({ ...event, id: `msg_${i}` }));
  await store.write([{ operation: { kind: 'append', events, now: 1 }, bodies: events.map(() => new Uint8Array(1)) }]);
  const run = async (operation: Operation): Promise<unknown> => {
    const [reply] = await store.write([{ operation, bodies: [] }]);
    return reply?.isDone === true ? reply.result : reply;
  };
  const erase = (after: number) => run({ kind: 'eraseStep', tenant: 'acme', now: 1, after, most: 9 });
  expect(await erase(0)).toMatchObject({ erased: 1, next: 1 });
  expect(await erase(1)).toMatchObject({ erased: 1, next: 2 });
  expect(await erase(2)).toMatchObject({ erased: 1, next: undefined });
  const prune = { kind: 'pruneStep', settledBefore: 9, deadBefore: 9, most: 9, after: undefined } as const;
  const removed: unknown[] = [];
  for (let i = 0; i < 4; i++) removed.push(((await run(prune)) as { readonly removed: number }).removed);
  expect(removed).toEqual([1, 1, 1, 0]);
  database.close();
  remove();
});

test('the file contains nothing of an erased event', async () => {
  const { path, remove } = makeQueueFolder();
  const database = await SqliteDatabase.open(path);
  const store = new Store(database, WIDE_BOUNDS);
  const event = { type: 'a', tenant: 'acme', createdAt: 1, metadata: '{}', targets: [], comparedFrom: 0 };
  const bodies = Array.from({ length: 40 }, (_, i) => Buffer.from(`personal-${i} `.repeat(500)));
  const events = bodies.map((body, i) => ({ ...event, id: `msg_${i}`, bodyLength: body.length }));
  await store.write([{ operation: { kind: 'append', events, now: 1 }, bodies }]);
  await store.write([{ operation: { kind: 'eraseStep', tenant: 'acme', now: 1, after: 0, most: 99 }, bodies: [] }]);
  database.close();
  expect(readFileSync(path).includes('personal-')).toBe(false);
  remove();
});

test('a delivery whose event is erased after it was found is not taken, and does not hold up the next one of its key', async () => {
  const { path, remove } = makeQueueFolder();
  const database = await SqliteDatabase.open(path);
  const store = new Store(database, WIDE_BOUNDS);
  const event = { type: 'a', createdAt: 1, metadata: '{}', bodyLength: 1, comparedFrom: 0 };
  const events = ['msg_1', 'msg_2'].map((id) => ({ ...event, id, targets: [{ endpoint: 'a', orderKey: 'k' }] }));
  await store.write([{ operation: { kind: 'append', events, now: 1 }, bodies: events.map(() => new Uint8Array(1)) }]);
  const erase = { operation: { kind: 'eraseStep', event: 'msg_1', now: 1, after: 0, most: 9 }, bodies: [] } as const;
  // In PostgreSQL, other transactions commit between the statements of a take.
  const shared = new Proxy(database, {
    get: (target, name) => {
      const value = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      return async (statement: string, ...others: unknown[]) => {
        if (statement.includes('FROM payload')) await store.write([erase]);
        return value.call(target, statement, ...others);
      };
    },
  }) as Sql;
  const taker = new Taker();
  const bodies: Uint8Array[] = [];
  const take = async (sql: Sql) =>
    (await taker.take(sql, { endpoint: 'a', run: 1, limit: 9, now: 1, only: undefined, returned: [] }, bodies)).taken.map(
      ({ event: id }) => id,
    );
  expect([await take(shared), await take(database)]).toEqual([[], ['msg_2']]);
  expect(bodies).toEqual([new Uint8Array(1)]);
  database.close();
  remove();
});

test('keeps no bodies of what an endpoint took last', async () => {
  const { path, remove } = makeQueueFolder();
  const database = await SqliteDatabase.open(path);
  const store = new Store(database, WIDE_BOUNDS);
  const endpoints = Array.from({ length: 300 }, (_, i) => `e${i}`);
  const targets = endpoints.map((endpoint) => ({ endpoint }));
  const event = { type: 'a', createdAt: 1, metadata: '{}', targets, bodyLength: 4_000, comparedFrom: 0 };
  const events = Array.from({ length: 4 }, (_, i) => ({ ...event, id: `msg_${i}` }));
  await store.write([{ operation: { kind: 'append', events, now: 1 }, bodies: events.map(() => new Uint8Array(4_000)) }]);
  const taken: WeakRef<Uint8Array>[] = [];
  for (const endpoint of endpoints) {
    const bodies: Uint8Array[] = [];
    await store.read({ kind: 'take', endpoint, run: 1, limit: 9, now: 1, only: undefined, returned: [] }, bodies);
    expect(bodies).toHaveLength(4);
    taken.push(...bodies.map((body) => new WeakRef(body)));
  }
  // A reference that was made or read in this turn keeps its object.
  await new Promise((resolve) => setImmediate(resolve));
  measureHeap();
  expect(taken.filter((body) => body.deref() !== undefined).length).toBeLessThan(8);
  database.close();
  remove();
});
