import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import pg from 'pg';
import { afterEach, describe, expect, test } from 'vitest';
import { type Clock, systemClock, within } from '../../src/core/clock.ts';
import type { Delivery, DeliveryQueue, Serving } from '../../src/provider/queue/delivery-queue.ts';
import type { QueueHooks } from '../../src/provider/queue/store-client.ts';
import { describeDeliveryQueue } from '../contract/delivery-queue.contract.ts';
import { describeLanes } from '../contract/delivery-queue-lanes.contract.ts';
import { describeSettling } from '../contract/delivery-queue-settle.contract.ts';
import { usePooler, usePostgres } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { measureHeap } from '../support/heap.ts';
import { POSTGRES_PASSWORD, startPostgres } from '../support/postgres.ts';
import { appendMany, newEvent, newId, PROVEN, settled } from '../support/queue/events.ts';
import { deliverAll, drain, holdLanes } from '../support/queue/lanes.ts';
import { createPostgresQueue, createPostgresStores, openPostgresQueue } from '../support/queue/postgres-store.ts';
import { NO_HOOKS, type QueueOptions } from '../support/queue/sqlite-store.ts';

const SUPPORT = join(import.meta.dirname, '..', 'support', 'queue');
const LIMIT_MS = 60_000;
const now = (): number => Date.now();
const NEVER_POLLS: Clock = { ...systemClock, every: () => () => undefined };

const server = usePostgres({ config: ['fsync = on'] });
const pooler = usePooler(server);
let schemas = 0;
const opened = new Set<DeliveryQueue>();
const children: ChildProcess[] = [];
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await Promise.all([...opened].map((queue) => queue.close()));
  opened.clear();
});

const newSchema = (): string => `test_${++schemas}`;

async function open(schema: string, over: QueueOptions = {}, url = server.url()): Promise<DeliveryQueue> {
  const queue = await openPostgresQueue(url, schema, over);
  opened.add(queue);
  return queue;
}

/** Waits until the queue has nothing to send, also while the server is not there. */
async function untilDelivered(queue: DeliveryQueue): Promise<void> {
  await until(async () => (await queue.stats(now()).catch(() => undefined))?.waiting === 0);
}

/** The names of what was received. */
function collect(queue: DeliveryQueue): { readonly received: string[]; readonly serving: Serving } {
  const received: string[] = [];
  const serving = deliverAll(queue, now, ({ event, endpoint }) => received.push(`${event} ${endpoint}`));
  return { received, serving };
}

