/** The outbox between a real PostgreSQL and a queue in memory. */
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { SidegateError } from '../../src/core/errors.ts';
import { usePostgres } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { countRows, createOutboxDatabase, insertEvents, runBeside, startOutbox } from '../support/outbox.ts';
import { MemoryQueue } from '../support/provider/memory-queue.ts';

const server = usePostgres();
const toUrl = (database: string, role = 'sidegate'): string => server.url({ role, database });

async function connect(database: string, role = 'billing'): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: toUrl(database, role) });
  client.on('error', () => undefined);
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

const ids = (queue: MemoryQueue): string[] => [...queue.events.keys()];

describe('an event that the app inserts', () => {
  test('is moved to the queue as soon as the transaction commits, with the bytes of its data', async () => {
    const database = createOutboxDatabase(server);
    const { queue, untilUp } = await startOutbox(toUrl(database));
    await untilUp();
    const app = await connect(database);
    await app.query('BEGIN');
    const data = '{"b": 1,  "a": 12345678901234567890.0, "ü": "\\u0041"}';
    const values = ['e1', 'invoice.paid', 'acme', '2027-01-02T03:04:05.678Z', data];
    await app.query('INSERT INTO sidegate_outbox (id, type, tenant, created, data) VALUES ($1, $2, $3, $4, $5)', values);
    expect(queue.events.size).toBe(0);
    await app.query('COMMIT');
    const event = await until(() => queue.events.get('e1'));
    expect(event).toMatchObject({ type: 'invoice.paid', tenant: 'acme', targets: [{ endpoint: 'acme' }] });
    expect(String(event.body)).toBe(`{"type":"invoice.paid","id":"e1","created":1798859045,"data":${data}}`);
    await until(() => countRows(server, database) === 0);
  });

  test('gets an ID and the time of the transaction if the app gives none', async () => {
    const database = createOutboxDatabase(server);
    const app = await connect(database);
    await app.query("INSERT INTO sidegate_outbox (type, data) VALUES ('a.b', '{}')");
    const { queue } = await startOutbox(toUrl(database));
    const [event] = await until(() => queue.events.size > 0 && [...queue.events.values()]);
    expect(event?.id).toMatch(/^msg_[0-9a-f]{32}$/);
    const { created } = JSON.parse(String(event?.body)) as { created: number };
    expect(Math.abs(created - Date.now() / 1_000)).toBeLessThan(60);
  });

  test('is not sent if the transaction or a savepoint is rolled back', async () => {
    const database = createOutboxDatabase(server);
    const { queue } = await startOutbox(toUrl(database));
    const app = await connect(database);
    await app.query("BEGIN; INSERT INTO sidegate_outbox (id, type, data) VALUES ('gone', 'a.b', '{}'); ROLLBACK");
    await app.query(
      "BEGIN; SAVEPOINT s; INSERT INTO sidegate_outbox (id, type, data) VALUES ('gone', 'a.b', '{}'); ROLLBACK TO s; INSERT INTO sidegate_outbox (id, type, data) VALUES ('kept', 'a.b', '{}'); COMMIT",
    );
    await until(() => queue.events.size > 0);
    await until(() => countRows(server, database) === 0);
    expect(ids(queue)).toEqual(['kept']);
  });

  test('is accepted once if its ID is inserted twice', async () => {
    const database = createOutboxDatabase(server);
    server.sql(`INSERT INTO sidegate_outbox (id, type, data) VALUES ('x', 'a.b', '{"n":1}'), ('x', 'a.b', '{"n":2}')`, database);
    const { queue } = await startOutbox(toUrl(database));
    await until(() => countRows(server, database) === 0);
    expect(ids(queue)).toEqual(['x']);
    expect(String(queue.events.get('x')?.body)).toContain('{"n":1}');
  });

  test('is accepted once if it is inserted again with its ID and data, whether the app gives its time or not', async () => {
    const database = createOutboxDatabase(server);
    const insert = `INSERT INTO sidegate_outbox (id, type, data) VALUES ('x', 'a.b', '{"n":1}')`;
    const dated = `INSERT INTO sidegate_outbox (id, type, created, data) VALUES ('y', 'a.b', '2027-01-02', '{}')`;
    // Each is a transaction, with its own default time.
    for (let i = 0; i < 2; i++) {
      server.sql(`UPDATE sidegate_outbox SET created = created - interval '1 h', inserted = inserted - interval '1 h'`, database);
      for (const statement of [insert, dated.replace('2027', String(2027 + i))]) server.sql(statement, database);
    }
    const { queue } = await startOutbox(toUrl(database));
    await until(() => countRows(server, database) === 0);
    expect(ids(queue)).toEqual(['x', 'y']);
    expect(server.sql('SELECT id, reason FROM sidegate_outbox_rejected', database)).toBe(
      'y|another event was accepted with the same ID',
    );
  });

  test('is after the earlier ones of its writer, if several write at once', async () => {
    const database = createOutboxDatabase(server);
    const { queue } = await startOutbox(toUrl(database));
    const write = async (writer: number): Promise<void> => {
      const app = await connect(database);
      for (let n = 0; n < 50; n++)
        await app.query("INSERT INTO sidegate_outbox (id, type, data) VALUES ($1, 'a.b', '{}')", [`w${writer}:${n}`]);
    };
    await Promise.all([0, 1, 2, 3].map(write));
    await until(() => queue.events.size === 200);
    for (const writer of [0, 1, 2, 3])
      expect(ids(queue).filter((id) => id.startsWith(`w${writer}:`))).toEqual(
        Array.from({ length: 50 }, (_, n) => `w${writer}:${n}`),
      );
  });

  test('is found if its transaction commits long after later ones', async () => {
    const database = createOutboxDatabase(server);
    const { queue, untilUp } = await startOutbox(toUrl(database), { pollInterval: 200 });
    await untilUp();
    const slow = await connect(database);
    await slow.query("BEGIN; INSERT INTO sidegate_outbox (id, type, data) VALUES ('late', 'a.b', '{}')");
    insertEvents(server, database, 3_000);
    await until(() => queue.events.size === 3_000);
    await slow.query('COMMIT');
    await until(() => queue.events.has('late'));
  });
});

