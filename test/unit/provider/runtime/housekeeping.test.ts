import { copyFileSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { Registry } from '@prometheus-io/client';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type Clock, ClockSteps } from '../../../../src/core/clock.ts';
import { SidegateError } from '../../../../src/core/errors.ts';
import type { DeliveryQueue, NewEvent } from '../../../../src/provider/queue/delivery-queue.ts';
import { Housekeeping } from '../../../../src/provider/runtime/housekeeping.ts';
import {
  createFailingEndpoints,
  createQueueCondition,
  type ProviderLogEvent,
  type QueueCondition,
} from '../../../../src/provider/telemetry/hooks.ts';
import { createProviderMetrics } from '../../../../src/provider/telemetry/provider-metrics.ts';
import { createLogger } from '../../../../src/telemetry/log/logger.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { until } from '../../../support/gate.ts';
import { type PostgresServer, startPostgres } from '../../../support/postgres.ts';
import { createPostgresQueue } from '../../../support/queue/postgres-store.ts';
import { createSqliteQueue, makeQueueFolder } from '../../../support/queue/sqlite-store.ts';
import { mountSmallDisk } from '../../../support/small-disk.ts';

const DAY_MS = 86_400_000;
const toEvent = (id: string, clock: Clock): NewEvent => ({
  id,
  type: 'invoice.paid',
  createdAt: clock.now(),
  body: Buffer.from('{}'),
  metadata: '{}',
  targets: [{ endpoint: 'acme' }],
});

interface Scene {
  readonly clock: FakeClock;
  readonly queue: DeliveryQueue;
  readonly condition: QueueCondition;
  /** Lets the figures be read once. */
  readonly tick: () => Promise<void>;
  readonly logged: () => readonly Record<string, unknown>[];
  readonly metric: (name: string) => Promise<string | undefined>;
}

async function createScene(create: (clock: Clock) => DeliveryQueue, file?: string): Promise<Scene> {
  const clock = new FakeClock();
  const queue = create(clock);
  await queue.open();
  onTestFinished(() => queue.close());
  const registry = new Registry();
  const metrics = createProviderMetrics([registry]);
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const logger = createLogger<ProviderLogEvent>({ level: 'info', version: 'test', destination });
  const condition = createQueueCondition(metrics, logger);
  let reads = 0;
  const counted = new Proxy(queue, {
    get(target, key) {
      const value = Reflect.get(target, key, target) as unknown;
      if (key === 'backlogs') reads++;
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  const housekeeping = new Housekeeping({
    clock,
    logger,
    metrics,
    queue: counted,
    condition,
    file,
    registry: { list: () => [] },
    steps: new ClockSteps(clock),
    slots: undefined,
    failing: createFailingEndpoints(clock, false),
    retention: { retention: 3 * DAY_MS, deadRetention: 30 * DAY_MS },
  });
  housekeeping.start();
  onTestFinished(() => housekeeping.stop());
  await until(() => reads === 1);
  return {
    clock,
    queue,
    condition,
    async tick() {
      const before = reads;
      await clock.advance(10_000);
      await until(() => reads > before);
    },
    logged: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>),
    async metric(name) {
      const text = await registry.metrics();
      return new RegExp(`^sidegate_provider_${name} (\\S+)$`, 'm').exec(text)?.[1];
    },
  };
}

describe('a queue in PostgreSQL', () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres({ config: ['fsync = on'] });
  });
  afterAll(() => server.stop());
  const createIn = (schema: string) => (clock: Clock) => createPostgresQueue(server.url(), schema, { clock });

  test('that lost accepted events is counted and logged once, with one of the events', async () => {
    const { queue, clock, tick, logged, metric, condition } = await createScene(createIn('lost'));
    await queue.append([toEvent('first', clock)]);
    await tick();
    await queue.append([toEvent('second', clock)]);
    await tick();
    expect(await metric('queue_went_back_total')).toBe('0');
    // As after a restore: the newest event is missing, and others come.
    server.sql("DELETE FROM lost.delivery; DELETE FROM lost.payload; DELETE FROM lost.event WHERE id = 'second'");
    await queue.append([toEvent('third', clock)]);
    await tick();
    await tick();
    expect(await metric('queue_went_back_total')).toBe('1');
    expect(condition.problem).toBe('events that the queue had stored are missing');
    expect(logged().filter(({ msg }) => msg === 'queue_went_back')).toMatchObject([{ level: 'error', event: 'second' }]);
  });

  test.each(['findEvent', 'stats'] as const)(
    'that lost an event and was too busy for %s then is looked at again',
    async (method) => {
      const schema = `busy_${method.toLowerCase()}`;
      const { queue, clock, tick, metric } = await createScene(createIn(schema));
      await queue.append([toEvent('first', clock)]);
      await tick();
      server.sql(`TRUNCATE ${schema}.event, ${schema}.payload, ${schema}.delivery, ${schema}.lane, ${schema}.tenant`);
      await queue.append([toEvent('second', clock)]);
      const whole = queue[method].bind(queue);
      // The figures ask for statistics, too, before the losses.
      let asked = 0;
      const isLate = (): boolean => ++asked > (method === 'stats' ? 1 : 0);
      const busy = async (...args: [never]): Promise<unknown> => {
        if (isLate()) throw new SidegateError('system', 'queue_busy', 'too many wait');
        return whole(...args);
      };
      Object.assign(queue, { [method]: busy });
      await tick();
      expect([isLate(), await metric('queue_went_back_total')]).toEqual([true, '0']);
      Object.assign(queue, { [method]: whole });
      await tick();
      expect(await metric('queue_went_back_total')).toBe('1');
    },
  );

  test('that was emptied is noticed without a new event', async () => {
    const { queue, clock, tick, metric } = await createScene(createIn('emptied'));
    await queue.append([toEvent('first', clock)]);
    await tick();
    server.sql('TRUNCATE emptied.event, emptied.payload, emptied.delivery, emptied.lane, emptied.tenant');
    await tick();
    expect(await metric('queue_went_back_total')).toBe('1');
  });

  test('has lost nothing if the newest event has left, however much room there is', async () => {
    const { queue, clock, tick, metric } = await createScene(createIn('pruned'));
    await queue.append([{ ...toEvent('first', clock), targets: [] }]);
    await tick();
    expect(await queue.prune(clock.now(), 0, 1)).toBe(1);
    await tick();
    expect(await metric('queue_went_back_total')).toBe('0');
  });

  test('that cannot be reached is down for /readyz and the metric, and up again by itself', async () => {
    const { clock, condition, logged, metric } = await createScene(createIn('down'));
    await until(async () => (await metric('queue_up')) === '1');
    await server.kill();
    await clock.advance(10_000);
    await until(() => condition.problem !== undefined);
    expect(condition.problem).toBe('the queue cannot be read');
    expect(await metric('queue_up')).toBe('0');
    expect(logged()).toMatchObject([{ msg: 'queue_down', error: expect.stringContaining('the queue cannot use PostgreSQL') }]);
    await server.restart();
    await clock.advance(10_000);
    await until(() => condition.problem === undefined);
    expect(await metric('queue_up')).toBe('1');
    expect(logged().map(({ msg }) => msg)).toEqual(['queue_down', 'queue_up']);
  });
});