describe('two replicas', { timeout: LIMIT_MS }, () => {
  test('after one was killed, the other serves its lanes once their leases are over, and sends again what was not settled', async () => {
    const schema = newSchema();
    const queue = await open(schema);
    const ids = await appendMany(queue, 6, 'a', now());
    const args = [join(SUPPORT, 'delivering-child.ts'), join(SUPPORT, 'postgres-child.ts'), `${schema} ${server.url()}`, '60000'];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    children.push(child);
    let text = '';
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
    await until(() => text.includes(`${ids[3]} a 0`));
    child.kill('SIGKILL');
    const { received, serving } = collect(queue);
    await queue.append([newEvent(['b'], { createdAt: now() })]);
    await until(() => received.length > 0);
    expect(received.filter((name) => name.endsWith(' a'))).toEqual([]);
    server.sql(`UPDATE "${schema}".lane SET lease = 0 WHERE name = 'a'`);
    await untilDelivered(queue);
    expect(received.filter((name) => name.endsWith(' a'))).toEqual(ids.map((id) => `${id} a`));
    await serving.stop();
  });

  test('share the endpoints, and never serve one at once', async () => {
    const schema = newSchema();
    const queues = [await open(schema), await open(schema)];
    const busy = new Set<string>();
    let overlaps = 0;
    const received: string[] = [];
    const servings = queues.map((queue) =>
      queue.serve(8, async (lane) => {
        if (busy.has(lane.endpoint)) overlaps++;
        busy.add(lane.endpoint);
        const deliveries = await lane.take(4, now());
        received.push(...deliveries.map(({ event, endpoint }) => `${event} ${endpoint}`));
        await lane.settle(
          deliveries.map((delivery) => settled(delivery, { kind: 'delivered' }, now())),
          PROVEN,
        );
        busy.delete(lane.endpoint);
        return {};
      }),
    );
    await Promise.all(
      Array.from({ length: 200 }, (_, i) => queues[i % 2]?.append([newEvent([`e${i % 7}`, `f${i % 5}`], { createdAt: now() })])),
    );
    await untilDelivered(queues[0] as DeliveryQueue);
    await Promise.all(servings.map((serving) => serving.stop()));
    expect([overlaps, received.length, new Set(received).size]).toEqual([0, 400, 400]);
  });

  test('ignore the settlements of a run whose lane the other one took over', async () => {
    const schema = newSchema();
    const [first, second] = [await open(schema), await open(schema)];
    const [id = ''] = await appendMany(first, 1, 'a', now());
    const lanes = holdLanes(first);
    const { lane } = await lanes.next('a');
    const taken = await lane.take(1, now());
    server.sql(`UPDATE "${schema}".lane SET lease = 0`);
    expect((await drain(second, now)).map(({ event }) => event)).toEqual([id]);
    await lane.settle(
      taken.map((delivery) => settled(delivery, { kind: 'dead' }, now())),
      PROVEN,
    );
    expect((await second.find({ event: id }, { limit: 1 })).found[0]).toMatchObject({ state: 'delivered', attempts: 1 });
    expect(await second.stats(now())).toMatchObject({ waiting: 0, dead: 0, events: 0 });
    await lanes.stop();
  });

  test('let a run whose lane the other one took over write only what the endpoint acknowledged', async () => {
    const schema = newSchema();
    const [first, second] = [await open(schema), await open(schema, { clock: NEVER_POLLS })];
    const ids = await appendMany(first, 5, 'a', now());
    const lanes = holdLanes(first);
    const { lane } = await lanes.next('a');
    const taken = await lane.take(5, now());
    await lane.settle([], PROVEN);
    server.sql(`UPDATE "${schema}".lane SET lease = 0`);
    const others = holdLanes(second);
    await second.append([newEvent(['a'], { createdAt: now() })]);
    const other = await others.next('a');
    const state = { ...PROVEN, failures: 7 };
    await other.lane.settle([], state);
    const kinds = [
      { kind: 'retry', due: 0 },
      { kind: 'dead' },
      { kind: 'skipped' },
      { kind: 'postponed', due: 0 },
      { kind: 'delivered' },
    ] as const;
    await lane.settle(
      taken.map((delivery, i) => settled(delivery, kinds[i] ?? { kind: 'dead' }, now())),
      { ...PROVEN, failures: 1 },
    );
    expect(lane.signal.aborted).toBe(true);
    expect(await second.laneStates(['a'])).toEqual([state]);
    expect((await other.lane.take(9, now())).map(({ event, attempt }) => [event, attempt])).toEqual([
      ...ids.slice(0, 4).map((id) => [id, 0]),
      [expect.any(String), 0],
    ]);
    expect((await second.find({ event: ids[4] }, { limit: 1 })).found).toMatchObject([{ state: 'delivered', attempts: 1 }]);
    await Promise.all([lanes.stop(), others.stop()]);
  });

  test('leave lanes that they cannot serve to the other one, although they look again and again', async () => {
    const schema = newSchema();
    const [first, second] = [await open(schema), await open(schema)];
    let looks = 0;
    const without = first.serve(8, () => {
      looks++;
      return Promise.resolve({ notBefore: now() + 2_000, isLeft: true });
    });
    const names = Array.from({ length: 20 }, (_, i) => `e${i}`);
    await first.append([newEvent(names, { createdAt: now() })]);
    await until(() => looks >= names.length);
    const { received, serving } = collect(second);
    await untilDelivered(second);
    expect(received).toHaveLength(names.length);
    await Promise.all([without.stop(), serving.stop()]);
  });

  test('settle nothing of an event that has the number of one that a failover lost', async () => {
    const schema = newSchema();
    const queue = await open(schema);
    const lanes = holdLanes(queue);
    const [lost = ''] = await appendMany(queue, 1, 'a', now());
    const { lane, end } = await lanes.next('a');
    const taken = await lane.take(1, now());
    // What a standby without the last commits has, once it is promoted.
    for (const statement of [
      `SELECT setval(pg_get_serial_sequence('"${schema}".event', 'seq'), seq, false) FROM "${schema}".event WHERE id = '${lost}'`,
      ...['event', 'payload', 'delivery'].map((table) => `DELETE FROM "${schema}".${table}`),
      `UPDATE "${schema}".lane SET waiting = 0, bytes = 0`,
      `DELETE FROM "${schema}".tenant`,
    ])
      server.sql(statement);
    const [accepted = ''] = await appendMany(queue, 1, 'a', now());
    await lane.settle(
      taken.map((delivery) => settled(delivery, { kind: 'delivered' }, now())),
      PROVEN,
    );
    end();
    const { found } = await queue.find({ event: accepted }, { limit: 1 });
    expect(found).toMatchObject([{ state: 'waiting', attempts: 0 }]);
    await lanes.stop();
    expect((await drain(queue, now)).map(({ event }) => event)).toEqual([accepted]);
  });

  test('give up all lanes after a pause that was longer than the leases, also those that they do not need at once', async () => {
    const schema = newSchema();
    let pause = 0;
    const queue = await open(schema, { clock: { ...NEVER_POLLS, monotonic: () => systemClock.monotonic() + pause } });
    const { received, serving } = collect(queue);
    await queue.append([newEvent(['a', 'b'], { createdAt: now() })]);
    await until(() => received.length === 2);
    await untilDelivered(queue);
    pause = LIMIT_MS;
    server.sql(`UPDATE "${schema}".lane SET owner = 'another', lease = lease + 3600000 WHERE name = 'b'`);
    await queue.append([newEvent(['a'], { createdAt: now() })]);
    await until(() => received.length === 3);
    await queue.append([newEvent(['b'], { createdAt: now() }), newEvent(['c'], { createdAt: now() })]);
    await until(() => received.some((name) => name.endsWith(' c')));
    expect(received.filter((name) => name.endsWith(' b'))).toHaveLength(1);
    await serving.stop();
  });

  test('record what an endpoint acknowledged, also if the lease ends before PostgreSQL works again', async () => {
    const schema = newSchema();
    const [timers, delays]: [(() => void)[], number[]] = [[], []];
    let pause = 0;
    const clock: Clock = {
      ...systemClock,
      monotonic: () => systemClock.monotonic() + pause,
      every: (_, action) => {
        timers.push(action);
        return () => undefined;
      },
      after: (delay, action) => {
        delays.push(delay);
        return systemClock.after(delay, action);
      },
    };
    const queue = await open(schema, { clock, hooks: { ...NO_HOOKS, onUnavailable: () => undefined } });
    const [id = ''] = await appendMany(queue, 1, 'a', now());
    const lanes = holdLanes(queue);
    const { lane, end } = await lanes.next('a');
    const taken = await lane.take(1, now());
    server.sql(`ALTER TABLE "${schema}".delivery RENAME TO away`);
    const settling = lane.settle(
      taken.map((delivery) => settled(delivery, { kind: 'delivered' }, now())),
      PROVEN,
    );
    settling.catch(() => undefined);
    pause = LIMIT_MS;
    for (const action of timers) action();
    await until(() => lane.signal.aborted);
    const before = delays.length;
    await until(() => delays.length > before + 2);
    server.sql(`ALTER TABLE "${schema}".away RENAME TO delivery`);
    await settling;
    expect((await queue.find({ event: id }, { limit: 1 })).found).toMatchObject([{ state: 'delivered', attempts: 1 }]);
    end();
    await lanes.stop();
  });

  test.each(['LISTEN', 'polls'] as const)('serve at once what the other one appends, by %s alone', async (way) => {
    const schema = newSchema();
    const [first, second] = [
      await open(schema),
      way === 'LISTEN' ? await open(schema, { clock: NEVER_POLLS }) : await open(schema, {}, pooler.url()),
    ];
    const { received, serving } = collect(second);
    // The connection that listens is opened in the background.
    await until(async () => {
      await first.append([newEvent(['a'], { createdAt: now() })]);
      await new Promise((resolve) => setTimeout(resolve, 50));
      return received.length > 0;
    });
    await untilDelivered(first);
    // It has the lane now, and gets the next event for it, too.
    const event = newEvent(['a', 'b'], { createdAt: now() });
    const start = performance.now();
    await first.append([event]);
    await until(() => received.includes(`${event.id} a`) && received.includes(`${event.id} b`));
    expect(performance.now() - start).toBeLessThan(5_000);
    await serving.stop();
  });

  test('serve at once what is appended to both, although the second one finds it stored', async () => {
    const schema = newSchema();
    const [first, second] = [await open(schema), await open(schema, { clock: NEVER_POLLS }, pooler.url())];
    const { received, serving } = collect(second);
    const event = newEvent(['a'], { createdAt: now() });
    expect(await first.append([event])).toEqual(['stored']);
    expect(await second.append([event])).toEqual(['duplicate']);
    await until(() => received.includes(`${event.id} a`));
    await serving.stop();
  });

  test('serve at once what a repair of the other one makes due, for many endpoints, whatever pause their runs asked for', async () => {
    const schema = newSchema();
    const [first, second] = [await open(schema), await open(schema, { clock: NEVER_POLLS })];
    const names = Array.from({ length: 150 }, (_, i) => `${'e'.repeat(60)}${i}`);
    const received: string[] = [];
    const serving = second.serve(20, async (lane) => {
      for (const delivery of await lane.take(4, now())) {
        received.push(`${delivery.endpoint} ${delivery.attempt}`);
        await lane.settle([settled(delivery, { kind: delivery.attempt === 0 ? 'dead' : 'delivered' }, now())], PROVEN);
      }
      return { notBefore: now() + 3_600_000 };
    });
    // The connection that listens is opened in the background.
    await until(async () => {
      await first.append([newEvent([newId()], { createdAt: now() })]);
      await new Promise((resolve) => setTimeout(resolve, 50));
      return received.length > 0;
    });
    await first.append([newEvent(names, { createdAt: now() })]);
    await until(() => names.every((name) => received.includes(`${name} 0`)));
    await untilDelivered(first);
    for await (const _ of first.repair('retry', { states: ['dead'] }, now()));
    await until(() => names.every((name) => received.includes(`${name} 1`)));
    await serving.stop();
  });

  test('send at once, and retry in time, what one whose clock is ten minutes ahead accepted', async () => {
    const schema = newSchema();
    const queue = await open(schema);
    const clock: Clock = { ...systemClock, now: () => systemClock.now() + 600_000 };
    const ahead = await open(schema, { clock });
    expect(Math.abs(ahead.clock.now() - now())).toBeLessThan(5_000);
    const lanes = holdLanes(ahead);
    await ahead.append([newEvent(['a'])]);
    const { lane, end } = await lanes.next('a');
    const failed = await lane.take(1, ahead.clock.now());
    await lane.settle(
      failed.map((each) => settled(each, { kind: 'retry', due: ahead.clock.now() + 1_000 }, ahead.clock.now())),
      PROVEN,
    );
    end();
    await lanes.stop();
    await ahead.append([newEvent(['b'])]);
    const [first] = (await queue.find({ endpoint: 'b' }, { limit: 1 })).found;
    expect(first?.due).toBeLessThan(now() + 5_000);
    await ahead.close();
    const { received, serving } = collect(queue);
    await until(() => received.length === 2);
    await serving.stop();
  });

  test('see endpoints that the other one changed', async () => {
    const schema = newSchema();
    const [first, second] = [await open(schema), await open(schema, { clock: NEVER_POLLS })];
    let changes = 0;
    second.endpoints.onChange(() => changes++);
    let replaced: number | undefined;
    await until(async () => {
      const version = (replaced ?? 0) + 1;
      expect(await first.endpoints.put({ id: 'e', version, json: '{}' }, replaced)).toBe(true);
      replaced = version;
      await new Promise((resolve) => setTimeout(resolve, 50));
      return changes > 0;
    });
    expect(await second.endpoints.list()).toMatchObject([{ id: 'e' }]);
  });

  test('see endpoints that the other one changed behind a pooler, which loses notifications', async () => {
    const schema = newSchema();
    const eager: Clock = { ...systemClock, every: (interval, action) => systemClock.every(interval / 200, action) };
    const [first, second] = [await open(schema), await open(schema, { clock: eager }, pooler.url())];
    let changes = 0;
    second.endpoints.onChange(() => changes++);
    for (const change of [
      () => first.endpoints.put({ id: 'e', version: 1, json: '{}' }),
      () => first.endpoints.put({ id: 'e', version: 2, json: '{}' }, 1),
      () => first.endpoints.remove('e'),
    ]) {
      changes = 0;
      expect(await change()).toBe(true);
      await until(() => changes > 0);
    }
  });

  test('see a change that committed after one that began later, behind a pooler', async () => {
    const schema = newSchema();
    const eager: Clock = { ...systemClock, every: (interval, action) => systemClock.every(interval / 200, action) };
    const [first, second] = [await open(schema), await open(schema, { clock: eager }, pooler.url())];
    let changes = 0;
    second.endpoints.onChange(() => changes++);
    const waitForChange = async (change: () => Promise<unknown>): Promise<void> => {
      changes = 0;
      await change();
      await until(() => changes > 0);
    };
    await waitForChange(() => first.endpoints.put({ id: 'slow', version: 1, json: '{}' }));
    await waitForChange(() => first.endpoints.put({ id: 'fast', version: 1, json: '{}' }));
    const slow = new pg.Client({ connectionString: server.url() });
    await slow.connect();
    await slow.query(`BEGIN; UPDATE "${schema}".endpoint SET version = 2 WHERE id = 'slow'`);
    await waitForChange(() => first.endpoints.put({ id: 'fast', version: 2, json: '{}' }, 1));
    await waitForChange(() => slow.query('COMMIT'));
    await slow.end();
  });

  test('ignore news that no replica sent, and keep nothing of endpoints that do not exist', async () => {
    const schema = newSchema();
    const queue = await open(schema);
    const other = await open(schema, { clock: NEVER_POLLS });
    const { received, serving } = collect(other);
    // The connection that listens is opened in the background.
    await until(async () => {
      await queue.append([newEvent(['known'])]);
      await new Promise((resolve) => setTimeout(resolve, 50));
      return received.length > 0;
    });
    const heap = measureHeap();
    for (const payload of ['nothing', 'null', '{}', '{"from":"x","due":[1,null],"wake":[1],"endpoints":1}'])
      server.sql(`NOTIFY "sidegate_${schema}", '${payload}'`);
    server.sql(
      `SELECT count(pg_notify('sidegate_${schema}', json_build_object('from', 'x', 'wake', '[]'::json, 'endpoints', false,
         'due', (SELECT json_agg(md5(i || '/' || j)) FROM generate_series(1, 200) AS j))::text)) FROM generate_series(1, 500) AS i`,
    );
    await queue.append([newEvent(['new'])]);
    await until(() => received.some((name) => name.endsWith(' new')));
    // An entry for each of the 100,000 names takes more than 30 MB.
    expect(measureHeap() - heap).toBeLessThan(10_000_000);
    await serving.stop();
  });
});

