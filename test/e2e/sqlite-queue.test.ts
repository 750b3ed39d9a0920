import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { toOrderKey } from '../../src/provider/endpoints/endpoint.ts';
import type { DeliveryQueue, DeliveryRecord, EventFilter, Found } from '../../src/provider/queue/delivery-queue.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/gate.ts';
import { appendMany, newEvent, PROVEN, settled } from '../support/queue/events.ts';
import { deliverAll, drain, holdLanes } from '../support/queue/lanes.ts';
import {
  createSqliteQueue,
  makeQueueFolder,
  NO_HOOKS,
  openSqliteQueue,
  type QueueOptions,
} from '../support/queue/sqlite-store.ts';
import { createRandom } from '../support/seeded.ts';

const SUPPORT = join(import.meta.dirname, '..', 'support', 'queue');

let path: string;
let remove: () => void;
const opened: DeliveryQueue[] = [];
const children: ChildProcess[] = [];
beforeEach(() => {
  ({ path, remove } = makeQueueFolder());
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  for (const queue of opened.splice(0)) await queue.close();
  remove();
});

async function open(over: QueueOptions = {}): Promise<DeliveryQueue> {
  const queue = await openSqliteQueue(path, over);
  opened.push(queue);
  return queue;
}

/** The error of opening the file. */
async function openError(over: QueueOptions = {}): Promise<{ code: string; kind: string; message: string }> {
  const error: unknown = await createSqliteQueue(path, over)
    .open()
    .catch((thrown: unknown) => thrown);
  return error as { code: string; kind: string; message: string };
}