describe('a queue in SQLite', () => {
  test('that is busy with other searches is not down', async () => {
    const { path, remove } = makeQueueFolder();
    onTestFinished(remove);
    const { queue, clock, condition, tick, logged } = await createScene((at) => createSqliteQueue(path, { clock: at }));
    await queue.append([toEvent('first', clock)]);
    const find = queue.findEvents.bind(queue);
    let isAsked = false;
    Object.assign(queue, {
      findEvents: async () => {
        isAsked = true;
        throw new SidegateError('system', 'queue_busy', 'too many wait');
      },
    });
    await tick();
    expect(isAsked).toBe(true);
    expect(condition.problem).toBeUndefined();
    Object.assign(queue, { findEvents: find });
    await tick();
    expect(logged()).toEqual([]);
  });

  test('whose file was replaced is down, and says so once', async () => {
    const { path, remove } = makeQueueFolder();
    onTestFinished(remove);
    const { tick, condition, logged, metric } = await createScene((clock) => createSqliteQueue(path, { clock }), path);
    expect(Number(await metric('queue_disk_free_bytes'))).toBeGreaterThan(0);
    expect(await metric('queue_up')).toBe('1');
    copyFileSync(path, `${path}.old`);
    renameSync(`${path}.old`, path);
    await tick();
    await tick();
    expect(condition.problem).toBe('the file of the queue was deleted or replaced');
    expect(await metric('queue_up')).toBe('0');
    expect(await metric('queue_went_back_total')).toBe('1');
    expect(logged().map(({ msg }) => msg)).toEqual(['queue_went_back', 'queue_down']);
  });

  test('whose disk is nearly full says so until there is space', async ({ skip }) => {
    const disk = (await mountSmallDisk(16)) ?? skip('this process may not mount a file system');
    onTestFinished(disk.unmount);
    const path = join(disk.path, 'queue.db');
    const { tick, condition } = await createScene((clock) => createSqliteQueue(path, { clock }), path);
    expect(condition.problem).toBeUndefined();
    disk.fill();
    await tick();
    expect(condition.problem).toBe('the disk of the queue is nearly full');
    disk.free();
    await tick();
    expect(condition.problem).toBeUndefined();
  });

  test('keeps its events while the clock is ahead for a moment, and removes them when they are old', async () => {
    const { path, remove } = makeQueueFolder();
    onTestFinished(remove);
    const { queue, clock, tick } = await createScene((each) => createSqliteQueue(path, { clock: each }), path);
    await queue.append([{ ...toEvent('old', clock), targets: [] }]);
    clock.step(31 * DAY_MS);
    for (let count = 0; count < 13; count++) await tick();
    expect(await queue.getEvent('old')).toBeDefined();
    clock.step(-31 * DAY_MS);
    clock.pass(4 * DAY_MS);
    await tick();
    await until(async () => (await queue.getEvent('old')) === undefined);
  });
});

test('a queue whose figures can be read is down as long as it cannot be written', () => {
  const ups: boolean[] = [];
  const lines: string[] = [];
  const logger = createLogger<ProviderLogEvent>({
    level: 'info',
    version: 'test',
    destination: { write: (line: string) => void lines.push(line) },
  });
  const condition = createQueueCondition({ queueUp: (isUp) => ups.push(isUp) }, logger);
  condition.fail('writes', 'the disk is full');
  condition.recover('figures');
  expect(condition.problem).toBe('the queue cannot store events: its disk is full');
  expect(ups).toEqual([false]);
  condition.fail('figures', 'no reply');
  condition.recover('writes');
  expect(condition.problem).toBe('the queue cannot be read');
  condition.recover('figures');
  expect(condition.problem).toBeUndefined();
  expect(ups).toEqual([false, false, true]);
  expect(lines.map((line) => (JSON.parse(line) as { msg: string }).msg)).toEqual(['queue_down', 'queue_up']);
});