test(
  'forgets endpoints and tenants whose last event was removed, and serves them again when they come back',
  async () => {
    const schema = newSchema();
    const names = (table: string): string[] =>
      server.sql(`SELECT name FROM "${schema}".${table} ORDER BY name`).trim().split('\n');
    const before = await open(schema);
    await before.append([1, 2].map((n) => newEvent(['a', `b${n}`], { tenant: `t${n}` })));
    await drain(before, now);
    await before.append([newEvent(['a'], { tenant: 't2' }), newEvent([], { tenant: 't3' })]);
    expect([names('lane'), names('tenant')]).toEqual([
      ['a', 'b1', 'b2'],
      ['t1', 't2', 't3'],
    ]);
    await before.close();
    const queue = await open(schema);
    expect(await queue.prune(now(), now(), 100)).toBe(3);
    expect([names('lane'), names('tenant')]).toEqual([['a'], ['t2']]);
    await queue.append([newEvent(['b1'], { tenant: 't1' })]);
    expect((await drain(queue, now)).map(({ endpoint }) => endpoint).toSorted()).toEqual(['a', 'b1']);
    expect((await queue.stats(now())).storedEvents).toBe(2);
  },
  LIMIT_MS,
);

describe('PostgreSQL in trouble', { timeout: 2 * LIMIT_MS }, () => {
  /** The reports of a queue. */
  const watch = (): { readonly reports: string[]; readonly hooks: QueueHooks } => {
    const reports: string[] = [];
    const onUnavailable = (reason: string): void => void reports.push(reason);
    return { reports, hooks: { ...NO_HOOKS, onUnavailable, onAvailable: () => void reports.push('available') } };
  };

  test('an immediate stop under load loses no accepted event, and repeats only attempts that were not settled', async () => {
    const schema = newSchema();
    const own = await startPostgres({ config: ['fsync = on'] });
    const { reports, hooks } = watch();
    const queue = await openPostgresQueue(own.url(), schema, { hooks });
    try {
      const confirmed = new Set<string>();
      const received = new Map<string, number>();
      const afterSettled: string[] = [];
      const serving = queue.serve(8, async (lane) => {
        const deliveries = await lane.take(4, now());
        for (const { event } of deliveries) {
          if (confirmed.has(event)) afterSettled.push(event);
          received.set(event, (received.get(event) ?? 0) + 1);
        }
        await lane.settle(
          deliveries.map((delivery) => settled(delivery, { kind: 'delivered' }, now())),
          PROVEN,
        );
        for (const { event } of deliveries) confirmed.add(event);
        return {};
      });
      const accepted = new Set<string>();
      let isOver = false;
      const write = async (writer: number): Promise<void> => {
        for (let event = next(writer); !isOver; event = next(writer)) {
          while (!accepted.has(event.id) && !isOver) {
            await queue.append([event]).then(
              () => accepted.add(event.id),
              (error) => expect(error).toMatchObject({ code: 'queue_unavailable' }),
            );
          }
        }
      };
      const next = (writer: number) => newEvent([`e${writer % 5}`], { id: newId(), createdAt: now() });
      const writing = Promise.all(Array.from({ length: 8 }, (_, writer) => write(writer)));
      for (let kills = 1; kills <= 3; kills++) {
        const before = accepted.size;
        await until(() => accepted.size > before + 150);
        await own.kill();
        await until(() => reports.length === 2 * kills - 1);
        await own.restart();
        await until(() => reports.length === 2 * kills);
      }
      isOver = true;
      await writing;
      await untilDelivered(queue);
      await serving.stop();
      expect([...accepted].filter((id) => !received.has(id))).toEqual([]);
      expect(afterSettled).toEqual([]);
      expect(reports.filter((_, i) => i % 2 === 1)).toEqual(['available', 'available', 'available']);
    } finally {
      await queue.close();
      await own.stop();
    }
  });

  test('a server that became a read-only standby is reported as such, and used again once it is the primary', async () => {
    const own = await startPostgres({ config: ['fsync = on'] });
    const { reports, hooks } = watch();
    const queue = await openPostgresQueue(own.url(), 'q', { hooks });
    try {
      const before = await appendMany(queue, 3, 'a', now());
      await own.restart('standby');
      const error = await until(() =>
        queue.append([newEvent(['a'])]).then(
          () => undefined,
          (thrown: { message: string }) => (thrown.message.includes('25006') ? thrown : undefined),
        ),
      );
      expect(error).toMatchObject({ code: 'queue_unavailable', message: expect.stringContaining('read-only standby') });
      expect(reports).toHaveLength(1);
      await expect(openPostgresQueue(own.url(), 'q')).rejects.toMatchObject({ code: 'queue_read_only', kind: 'user' });
      own.promote();
      await until(() =>
        queue.append([newEvent(['b'], { id: 'later' })]).then(
          () => true as const,
          () => undefined,
        ),
      );
      expect(reports).toEqual([reports[0], 'available']);
      expect((await drain(queue, now)).map(({ event }) => event).toSorted()).toEqual([...before, 'later'].toSorted());
    } finally {
      await queue.close();
      await own.stop();
    }
  });

  test('a transaction that holds an old snapshot blocks nothing', async () => {
    const schema = newSchema();
    const queue = await open(schema);
    await appendMany(queue, 50, 'a', now());
    const psql = spawn('psql', [server.url(), '-Xq'], { stdio: ['pipe', 'pipe', 'inherit'] });
    children.push(psql);
    psql.stdin.write(`BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM "${schema}".event;\n`);
    await new Promise((resolve) => psql.stdout.once('data', resolve));
    expect(await drain(queue, now)).toHaveLength(50);
    expect(await queue.prune(now() + 1, now() + 1, 100)).toBe(50);
    expect(await queue.stats(now())).toMatchObject({ storedEvents: 0, waiting: 0 });
  });

  test('a table that somebody locks makes operations fail after the timeout, and they work again afterwards', async () => {
    const schema = newSchema();
    const { reports, hooks } = watch();
    const queue = createPostgresQueue(server.url(), schema, { hooks }, { statementTimeout: 500 });
    await queue.open();
    opened.add(queue);
    const psql = spawn('psql', [server.url(), '-Xq'], { stdio: ['pipe', 'pipe', 'inherit'] });
    children.push(psql);
    psql.stdin.write(`BEGIN; LOCK TABLE "${schema}".event; SELECT 1;\n`);
    await new Promise((resolve) => psql.stdout.once('data', resolve));
    const event = newEvent(['a'], { createdAt: now() });
    await expect(queue.append([event])).rejects.toMatchObject({ code: 'queue_unavailable' });
    psql.stdin.write('ROLLBACK;\n');
    expect(await until(() => queue.append([event]).catch(() => undefined))).toEqual(['stored']);
    expect(reports).toEqual([expect.stringContaining('57014'), 'available']);
  });
});

