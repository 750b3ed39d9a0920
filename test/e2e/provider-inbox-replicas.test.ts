/** Replicas of an app with an inbox, whose queue is in PostgreSQL: each forwards to the app of its own pod. */
import { createHmac } from 'node:crypto';
import { channel } from 'node:diagnostics_channel';
import { writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeFolder, usePostgres } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { listDeliveries } from '../support/provider/client.ts';
import { type StoppableApp, startStoppableApp } from '../support/stoppable-app.ts';

const SECRET = "It's a Secret to Everybody";
const BODY = '{"ref":"refs/heads/main"}';
/** Well below the 30 s of a lease. */
const SOON_MS = 8_000;

const server = usePostgres({ config: ['fsync = on'] });
let schemas = 0;
const gates: TestGate[] = [];
afterEach(async () => {
  await Promise.all(gates.splice(0).map((gate) => gate.stop()));
});

const newSchema = (): string => `inboxes_${++schemas}`;

async function start(schema: string, { url: upstream }: StoppableApp): Promise<TestGate> {
  const file = join(makeFolder(), 'url');
  writeFileSync(file, server.url());
  const match = { path: '/hooks/billing' };
  const webhook = { scheme: 'github', ack: 'onAccept', dedup: { unsignedId: 'trust' } };
  const queue = { postgres: { url: { file }, schema, maxConnections: 3 } };
  const gate = await startGate(
    { routes: [toRoute(0, { match, route: { upstream }, webhook })], provider: { address: '127.0.0.1:0', queue } },
    undefined,
    { secret: SECRET },
  );
  gates.push(gate);
  return gate;
}

/** Posts deliveries that the gate accepts; gives their IDs. */
async function push({ port }: TestGate, name: string, count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, i) => `${name}${i}`);
  const signature = `sha256=${createHmac('sha256', SECRET).update(BODY).digest('hex')}`;
  for (const id of ids) {
    const headers = { 'Content-Type': 'application/json', 'X-GitHub-Delivery': id, 'X-Hub-Signature-256': signature };
    expect((await send(port, { path: '/hooks/billing', headers, body: BODY })).status).toBe(202);
  }
  return ids;
}

const list = ({ providerPort }: TestGate, state: string) => listDeliveries(providerPort, `?state=${state}&limit=250`);
const untilDelivered = (gate: TestGate, count: number) =>
  until(async () => {
    const found = await list(gate, 'delivered');
    return found.length === count && found;
  });
const count = ({ log }: TestGate, name: string): number => log().filter(({ msg }) => msg === name).length;
const isAway = (gate: TestGate): boolean => count(gate, 'breaker_opened') > count(gate, 'breaker_closed');

/** The ports to which this process tried to connect, of the apps only, from now on. */
function watchConnections({ url }: StoppableApp): readonly string[] {
  const tried: string[] = [];
  const { hostname } = new URL(url);
  const onSocket = (message: unknown): void => {
    const { socket } = message as { readonly socket: Socket };
    socket.on('connectionAttempt', (address: string, port: number) => address === hostname && tried.push(String(port)));
  };
  const sockets = channel('net.client.socket');
  sockets.subscribe(onSocket);
  onTestFinished(() => void sockets.unsubscribe(onSocket));
  return tried;
}

/** Two replicas; the app of the first one is away. */
async function startTwo() {
  const schema = newSchema();
  const [awayApp, app] = [await startStoppableApp(), await startStoppableApp()];
  await awayApp.stopApp();
  const away = await start(schema, awayApp);
  return { away, awayApp, app, startOther: () => start(schema, app) };
}

