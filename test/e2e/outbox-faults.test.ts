/** Outages of PostgreSQL, what delays the outbox, and what it may do. */
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { OUTBOX_MIGRATIONS, takeRows, testOutbox } from '../../src/provider/outbox/outbox-table.ts';
import { useAuthority, usePostgres } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import {
  countRows,
  createDatabase,
  createOutboxDatabase,
  insertEvents,
  readOutboxBlock,
  runBeside,
  startOutbox,
  toTarget,
} from '../support/outbox.ts';
import { type Pooler, type PostgresServer, startPooler, startPostgres } from '../support/postgres.ts';

test('the search for a row that is not held back takes no longer with many kinds', async () => {
  const server = await startPostgres();
  onTestFinished(() => server.stop());
  const database = createOutboxDatabase(server);
  const url = server.url({ database });
  const client = new pg.Client(url);
  await client.connect();
  onTestFinished(() => client.end());
  await client.query(
    `INSERT INTO sidegate_outbox (type, tenant, data) SELECT 'a', 't' || i % 9000, '{}' FROM generate_series(1, 50000) i`,
  );
  await client.query(`INSERT INTO sidegate_outbox (type, tenant, data) VALUES ('a', NULL, '{}'), ('b', 't1', '{}')`);
  const kinds = Array.from({ length: 9_000 }, (_, i) => ({ type: 'a', tenant: `t${i}` }));
  // Comparing each row with each kind takes more than a minute.
  await client.query('BEGIN; SET LOCAL statement_timeout = 10000');
  const rows = await takeRows(
    client,
    { kinds, isHeld: undefined, stuck: [], alone: undefined },
    { rows: 10, maxBytes: 1_000, totalBytes: 10_000 },
  );
  expect(rows.map(({ type, tenant }) => [type, tenant])).toEqual([
    ['a', null],
    ['b', 't1'],
  ]);
  await client.query('COMMIT');
}, 60_000);

