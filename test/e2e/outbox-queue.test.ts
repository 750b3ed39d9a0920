/** The outbox and the queue in real databases of PostgreSQL: the same one, with one transaction for each move, and different ones. */
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import type { DeliveryQueue } from '../../src/provider/queue/delivery-queue.ts';
import { until } from '../support/gate.ts';
import { countRows, createOutboxDatabase, insertEvents, runBeside, startOutbox, type TestOutbox } from '../support/outbox.ts';
import { type PostgresServer, startPostgres } from '../support/postgres.ts';
import { newEvent } from '../support/queue/events.ts';
import { deliverAll, drain } from '../support/queue/lanes.ts';
import { openPostgresQueue } from '../support/queue/postgres-store.ts';
import type { QueueOptions } from '../support/queue/sqlite-store.ts';

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres({ config: ['fsync = on'] });
});
afterAll(() => server.stop());

const now = (): number => systemClock.now();
const SCHEMA = 'queue';

/** A database in which the role of the outbox may create the schema of the queue. */
function createDatabase(): string {
  const database = createOutboxDatabase(server);
  server.sql(`GRANT CREATE ON DATABASE ${database} TO sidegate`);
  return database;
}

async function open(database: string, over: QueueOptions = {}, role = 'sidegate'): Promise<DeliveryQueue> {
  const queue = await openPostgresQueue(server.url({ role, database }), SCHEMA, over);
  onTestFinished(() => queue.close());
  return queue;
}

function start(database: string, queue: DeliveryQueue, over: Parameters<typeof startOutbox>[1] = {}): Promise<TestOutbox> {
  const parts = { append: queue.append.bind(queue), join: queue.join.bind(queue) };
  return startOutbox(server.url({ role: 'sidegate', database }), { ...parts, ...over });
}

/** Notes in which transaction rows of a table are inserted or deleted, and whether it commits durably. */
function noteChanges(database: string, ...tables: readonly string[]): () => string {
  server.sql(
    `CREATE TABLE notes (transaction bigint, commit text); GRANT INSERT ON notes TO PUBLIC;
     CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
     $$BEGIN INSERT INTO public.notes VALUES (txid_current(), current_setting('synchronous_commit')); RETURN NULL; END$$`,
    database,
  );
  for (const table of tables)
    server.sql(`CREATE TRIGGER note AFTER INSERT OR DELETE ON ${table} FOR EACH STATEMENT EXECUTE FUNCTION note()`, database);
  return () => server.sql("SELECT count(DISTINCT transaction), string_agg(DISTINCT commit, ' ') FROM notes", database);
}

/** Keeps the rows of the type `kept`, and counts how often one was to be removed. */
function keepRows(database: string, how = 'RETURN NULL', isDeferred = false): Promise<void> {
  return runBeside(
    server,
    database,
    `CREATE SEQUENCE removals; GRANT USAGE ON SEQUENCE removals TO sidegate;
     CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM nextval('removals'); ${how}; END$$;
     CREATE ${isDeferred ? 'CONSTRAINT TRIGGER keep AFTER' : 'TRIGGER keep BEFORE'} DELETE ON sidegate_outbox
     ${isDeferred ? 'DEFERRABLE INITIALLY DEFERRED' : ''} FOR EACH ROW WHEN (OLD.type = 'kept') EXECUTE FUNCTION keep()`,
  );
}

const countRemovals = (database: string): number => Number(server.sql('SELECT last_value FROM removals', database));

const storedEvents = async (queue: DeliveryQueue): Promise<number> => (await queue.stats(now())).storedEvents;

test('in one database, an event is stored and its row removed in one transaction, which commits durably', async () => {
  const database = createDatabase();
  const queue = await open(database);
  insertEvents(server, database, 3);
  const readNotes = noteChanges(database, 'sidegate_outbox', `${SCHEMA}.event`);
  await start(database, queue);
  await until(() => countRows(server, database) === 0);
  expect(readNotes()).toBe('1|off on');
  expect(await storedEvents(queue)).toBe(3);
});