describe('a row that is no valid event', () => {
  test('is moved to the rejected rows with the reason, and delays no other', async () => {
    const database = createOutboxDatabase(server);
    const invalid = [
      [`'a.b'`, `'bad id'`, `'{}'`, 'NULL', 'now()', 'an ID is 1 to 128'],
      [`'a.b'`, `repeat('i', 129)`, `'{}'`, 'NULL', 'now()', 'an ID is 1 to 128'],
      [`'a..b'`, `'t'`, `'{}'`, 'NULL', 'now()', 'an event type consists of'],
      [`repeat('t', 5000)`, `'t'`, `'{}'`, 'NULL', 'now()', 'an event type has at most 128'],
      [`'a.b'`, `'c'`, `'{}'`, `'two words'`, 'now()', 'a tenant is 1 to 128'],
      [`'a.b'`, `'l'`, `'[1]'`, 'NULL', 'now()', 'data is not a JSON object'],
      [`'a.b'`, `'n'`, `'null'`, 'NULL', 'now()', 'data is not a JSON object'],
      [`'a.b'`, `'d'`, `'{"a":1,"a":2}'`, 'NULL', 'now()', 'data: the member "a" is repeated'],
      [`'a.b'`, `'i'`, `'{}'`, 'NULL', `'infinity'`, 'created is a number'],
      [`'a.b'`, `'o'`, `'{}'`, 'NULL', `'1969-01-01'`, 'created is a number'],
      [`'a.b'`, `'s'`, `json_build_object('s', repeat('x', 990))`, 'NULL', 'now()', 'the event has at least 1004'],
      [`'a.b'`, `'h'`, `json_build_object('s', repeat('x', 5000000))`, 'NULL', 'now()', 'the event has at least 57'],
    ] as const;
    const rows = invalid.map(([type, id, data, tenant, created]) => `(${type}, ${id}, ${data}, ${tenant}, ${created})`);
    server.sql(
      `INSERT INTO sidegate_outbox (type, id, data, tenant, created) VALUES ${rows.join(', ')}, ('a.b', 'good', '{}', NULL, now())`,
      database,
    );
    const { queue, log } = await startOutbox(toUrl(database));
    await until(() => countRows(server, database) === 0);
    expect(ids(queue)).toEqual(['good']);
    const reasons = server.sql('SELECT reason FROM sidegate_outbox_rejected ORDER BY seq', database).split('\n');
    expect(reasons).toHaveLength(invalid.length);
    for (const [index, reason] of reasons.entries()) expect(reason).toContain(invalid[index]?.[5]);
    expect(server.sql('SELECT max(length(data::text)) FROM sidegate_outbox_rejected', database)).toBe('5000010');
    await until(() => log.some((line) => line.startsWith('rejected')));
    expect(log.filter((line) => line.startsWith('rejected'))).toHaveLength(1);
  });

  test('may have the number of one that was rejected before: neither is lost', async () => {
    const database = createOutboxDatabase(server);
    const { queue, log } = await startOutbox(toUrl(database));
    insertEvents(server, database, 1, 'first', 'a..b');
    await until(() => countRows(server, database, 'sidegate_outbox_rejected') === 1);
    await until(() => countRows(server, database) === 0);
    await runBeside(server, database, 'TRUNCATE sidegate_outbox RESTART IDENTITY');
    insertEvents(server, database, 1, 'second', 'a..b');
    insertEvents(server, database, 20);
    await until(() => countRows(server, database) === 0);
    expect(queue.events.size).toBe(20);
    expect(server.sql('SELECT seq, id FROM sidegate_outbox_rejected ORDER BY rejected', database)).toBe('1|first1\n1|second1');
    expect(log.filter((line) => line.startsWith('down'))).toEqual([]);
  });

  const refuse = (how: string): string =>
    `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN ${how}; END$$;
     CREATE TRIGGER refuse BEFORE INSERT ON sidegate_outbox_rejected FOR EACH ROW EXECUTE FUNCTION refuse()`;

  test.each([
    ['an error', refuse("RAISE EXCEPTION 'no'"), /^down: PostgreSQL at .*: no$/],
    ['nothing', refuse('RETURN NULL'), /^down: sidegate_outbox_rejected does not take the rows$/],
    ['a missing value', 'ALTER TABLE sidegate_outbox_rejected ADD more int NOT NULL', /^down: .* violates not-null constraint$/],
    ['a missing right', 'REVOKE INSERT ON sidegate_outbox_rejected FROM sidegate', /^down: .* permission denied for table/],
  ])('stays while the table of rejected rows answers with %s, and delays no other', async (_, sql, expected) => {
    const database = createOutboxDatabase(server);
    const { queue, log, untilUp } = await startOutbox(toUrl(database));
    await untilUp();
    await runBeside(server, database, sql);
    server.sql("INSERT INTO sidegate_outbox (id, type, data) VALUES ('bad', 'a..b', '{}'), ('good', 'a.b', '{}')", database);
    await until(() => queue.events.has('good'));
    expect(await until(() => log[1])).toMatch(expected);
    insertEvents(server, database, 20);
    await until(() => countRows(server, database) === 1);
    expect(ids(queue)).toHaveLength(21);
    expect(log).toHaveLength(2);
    await runBeside(
      server,
      database,
      `DROP TRIGGER IF EXISTS refuse ON sidegate_outbox_rejected; ALTER TABLE sidegate_outbox_rejected DROP IF EXISTS more;
       GRANT INSERT ON sidegate_outbox_rejected TO sidegate`,
    );
    await untilUp();
    expect(server.sql('SELECT id FROM sidegate_outbox_rejected', database)).toBe('bad');
    expect(log.slice(2)).toEqual([expect.stringMatching(/^rejected 1: an event type consists/), 'up']);
  });

  test('is also one whose ID another event has', async () => {
    const database = createOutboxDatabase(server);
    insertEvents(server, database, 2);
    await startOutbox(toUrl(database), {
      append: async (events) => events.map(({ id }) => (id === 'e1' ? 'conflict' : 'stored')),
    });
    await until(() => countRows(server, database) === 0);
    expect(server.sql('SELECT id, reason FROM sidegate_outbox_rejected', database)).toBe(
      'e1|another event was accepted with the same ID',
    );
  });
});