describe('a server', () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server.stop());
  const toUrl = (database: string): string => server.url({ role: 'sidegate', database });

  test('that is stopped at once and started again: the outbox goes on, and says what was wrong', async () => {
    const database = createOutboxDatabase(server);
    const { queue, log, untilUp } = await startOutbox(toUrl(database));
    await untilUp();
    for (let round = 1; round <= 3; round++) {
      await server.kill();
      await until(() => log.at(-1)?.endsWith('connection refused') === true);
      await server.restart();
      insertEvents(server, database, 10, `r${round}:`);
      await until(() => queue.events.size === 10 * round && log.at(-1) === 'up');
    }
    expect(log.filter((line) => line === 'up')).toHaveLength(4);
    await until(() => countRows(server, database) === 0);
  });

  test('with rows too large to be moved: the outbox goes on, leaves them there, and says so', async () => {
    const database = createOutboxDatabase(server);
    // Random digits are hardly compressed.
    server.sql(
      `INSERT INTO sidegate_outbox (id, type, data)
         SELECT 'large' || n, 'a', json_build_object('x', (SELECT string_agg(md5((n * i)::text), '') FROM generate_series(1, 1200000) i))
         FROM generate_series(1, 2) n`,
      database,
    );
    const { queue, log } = await startOutbox(toUrl(database));
    for (let round = 1; round <= 3; round++) {
      insertEvents(server, database, 5, `r${round}:`);
      await until(() => queue.events.size === 5 * round);
    }
    await until(() => countRows(server, database) === 2);
    expect(server.sql('SELECT count(*) FROM sidegate_outbox_rejected', database)).toBe('0');
    expect(log.filter((line) => line.startsWith('down'))).toEqual([]);
    const reason =
      /^rejected 1: the event has at least \d+ bytes; .*; it is too large to be moved to the rejected rows: delete it/;
    expect(log.filter((line) => reason.test(line))).toHaveLength(2);
  });

  test('that stops while the queue stores events: they are stored once', async () => {
    const database = createOutboxDatabase(server);
    insertEvents(server, database, 50);
    let release = (): void => undefined;
    const stored = new Promise<void>((resolve) => {
      release = resolve;
    });
    const results: string[] = [];
    const outbox = await startOutbox(toUrl(database), {
      append: async (events) => {
        const found = await outbox.queue.append(events);
        results.push(...found);
        await stored;
        return found;
      },
    });
    await until(() => outbox.queue.events.size === 50);
    await server.restart();
    expect(countRows(server, database)).toBe(50);
    release();
    await until(() => countRows(server, database) === 0);
    expect(results.filter((result) => result === 'stored')).toHaveLength(50);
    expect(results.filter((result) => result === 'duplicate')).toHaveLength(50);
  });

  test('that becomes a read-only standby: the outbox says so, and goes on after the promotion', async () => {
    const database = createOutboxDatabase(server);
    const { queue, log, untilUp } = await startOutbox(toUrl(database));
    await untilUp();
    insertEvents(server, database, 5);
    await until(() => countRows(server, database) === 0);
    await server.restart('standby');
    await until(() => log.at(-1)?.includes('cannot set transaction read-write mode during recovery') === true);
    const { hint } = await testOutbox(await toTarget(toUrl(database)), 'public');
    expect(hint).toBe('this server is a read-only standby: use the address of the primary');
    server.promote();
    insertEvents(server, database, 5, 'later');
    await until(() => queue.events.size === 10);
  });

  test('whose role has a short statement timeout moves all rows', async () => {
    const database = createOutboxDatabase(server);
    server.sql("ALTER ROLE sidegate SET statement_timeout = '1ms'; ALTER ROLE sidegate SET lock_timeout = '1ms'");
    onTestFinished(() => void server.sql('ALTER ROLE sidegate RESET ALL'));
    insertEvents(server, database, 2_000);
    const { queue } = await startOutbox(toUrl(database));
    await until(() => countRows(server, database) === 0);
    expect(queue.events.size).toBe(2_000);
  });

  test('whose table is locked for a migration of the app: the outbox waits', async () => {
    const database = createOutboxDatabase(server);
    const { queue, untilUp } = await startOutbox(toUrl(database));
    await untilUp();
    const owner = new pg.Client({ connectionString: server.url({ database }) });
    await owner.connect();
    onTestFinished(() => owner.end());
    await owner.query('BEGIN; LOCK TABLE sidegate_outbox IN ACCESS EXCLUSIVE MODE');
    await owner.query("INSERT INTO sidegate_outbox (id, type, data) VALUES ('x', 'a.b', '{}')");
    await owner.query('COMMIT');
    await until(() => queue.events.has('x'));
  });

  test('with a long transaction that holds a snapshot: events are moved as fast, and none twice', async () => {
    const database = createOutboxDatabase(server);
    const old = new pg.Client({ connectionString: server.url({ database }) });
    await old.connect();
    onTestFinished(() => old.end());
    await old.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM sidegate_outbox');
    const results: string[] = [];
    const outbox = await startOutbox(toUrl(database), {
      append: async (events) => {
        const found = await outbox.queue.append(events);
        results.push(...found);
        return found;
      },
    });
    for (let round = 0; round < 5; round++) insertEvents(server, database, 2_000, `r${round}:`);
    await until(() => countRows(server, database) === 0);
    expect(results).toHaveLength(10_000);
    expect(results.every((result) => result === 'stored')).toBe(true);
  });

  test('that asks for another password than the URL has: the message names neither', async () => {
    const database = createOutboxDatabase(server);
    const url = toUrl(database).replace(/:[^:@]+@/, ':wrong-password@');
    const { log, outbox, untilUp } = await startOutbox(url);
    const line = await until(() => log[0]);
    expect(line).toBe(
      `down: PostgreSQL at 127.0.0.1:${server.port}/${database}: password authentication failed for user "sidegate"`,
    );
    outbox.replace(await toTarget(toUrl(database)));
    await untilUp();
  });
});

