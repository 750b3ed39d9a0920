import { Registry } from '@prometheus-io/client';
import { expect, test } from 'vitest';
import type { Endpoint } from '../../../../src/provider/endpoints/endpoint.ts';
import {
  createFailingEndpoints,
  createLaneHooks,
  createOutboxHooks,
  createQueueCondition,
  type ProviderLogEvent,
} from '../../../../src/provider/telemetry/hooks.ts';
import { createProviderMetrics } from '../../../../src/provider/telemetry/provider-metrics.ts';
import { AttemptJournal } from '../../../../src/telemetry/journal/attempt-journal.ts';
import { createLogger } from '../../../../src/telemetry/log/logger.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { anEndpoint } from '../../../support/provider/endpoint.ts';

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