describe('a queue', () => {
  test('that is full delays events, and loses none', async () => {
    const database = createOutboxDatabase(server);
    const queue = new MemoryQueue();
    queue.maxEvents = 150;
    insertEvents(server, database, 300);
    const { log } = await startOutbox(toUrl(database), {}, queue);
    await until(() => queue.events.size === 150);
    await until(() => log.some((line) => line.startsWith('held: ')));
    expect(countRows(server, database)).toBeGreaterThanOrEqual(150);
    queue.maxEvents = 1_000;
    await until(() => queue.events.size === 300);
    await until(() => countRows(server, database) === 0);
    expect(ids(queue)).toEqual(Array.from({ length: 300 }, (_, index) => `e${index + 1}`));
    expect(log.filter((line) => line.startsWith('held'))).toHaveLength(1);
  });

  test('that refuses the events of one type accepts all others meanwhile, and later those, in order', async () => {
    const database = createOutboxDatabase(server);
    insertEvents(server, database, 500, 'dead', 'dead.type');
    insertEvents(server, database, 500, 'good');
    let isFull = true;
    const queue = new MemoryQueue();
    const append: MemoryQueue['append'] = async (events) => {
      if (isFull && events.some(({ type }) => type === 'dead.type'))
        throw new SidegateError('system', 'queue_full', 'the endpoint acme has used its share');
      return queue.append(events);
    };
    await startOutbox(toUrl(database), { append }, queue);
    await until(() => queue.events.size === 500);
    expect(ids(queue).every((id) => id.startsWith('good'))).toBe(true);
    isFull = false;
    await until(() => queue.events.size === 1_000);
    expect(ids(queue).slice(500)).toEqual(Array.from({ length: 500 }, (_, index) => `dead${index + 1}`));
  });

  test('that is unavailable is tried again', async () => {
    const database = createOutboxDatabase(server);
    const queue = new MemoryQueue();
    queue.failure = new SidegateError('system', 'queue_unavailable', 'the disk is full');
    insertEvents(server, database, 3);
    const { log } = await startOutbox(toUrl(database), {}, queue);
    await until(() => log.includes('down: the disk is full'));
    expect(countRows(server, database)).toBe(3);
    queue.failure = undefined;
    await until(() => countRows(server, database) === 0);
    expect(queue.events.size).toBe(3);
  });

  test('that is busy gets the rows again soon, in order and without an outage', async () => {
    const database = createOutboxDatabase(server);
    const queue = new MemoryQueue();
    let refusals = 3;
    const append: MemoryQueue['append'] = async (events) => {
      // The first half of the first batch is stored before.
      if (queue.events.size > 0 && refusals-- > 0) throw new SidegateError('system', 'queue_busy', 'too many wait');
      if (events.length > 5) throw new SidegateError('system', 'queue_full', 'not so many');
      return queue.append(events);
    };
    insertEvents(server, database, 10);
    const { log } = await startOutbox(toUrl(database), { append }, queue);
    await until(() => countRows(server, database) === 0);
    expect(ids(queue)).toEqual(Array.from({ length: 10 }, (_, index) => `e${index + 1}`));
    expect(log).toEqual(['up']);
  });

  test('gets at most 10,000 deliveries at once, and the targets of later rows are not found before', async () => {
    const database = createOutboxDatabase(server);
    insertEvents(server, database, 10);
    const queue = new MemoryQueue();
    const sizes: (readonly [appended: number, routed: number])[] = [];
    let routed = 0;
    const route = () => {
      routed++;
      return Array.from({ length: 4_000 }, (_, index) => ({ endpoint: `e${index}` }));
    };
    const append: MemoryQueue['append'] = async (events) => {
      sizes.push([events.length, routed]);
      routed = 0;
      return queue.append(events);
    };
    await startOutbox(toUrl(database), { append, route }, queue);
    await until(() => countRows(server, database) === 0);
    // The third row shows that two are enough. It is taken again.
    expect(sizes).toEqual([
      [2, 3],
      [2, 3],
      [2, 3],
      [2, 3],
      [2, 2],
    ]);
  });
});