describe('a connection pooler in transaction mode', () => {
  let server: PostgresServer;
  let pooler: Pooler;
  beforeAll(async () => {
    server = await startPostgres();
    createOutboxDatabase(server);
    pooler = await startPooler(server, ['billing', 'sidegate']);
  });
  afterAll(async () => {
    await pooler.stop();
    await server.stop();
  });

  test('loses notifications: the events are found by the search', async () => {
    const database = createOutboxDatabase(server);
    const { queue, untilUp } = await startOutbox(pooler.url({ role: 'sidegate', database }), { pollInterval: 100 });
    await untilUp();
    const app = new pg.Client({ connectionString: pooler.url({ role: 'billing', database }) });
    await app.connect();
    onTestFinished(() => app.end());
    for (let n = 0; n < 20; n++)
      await app.query("INSERT INTO sidegate_outbox (id, type, data) VALUES ($1, 'a.b', '{}')", [`e${n}`]);
    await until(() => queue.events.size === 20);
    await until(() => countRows(server, database) === 0);
  });

  test('serves two replicas of which each has its own transactions', async () => {
    const database = createOutboxDatabase(server);
    insertEvents(server, database, 1_000);
    const url = pooler.url({ role: 'sidegate', database });
    const first = await startOutbox(url, { pollInterval: 100 });
    await startOutbox(url, { pollInterval: 100 }, first.queue);
    await until(() => countRows(server, database) === 0);
    expect(first.queue.events.size).toBe(1_000);
  });
});

describe('the roles of docs/outbox.md', () => {
  const server = usePostgres();
  const insert = "INSERT INTO sidegate_outbox (type, data) VALUES ('a.b', '{}')";
  async function query(role: string, database: string, text: string): Promise<pg.QueryResult> {
    const client = new pg.Client({ connectionString: server.url({ role, database }) });
    await client.connect();
    try {
      return await client.query(text);
    } finally {
      await client.end();
    }
  }

  test('are enough: the app inserts, and sidegate moves, rejects and measures', async () => {
    const database = createOutboxDatabase(server);
    await query('billing', database, insert);
    await query(
      'billing',
      database,
      "INSERT INTO sidegate_outbox (id, type, tenant, created, data) VALUES (' ', 'a.b', 't', now(), '{}')",
    );
    const { queue, log, figures, untilUp } = await startOutbox(server.url({ role: 'sidegate', database }));
    await untilUp();
    expect(figures()).toBeDefined();
    expect(queue.events.size).toBe(1);
    expect(countRows(server, database, 'sidegate_outbox_rejected')).toBe(1);
    expect(log).toEqual(['rejected 1: an ID is 1 to 128 letters, digits and _ : -', 'up']);
  });

  test.each([
    ['billing', 'SELECT * FROM sidegate_outbox'],
    ['billing', 'SELECT id FROM sidegate_outbox'],
    ['billing', `${insert} RETURNING id`],
    ['billing', "UPDATE sidegate_outbox SET type = 'c'"],
    ['billing', 'DELETE FROM sidegate_outbox'],
    ['billing', 'TRUNCATE sidegate_outbox'],
    ['billing', "INSERT INTO sidegate_outbox (type, data, inserted) VALUES ('a.b', '{}', now())"],
    ['billing', 'SELECT * FROM sidegate_outbox_rejected'],
    ['billing', 'SELECT * FROM sidegate_outbox_version'],
    ['billing', 'CREATE TABLE more (n int)'],
    ['sidegate', insert],
    ['sidegate', "UPDATE sidegate_outbox SET type = 'c'"],
    ['sidegate', 'TRUNCATE sidegate_outbox'],
    ['sidegate', 'SELECT * FROM sidegate_outbox_rejected'],
    ['sidegate', 'DELETE FROM sidegate_outbox_rejected'],
    ['sidegate', 'INSERT INTO sidegate_outbox_version VALUES (2)'],
    ['sidegate', 'SELECT * FROM invoice'],
    ['sidegate', 'CREATE TABLE more (n int)'],
  ])('are not too much: %s may not run %s', async (role, text) => {
    const database = createOutboxDatabase(server);
    server.sql('CREATE TABLE invoice (number int)', database);
    await expect(query(role, database, text)).rejects.toThrow('permission denied');
  });

  test('do not let sidegate set the generated number', async () => {
    const database = createOutboxDatabase(server);
    await expect(query('sidegate', database, 'UPDATE sidegate_outbox SET seq = 1')).rejects.toThrow(
      'column "seq" can only be updated to DEFAULT',
    );
  });

  test('are named if a right is missing', async () => {
    const database = createOutboxDatabase(server);
    server.sql(
      'REVOKE DELETE ON sidegate_outbox FROM sidegate; REVOKE INSERT ON sidegate_outbox_rejected FROM sidegate',
      database,
    );
    const target = await toTarget(server.url({ role: 'sidegate', database }));
    expect(await testOutbox(target, 'public')).toEqual({
      title: `PostgreSQL at 127.0.0.1:${server.port}/${database}`,
      failure: `PostgreSQL at 127.0.0.1:${server.port}/${database}: the role sidegate lacks DELETE on sidegate_outbox, INSERT on sidegate_outbox_rejected`,
      hint: 'grant it as docs/outbox.md shows',
    });
    server.sql('REVOKE SELECT ON sidegate_outbox_version FROM sidegate', database);
    expect((await testOutbox(target, 'public')).failure).toContain('permission denied for table sidegate_outbox_version');
  });
});

