/** The figures that replicas share for the overview, through a store in memory with a clock of its own. */
import { expect, test } from 'vitest';
import { ReplicaFigures } from '../../../../src/admin/console/overview.ts';
import type { RouteRates } from '../../../../src/admin/rate-history.ts';
import { Journal } from '../../../../src/telemetry/journal/journal.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { makeRequestLine } from '../../../support/request-line.ts';
import { createSharedStreams } from '../../../support/shared-streams.ts';

function createStore() {
  const clock = new FakeClock();
  return { clock, ...createSharedStreams(clock) };
}

function open(
  { store, clock }: ReturnType<typeof createStore>,
  instance: string,
  routes: readonly string[] = ['billing'],
  rates?: RouteRates,
) {
  const journal = new Journal({ size: 1_000, maxBytes: 10_000_000 });
  const figures = new ReplicaFigures(instance, {
    clock,
    journal,
    rates: { of: () => rates },
    replica: `pod-${instance}`,
    routes: () => routes.map((name) => ({ name })),
    shared: store,
  });
  const add = (route = 'billing'): void => journal.add(clock.now(), makeRequestLine({ route }));
  return { figures, add, share: () => figures.share(store) };
}

test('a replica shares its figures every ten seconds, and leaves out routes without requests', async () => {
  const shared = createStore();
  const { add, share } = open(shared, 'one', ['billing', 'unused']);
  add();
  await share();
  shared.clock.pass(9_000);
  await share();
  expect(shared.batches).toHaveLength(1);
  shared.clock.pass(1_000);
  await share();
  expect(shared.batches).toHaveLength(2);
  expect(JSON.parse(shared.batches[0]?.text ?? '').routes.map(([name]: [string]) => name)).toEqual(['billing']);
});

test('a route without requests in the last minutes has the time of its last one', async () => {
  const shared = createStore();
  const none = { until: 0, accepted: [0], failed: [0], rejected: [0] };
  const other = open(shared, 'other', ['billing'], none);
  other.add();
  await other.share();
  const [found] = await open(shared, 'own').figures.readOthers();
  expect(found?.routes.get('billing')).toMatchObject({ lastMinutes: { requests: 0 }, lastAt: expect.any(String) });
});

test('a replica counts until it shared nothing for 30 seconds, and not at all if it had ended before the console was opened', async () => {
  const shared = createStore();
  const [own, other] = [open(shared, 'own'), open(shared, 'other')];
  other.add();
  await other.share();
  shared.clock.pass(31_000);
  expect(await own.figures.readOthers()).toEqual([]);
  await other.share();
  const [found] = await own.figures.readOthers();
  expect([found?.replica, found?.routes.get('billing')?.lastMinutes.requests]).toEqual(['pod-other', 1]);
  shared.clock.pass(30_000);
  expect(await own.figures.readOthers()).toHaveLength(1);
  shared.clock.pass(10_000);
  expect(await own.figures.readOthers()).toEqual([]);
});

test('two calls at once read each batch once, and none counts while the store is away', async () => {
  const shared = createStore();
  const [own, other] = [open(shared, 'own'), open(shared, 'other')];
  other.add();
  await other.share();
  const [first, second] = await Promise.all([own.figures.readOthers(), own.figures.readOthers()]);
  expect([first, second?.length]).toEqual([second, 1]);
  shared.state.isAway = true;
  expect(await own.figures.readOthers()).toEqual([]);
  shared.state.isAway = false;
  expect(await own.figures.readOthers()).toHaveLength(1);
});

test('what is no batch of this version is ignored, and so are further replicas after a hundred', async () => {
  const shared = createStore();
  const own = open(shared, 'own');
  const lastMinutes = { seconds: 1, perSecond: 1, requests: 1, failed: 0, rejected: 0 };
  const toBatch = (instance: string, route: unknown): string =>
    JSON.stringify({ instance, replica: 'pod', routes: [['billing', route]] });
  for (const text of [
    '',
    '[]',
    '{"instance":1}',
    toBatch('a', {}),
    toBatch('b', { lastMinutes: { ...lastMinutes, requests: 'x' } }),
  ])
    await shared.store.publish('figures', text);
  const routes = Array.from({ length: 201 }, (_, i) => [`r${i}`, { lastMinutes, lastAt: null }]);
  await shared.store.publish('figures', JSON.stringify({ instance: 'c', replica: 'pod', routes }));
  expect(await own.figures.readOthers()).toEqual([]);
  for (let i = 0; i < 150; i++) await shared.store.publish('figures', toBatch(`i${i}`, { lastMinutes, lastAt: null }));
  expect(await own.figures.readOthers()).toHaveLength(100);
});
