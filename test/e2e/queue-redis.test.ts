import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { execPath } from 'node:process';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import type { SidegateError } from '../../src/core/errors.ts';
import type { DeliveryFilter, DeliveryQueue } from '../../src/provider/queue/delivery-queue.ts';
import { buildShards } from '../../src/provider/queue/redis/keys.ts';
import { createRedisQueue } from '../../src/provider/queue/redis/redis-queue.ts';
import { until } from '../support/gate.ts';
import { newEvent, newId, PROVEN, settled } from '../support/queue/events.ts';
import { deliverAll, drain, holdLanes } from '../support/queue/lanes.ts';
import { newPrefix, openQueue, type RedisQueueSetup, toOptions } from '../support/queue/redis-store.ts';
import { type RedisOptions, type RedisServer, startRedis } from '../support/redis.ts';

const DURABLE = ['appendonly yes', 'appendfsync everysec'];
const CHILD = join(import.meta.dirname, '..', 'support', 'queue', 'delivering-child.ts');
const STORE = join(import.meta.dirname, '..', 'support', 'queue', 'redis-store.ts');
/** Short, so that a test of a crash does not wait for half a minute. */
const TIMES = { lease: 4_000, renewEvery: 1_000, checkEvery: 500, sweepEvery: 2_000, sweepGrace: 500 };
const now = (): number => Date.now();

let server: RedisServer;
const opened = new Set<DeliveryQueue>();
const started: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  server = await startRedis({ config: DURABLE });
});
afterAll(async () => {
  await server.stop();
});
afterEach(async () => {
  await Promise.all([...opened].map((queue) => queue.close()));
  opened.clear();
  for (const stop of started.splice(0)) await stop();
});

function setupOf({ port }: RedisServer, over: Partial<RedisQueueSetup> = {}): RedisQueueSetup {
  return { topology: { kind: 'standalone', node: { host: '127.0.0.1', port } }, keyPrefix: newPrefix(), times: TIMES, ...over };
}

async function open(setup: RedisQueueSetup): Promise<DeliveryQueue> {
  const queue = await openQueue(JSON.stringify(setup));
  opened.add(queue);
  return queue;
}

/** The system's clock, wrong by `shift`. */
function shiftedClock(shift: number): Clock & { shift: number } {
  const clock = { ...systemClock, shift, now: () => systemClock.now() + clock.shift };
  return clock;
}

async function openAt(setup: RedisQueueSetup, clock: Clock): Promise<DeliveryQueue> {
  const queue = await openQueue(JSON.stringify(setup), clock);
  opened.add(queue);
  return queue;
}

async function start(options: RedisOptions): Promise<RedisServer> {
  const own = await startRedis(options);
  started.push(() => own.stop());
  return own;
}

interface Child {
  readonly process: ChildProcess;
  readonly lines: () => readonly string[];
  readonly kill: () => Promise<void>;
}

