import { readFileSync, writeFileSync } from 'node:fs';
import { Registry } from '@prometheus-io/client';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Endpoint } from '../../../../src/provider/endpoints/endpoint.ts';
import {
  createFailingEndpoints,
  createLaneHooks,
  createOutboxHooks,
  createQueueCondition,
  createQueueHooks,
  type ProviderLogEvent,
} from '../../../../src/provider/telemetry/hooks.ts';
import { createProviderMetrics } from '../../../../src/provider/telemetry/provider-metrics.ts';
import { AttemptJournal } from '../../../../src/telemetry/journal/attempt-journal.ts';
import { createLogger } from '../../../../src/telemetry/log/logger.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { anEndpoint } from '../../../support/provider/endpoint.ts';
import { newEvent } from '../../../support/queue/events.ts';
import { createSqliteQueue, makeQueueFolder, openSqliteQueue } from '../../../support/queue/sqlite-store.ts';

function createScene(endpoints: readonly Endpoint[]) {
  const clock = new FakeClock();
  const registry = new Registry();
  const metrics = createProviderMetrics([registry]);
  const logger = createLogger<ProviderLogEvent>({ level: 'error', version: 'test', destination: { write: () => undefined } });
  const parts = {
    clock,
    metrics,
    logger,
    onSpan: undefined,
    journal: new AttemptJournal(0),
    failing: createFailingEndpoints(clock, false),
    condition: createQueueCondition(metrics, logger),
  };
  const hooks = createLaneHooks(parts, (id) => endpoints.find((endpoint) => endpoint.id === id));
  const skipped = async (): Promise<Record<string, number>> => {
    const text = await registry.metrics();
    const lines = text.matchAll(/^sidegate_provider_deliveries_total\{endpoint="([^"]+)",result="skipped"\} (\d+)$/gm);
    return Object.fromEntries([...lines].map(([, endpoint = '', count]) => [endpoint, Number(count)]));
  };
  return { hooks, skipped, parts };
}

test('an outbox whose rows wait for more than five minutes is named, and an outage of it before that', () => {
  const { parts } = createScene([]);
  const { condition } = parts;
  const outbox = createOutboxHooks(parts, () => undefined);
  outbox.onFigures(3, 300);
  expect(condition.problem).toBeUndefined();
  outbox.onFigures(3, 301);
  expect(condition.problem).toBe('events wait in the outbox');
  outbox.onFigures(0, 0);
  outbox.onDown(new Error('no server'));
  expect(condition.problem).toBe('events in the outbox are not taken');
  outbox.onUp();
  expect(condition.problem).toBeUndefined();
});

test('skipped deliveries are counted by the label that attempts to the endpoint have', async () => {
  const { hooks, skipped } = createScene([
    anEndpoint('acme', { source: 'config' }),
    anEndpoint('tenant-1', { source: 'api' }),
    anEndpoint('tenant-2', { source: 'api' }),
    anEndpoint('inbox:billing', { source: 'config' }),
  ]);
  hooks.onSkipped('acme', 3);
  hooks.onSkipped('tenant-1', 5);
  hooks.onSkipped('tenant-2', 7);
  hooks.onSkipped('inbox:billing', 2);
  // Their names are unbounded: clients of the API choose them.
  hooks.onSkipped('deleted', 11);
  hooks.onSkipped('acme', 1);
  expect(await skipped()).toEqual({ acme: 4, api: 23, 'inbox:billing': 2 });
});

const MINUTE = 60_000;

