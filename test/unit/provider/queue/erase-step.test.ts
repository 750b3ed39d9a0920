import { expect, test } from 'vitest';
import { Store } from '../../../../src/provider/queue/sql/store.ts';
import { SqliteDatabase } from '../../../../src/provider/queue/sqlite/sqlite-database.ts';
import { makeQueueFolder, WIDE_BOUNDS } from '../../../support/queue/sqlite-store.ts';

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