describe('the file of the queue', () => {
  test('is created for its owner only, and made so if it was not', async () => {
    await (await open()).close();
    expect(statSync(path).mode & 0o777).toBe(0o600);
    chmodSync(path, 0o644);
    const queue = await open();
    await queue.append([newEvent()]);
    for (const each of [path, `${path}-wal`]) expect(statSync(each).mode & 0o777).toBe(0o600);
  });

  test('is one file after the queue was closed', async () => {
    const queue = await open();
    await appendMany(queue, 100);
    await queue.close();
    expect(existsSync(`${path}-wal`)).toBe(false);
    expect(existsSync(`${path}-shm`)).toBe(false);
  });

  test('cannot be opened twice in a process, and the attempt does not release the lock', async () => {
    const queue = await open();
    expect(await openError()).toMatchObject({ name: 'SidegateError', kind: 'user', code: 'queue_in_use' });
    const child = spawnSync(process.execPath, [join(SUPPORT, 'appending-child.ts'), join(SUPPORT, 'sqlite-child.ts'), path], {
      encoding: 'utf8',
      timeout: 15_000,
    });
    expect(child.stderr).toContain('queue_in_use');
    expect(child.stdout).toBe('');
    expect(await queue.append([newEvent()])).toEqual(['stored']);
  });

  test('cannot be opened by a second process, whose message names the first', async () => {
    const child = spawn(process.execPath, [join(SUPPORT, 'appending-child.ts'), join(SUPPORT, 'sqlite-child.ts'), path], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    await new Promise((resolve) => child.stdout.once('data', resolve));
    const error = await openError();
    expect(error).toMatchObject({ kind: 'user', code: 'queue_in_use' });
    expect(error.message).toContain(`in use by process ${child.pid}`);
    child.kill('SIGKILL');
    await new Promise((resolve) => child.once('exit', resolve));
    expect((await (await open()).stats(Date.now())).events).toBeGreaterThan(0);
  });

  test('accepts no event while it is another one, as it is lost when it is closed; what it has is sent and settled', async () => {
    const queue = await open();
    const known = newEvent(['a']);
    await queue.append([known, newEvent(['a'])]);
    renameSync(path, `${path}.moved`);
    for (const replace of [() => undefined, () => writeFileSync(path, '')]) {
      replace();
      for (const event of [newEvent(['a']), known])
        await expect(queue.append([event])).rejects.toMatchObject({ kind: 'system', code: 'queue_unavailable' });
    }
    expect(await drain(queue, Date.now)).toHaveLength(2);
    renameSync(`${path}.moved`, path);
    expect(await queue.append([newEvent(['a']), known])).toEqual(['stored', 'duplicate']);
  });

  test('is rejected on tmpfs, unless that is allowed', async ({ skip }) => {
    skip(!existsSync('/dev/shm'), 'no tmpfs');
    path = `/dev/shm/sidegate-queue-${process.pid}.db`;
    remove = ((before) => () => {
      before();
      spawnSync('rm', ['-f', path]);
    })(remove);
    const error = await openError({ allowVolatile: false });
    expect(error).toMatchObject({ kind: 'user', code: 'queue_volatile' });
    expect(error.message).toMatch(/a file on tmpfs is lost .*allowVolatile: true/);
    expect(existsSync(path)).toBe(false);
    const queue = createSqliteQueue(path);
    expect(await queue.open()).toEqual([expect.stringContaining('accepted events can be lost')]);
    await queue.close();
  });

  test('is rejected in a folder that does not exist, and as a folder', async () => {
    path = join(path, 'missing', 'queue.db');
    expect(await openError()).toMatchObject({
      kind: 'user',
      code: 'queue_unusable',
      message: expect.stringContaining('create the folder'),
    });
    path = dirname(dirname(path));
    mkdirSync(path);
    expect(await openError()).toMatchObject({ kind: 'user', code: 'queue_unusable' });
  });

  test('is rejected if it is not a database, a database of something else, or one of a newer sidegate', async () => {
    writeFileSync(path, 'a text that is long enough to be mistaken for a database, but is none\n'.repeat(100));
    expect(await openError()).toMatchObject({ kind: 'user', code: 'queue_corrupt' });
    writeFileSync(path, '');
    const other = new DatabaseSync(path);
    other.exec('CREATE TABLE t (a)');
    other.close();
    expect(await openError()).toMatchObject({ kind: 'user', code: 'queue_not_ours' });
    writeFileSync(path, '');
    await (await open()).close();
    const newer = new DatabaseSync(path);
    newer.exec('UPDATE version SET number = 99');
    newer.close();
    const error = await openError();
    expect(error).toMatchObject({ kind: 'user', code: 'queue_newer' });
    expect(error.message).toContain('format 99');
  });

  test('opens after its write-ahead log was cut anywhere: what is left are whole transactions', async () => {
    const random = createRandom(4);
    const queue = await open();
    for (let i = 0; i < 40; i++) await queue.append([newEvent(['a', 'b']), newEvent(['a'])]);
    const [file, log] = [readFileSync(path), readFileSync(`${path}-wal`)];
    for (let run = 0; run < 8; run++) {
      const copy = makeQueueFolder();
      writeFileSync(copy.path, file);
      writeFileSync(`${copy.path}-wal`, log);
      truncateSync(`${copy.path}-wal`, random(log.length));
      // A power failure may also leave anything in the last sector.
      const cut = await openSqliteQueue(copy.path);
      const { events, waiting } = await cut.stats(Date.now());
      expect(waiting).toBe(events * 1.5);
      await cut.close();
      copy.remove();
    }
  });

  test('with damaged pages is rejected, or fails single operations, and never ends the process', {
    timeout: 60_000,
  }, async () => {
    const random = createRandom(5);
    const queue = await open();
    await appendMany(queue, 500);
    await queue.close();
    const file = readFileSync(path);
    for (let run = 0; run < 10; run++) {
      const copy = makeQueueFolder();
      writeFileSync(copy.path, file);
      const descriptor = openSync(copy.path, 'r+');
      for (let i = 0; i < 20; i++) writeSync(descriptor, Buffer.alloc(64, 0xff), 0, 64, 4_096 + random(file.length - 4_200));
      closeSync(descriptor);
      const damaged = createSqliteQueue(copy.path, { hooks: { ...NO_HOOKS, onUnavailable: () => undefined } });
      const reason: unknown = await damaged.open().catch((error: unknown) => error);
      if (reason instanceof Error) expect(reason).toMatchObject({ name: 'SidegateError' });
      else {
        const results = await Promise.allSettled([
          damaged.append([newEvent()]),
          damaged.find({}, { limit: 250 }),
          damaged.stats(Date.now()),
          damaged.getEvent('msg_1'),
        ]);
        for (const result of results)
          if (result.status === 'rejected') expect(result.reason).toMatchObject({ code: 'queue_unavailable' });
      }
      await damaged.close();
      copy.remove();
    }
  });
});

test('an erased event leaves nothing of its payload, nor its order key', async () => {
  const queue = await open();
  await queue.append([
    newEvent([{ endpoint: 'a', orderKey: 'kept' }]),
    newEvent([{ endpoint: 'a', orderKey: 'erased' }], { tenant: 't' }),
    newEvent([{ endpoint: 'a', orderKey: 'erased' }], { tenant: 't' }),
  ]);
  expect(await queue.erase({ tenant: 't' }, Date.now())).toBe(2);
  await queue.close();
  const file = new DatabaseSync(path);
  const keys = file.prepare('SELECT order_key, state FROM delivery ORDER BY event').all();
  file.close();
  expect(keys.map(({ order_key: key, state }) => [key, state])).toEqual([
    ['kept', 0],
    [null, 4],
    [null, 4],
  ]);
});

describe('a file of format 1, from before the queue in PostgreSQL', () => {
  const AT = 1_795_000_000_000;
  const writeOld = (): void => {
    const old = new DatabaseSync(path);
    old.exec(readFileSync(join(SUPPORT, 'format-1.sql'), 'utf8'));
    old.close();
  };

  test('keeps events, deliveries with their attempts, lane states and endpoints', async () => {
    writeOld();
    const queue = await open({ clock: new FakeClock(AT) });
    const { found: deliveries } = await queue.find({}, { limit: 50 });
    expect(
      deliveries.map(({ event, endpoint, state, attempts }) => `${event} ${endpoint} ${state} ${attempts}`).toSorted(),
    ).toEqual([
      'both acme waiting 0',
      'both other waiting 0',
      'dead acme dead 3',
      'delivered acme waiting 1',
      'first ordered waiting 0',
      'retried acme waiting 3',
      'second ordered waiting 0',
      'skipped other skipped 0',
      'third ordered waiting 0',
    ]);
    expect(await queue.findAttempts('retried', 'acme')).toMatchObject([{ at: AT + 2_000 }, { at: AT + 1_000 }, { at: AT }]);
    expect(await queue.getEvent('both')).toMatchObject({ type: 'user.created', tenant: 't', createdAt: AT, isErased: false });
    expect(String((await queue.getEvent('both'))?.body)).toBe('{"id":"both"}');
    expect(await queue.laneStates(['acme', 'other'])).toMatchObject([{ failures: 1, isProven: true, since: AT }, undefined]);
    expect(await queue.endpoints.list()).toEqual([{ id: 'acme', version: 2, json: '{"url":"https://acme.example/2"}' }]);
    expect((await queue.findEvents({ isUnrouted: true }, { limit: 9 })).found).toMatchObject([{ id: 'nobody', deliveries: 0 }]);
    const idsOf = async (filter: EventFilter): Promise<string[]> =>
      (await queue.findEvents(filter, { limit: 9 })).found.map(({ id }) => id).sort();
    expect(await idsOf({ states: ['dead'] })).toEqual(['dead']);
    expect(await idsOf({ endpoint: 'other', states: ['skipped'] })).toEqual(['skipped']);
    expect(await idsOf({ endpoint: 'acme', states: ['skipped'] })).toEqual([]);
    expect(await idsOf({ endpoint: 'ordered' })).toEqual(['first', 'second', 'third']);
    expect(await queue.stats(AT)).toMatchObject({
      waiting: 7,
      dead: 1,
      skipped: 1,
      events: 6,
      storedEvents: 9,
      storedBytes: 6_488,
    });
  });

  test('knows its events again, delivers first attempts in their order, and retries when they are due', async () => {
    writeOld();
    const clock = new FakeClock(AT + 6_000);
    const queue = await open({ clock });
    const event = (body: string, id: string) => newEvent(['acme'], { id, createdAt: AT, body: Buffer.from(body) });
    expect(await queue.append([event('{"id":"dead"}', 'dead'), event('other', 'retried'), event('new', 'new')])).toEqual([
      'duplicate',
      'conflict',
      'stored',
    ]);
    const ordered = { endpoint: 'ordered', orderKey: toOrderKey('ordered', 'k') };
    await queue.append([newEvent([ordered], { id: 'fourth', createdAt: AT })]);
    const received: string[] = [];
    const serving = deliverAll(
      queue,
      () => clock.now(),
      ({ event: id, endpoint }) => received.push(`${id} ${endpoint}`),
    );
    await until(() => received.length === 8);
    const inOrder = ['first ordered', 'second ordered', 'third ordered', 'fourth ordered'];
    expect(received.filter((name) => name.endsWith('ordered'))).toEqual(inOrder);
    expect(received).not.toContain('retried acme');
    await clock.advance(3_600_000);
    await until(() => received.includes('retried acme'));
    await serving.stop();
    expect(await queue.stats(clock.now())).toMatchObject({ waiting: 0, dead: 1, skipped: 1, events: 0, bytes: 0 });
  });

  test('is of the new format after it was opened once', async () => {
    writeOld();
    await (await open()).close();
    const file = new DatabaseSync(path);
    const tables = file
      .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name")
      .all();
    expect(tables.map(({ name }) => name)).toEqual([
      'attempt',
      'delivery',
      'endpoint',
      'event',
      'lane',
      'payload',
      'tenant',
      'version',
    ]);
    expect(file.prepare('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' });
    file.close();
    expect((await (await open()).stats(AT)).storedEvents).toBe(9);
  });
});

describe('a full disk', () => {
  const mount = 'mount -t tmpfs -o size=8m none "$1" && exec "$2" "$3" "$1"';
  const isPossible = spawnSync('unshare', ['-Urm', 'mount', '-t', 'tmpfs', 'none', '/mnt']).status === 0;

  /** Runs the program in a mount namespace in which the folder of the queue has 8 MiB, and returns what it reports. */
  const runOnSmallDisk = (program: string): unknown => {
    const shell = ['sh', '-c', mount, 'sh', dirname(path), process.execPath, join(SUPPORT, program)];
    const run = spawnSync('unshare', ['-Urm', ...shell], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
    return JSON.parse(run.stdout);
  };

  test.skipIf(!isPossible)(
    'rejects events with queue_unavailable, loses none that was accepted, and accepts again when there is space',
    { timeout: 60_000 },
    () => {
      const result = runOnSmallDisk('full-disk-child.ts') as Record<string, unknown> & {
        acknowledged: number;
        settled: number;
        before: object;
      };
      expect(result).toMatchObject({ codes: ['queue_unavailable'], lost: [], stored: [], taken: 5 });
      expect(result['reports']).toEqual(['unavailable', 'available']);
      expect(result['full']).toMatchObject({ events: result.acknowledged - 1 });
      expect(result['after']).toEqual(result.before);
      expect(result.acknowledged).toBeGreaterThan(100);
      expect(result['received']).toBe(50 + 2 * (result.acknowledged - 51) + 1 - result.settled);
    },
  );

  test.skipIf(!isPossible)('delays settlements until there is space, so that nothing is sent twice', { timeout: 60_000 }, () => {
    const result = runOnSmallDisk('full-disk-settle-child.ts') as Record<'sent' | 'rest' | 'received', string[]>;
    expect(result).toMatchObject({ isSettledWhileFull: false, waiting: 15, sent: { length: 5 } });
    expect(result.received).toEqual(result.rest);
  });
});

describe('the thread of the queue', () => {
  /** Opens a queue, and finds its thread. */
  async function openWithThread(over: QueueOptions): Promise<[DeliveryQueue, Worker]> {
    let thread: Worker | undefined;
    const onWorker = (worker: Worker): void => {
      thread = worker;
    };
    process.on('worker', onWorker);
    const queue = await open(over);
    process.off('worker', onWorker);
    if (thread === undefined) throw new Error('no thread was started');
    return [queue, thread];
  }

  test('if it ends, rejects every operation, aborts the lanes and is reported once', async () => {
    const fatal: Error[] = [];
    const [queue, thread] = await openWithThread({ hooks: { ...NO_HOOKS, onFatal: (error) => fatal.push(error) } });
    await appendMany(queue, 5, 'a');
    const lanes = holdLanes(queue);
    const { lane } = await lanes.next('a');
    const calls = [...Array.from({ length: 20 }, () => queue.append([newEvent()])), lane.take(1, Date.now()), queue.stats(0)];
    const ended = thread.terminate();
    const results = await Promise.allSettled(calls);
    await ended;
    for (const result of results)
      if (result.status === 'rejected') expect(result.reason).toMatchObject({ code: 'queue_unavailable', kind: 'system' });
    await until(() => fatal.length > 0);
    expect(lane.signal.aborted).toBe(true);
    await expect(queue.append([newEvent()])).rejects.toMatchObject({ code: 'queue_unavailable' });
    await expect(queue.stats(0)).rejects.toMatchObject({ code: 'queue_unavailable' });
    await lanes.stop();
    await queue.close();
    expect(fatal).toHaveLength(1);
    // The file is free again, and complete.
    expect((await (await open()).stats(Date.now())).events).toBeGreaterThanOrEqual(5);
  });

  test('writes what it can of a turn in which one operation cannot be written', async () => {
    const queue = await open({ hooks: { ...NO_HOOKS, onUnavailable: () => undefined } });
    const good = Array.from({ length: 10 }, () => newEvent());
    const bad = [
      newEvent(['a'], { type: undefined as never }),
      newEvent(['a'], { createdAt: Number.NaN }),
      newEvent([{ endpoint: undefined as never }]),
    ];
    const results = await Promise.allSettled(
      [...good.slice(0, 5), ...bad, ...good.slice(5)].map((event) => queue.append([event])),
    );
    expect(results.map(({ status }) => status).filter((status) => status === 'fulfilled')).toHaveLength(10);
    expect(await queue.stats(Date.now())).toMatchObject({ events: 10, waiting: 10 });
    expect(await drain(queue, Date.now)).toHaveLength(10);
  });

  test('rejects what cannot be sent to it, and goes on', async () => {
    const queue = await open();
    await expect(queue.append([newEvent(['a'], { type: 1n as never })])).rejects.toMatchObject({
      code: 'queue_unavailable',
    });
    expect(await queue.append([newEvent()])).toEqual(['stored']);
  });

  test('finishes what was asked when the queue is closed, and rejects what is asked later', async () => {
    const queue = await open();
    const appended = Promise.all(Array.from({ length: 50 }, () => queue.append([newEvent()])));
    const closed = queue.close();
    const late = queue.append([newEvent()]);
    await expect(late).rejects.toMatchObject({ code: 'queue_unavailable' });
    await closed;
    expect((await appended).flat()).toEqual(Array.from({ length: 50 }, () => 'stored'));
    await queue.close();
    expect((await (await open()).stats(Date.now())).events).toBe(50);
  });
});

describe('events that were appended while the clock was a day ahead', () => {
  const DAY = 86_400_000;
  /** Its wall clock is wrong by `shift`. */
  class ShiftedClock extends FakeClock {
    shift = DAY;

    override now(): number {
      return super.now() + this.shift;
    }
  }
  const appendAhead = async (queue: DeliveryQueue, clock: ShiftedClock): Promise<string[]> => {
    const ids = await appendMany(queue, 3, 'a', clock.now());
    ids.push(...(await appendMany(queue, 2, { endpoint: 'b', orderKey: 'k' }, clock.now())));
    clock.shift = 0;
    return ids.toSorted();
  };

  test('are delivered within a minute after it was set back', async () => {
    const clock = new ShiftedClock();
    const queue = await open({ clock });
    const ids = await appendAhead(queue, clock);
    const received: string[] = [];
    const serving = deliverAll(
      queue,
      () => clock.now(),
      ({ event }) => received.push(event),
    );
    await clock.advance(60_000);
    await until(() => received.length === ids.length);
    expect(received.toSorted()).toEqual(ids);
    await serving.stop();
  });

  test('are retried after their delay, if an attempt failed while it was 30 days ahead', async () => {
    const clock = new ShiftedClock();
    clock.shift = 30 * DAY;
    const queue = await open({ clock });
    const [id = ''] = await appendMany(queue, 1, 'a', clock.now());
    const lanes = holdLanes(queue);
    const { lane } = await lanes.next('a');
    const failed = (await lane.take(1, clock.now())).map((delivery) =>
      settled(delivery, { kind: 'retry', due: clock.now() + 7_200_000 }, clock.now()),
    );
    await lane.settle(failed, PROVEN);
    await lanes.stop();
    await queue.close();
    clock.shift = 0;
    const again = await open({ clock });
    const due = (await again.find({ event: id }, { limit: 1 })).found[0]?.due ?? Number.NaN;
    expect(due - clock.now()).toBe(7_200_000);
  });

  test('are delivered after a restart', async () => {
    const clock = new ShiftedClock();
    const queue = await open({ clock });
    const ids = await appendAhead(queue, clock);
    await queue.close();
    const received = await drain(await open({ clock }), () => clock.now());
    expect(received.map(({ event }) => event).toSorted()).toEqual(ids);
  });
});

describe('a list', () => {
  test('reads a bounded part of the store for each page, and finds the rest on the next ones', { timeout: 60_000 }, async () => {
    const queue = await open();
    const oldest = newEvent(['a'], { type: 'rare', createdAt: 1 });
    await queue.append([oldest]);
    await appendMany(queue, 60_000, 'a');
    const pages: Found<DeliveryRecord>[] = [];
    do pages.push(await queue.find({ type: 'rare' }, { limit: 10, after: pages.at(-1)?.next }));
    while (pages.at(-1)?.next !== undefined);
    expect(pages.length).toBeGreaterThan(1);
    expect(pages.slice(0, -1).flatMap(({ found }) => found)).toEqual([]);
    expect(pages.at(-1)?.found).toMatchObject([{ event: oldest.id, type: 'rare' }]);
    // A page that is full needs no more than that.
    const full = await queue.find({ type: 'invoice.paid' }, { limit: 10 });
    expect(full.found).toHaveLength(10);
  });
});