/** A queue whose statements end soon. */
async function openHurried(schema: string, statementTimeout: number): Promise<DeliveryQueue> {
  const hooks = { ...NO_HOOKS, onUnavailable: () => undefined, onAvailable: () => undefined };
  const queue = createPostgresQueue(server.url(), schema, { hooks }, { statementTimeout });
  await queue.open();
  opened.add(queue);
  return queue;
}

test('a transaction that locks one tenant rejects its events, and none of another tenant in the same batch', async () => {
  const schema = newSchema();
  const queue = await openHurried(schema, 500);
  await queue.append([newEvent(['a'], { tenant: 'locked' })]);
  const client = new pg.Client(server.url());
  await client.connect();
  try {
    await client.query(`BEGIN; SELECT FROM "${schema}".tenant WHERE name = 'locked' FOR UPDATE`);
    const results = await Promise.allSettled([
      queue.append([newEvent(['a'], { tenant: 'locked' })]),
      queue.append([newEvent(['b'], { tenant: 'free' })]),
    ]);
    expect(results).toMatchObject([
      { status: 'rejected', reason: { code: 'queue_unavailable' } },
      { status: 'fulfilled', value: ['stored'] },
    ]);
    // From now on, the others wait for one try of all that is locked, and not for one of each.
    const add = (tenant: string): Promise<unknown> => queue.append([newEvent([tenant], { tenant })]);
    const locked = Promise.allSettled(Array.from({ length: 20 }, () => add('locked')));
    expect(await within(systemClock, 5_000, add('free'))).toBe(true);
    expect((await locked).every(({ status }) => status === 'rejected')).toBe(true);
    await client.query('ROLLBACK');
    expect(await queue.append([newEvent(['a'], { tenant: 'locked' })])).toEqual(['stored']);
  } finally {
    await client.end();
  }
});