describe('row-level security', () => {
  const server = usePostgres();
  const enable = (table: string): string => `ALTER TABLE ${table} ENABLE ROW LEVEL SECURITY`;

  test.each([
    ['sidegate_outbox', /lacks BYPASSRLS, without which row-level security hides rows$/],
    ['sidegate_outbox_rejected', /lacks BYPASSRLS, without which row-level security hides rows$/],
    ['sidegate_outbox_version', /query would be affected by row-level security policy for table "sidegate_outbox_version"$/],
  ])('of %s is named before it hides rows', async (table, failure) => {
    const database = createOutboxDatabase(server);
    server.sql(enable(table), database);
    const target = await toTarget(server.url({ role: 'sidegate', database }));
    const found = await testOutbox(target, 'public');
    expect(found.failure).toMatch(failure);
    expect(found.hint).toMatch(/docs\/outbox\.md/);
  });

  test('that is enabled later is an outage, until the role may pass it', async () => {
    const database = createOutboxDatabase(server);
    const { queue, log, untilUp } = await startOutbox(server.url({ role: 'sidegate', database }), { pollInterval: 100 });
    await untilUp();
    const policy = 'CREATE POLICY ins ON sidegate_outbox FOR INSERT TO billing WITH CHECK (true)';
    await runBeside(server, database, `${enable('sidegate_outbox')}; ${policy}`);
    insertEvents(server, database, 3);
    await until(() => log.some((line) => line.includes('row-level security')));
    expect(queue.events.size).toBe(0);
    server.sql('ALTER ROLE sidegate BYPASSRLS');
    await until(() => queue.events.size === 3);
  });
});