describe('two replicas', () => {
  test('share the rows, and store each event once', async () => {
    const database = createOutboxDatabase(server);
    insertEvents(server, database, 2_000);
    const queue = new MemoryQueue();
    const counts = [0, 0];
    let go = (): void => undefined;
    const bothTook = new Promise<void>((resolve) => {
      go = resolve;
    });
    const replica = (index: 0 | 1) => {
      const append: MemoryQueue['append'] = async (events) => {
        counts[index] = (counts[index] ?? 0) + events.length;
        if (counts.every((count) => count > 0)) go();
        // Otherwise one of them could have taken all rows before the other starts.
        await bothTook;
        return queue.append(events);
      };
      return startOutbox(toUrl(database), { append, pollInterval: 100 }, queue);
    };
    await Promise.all([replica(0), replica(1)]);
    await until(() => countRows(server, database) === 0);
    expect(queue.events.size).toBe(2_000);
    expect(counts[0] ?? 0).toBeGreaterThan(0);
    expect(counts[1] ?? 0).toBeGreaterThan(0);
    expect((counts[0] ?? 0) + (counts[1] ?? 0)).toBe(2_000);
  });

  test('of which one hangs: the other takes all rows but the locked ones', async () => {
    const database = createOutboxDatabase(server);
    insertEvents(server, database, 250);
    const queue = new MemoryQueue();
    let release = (): void => undefined;
    queue.gate = new Promise((resolve) => {
      release = resolve;
    });
    const hanging = await startOutbox(toUrl(database), {}, queue);
    await until(() => queue.appends === 1);
    const other = await startOutbox(toUrl(database), { pollInterval: 100 });
    await until(() => other.queue.events.size === 150);
    await until(() => countRows(server, database) === 100);
    release();
    await until(() => countRows(server, database) === 0);
    expect(hanging.queue.events.size).toBe(100);
  });
});

