import { readFileSync, writeFileSync } from 'node:fs';
import { Registry } from '@prometheus-io/client';
import { expect, onTestFinished, test } from 'vitest';
import { createQueueCondition, createQueueHooks, type ProviderLogEvent } from '../../../../src/provider/telemetry/hooks.ts';
import { createProviderMetrics } from '../../../../src/provider/telemetry/provider-metrics.ts';
import { createLogger } from '../../../../src/telemetry/log/logger.ts';
import { newEvent } from '../../../support/queue/events.ts';
import { createSqliteQueue, makeQueueFolder, openSqliteQueue } from '../../../support/queue/sqlite-store.ts';

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
  const queue = createSqliteQueue(copy.path, { hooks: createQueueHooks({ logger, metrics, condition }) });
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