describe('the tables', () => {
  const server = usePostgres();

  test('are those of the docs', () => {
    const [first = ''] = OUTBOX_MIGRATIONS;
    expect(readOutboxBlock('tables.sql')).toContain(first);
    expect(readOutboxBlock('tables.sql')).toContain(`VALUES (${OUTBOX_MIGRATIONS.length})`);
  });

  test('are created once by ten replicas that start at once, in the schema of the config', async () => {
    const database = createDatabase(server);
    server.sql('CREATE SCHEMA events', database);
    const all = await Promise.all(Array.from({ length: 10 }, () => startOutbox(server.url({ database }), { schema: 'events' })));
    await Promise.all(all.map(({ untilUp }) => untilUp()));
    expect(all.flatMap(({ log }) => log).every((line) => line === 'up')).toBe(true);
    expect(server.sql('SELECT version FROM events.sidegate_outbox_version', database)).toBe('1');
    server.sql("INSERT INTO events.sidegate_outbox (type, data) VALUES ('a.b', '{}')", database);
    await until(() => all.some(({ queue }) => queue.events.size === 1));
  });

  test('that are of a newer version are used: a new replica migrates, and old ones go on', async () => {
    const database = createOutboxDatabase(server);
    server.sql('INSERT INTO sidegate_outbox_version VALUES (2); ALTER TABLE sidegate_outbox ADD COLUMN more text', database);
    insertEvents(server, database, 3);
    const { queue } = await startOutbox(server.url({ role: 'sidegate', database }));
    await until(() => queue.events.size === 3);
  });

  test('that are missing are named, as is the way to create them', async () => {
    const database = createDatabase(server);
    createOutboxDatabase(server);
    const target = await toTarget(server.url({ role: 'sidegate', database }));
    expect(await testOutbox(target, 'public')).toMatchObject({
      failure: `PostgreSQL at 127.0.0.1:${server.port}/${database}: the schema public has no table sidegate_outbox that the role sidegate can see, and the role may not create it`,
      hint: 'run the SQL of docs/outbox.md as the owner of the schema',
    });
    expect(await testOutbox(await toTarget(server.url({ database })), 'public')).toMatchObject({
      title: `PostgreSQL at 127.0.0.1:${server.port}/${database} (the start creates the tables of the outbox)`,
      failure: undefined,
    });
    expect(server.sql("SELECT to_regclass('sidegate_outbox') IS NULL", database)).toBe('t');
  });

  test('that differ from the docs are an error with a hint that leads there', async () => {
    const database = createOutboxDatabase(server);
    server.sql('DROP TABLE sidegate_outbox_rejected', database);
    const { failure, hint } = await testOutbox(await toTarget(server.url({ role: 'sidegate', database })), 'public');
    expect(failure).toContain('relation "sidegate_outbox_rejected" does not exist');
    expect(hint).toContain('compare the tables, and their triggers and rules, with docs/outbox.md');
  });
});

describe('TLS', () => {
  const ca = useAuthority();
  let server: PostgresServer;
  let plain: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres({ tls: ca.issue('postgres', 'DNS:localhost') });
    plain = await startPostgres();
    createOutboxDatabase(server);
  });
  afterAll(async () => {
    await plain.stop();
    await server.stop();
  });
  const run = async (search: string, host = 'localhost', from = server) => {
    const url = from.url({ search }).replace('127.0.0.1', host);
    return testOutbox(await toTarget(url), 'public');
  };

  test.each([
    [
      'verify-full, with a name that the certificate has',
      (file: string) => `?sslmode=verify-full&sslrootcert=${file}`,
      'localhost',
    ],
    ['verify-ca, with any name', (file: string) => `?sslmode=verify-ca&sslrootcert=${file}`, '127.0.0.1'],
    ['require, with any certificate', () => '?sslmode=require', '127.0.0.1'],
    ['disable, without TLS', () => '?sslmode=disable', 'localhost'],
  ])('connects with sslmode=%s', async (_, toSearch, host) => {
    expect((await run(toSearch(ca.ca), host)).failure).toBeUndefined();
  });

  test('is used and verified if the URL asks for it', async () => {
    const name = await run(`?sslmode=verify-full&sslrootcert=${ca.ca}`, '127.0.0.1');
    expect(name.failure).toContain("IP: 127.0.0.1 is not in the cert's list");
    expect(name.hint).toBe('use a host name in the URL that the certificate of the server contains');
    const issuer = await run('?sslmode=verify-full');
    expect(issuer.hint).toContain('set sslrootcert in the URL');
    const none = await run('?sslmode=require', 'localhost', plain);
    expect(none.failure).toContain('does not support SSL');
    expect(none.hint).toContain('enable TLS on the server');
  });
});