test('a transaction that waits for one lane holds none that follows, and no tenant: replicas cannot wait for each other', async () => {
  const schema = newSchema();
  const queue = await open(schema);
  for (const endpoint of ['a', 'b']) await queue.append([newEvent([endpoint], { createdAt: now() })]);
  const lanes = holdLanes(queue);
  const { lane } = await lanes.next('a');
  const [delivery] = await lane.take(1, now());
  const [holder, other] = [new pg.Client(server.url()), new pg.Client(server.url())];
  await Promise.all([holder.connect(), other.connect()]);
  try {
    await holder.query(`BEGIN; SELECT FROM "${schema}".lane WHERE name = 'a' FOR UPDATE`);
    const writing = Promise.all([
      lane.settle([settled(delivery as Delivery, { kind: 'delivered' })], PROVEN),
      queue.append([newEvent(['b', 'new'], { createdAt: now() })]),
    ]);
    await until(async () => (await other.query('SELECT FROM pg_locks WHERE NOT granted')).rowCount !== 0);
    const free = await other.query(`SELECT name FROM "${schema}".lane WHERE name <> 'a' FOR UPDATE NOWAIT`);
    expect(free.rows).toEqual([{ name: 'b' }]);
    expect((await other.query(`SELECT FROM "${schema}".tenant FOR UPDATE NOWAIT`)).rowCount).toBe(1);
    await holder.query('ROLLBACK');
    await writing;
  } finally {
    await Promise.all([holder.end(), other.end()]);
  }
  await lanes.stop();
});

