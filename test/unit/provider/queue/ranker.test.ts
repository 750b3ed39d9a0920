import { expect, test } from 'vitest';
import { Store } from '../../../../src/provider/queue/sql/store.ts';
import { SqliteDatabase } from '../../../../src/provider/queue/sqlite/sqlite-database.ts';
import { makeQueueFolder, WIDE_BOUNDS } from '../../../support/queue/sqlite-store.ts';

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
    const facts = { key: null, tenant: undefined, bytes: 1, waiting: 1 };
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