function startChild(setup: RedisQueueSetup, duration: number): Child {
  const child = spawn(execPath, [CHILD, STORE, JSON.stringify(setup), String(duration)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGKILL');
    await ended;
  };
  started.push(kill);
  return { process: child, lines: () => text.split('\n').slice(0, -1), kill };
}

const keysOf = ({ keyPrefix }: RedisQueueSetup, pattern = '*'): string[] =>
  server
    .cli('KEYS', `${keyPrefix}${pattern}`)
    .split('\n')
    .filter((key) => key !== '');

async function appendSome(queue: DeliveryQueue, count: number, endpoints: number): Promise<string[]> {
  const events = Array.from({ length: count }, (_, i) => newEvent([`e${i % endpoints}`], { id: newId(), createdAt: now() }));
  for (let i = 0; i < count; i += 200) await queue.append(events.slice(i, i + 200));
  return events.map(({ id }) => id);
}

describe('lanes of several processes', () => {
  test('are shared, and what a killed process had in flight is sent again within 30 seconds', { timeout: 90_000 }, async () => {
    // The times of production.
    const setup = setupOf(server, { times: undefined });
    const [one, two] = [startChild(setup, 1_000), startChild(setup, 1_000)];
    await until(() => one.lines().includes('serving') && two.lines().includes('serving'));
    const queue = await open(setup);
    const ids = await appendSome(queue, 400, 40);
    const isServing = ({ lines }: Child): boolean => lines().filter((line) => line.startsWith('settled')).length > 10;
    await until(() => isServing(one) && isServing(two));
    const findInFlight = (): string[] => {
      const lines = one.lines();
      return lines.filter((line) => line !== 'serving' && !line.startsWith('settled') && !lines.includes(`settled ${line}`));
    };
    // The lanes take and settle together: just after they have settled, nothing would be in flight.
    const before = findInFlight();
    await until(() => findInFlight().some((line) => !before.includes(line)));
    await one.kill();
    const killedAt = performance.now();
    const inFlight = findInFlight();
    // Some may be settled in Redis without the line that says so: the process was killed in between.
    const found = await Promise.all(inFlight.map((line) => queue.find({ event: line.split(' ')[0] }, { limit: 1 })));
    const unsettled = inFlight.filter((_, i) => found[i]?.deliveries[0]?.state === 'waiting');
    expect(unsettled.length).toBeGreaterThan(0);
    await until(() => unsettled.every((line) => two.lines().includes(line)));
    const seconds = (performance.now() - killedAt) / 1_000;
    await until(async () => (await queue.stats(now())).waiting === 0);
    const findUnreported = (): string[] => {
      const ends = [...one.lines(), ...two.lines()].filter((line) => line.startsWith('settled'));
      const settled = new Set(ends.map((line) => line.split(' ')[1]));
      return ids.filter((id) => !settled.has(id));
    };
    // What the killed process settled and could not report is not sent again.
    const delivered = await queue.find({ states: ['delivered'] }, { limit: 250 });
    expect(delivered.deliveries.length).toBe(250);
    await until(() => findUnreported().length <= inFlight.length - unsettled.length);
    expect(seconds).toBeLessThan(30);
    expect((await queue.stats(now())).sweepFinds).toBe(0);
  });

  test('are handed over at once when a process stops', async () => {
    const setup = setupOf(server, { times: undefined });
    const [one, two] = [await open(setup), await open(setup)];
    const first = holdLanes(one);
    await one.append([newEvent(['a'])]);
    await first.next('a');
    const second = holdLanes(two);
    const stoppedAt = performance.now();
    await first.stop();
    await second.next('a');
    expect(performance.now() - stoppedAt).toBeLessThan(3_000);
    await second.stop();
  });

  test('have the time of Redis, whatever the clocks of the processes say', async () => {
    const setup = setupOf(server);
    const times: number[] = [];
    for (const shift of [0, 3_600_000, -3_600_000]) {
      const clock = shiftedClock(shift);
      const queue = await openAt(setup, clock);
      const lanes = holdLanes(queue);
      await queue.append([newEvent([`e${shift}`])]);
      const { lane } = await lanes.next(`e${shift}`);
      times.push(lane.storeTime());
      const before = lane.storeTime();
      await new Promise((resolve) => setTimeout(resolve, 50));
      expect(lane.storeTime() - before).toBeGreaterThan(40);
      await lanes.stop();
    }
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    expect(Math.abs((times[2] ?? 0) - now())).toBeLessThan(10_000);
  });

  test('abort when the lease is lost, and settle nothing afterwards', async () => {
    const setup = setupOf(server);
    const queue = await open(setup);
    const lanes = holdLanes(queue);
    const event = newEvent(['a']);
    await queue.append([event]);
    const { lane, end } = await lanes.next('a');
    const [delivery] = await lane.take(1, now());
    expect(delivery).toBeDefined();
    for (const key of keysOf(setup, '*:lock')) server.cli('DEL', key);
    await until(() => lane.signal.aborted);
    const settlement = { event: event.id, attempt: 0, at: now(), settlement: { kind: 'dead' } } as const;
    await lane.settle([settlement], { failures: 9, isProven: false, since: 0 });
    expect(await lane.take(1, now())).toEqual([]);
    expect(await queue.stats(now())).toMatchObject({ waiting: 1, dead: 0 });
    end();
    const again = await until(() => lanes.running.find((each) => each.lane !== lane));
    expect(again.lane.state).toBeUndefined();
    expect(await again.lane.take(1, now())).toMatchObject([{ event: event.id, attempt: 0 }]);
    await lanes.stop();
  });
});

test('a lane that the same process got again keeps its lease when the run before it ends', { timeout: 30_000 }, async () => {
  const setup = setupOf(server);
  const queue = await open(setup);
  const lanes = holdLanes(queue);
  await queue.append([newEvent(['a'])]);
  const first = await lanes.next('a');
  for (const key of keysOf(setup, '*:lock')) server.cli('DEL', key);
  const second = await until(() => lanes.running.find((each) => each.lane !== first.lane));
  first.end();
  await new Promise((resolve) => setTimeout(resolve, TIMES.lease + 2_000));
  expect([second.lane.signal.aborted, lanes.running.length]).toEqual([false, 1]);
  await lanes.stop();
});

test('a lane that could not begin is served about a second later, not by the sweep', async () => {
  const times = { ...TIMES, sweepEvery: 600_000 };
  const setup = setupOf(server, { times });
  const errors: unknown[] = [];
  const queue = createRedisQueue(toOptions(setup, errors));
  opened.add(queue);
  await queue.open();
  // Of the wrong type, so that each begin fails.
  const [key = ''] = buildShards(setup.keyPrefix, 1).map(({ prefix }) => `${prefix}:f:a`);
  server.cli('SET', key, 'damaged');
  const received: string[] = [];
  const serving = deliverAll(queue, now, ({ event }) => received.push(event));
  const event = newEvent(['a'], { createdAt: now() });
  await queue.append([event]);
  await until(() => errors.length >= 2);
  expect([String(errors[0]), received]).toEqual([expect.stringContaining('WRONGTYPE'), []]);
  server.cli('DEL', key);
  await until(async () => (await queue.stats(now())).waiting === 0);
  await serving.stop();
  expect([received, (await queue.stats(now())).sweepFinds]).toEqual([[event.id], 0]);
});

describe('the sweep', () => {
  test('delivers everything although all keys of BullMQ are deleted in the middle, three times', {
    timeout: 90_000,
  }, async () => {
    const setup = setupOf(server);
    const queue = await open(setup);
    const received = new Map<string, number>();
    const serving = deliverAll(queue, now, ({ event }) => received.set(event, (received.get(event) ?? 0) + 1), 8);
    const ids: string[] = [];
    for (let round = 0; round < 3; round++) {
      const appending = appendSome(queue, 1_500, 50);
      await until(() => received.size > 1_500 * round + 200);
      const keys = keysOf(setup, '*:lane:*');
      expect(keys.length).toBeGreaterThan(0);
      server.cli('DEL', ...keys);
      ids.push(...(await appending));
    }
    await until(async () => (await queue.stats(now())).waiting === 0);
    await serving.stop();
    expect(ids.filter((id) => !received.has(id))).toEqual([]);
    expect((await queue.stats(now())).sweepFinds).toBeGreaterThan(0);
    const twice = [...received.values()].filter((times) => times > 1).length;
    expect(twice).toBeLessThan(200);
  });

  test('repairs a job that is in no list, and finds nothing in normal operation', { timeout: 60_000 }, async () => {
    const setup = setupOf(server);
    const queue = await open(setup);
    await queue.append([newEvent(['a'])]);
    await until(() => keysOf(setup, '*:lane:wait').length === 1);
    server.cli('DEL', ...keysOf(setup, '*:lane:wait'));
    expect(await drain(queue, now)).toHaveLength(1);
    expect((await queue.stats(now())).sweepFinds).toBe(1);
    const lanes = holdLanes(queue);
    await queue.append([newEvent(['b'])]);
    const held = await lanes.next('b');
    const paused = newEvent(['c']);
    await queue.append([paused]);
    (await lanes.next('c')).end({ notBefore: now() + 20_000 });
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    expect((await queue.stats(now())).sweepFinds).toBe(1);
    held.end();
    await lanes.stop();
  });
});

describe('a clock that was a day ahead and was set back', () => {
  const DAY = 86_400_000;

  test('pauses no endpoint for longer than its run asked for: a new event is served at once', async () => {
    const clock = shiftedClock(DAY);
    const queue = await openAt(setupOf(server), clock);
    const lanes = holdLanes(queue);
    await queue.append([newEvent(['a'])]);
    const { lane, end } = await lanes.next('a');
    const taken = await lane.take(1, clock.now());
    await lane.settle(
      taken.map((delivery) => settled(delivery, { kind: 'delivered' }, clock.now())),
      PROVEN,
    );
    end({ notBefore: clock.now() + 5_000 });
    await until(() => lanes.running.length === 0);
    await new Promise((resolve) => setTimeout(resolve, 100));
    clock.shift = 0;
    const event = newEvent(['a']);
    await queue.append([event]);
    expect(await (await lanes.next('a')).lane.take(1, clock.now())).toMatchObject([{ event: event.id }]);
    await lanes.stop();
    expect((await queue.stats(clock.now())).sweepFinds).toBe(0);
  });

  test('does not keep the events until then that were appended meanwhile', async () => {
    const clock = shiftedClock(DAY);
    const queue = await openAt(setupOf(server), clock);
    const ordered = { endpoint: 'b', orderKey: 'k' };
    const events = [newEvent(['a']), newEvent(['a']), newEvent([ordered]), newEvent([ordered])];
    await queue.append(events.map((event) => ({ ...event, createdAt: clock.now() })));
    clock.shift = 0;
    expect((await drain(queue, clock.now)).map(({ event }) => event).toSorted()).toEqual(events.map(({ id }) => id).toSorted());
  });

  test('does not repeat what was in flight when the sweep made it due now', async () => {
    const clock = shiftedClock(DAY);
    const setup = setupOf(server);
    const queue = await openAt(setup, clock);
    const lanes = holdLanes(queue);
    const [event, waiting] = [newEvent(['a'], { createdAt: clock.now() }), newEvent(['b'], { createdAt: clock.now() })];
    await queue.append([event]);
    const { lane, end } = await lanes.next('a');
    const taken = await lane.take(1, clock.now());
    // Its due time shows when the sweep has been there.
    await queue.append([waiting]);
    clock.shift = 0;
    await until(async () => {
      const { deliveries } = await queue.find({ event: waiting.id }, { limit: 1 });
      return (deliveries[0]?.due ?? 0) <= clock.now();
    });
    await lane.settle(
      taken.map((delivery) => settled(delivery, { kind: 'delivered' }, clock.now())),
      PROVEN,
    );
    expect((await queue.find({ event: event.id }, { limit: 1 })).deliveries).toMatchObject([{ state: 'delivered', attempts: 1 }]);
    end();
    await lanes.stop();
  });

  test('leaves no endpoint behind whose deliveries were due before: the sweep finds it', { timeout: 30_000 }, async () => {
    const clock = shiftedClock(0);
    const queue = await openAt(setupOf(server), clock);
    const lanes = holdLanes(queue);
    const event = newEvent(['a']);
    await queue.append([event]);
    clock.shift = DAY;
    (await lanes.next('a')).end({ notBefore: clock.now() + 5_000 });
    await new Promise((resolve) => setTimeout(resolve, 100));
    clock.shift = 0;
    expect(await (await lanes.next('a')).lane.take(1, clock.now())).toMatchObject([{ event: event.id }]);
    await lanes.stop();
  });
});

describe('an outage', () => {
  test('rejects quickly while Redis is down, and continues by itself with everything that was accepted', {
    timeout: 60_000,
  }, async () => {
    const own = await start({ config: ['appendonly yes', 'appendfsync always'] });
    const queue = await open(setupOf(own));
    const received = new Map<string, number>();
    const serving = deliverAll(queue, now, ({ event }) => received.set(event, (received.get(event) ?? 0) + 1), 8);
    const stored: string[] = [];
    let slowest = 0;
    let rejected = 0;
    let isOver = false;
    const appending = (async () => {
      for (let i = 0; !isOver; i++) {
        const event = newEvent([`e${i % 7}`], { createdAt: now() });
        const startedAt = performance.now();
        try {
          await queue.append([event]);
          stored.push(event.id);
        } catch (error) {
          expect(error).toMatchObject({ name: 'SidegateError', code: 'queue_unavailable' });
          rejected++;
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
        slowest = Math.max(slowest, performance.now() - startedAt);
      }
    })();
    for (let round = 0; round < 2; round++) {
      const before = stored.length;
      await until(() => stored.length > before + 50);
      await own.kill();
      await new Promise((resolve) => setTimeout(resolve, 300));
      await own.restart();
    }
    const before = stored.length;
    await until(() => stored.length > before + 50);
    isOver = true;
    await appending;
    await until(async () => (await queue.stats(now()).catch(() => undefined))?.waiting === 0);
    await serving.stop();
    expect(rejected).toBeGreaterThan(0);
    expect(slowest).toBeLessThan(4_000);
    expect(stored.filter((id) => !received.has(id))).toEqual([]);
    expect((await queue.find({ states: ['waiting', 'dead', 'skipped'] }, { limit: 1 })).deliveries).toEqual([]);
  });

  test('settles what was sent while Redis was down, instead of sending it again', { timeout: 60_000 }, async () => {
    const own = await start({ config: ['appendonly yes', 'appendfsync always'] });
    const queue = await open(setupOf(own, { times: undefined }));
    await appendSome(queue, 4, 1);
    let sent = 0;
    const serving = deliverAll(queue, now, () => sent++, 2);
    await until(() => sent > 0);
    await own.kill();
    await new Promise((resolve) => setTimeout(resolve, 500));
    await own.restart();
    await until(async () => (await queue.stats(now()).catch(() => undefined))?.waiting === 0);
    await serving.stop();
    expect(sent).toBe(4);
  });

  test('stops in time although Redis is gone', { timeout: 40_000 }, async () => {
    const own = await start({ config: DURABLE });
    const queue = await open(setupOf(own));
    const lanes = holdLanes(queue);
    await queue.append([newEvent(['a'])]);
    await lanes.next('a');
    await own.kill();
    const stoppedAt = performance.now();
    await lanes.stop();
    await queue.close();
    opened.delete(queue);
    expect(performance.now() - stoppedAt).toBeLessThan(15_000);
  });

  test('connects again when its master has become a replica: the address may lead to the new one', async () => {
    const [own, other] = [await start({ config: DURABLE }), await start({ config: DURABLE })];
    const queue = await open(setupOf(own));
    await queue.append([newEvent(['a'])]);
    const connections = (): string =>
      own
        .cli('CLIENT', 'LIST')
        .match(/^id=\d+(?=.* name=sidegate .* cmd=evalsha )/gm)
        ?.join() ?? '';
    const before = connections();
    own.cli('REPLICAOF', '127.0.0.1', String(other.port));
    await expect(queue.append([newEvent(['a'])])).rejects.toMatchObject({ code: 'queue_unavailable' });
    own.cli('REPLICAOF', 'NO', 'ONE');
    await until(() => queue.append([newEvent(['a'])]).catch(() => undefined));
    expect([before, connections()]).toEqual([expect.stringMatching(/^id=\d+$/), expect.not.stringContaining(before)]);
  });

  test('loads its scripts again after Redis lost them', async () => {
    const queue = await open(setupOf(server));
    await queue.append([newEvent(['a'])]);
    server.cli('SCRIPT', 'FLUSH');
    await queue.append([newEvent(['a'])]);
    server.cli('SCRIPT', 'FLUSH');
    expect(await drain(queue, now)).toHaveLength(2);
  });

  test('starts again from nothing after FLUSHALL', async () => {
    const own = await start({ config: DURABLE });
    const queue = await open(setupOf(own));
    await appendSome(queue, 10, 2);
    own.cli('FLUSHALL');
    expect(await queue.stats(now())).toMatchObject({ events: 0, waiting: 0 });
    await appendSome(queue, 10, 2);
    expect(await drain(queue, now)).toHaveLength(10);
  });
});

describe('opening', () => {
  const tryToOpen = async (
    own: RedisServer,
    over: Partial<Parameters<typeof createRedisQueue>[0]> = {},
  ): Promise<readonly string[]> => {
    const queue = createRedisQueue({ ...toOptions(setupOf(own)), allowVolatile: false, ...over });
    opened.add(queue);
    return (await queue.open()).map(({ message }) => message);
  };

  test('is silent with a Redis that keeps what it accepts', async () => {
    expect(await tryToOpen(server)).toEqual([]);
  });

  test('rejects a Redis that evicts, or does not persist, and says how to fix it; allowVolatile makes it a warning', async () => {
    const evicting = await start({ config: [...DURABLE, 'maxmemory 100mb', 'maxmemory-policy allkeys-lru'] });
    await expect(tryToOpen(evicting)).rejects.toMatchObject({
      kind: 'user',
      message: expect.stringContaining('set maxmemory-policy noeviction'),
    });
    const volatile = await start({ config: ['maxmemory 0', 'maxmemory-policy allkeys-lru'] });
    await expect(tryToOpen(volatile)).rejects.toMatchObject({
      kind: 'user',
      message: expect.stringContaining('set appendonly yes'),
    });
    expect(await tryToOpen(volatile, { allowVolatile: true })).toEqual([expect.stringContaining('can lose accepted events')]);
  });

  test('warns of what it could not check where CONFIG is forbidden, and checks the rest', async () => {
    const managed = await start({ config: ['user default on nopass ~* &* +@all -config'] });
    await expect(tryToOpen(managed)).rejects.toMatchObject({ message: expect.stringContaining('appendonly') });
    const durable = await start({ config: [...DURABLE, 'user default on nopass ~* &* +@all -config'] });
    expect(await tryToOpen(durable)).toEqual([expect.stringContaining('could not be checked: appendfsync')]);
  });

  test('rejects with queue_unavailable where nobody listens, and opens later', async () => {
    const own = await start({ config: DURABLE });
    await own.kill();
    const queue = createRedisQueue(toOptions(setupOf(own)));
    opened.add(queue);
    await expect(queue.open()).rejects.toMatchObject({ kind: 'system', code: 'queue_unavailable' });
    await expect(queue.append([newEvent(['a'])])).rejects.toMatchObject({ code: 'queue_unavailable' });
    await own.restart();
    await until(() =>
      queue.open().then(
        () => true,
        () => false,
      ),
    );
    expect(await queue.append([newEvent(['a'])])).toEqual(['stored']);
  });

  test('rejects events with queue_full when the memory of Redis is full, and delivers what it has', async () => {
    const own = await start({ config: DURABLE });
    const queue = await open(setupOf(own));
    await appendSome(queue, 10, 2);
    own.cli('CONFIG', 'SET', 'maxmemory', '1');
    await expect(queue.append([newEvent(['a'])])).rejects.toMatchObject({ code: 'queue_full' });
    own.cli('CONFIG', 'SET', 'maxmemory', '0');
    expect(await drain(queue, now)).toHaveLength(10);
  });
});

describe('a Redis whose memory is full', () => {
  test('rejects new events, and delivers, retries and prunes the others as before', { timeout: 60_000 }, async () => {
    const own = await start({ config: [...DURABLE, 'maxmemory 20mb', 'maxmemory-policy noeviction'] });
    const options = toOptions(setupOf(own));
    const reports: string[] = [];
    const queue = createRedisQueue({
      ...options,
      hooks: {
        ...options.hooks,
        onUnavailable: (reason) => reports.push(reason),
        onStoreError: (error) => reports.push(String(error)),
      },
    });
    opened.add(queue);
    await queue.open();
    const appendError = async (): Promise<unknown> =>
      queue.append([newEvent(['a'], { body: Buffer.alloc(100_000), createdAt: now() })]).then(
        () => undefined,
        ({ code }: SidegateError) => code,
      );
    const ids = await appendSome(queue, 200, 20);
    const sent: string[] = [];
    const serving = queue.serve(4, async (lane) => {
      const deliveries = await lane.take(2, now());
      sent.push(...deliveries.map(({ event, attempt }) => `${event} ${attempt}`));
      await new Promise((resolve) => setTimeout(resolve, 100));
      await lane.settle(
        deliveries.map((each) =>
          settled(each, each.attempt === 0 ? { kind: 'retry', due: now() + 300 } : { kind: 'delivered' }, now()),
        ),
        PROVEN,
      );
      return {};
    });
    await until(() => sent.length > 8);
    // Something else fills it while attempts are in flight.
    own.cli('SET', 'other', 'x'.repeat(100_000));
    own.cli('CONFIG', 'SET', 'maxmemory', '1mb');
    expect(await appendError()).toBe('queue_full');
    await until(async () => (await queue.stats(now())).waiting === 0);
    await serving.stop();
    expect(sent.toSorted()).toEqual(ids.flatMap((id) => [`${id} 0`, `${id} 1`]).toSorted());
    expect(await appendError()).toBe('queue_full');
    expect(await queue.append([newEvent(['a'], { id: ids[0] ?? '' })])).toEqual(['duplicate']);
    expect(await queue.prune(now() + 1, now() + 1, 1_000)).toBe(200);
    own.cli('CONFIG', 'SET', 'maxmemory', '20mb');
    let stored = 0;
    while ((await appendError()) === undefined) stored++;
    expect(stored).toBeGreaterThan(50);
    expect(reports).toEqual([]);
    expect((await queue.stats(now())).sweepFinds).toBe(0);
  });

  test('can be opened, and its queue delivered, by a process that starts', async () => {
    const own = await start({ config: DURABLE });
    const setup = setupOf(own);
    const queue = await open(setup);
    const ids = await appendSome(queue, 20, 5);
    await queue.close();
    own.cli('CONFIG', 'SET', 'maxmemory', '1');
    const received = await drain(await open(setup), now);
    expect(received.map(({ event }) => event).toSorted()).toEqual(ids.toSorted());
  });
});

describe('events for many endpoints', () => {
  const ENDPOINTS = Array.from({ length: 300 }, (_, i) => `e${i}`);

  /** How often a call of the script ran the command, on average. */
  function countInScript(own: RedisServer, command: string): number {
    const calls = (name: string): number =>
      Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(own.cli('INFO', 'commandstats'))?.[1] ?? 0);
    return calls(command) / calls('evalsha');
  }

  async function listAll(queue: DeliveryQueue, filter: DeliveryFilter): Promise<string[]> {
    const found: string[] = [];
    for (let after: string | undefined, isFirst = true; isFirst || after !== undefined; isFirst = false) {
      const { deliveries, next } = await queue.find(filter, { limit: 250, after });
      found.push(...deliveries.map(({ event, endpoint }) => `${event}~${endpoint}`));
      after = next;
    }
    return found;
  }

  test('are listed in steps that read a bounded number of deliveries, and completely', { timeout: 60_000 }, async () => {
    const own = await start({ config: DURABLE });
    const queue = await open(setupOf(own));
    const events = Array.from({ length: 40 }, () => newEvent(ENDPOINTS, { createdAt: now() }));
    for (const event of events) await queue.append([event]);
    own.cli('CONFIG', 'RESETSTAT');
    expect(await listAll(queue, { states: ['delivered'] })).toEqual([]);
    expect(countInScript(own, 'hmget')).toBeLessThan(1_000);
    const [{ id = '' } = {}] = events;
    const all = events.flatMap((event) => ENDPOINTS.map((endpoint) => `${event.id}~${endpoint}`));
    expect((await listAll(queue, { states: ['waiting'] })).toSorted()).toEqual(all.toSorted());
    expect((await listAll(queue, { event: id })).toSorted()).toEqual(ENDPOINTS.map((each) => `${id}~${each}`).toSorted());
    expect(await listAll(queue, { endpoint: 'e7' })).toHaveLength(40);
  });

  test('are removed in steps that remove a bounded number of deliveries, and completely', { timeout: 60_000 }, async () => {
    const own = await start({ config: DURABLE });
    const queue = await open(setupOf(own));
    const targets = ENDPOINTS.map((endpoint) => ({ endpoint, isSkipped: true }));
    for (let i = 0; i < 40; i++) await queue.append([newEvent(targets, { createdAt: now() })]);
    own.cli('CONFIG', 'RESETSTAT');
    expect(await queue.prune(now() + 1_000, now() + 1_000, 500)).toBe(40);
    expect(countInScript(own, 'hget')).toBeLessThan(2_000);
    expect(await queue.stats(now())).toMatchObject({ events: 0, bytes: 0, skipped: 0 });
  });
});

describe('memory', () => {
  test('leaves only a few keys behind after everything was delivered and pruned', async () => {
    const setup = setupOf(server);
    const queue = await open(setup);
    const ordered = Array.from({ length: 50 }, (_, i) => newEvent([{ endpoint: 'e0', orderKey: `k${i}` }], { createdAt: now() }));
    await queue.append(ordered);
    await appendSome(queue, 500, 20);
    await drain(queue, now);
    expect(await queue.prune(now() + 1, now() + 1, 10_000)).toBe(550);
    const [counters, ...rest] = keysOf(setup).filter((key) => !/:(?:lane|l):|:layout$/.test(key));
    expect(counters).toMatch(/:(?:n|swept)$/);
    expect(rest.length).toBeLessThanOrEqual(1);
    // The state of each lane, with an expiry, and BullMQ's own few keys.
    expect(keysOf(setup, '*:l:*').length).toBeLessThanOrEqual(20);
    for (const key of keysOf(setup, '*:l:*')) expect(Number(server.cli('PTTL', key))).toBeGreaterThan(0);
    expect(keysOf(setup, '*:lane:*').length).toBeLessThan(8);
    expect(await queue.stats(systemClock.now())).toMatchObject({ events: 0, bytes: 0, waiting: 0, dead: 0, skipped: 0 });
  });

  test('takes less than 1 KiB for an event besides its body, and what the bound counts', async () => {
    const own = await start({});
    const queue = await open(setupOf(own));
    const used = (): number => Number(/used_memory:(\d+)/.exec(own.cli('INFO', 'memory'))?.[1]);
    await appendSome(queue, 100, 10);
    const before = used();
    const { bytes } = await queue.stats(now());
    const events = Array.from({ length: 5_000 }, (_, i) =>
      newEvent([`e${i % 200}`], { id: `msg_${String(i).padStart(22, 'x')}`, createdAt: now(), body: Buffer.alloc(1_024, 'a') }),
    );
    for (let i = 0; i < events.length; i += 100) await queue.append(events.slice(i, i + 100));
    const each = (used() - before) / events.length;
    const counted = ((await queue.stats(now())).bytes - bytes) / events.length;
    console.log(`Redis memory for a queued event of 1 KiB: ${Math.round(each)} bytes, counted as ${Math.round(counted)}`);
    expect(each).toBeLessThan(2_048);
    expect(counted / each).toBeGreaterThan(0.9);
    expect(counted / each).toBeLessThan(1.3);
  });
});
