import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import type { Sections } from '../../../support/gate.ts';

const WEBHOOK = { keys: [{ name: 'current', secret: { env: 'SECRET' } }] };
const ROUTE = { name: 'app', match: { path: '/' }, upstream: 'http://127.0.0.1:3000' };
const STORE = { redis: { url: 'redis://127.0.0.1:6379' } };

const check = (sections: Sections, webhook: Sections = {}): string[] => {
  const routes = [{ ...ROUTE, webhook: { ...WEBHOOK, ...webhook } }];
  const { problems } = parseConfig('f', stringify({ routes, ...sections }), new FakeClock());
  return problems.map(formatProblem).filter((problem) => problem.includes('worker'));
};

test('several workers require Redis, and the error says why and how', () => {
  expect(check({ workers: 2 })).toEqual([
    'f:11:10: error workers: without Redis each worker would remember only its own events, so that the app would get duplicates, and bans would not apply to all connections\n  hint: set store.redis, for example redis: { url: redis://127.0.0.1:6379 }, or remove workers',
  ]);
  expect(check({ workers: 2, store: STORE })).toEqual([]);
  expect(check({ workers: 1 })).toEqual([]);
});

test.each([
  [{ maxInFlight: 3 }, ['limits.maxInFlight: 3 cannot be divided among 4 workers']],
  [{ maxInFlight: 4, maxQueued: 0 }, []],
  [{ maxQueued: 2, passwordThreads: 1 }, ['limits.maxQueued: 2 cannot', 'limits.passwordThreads: 1 cannot']],
])('each of 4 workers must get a part of a limit: %o', (limits, expected) => {
  const found = check({ workers: 4, store: STORE, limits });
  expect(found).toHaveLength(expected.length);
  for (const [index, text] of expected.entries()) expect(found[index]).toContain(text);
});

test('what only one worker can do is an error', () => {
  const sections = { workers: 2, store: STORE, provider: {} };
  expect(check(sections, { ack: 'onAccept' })).toEqual([
    expect.stringContaining('routes.0.webhook.ack: only the first worker has the queue of provider'),
  ]);
  expect(check(sections, { storeBody: { redact: [] } })).toEqual([
    expect.stringContaining('routes.0.webhook.storeBody: bodies are not stored with more than one worker'),
  ]);
});

test('workers without a port to share are a warning', () => {
  expect(check({ workers: 2, store: STORE, provider: {}, routes: [] })).toEqual([
    expect.stringContaining('warning workers: only the first worker runs provider'),
  ]);
});

test.each([[0], [65], [1.5], ['two']])('workers: %s is rejected', (workers) => {
  expect(check({ workers, store: STORE })).toHaveLength(1);
});

test('a process that only delivers ignores workers', () => {
  const text = stringify({
    workers: 2,
    provider: { queue: { postgres: { url: { env: 'QUEUE_URL' } } } },
    routes: [ROUTE],
    store: STORE,
  });
  const { config } = parseConfig('f', text, new FakeClock(), { overrides: { isDeliverOnly: true } });
  expect(config?.workers).toBe(1);
});