test('a lane that another transaction locks is lost only once its lease is over, and stays with the replica until its run ends', async () => {
  const schema = newSchema();
  let pause = 0;
  const renewals: (() => void)[] = [];
  const polls: (() => void)[] = [];
  const clock: Clock = {
    ...systemClock,
    monotonic: () => systemClock.monotonic() + pause,
    every: (interval, action) => {
      if (interval === 10_000) renewals.push(action);
      if (interval === 1_000) polls.push(action);
      return () => undefined;
    },
  };
  const queue = createPostgresQueue(server.url(), schema, { clock, hooks: NO_HOOKS });
  await queue.open();
  opened.add(queue);
  const lost = new Set<string>();
  const running = new Set<string>();
  const isOver = Promise.withResolvers<object>();
  const serving = queue.serve(3, async (lane) => {
    running.add(lane.endpoint);
    await once(lane.signal, 'abort');
    lost.add(lane.endpoint);
    return isOver.promise;
  });
  const read = (column: string, name: string): string =>
    server.sql(`SELECT ${column} FROM "${schema}".lane WHERE name = '${name}'`);
  let waiting = 0;
  /** Renews twice, until the lease of this lane is a later one. */
  const renew = async (name: string): Promise<void> => {
    const before = read('lease', name);
    for (const each of [...renewals, ...renewals]) each();
    await until(() => {
      waiting = Math.max(waiting, Number(server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")));
      return read('lease', name) > before;
    });
  };
  await queue.append([newEvent(['a', 'b'], { createdAt: now() })]);
  await until(() => running.size === 2);
  const client = new pg.Client(server.url());
  await client.connect();
  try {
    await client.query(`BEGIN; SELECT FROM "${schema}".lane WHERE name = 'a' FOR UPDATE`);
    pause = 20_000;
    await renew('b');
    // Renewals are one after the other.
    expect([[...lost], waiting]).toEqual([[], 1]);
    // The claim of another lane ends none, and a poll all that could not be renewed.
    pause = 40_000;
    await queue.append([newEvent(['c'], { createdAt: now() })]);
    await until(() => running.has('c'));
    expect([...lost]).toEqual([]);
    for (const each of polls) each();
    await until(() => lost.has('a'));
    await client.query('ROLLBACK');
    await renew('a');
    expect([[...lost], read('owner', 'a') === read('owner', 'b')]).toEqual([['a'], true]);
  } finally {
    await client.end();
  }
  isOver.resolve({});
  await serving.stop();
});

test('lanes that are claimed at once share a transaction, and one that is locked holds up no other', async () => {
  const schema = newSchema();
  const queue = createPostgresQueue(server.url(), schema, { hooks: NO_HOOKS });
  await queue.open();
  opened.add(queue);
  const endpoints = Array.from({ length: 40 }, (_, i) => `e${i}`);
  await queue.append([newEvent(endpoints, { createdAt: now() })]);
  server.sql(
    `CREATE TABLE "${schema}".claims (at timestamptz);
     CREATE FUNCTION "${schema}".note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO "${schema}".claims VALUES (now()); RETURN NULL; END$$;
     CREATE TRIGGER note AFTER UPDATE OF owner ON "${schema}".lane FOR EACH STATEMENT EXECUTE FUNCTION "${schema}".note()`,
  );
  const client = new pg.Client(server.url());
  await client.connect();
  const running = new Set<string>();
  const isOver = Promise.withResolvers<object>();
  try {
    await client.query(`BEGIN; SELECT FROM "${schema}".lane WHERE name IN ('e2', 'e30') FOR UPDATE`);
    const serving = queue.serve(64, (lane) => {
      running.add(lane.endpoint);
      return isOver.promise;
    });
    await until(() => running.size === 38);
    expect(Number(server.sql(`SELECT count(*) FROM "${schema}".claims`))).toBeLessThan(20);
    await client.query('ROLLBACK');
    await until(() => running.size === 40);
    isOver.resolve({});
    await serving.stop();
  } finally {
    await client.end();
  }
});

test('a replica that drains gives back what it does not send, also while an attempt of another endpoint hangs', async () => {
  const schema = newSchema();
  const [draining, other] = [await open(schema, { clock: NEVER_POLLS }), await open(schema)];
  const hanging = Promise.withResolvers<void>();
  const ran = { draining: new Set<string>(), other: new Set<string>() };
  const serving = draining.serve(4, async (lane) => {
    await lane.take(1, now());
    ran.draining.add(lane.endpoint);
    if (lane.endpoint === 'hanging') await hanging.promise;
    return {};
  });
  await draining.append([newEvent(['hanging']), newEvent(['busy'])]);
  await until(() => ran.draining.size === 2);
  const stopped = serving.stop();
  const others = other.serve(4, async (lane) => {
    ran.other.add(lane.endpoint);
    return {};
  });
  await until(() => ran.other.has('busy'));
  expect(ran.other).toEqual(new Set(['busy']));
  hanging.resolve();
  await stopped;
  await until(() => ran.other.has('hanging'));
  await others.stop();
});

test.each([
  [2_000, '1400ms'],
  [10_000, '7s'],
  [60_000, '7s'],
])(
  'a replica that froze in a transaction that joined the queue makes others wait, and rejects none of their events: %d',
  async (statementTimeout, timeout) => {
    const schema = newSchema();
    const queue = await openHurried(schema, statementTimeout);
    await queue.append([newEvent(['a'], { tenant: 'acme' })]);
    const frozen = new pg.Client(server.url());
    frozen.on('error', () => undefined);
    await frozen.connect();
    await frozen.query('BEGIN; SET LOCAL idle_in_transaction_session_timeout TO 60000');
    const joined = await queue.join(frozen);
    expect(await joined?.append([newEvent(['a'], { tenant: 'acme' })])).toEqual(['stored']);
    const { rows } = await frozen.query('SHOW idle_in_transaction_session_timeout');
    expect(rows).toEqual([{ idle_in_transaction_session_timeout: timeout }]);
    // From here on it sends nothing.
    expect(await queue.append([newEvent(['a'], { tenant: 'acme' })])).toEqual(['stored']);
    expect(await queue.stats(now())).toMatchObject({ storedEvents: 2 });
    await frozen.end().catch(() => undefined);
  },
);

test('a value that PostgreSQL cannot store rejects its event, does not take others with it, and is no outage', async () => {
  // The hooks fail the test if the queue is reported as unavailable.
  const queue = await open(newSchema());
  const appended = await Promise.allSettled([
    queue.append([newEvent(['a'])]),
    queue.append([newEvent([{ endpoint: 'a', orderKey: 'a\0b' }])]),
    queue.append([newEvent(['a'])]),
  ]);
  expect(appended.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  expect(appended[1]).toMatchObject({ reason: { code: 'unstorable', message: expect.stringContaining('22P05') } });
  await expect(queue.find({ endpoint: 'a\0b' }, { limit: 1 })).rejects.toMatchObject({ code: 'unstorable' });
});

describe('a URL that cannot be used', () => {
  const openError = async (url: string, schema = newSchema()): Promise<{ message: string }> => {
    const error: unknown = await createPostgresQueue(url, schema)
      .open()
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ name: 'SidegateError' });
    const { message } = error as { message: string };
    expect(message).not.toContain(POSTGRES_PASSWORD);
    expect(message).not.toContain(encodeURIComponent(POSTGRES_PASSWORD));
    return { message };
  };

  test('has a wrong password, an unknown user, database or host: the error says which, without the password', async () => {
    const wrong = await openError(server.url().replace(encodeURIComponent(POSTGRES_PASSWORD), 'wrong-password'));
    expect(wrong.message).toMatch(/28P01.*correct the user or the password/);
    expect(wrong.message).not.toContain('wrong-password');
    expect((await openError(server.url({ role: 'nobody' }))).message).toMatch(/28P01.*correct the user or the password/);
    expect((await openError(server.url({ database: 'missing' }))).message).toMatch(/3D000.*create the database/);
    expect((await openError(server.url().replace(`:${server.port}/`, ':1/'))).message).toMatch(
      /127\.0\.0\.1:1\/postgres: connection refused/,
    );
    expect((await openError(server.url().replace('127.0.0.1', 'no-such-host.invalid'))).message).toMatch(
      /the host name does not resolve/,
    );
  });

  test('has a role without the rights to create the schema, or to use its tables', async () => {
    server.sql(`CREATE ROLE weak LOGIN PASSWORD '${POSTGRES_PASSWORD}'`);
    const url = server.url({ role: 'weak' });
    expect((await openError(url)).message).toMatch(/42501.*grant the role the rights/);
    const schema = newSchema();
    await open(schema);
    expect((await openError(url, schema)).message).toMatch(/42501.*grant the role the rights/);
    server.sql(
      `GRANT USAGE, CREATE ON SCHEMA "${schema}" TO weak; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "${schema}" TO weak`,
    );
    const queue = await open(schema, { hooks: { ...NO_HOOKS, onUnavailable: () => undefined } }, url);
    expect(await queue.append([newEvent(['a'])])).toEqual(['stored']);
    // Row-level security would hide stored events without an error.
    server.sql(`ALTER TABLE "${schema}".event ENABLE ROW LEVEL SECURITY`);
    await expect(queue.append([newEvent(['a'])])).rejects.toThrow(/row-level security.*42501.*give the role BYPASSRLS/);
    server.sql(`ALTER TABLE "${schema}".version ENABLE ROW LEVEL SECURITY`);
    expect((await openError(url, schema)).message).toMatch(/row-level security.*42501.*give the role BYPASSRLS/);
  });
});

describeDeliveryQueue(
  'the queue behind PgBouncer in transaction mode',
  createPostgresStores(
    () => server,
    () => pooler.url(),
  ),
  [describeLanes, describeSettling],
);

describe('an erasure', () => {
  const repairs = {
    retried: async (queue: DeliveryQueue, event: string) => {
      for await (const _ of queue.repair('retry', { event }, now()));
    },
    created: (queue: DeliveryQueue, event: string) => queue.addDelivery(event, 'b', now()),
  };

  test.each(['retried', 'created'] as const)('leaves nothing due that is %s on another replica meanwhile', async (repair) => {
    const schema = newSchema();
    const [one, two] = [await open(schema), await open(schema)];
    const event = newEvent(['a'], { createdAt: now() });
    await one.append([event]);
    for await (const _ of one.repair('cancel', {}, now()));
    const client = new pg.Client({ connectionString: server.url() });
    await client.connect();
    await client.query('BEGIN');
    await client.query(`SELECT 1 FROM "${schema}".event FOR UPDATE`);
    const untilBlocked = (count: number): Promise<true> =>
      until(
        () => Number(server.sql(`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`)) >= count || undefined,
      );
    const repaired = repairs[repair](one, event.id);
    await untilBlocked(1);
    const erased = two.erase({ event: event.id }, now());
    await Promise.race([erased, untilBlocked(2)]);
    await client.query('ROLLBACK');
    await client.end();
    await Promise.all([repaired, erased]);
    expect(await one.getEvent(event.id)).toMatchObject({ isErased: true });
    expect(await one.stats(now())).toMatchObject({ waiting: 0, events: 0, bytes: 0 });
  });
});