describe('the endpoints that fail', () => {
  test('are those without a success, as long as they exist and are enabled', () => {
    const clock = new FakeClock();
    const failing = createFailingEndpoints(clock, false);
    failing.add('a', clock.now() + MINUTE);
    failing.add('b', clock.now() + MINUTE);
    failing.add('b', clock.now() + 2 * MINUTE);
    expect(failing.count(['a', 'b', 'c'])).toBe(2);
    failing.delete('a');
    expect(failing.count(['a', 'b'])).toBe(1);
    expect(failing.count(['a'])).toBe(0);
    expect(failing.count(['a', 'b'])).toBe(0);
  });

  test.each([
    ['are forgotten with a shared queue once another replica must have made the next attempt', true, 0],
    ['are remembered with a queue of one process until an attempt succeeds', false, 1],
  ])('%s', async (_title, isShared, expected) => {
    const clock = new FakeClock();
    const failing = createFailingEndpoints(clock, isShared);
    failing.add('a', clock.now() + 5 * MINUTE);
    await clock.advance(15 * MINUTE);
    expect(failing.count(['a'])).toBe(1);
    await clock.advance(1);
    expect(failing.count(['a'])).toBe(expected);
  });
});

const EVENTS = 40;

/** Opens the file of a process that was killed after it had stored events, with one byte of its write-ahead log changed. */
async function openDamaged(toOffset: (length: number) => number | undefined) {
  const [live, copy] = [makeQueueFolder(), makeQueueFolder()];
  const first = await openSqliteQueue(live.path);
  for (let i = 0; i < EVENTS; i++) await first.append([newEvent(['a'])]);
  const log = readFileSync(`${live.path}-wal`);
  const offset = toOffset(log.length);
  if (offset !== undefined) log.writeUInt8(log.readUInt8(offset) ^ 0xff, offset);
  writeFileSync(copy.path, readFileSync(live.path));
  writeFileSync(`${copy.path}-wal`, log);
  await first.close();
  const registry = new Registry();
  const lines: string[] = [];
  const metrics = createProviderMetrics([registry]);
  const destination = { write: (line: string) => void lines.push(line) };
  const logger = createLogger<ProviderLogEvent>({ level: 'info', version: 'test', destination });
  const condition = createQueueCondition(metrics, logger);
  const queue = createSqliteQueue(copy.path, { hooks: createQueueHooks({ logger, clock: new FakeClock(), metrics, condition }) });
  await queue.open();
  onTestFinished(async () => {
    await queue.close();
    for (const { remove } of [live, copy]) remove();
  });
  const { storedEvents } = await queue.stats(Date.now());
  const logged = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  const wentBack = /^sidegate_provider_queue_went_back_total (\d+)$/m.exec(await registry.metrics())?.[1];
  return { storedEvents, logged, wentBack, problem: condition.problem };
}

test('runs of a thousand endpoints that fail while the store is down are logged ten times, and then once in ten seconds', async () => {
  const clock = new FakeClock();
  const { parts } = createScene([]);
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const logger = createLogger<ProviderLogEvent>({ level: 'info', version: 'test', destination });
  const { onRunError } = createQueueHooks({ ...parts, clock, logger });
  const failAll = (): void => {
    for (let i = 0; i < 1_000; i++) onRunError(`e${i}`, new Error('down'));
  };
  failAll();
  expect(lines).toHaveLength(10);
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({ msg: 'provider_failed', endpoint: 'e0', error: 'down' });
  await clock.advance(20_000);
  failAll();
  expect(lines).toHaveLength(12);
});

test.each([0.3, 0.7])('reports the events behind a damaged byte at %d of the write-ahead log as lost', async (part) => {
  const { storedEvents, logged, wentBack, problem } = await openDamaged((length) => Math.floor(part * length));
  expect(storedEvents).toBeLessThan(EVENTS);
  expect(wentBack).toBe('1');
  expect(problem).toBe('events that the queue had stored are missing');
  expect(logged).toMatchObject([{ msg: 'queue_went_back', level: 'error', hint: expect.stringContaining('damaged') }]);
});

test.each([
  ['nothing after a crash', () => undefined, EVENTS],
  [
    'nothing if only the last transaction cannot be read, as after a crash while it was written',
    (length: number) => length - 100,
    EVENTS - 1,
  ],
] as const)('reports %s', async (_, toOffset, stored) => {
  expect(await openDamaged(toOffset)).toMatchObject({ storedEvents: stored, logged: [], wentBack: '0', problem: undefined });
});