describe('a replica whose app is away', { timeout: 60_000 }, () => {
  test('leaves what it and another one accepted to that one, soon, and opens no breaker for it', async () => {
    const { away, app, startOther } = await startTwo();
    const accepted = await push(away, 'away', 12);
    await until(() => isAway(away));
    const other = await startOther();
    const begin = performance.now();
    accepted.push(...(await push(other, 'other', 6)));
    const deliveries = await untilDelivered(other, 18);
    expect(performance.now() - begin).toBeLessThan(SOON_MS);
    expect(app.received.toSorted()).toEqual(accepted.toSorted());
    expect(deliveries.map(({ attempts }) => attempts)).toEqual(Array(18).fill(1));
    expect([isAway(away), count(other, 'breaker_opened')]).toEqual([true, 0]);
  });

  test('takes no delivery from the other one while they come through both', async () => {
    const { away, app, startOther } = await startTwo();
    const accepted = await push(away, 'first', 1);
    await until(() => isAway(away));
    const other = await startOther();
    await untilDelivered(other, 1);
    const attempts = 'sidegate_provider_attempts_total{endpoint="inbox:billing",outcome="connect"}';
    const before = await away.metric(attempts);
    const begin = performance.now();
    for (let round = 0; round < 10; round++)
      for (const gate of [away, other]) accepted.push(...(await push(gate, `${gate === away ? 'a' : 'o'}${round}-`, 2)));
    await untilDelivered(away, 41);
    expect(performance.now() - begin).toBeLessThan(SOON_MS);
    expect(app.received.toSorted()).toEqual(accepted.toSorted());
    expect([await away.metric(attempts), count(other, 'breaker_opened')]).toEqual([before, 0]);
  });

  test('takes part again once its app is back, and gets what waits when the app of the other one goes away', async () => {
    const { away, awayApp, app, startOther } = await startTwo();
    await push(away, 'first', 3);
    const other = await startOther();
    await untilDelivered(other, 3);
    await app.stopApp();
    await push(other, 'second', 10);
    await until(() => isAway(away) && isAway(other));
    await awayApp.startAgain();
    const begin = performance.now();
    await untilDelivered(other, 13);
    expect(performance.now() - begin).toBeLessThan(SOON_MS);
    expect([app.received.length, new Set(awayApp.received).size, awayApp.received.length]).toEqual([3, 10, 10]);
    await until(() => !isAway(away));
  });
});

test('while the apps of all replicas are away, each tries to connect about once a second, and no attempt is used', async () => {
  const { away, app, startOther } = await startTwo();
  await app.stopApp();
  const other = await startOther();
  const accepted = await push(away, 'a', 10);
  accepted.push(...(await push(other, 'b', 10)));
  await until(() => isAway(away) && isAway(other));
  const tried = watchConnections(app);
  const begin = performance.now();
  await until(() => performance.now() - begin > 4_000);
  const seconds = (performance.now() - begin) / 1_000;
  expect(tried.length).toBeGreaterThanOrEqual(2);
  expect(new Set(tried).size).toBe(2);
  expect(tried.length).toBeLessThanOrEqual(2 * (1.25 * seconds + 1));
  expect((await list(other, 'waiting')).map(({ attempts }) => attempts)).toEqual(Array(20).fill(0));
  await app.startAgain();
  const back = performance.now();
  await until(() => app.received.length > 0);
  expect(performance.now() - back).toBeLessThan(SOON_MS);
  expect((await untilDelivered(other, 20)).map(({ attempts }) => attempts)).toEqual(Array(20).fill(1));
  expect(app.received.toSorted()).toEqual(accepted.toSorted());
}, 60_000);

test('a single replica goes on within 2 s after its app is back, and can say meanwhile that it fails', async () => {
  const { away, awayApp } = await startTwo();
  await push(away, 'a', 10);
  await until(() => isAway(away));
  const stats = await fetch(`http://127.0.0.1:${away.providerPort}/v1/endpoints/inbox:billing/stats`);
  expect(await stats.json()).toMatchObject({ waiting: 10, failing: { lastAttempt: { outcome: 'connect' } } });
  await awayApp.startAgain();
  const back = performance.now();
  await until(() => awayApp.received.length > 0);
  expect(performance.now() - back).toBeLessThan(2_500);
  await untilDelivered(away, 10);
  expect(new Set(awayApp.received).size).toBe(10);
}, 60_000);