test.each(['database', 'role'] as const)(
  'with another %s than the queue, an event is stored before its row is removed',
  async (other) => {
    const database = createDatabase();
    const queue = other === 'role' ? await open(database, {}, 'postgres') : await open(createDatabase());
    insertEvents(server, database, 3);
    const readNotes = noteChanges(database, 'sidegate_outbox');
    const left: number[] = [];
    const { log } = await start(database, queue, {
      append: async (events) => {
        const results = await queue.append(events);
        left.push(countRows(server, database));
        if (left.length === 1) throw new Error('no reply');
        return results;
      },
    });
    await until(() => countRows(server, database) === 0);
    expect([left, log[0]]).toEqual([[3, 3], expect.stringContaining('no reply')]);
    expect(readNotes()).toBe('1|off');
    expect(await storedEvents(queue)).toBe(3);
  },
);

describe.each(['the same', 'another'] as const)('with the queue in %s database, rows that a trigger keeps', (which) => {
  const openQueue = (database: string): Promise<DeliveryQueue> => open(which === 'the same' ? database : createDatabase());

  test('are not sent, are reported, and delay no others', async () => {
    const database = createDatabase();
    const queue = await openQueue(database);
    await keepRows(database);
    insertEvents(server, database, 150, 'kept', 'kept');
    insertEvents(server, database, 50);
    const { log, untilUp } = await start(database, queue, { pollInterval: 100 });
    await until(() => countRows(server, database) === 150);
    expect(await until(() => log[0])).toBe(
      'down: PostgreSQL keeps rows of sidegate_outbox that sidegate removes, such as the one with seq 1',
    );
    insertEvents(server, database, 50, 'later');
    await until(() => countRows(server, database) === 150);
    expect(await storedEvents(queue)).toBe(100);
    expect(log).toHaveLength(1);
    await runBeside(server, database, 'DROP TRIGGER keep ON sidegate_outbox');
    await untilUp();
    expect(countRows(server, database)).toBe(0);
    expect(await storedEvents(queue)).toBe(250);
  });

  test.each([
    ['an error', "RAISE EXCEPTION 'is kept'", false],
    ['an error of its values', "RAISE EXCEPTION USING ERRCODE = '22P02', MESSAGE = 'is kept'", false],
    ['an error at the end of the transaction', "RAISE EXCEPTION 'is kept'", true],
  ])('are not sent either if their removal is %s, and delay no others', async (_, how, isDeferred) => {
    const database = createDatabase();
    const queue = await openQueue(database);
    await keepRows(database, how, isDeferred);
    insertEvents(server, database, 20, 'kept', 'kept');
    insertEvents(server, database, 50);
    const { log, untilUp } = await start(database, queue, { pollInterval: 100 });
    await until(() => countRows(server, database) === 20);
    expect(await until(() => log[0])).toContain('is kept');
    expect(await storedEvents(queue)).toBe(50);
    await runBeside(server, database, 'DROP TRIGGER keep ON sidegate_outbox');
    await untilUp();
    expect(await storedEvents(queue)).toBe(70);
  });

  test('are not sent either if their removal takes too long, and delay no others', async () => {
    const database = createDatabase();
    const queue = await openQueue(database);
    await keepRows(database, "RAISE EXCEPTION USING ERRCODE = '57014', MESSAGE = 'is kept'");
    insertEvents(server, database, 1, 'kept', 'kept');
    insertEvents(server, database, 8);
    let pause = 0;
    const clock = { ...systemClock, monotonic: () => systemClock.monotonic() + pause };
    const { log, untilUp } = await start(database, queue, { clock, pollInterval: 20 });
    await until(() => countRows(server, database) === 1);
    // With the others, and alone.
    expect([await storedEvents(queue), countRemovals(database)]).toEqual([8, 2]);
    expect(await until(() => log.at(-1))).toContain('is kept');
    // Each removal holds up the others, so it is tried again alone, and less and less often.
    for (const [i, duration] of [10_000, 10_000, 10_000, 30_000].entries()) {
      pause += duration;
      await until(() => countRemovals(database) === 2 + Math.floor((i + 1) / 2));
      insertEvents(server, database, 8, `later${i}`);
      await until(() => countRows(server, database) === 1);
      expect(countRemovals(database)).toBe(2 + Math.floor((i + 1) / 2));
    }
    await runBeside(server, database, 'DROP TRIGGER keep ON sidegate_outbox');
    pause += 100_000;
    await untilUp();
    expect([countRows(server, database), await storedEvents(queue)]).toEqual([0, 41]);
  });

  test('are tried again less and less often, and not all of many', async () => {
    const database = createDatabase();
    const queue = await openQueue(database);
    await keepRows(database);
    insertEvents(server, database, 3_000, 'kept', 'kept');
    const startedAt = performance.now();
    await start(database, queue, { pollInterval: 10 });
    await until(() => countRemovals(database) >= 4_000);
    // 250 ms, 500 ms and 1 s.
    expect(performance.now() - startedAt).toBeGreaterThan(1_500);
    expect(await storedEvents(queue)).toBe(0);
  });

  test('from now on are not sent, and are reported, too', async () => {
    const database = createDatabase();
    const queue = await openQueue(database);
    insertEvents(server, database, 1);
    const { log, untilUp } = await start(database, queue);
    await untilUp();
    await keepRows(database);
    insertEvents(server, database, 3, 'kept', 'kept');
    insertEvents(server, database, 3, 'later');
    await until(() => log.at(-1)?.startsWith('down: PostgreSQL keeps rows') === true);
    await until(() => countRows(server, database) === 3);
    expect(await storedEvents(queue)).toBe(4);
    expect((await drain(queue, now)).map(({ event }) => event)).toEqual(expect.arrayContaining(['later1', 'later2', 'later3']));
  });
});

