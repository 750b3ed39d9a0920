import { expect, test } from 'vitest';
import { Store } from '../../../../src/provider/queue/sql/store.ts';
import { SqliteDatabase } from '../../../../src/provider/queue/sqlite/sqlite-database.ts';
import { makeQueueFolder, WIDE_BOUNDS } from '../../../support/queue/sqlite-store.ts';

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