describe('figures', () => {
  test('show how many rows wait, and for how long', async () => {
    const database = createOutboxDatabase(server);
    server.sql(
      "INSERT INTO sidegate_outbox (type, created, inserted, data) SELECT 'a.b', '2001-01-01', now() - interval '90 s', '{}' FROM generate_series(1, 3)",
      database,
    );
    const queue = new MemoryQueue();
    queue.maxEvents = 0;
    const { figures } = await startOutbox(toUrl(database), {}, queue);
    const found = await until(figures);
    expect(found.waiting).toBe(3);
    expect(found.oldestAgeSeconds).toBeGreaterThan(89);
    expect(found.oldestAgeSeconds).toBeLessThan(150);
  });

  test('are those of a row only since it is the first: a backlog that moves is old, too', async () => {
    const database = createOutboxDatabase(server);
    server.sql(
      "INSERT INTO sidegate_outbox (type, inserted, data) SELECT 'a.b', now() - interval '1 h', '{}' FROM generate_series(1, 500)",
      database,
    );
    const queue = new MemoryQueue();
    let time = 0;
    const clock = { ...systemClock, monotonic: () => systemClock.monotonic() + time };
    const append: MemoryQueue['append'] = async (events) => {
      if (queue.events.size >= 300) throw new SidegateError('system', 'queue_busy', 'too many wait');
      time += 10_000;
      return queue.append(events);
    };
    const { figures } = await startOutbox(toUrl(database), { append, clock }, queue);
    const age = (): number => figures()?.oldestAgeSeconds ?? 0;
    await until(() => queue.events.size === 300 && age() < 10);
    time += 290_000;
    await until(() => age() > 289);
    expect(age()).toBeLessThan(400);
  });
});