test('a trigger of the outbox that takes long holds up no event of the API', async () => {
  const database = createDatabase();
  const queue = await open(database);
  insertEvents(server, database, 1, 'first');
  const { untilUp } = await start(database, queue, { route: () => [{ endpoint: 'acme' }] });
  await untilUp();
  server.sql(
    `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
     CREATE TRIGGER wait AFTER DELETE ON sidegate_outbox EXECUTE FUNCTION wait()`,
    database,
  );
  const holder = new pg.Client(server.url({ database }));
  await holder.connect();
  await holder.query('BEGIN; SELECT pg_advisory_xact_lock(1)');
  insertEvents(server, database, 1);
  const findWaiting = (): string => server.sql("SELECT xact_start FROM pg_stat_activity WHERE wait_event = 'advisory'", database);
  const waiting = await until(() => findWaiting() || undefined);
  expect(await queue.append([newEvent(['acme'], { id: 'api' })])).toEqual(['stored']);
  expect(findWaiting()).toBe(waiting);
  await holder.end();
  await untilUp();
  await until(() => countRows(server, database) === 0);
  expect(await storedEvents(queue)).toBe(3);
});

test('an event is served at once, also by another replica', async () => {
  const database = createDatabase();
  const queue = await open(database);
  const other = await open(database, { clock: { ...systemClock, every: () => () => undefined } });
  const received: string[] = [];
  const serving = deliverAll(other, now, ({ event }) => received.push(event));
  // The connection that listens is opened in the background.
  await until(async () => {
    await queue.append([newEvent(['first'])]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    return received.length > 0;
  });
  await start(database, queue);
  insertEvents(server, database, 2, 'served');
  await until(() => received.includes('served1') && received.includes('served2'));
  await serving.stop();
});

test('events for which the queue has no room wait in the table, and others do not', async () => {
  const database = createDatabase();
  const queue = await open(database, { maxEvents: 1_000, endpointShare: 0.01 });
  insertEvents(server, database, 30, 'full', 'full');
  insertEvents(server, database, 50, 'other', 'other');
  const { log } = await start(database, queue, {
    route: ({ type }) => (type === 'full' ? [{ endpoint: 'acme' }] : []),
  });
  await until(() => countRows(server, database) === 20);
  expect(log).toContainEqual(expect.stringMatching(/^held: the endpoint acme has 10 undelivered events/));
  expect((await queue.findEvents({ type: 'full' }, { limit: 50 })).found.map(({ id }) => id).reverse()).toEqual(
    Array.from({ length: 10 }, (_, i) => `full${i + 1}`),
  );
  expect(await queue.stats(now())).toMatchObject({ storedEvents: 60, waiting: 10 });
  const serving = deliverAll(queue, now, () => undefined);
  await until(() => countRows(server, database) === 0);
  await serving.stop();
  expect(await storedEvents(queue)).toBe(80);
});

test('a full endpoint holds back its rows, however many types and tenants they have, and no others', {
  timeout: 60_000,
}, async () => {
  const KINDS = 12_000;
  const database = createDatabase();
  const queue = await open(database, { maxEvents: 1_000, endpointShare: 0.01 });
  server.sql(
    `INSERT INTO sidegate_outbox (id, type, tenant, data) SELECT 'audit' || n, 'audit', 't' || n, '{}' FROM generate_series(1, ${KINDS}) AS n`,
    database,
  );
  insertEvents(server, database, 5, 'good', 'good');
  const { log } = await start(database, queue, {
    pollInterval: 200,
    route: ({ type }) => [{ endpoint: type }],
  });
  await until(() => countRows(server, database) === KINDS - 10);
  insertEvents(server, database, 5, 'later', 'good');
  await until(() => countRows(server, database) === KINDS - 10);
  expect(log.filter((line) => line.startsWith('held'))).toHaveLength(1);
  const order: string[] = [];
  const serving = deliverAll(queue, now, ({ event, endpoint }) => endpoint === 'good' && order.push(event));
  await until(() => order.length === 10);
  await until(() => countRows(server, database) < KINDS - 10);
  await serving.stop();
  expect(order).toEqual(['good', 'later'].flatMap((prefix) => Array.from({ length: 5 }, (_, n) => `${prefix}${n + 1}`)));
});

test('an event that is larger than the share of its endpoint is rejected, and delays no other', async () => {
  const database = createDatabase();
  const queue = await open(database, { maxBytes: 10_000, endpointShare: 0.1, tenantShare: 1 });
  server.sql(
    "INSERT INTO sidegate_outbox (id, type, data) VALUES ('huge', 'a.b', json_build_object('text', repeat('x', 900))), ('small', 'a.b', '{}')",
    database,
  );
  await start(database, queue);
  await until(() => countRows(server, database) === 0);
  expect(await drain(queue, now)).toMatchObject([{ event: 'small' }]);
  expect(server.sql('SELECT id, reason FROM sidegate_outbox_rejected', database)).toMatch(
    /^huge\|the event takes \d+ bytes of the queue, more than the endpoint acme may have$/,
  );
});

test.each(['the same', 'another'] as const)(
  'an event that the queue in %s database cannot store is rejected alone',
  async (which) => {
    const database = createDatabase();
    const queue = await open(which === 'the same' ? database : createDatabase());
    insertEvents(server, database, 20, 'before');
    server.sql(String.raw`INSERT INTO sidegate_outbox (id, type, data) VALUES ('bad', 'a.b', '{"key":"a\u0000b"}')`, database);
    insertEvents(server, database, 20, 'after');
    const { log } = await start(database, queue, {
      route: ({ data }) => [{ endpoint: 'acme', orderKey: String(data['key'] ?? '') }],
    });
    await until(() => countRows(server, database) === 0);
    expect(log.filter((line) => line.startsWith('down'))).toEqual([]);
    expect(await storedEvents(queue)).toBe(40);
    expect((await drain(queue, now)).map(({ event }) => event)).toEqual(
      ['before', 'after'].flatMap((prefix) => Array.from({ length: 20 }, (_, n) => `${prefix}${n + 1}`)),
    );
    expect(server.sql('SELECT id, reason FROM sidegate_outbox_rejected', database)).toBe(
      'bad|the queue in PostgreSQL cannot store a value: unsupported Unicode escape sequence (22P05)',
    );
  },
);

test('two outboxes and the API that store events with the same IDs at once store each one once', async () => {
  const database = createDatabase();
  const queues = [await open(database), await open(database)] as const;
  const outboxes = await Promise.all(queues.map((queue) => start(database, queue, { pollInterval: 50 })));
  const inserting = (async () => {
    for (let i = 0; i < 20; i++) {
      insertEvents(server, database, 10, `a${i}_`);
      await Promise.all(
        queues.map((queue) =>
          queue.append(Array.from({ length: 10 }, (_, n) => newEvent([`e${n % 3}`], { id: `a${i}_${n + 1}` }))),
        ),
      );
    }
  })();
  await inserting;
  await until(() => countRows(server, database) === 0);
  expect(await storedEvents(queues[0])).toBe(200);
  for (const { log } of outboxes) expect(log.filter((line) => line.startsWith('down'))).toEqual([]);
});
