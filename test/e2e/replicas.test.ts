import { Agent } from 'node:http';
import { afterAll, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useRedis } from '../support/fixtures.ts';
import { type Sections, toRoute, until } from '../support/gate.ts';
import { type GateProcess, startGateProcess } from '../support/process.ts';
import { startRedis } from '../support/redis.ts';

const app = useApp();
const redis = useRedis();
const gates: GateProcess[] = [];

async function start(dedup: Sections = {}, route: Sections = {}): Promise<GateProcess> {
  const gate = await startGateProcess({
    store: { redis: { url: `redis://127.0.0.1:${redis.port}`, commandTimeout: '500ms' } },
    limits: { maxInFlight: 256, maxWaiting: 512 },
    routes: [toRoute(app.port, { webhook: { dedup }, route })],
  });
  gates.push(gate);
  return gate;
}

afterAll(async () => {
  for (const gate of gates) gate.child.kill('SIGKILL');
  await Promise.all(gates.map((gate) => gate.exit));
});

test('two gates with one Redis forward each of 1,000 IDs exactly once, with 200 concurrent senders', {
  timeout: 60_000,
}, async () => {
  const pair = [await start(), await start()];
  const deliveries = Array.from({ length: 1_000 }, () => makeDelivery());
  const agent = new Agent({ keepAlive: true });
  const counts = { forwarded: 0, duplicate: 0, other: 0 };
  const senders = Array.from({ length: 200 }, async (_, sender) => {
    // Five senders for each id, spread over both gates.
    for (let i = 0; i < 25; i++) {
      const delivery = deliveries[(Math.floor(sender / 5) * 25 + i) % 1_000] as (typeof deliveries)[number];
      const answer = await send(pair[sender % 2]?.port ?? 0, { ...delivery, agent });
      if (answer.text === 'handled') counts.forwarded++;
      else if (answer.code === 'duplicate') counts.duplicate++;
      else counts.other++;
    }
  });
  await Promise.all(senders);
  agent.destroy();
  expect(counts).toEqual({ forwarded: 1_000, duplicate: 4_000, other: 0 });
  const ids = app.received.map(({ headers }) => headers['webhook-id']);
  expect(ids).toHaveLength(1_000);
  expect(new Set(ids).size).toBe(1_000);
});

test('a gate killed between claim and confirm loses no event: the retry is handled after the lease', async () => {
  const [first, second] = [
    await start({ lease: '3s', inProgress: 'reject' }, { timeout: '1s' }),
    await start({ lease: '3s', inProgress: 'reject' }, { timeout: '1s' }),
  ];
  const delivery = makeDelivery();
  let isWithApp = false;
  app.handler = () => {
    isWithApp = true;
  };
  const lost = send(first.port, delivery).catch(() => 'lost');
  await until(() => isWithApp);
  first.child.kill('SIGKILL');
  expect(await lost).toBe('lost');
  app.handler = (_request, response) => response.end('handled');
  const early = await send(second.port, delivery);
  expect([early.status, early.code]).toEqual([503, 'in_progress']);
  expect(Number(early.headers['retry-after'])).toBeGreaterThanOrEqual(1);
  const late = await until(async () => {
    const answer = await send(second.port, delivery);
    return answer.code === 'in_progress' ? undefined : answer;
  });
  expect(late.text).toBe('handled');
  expect((await send(second.port, delivery)).code).toBe('duplicate');
});

test('while Redis hangs a delivery is rejected with 503 in time, and it is forwarded once Redis continues', async () => {
  const gate = await start();
  const delivery = makeDelivery();
  redis.signal('SIGSTOP');
  const answer = await send(gate.port, delivery);
  redis.signal('SIGCONT');
  expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([503, 'store_unavailable', '5']);
  expect(app.received).toHaveLength(0);
  const ready = await fetch(`http://127.0.0.1:${gate.adminPort}/readyz`);
  expect(ready.status).toBe(200);
  await until(async () => (await send(gate.port, delivery)).text === 'handled');
});

test('with onStoreError: forward a delivery is forwarded while Redis is down, and is a duplicate once it is back', async () => {
  const gate = await start({ onStoreError: 'forward' });
  const delivery = makeDelivery();
  await redis.kill();
  const forged = { ...delivery, headers: { ...delivery.headers, 'Sidegate-Unchecked': 'forged', sidegate_unchecked: 'forged' } };
  expect((await send(gate.port, forged)).text).toBe('handled');
  expect(app.received[0]?.headers).toMatchObject({ 'sidegate-unchecked': 'true' });
  expect(app.received[0]?.headers).not.toHaveProperty('sidegate_unchecked');
  await until(() => gate.log().some(({ code }) => code === 'forwarded'));
  expect(gate.log().find(({ code }) => code === 'forwarded')).toMatchObject({ unchecked: true, level: 'warn' });
  const journal = await (await fetch(`http://127.0.0.1:${gate.adminPort}/journal`)).json();
  expect(journal).toMatchObject({ entries: [{ code: 'forwarded', unchecked: true, webhookId: delivery.id }] });
  const metrics = await (await fetch(`http://127.0.0.1:${gate.adminPort}/metrics`)).text();
  expect(metrics).toContain('sidegate_dedup_operations_total{outcome="bypassed"} 1');
  expect(metrics).toContain('sidegate_dedup_up 0');
  await redis.restart();
  await until(async () => redis.cli('KEYS', '*').includes(delivery.id));
  expect((await send(gate.port, delivery)).code).toBe('duplicate');
});

test('an outage is logged and reported with the store, its address, its start and its cause', async () => {
  const away = await startRedis();
  const gate = await startGateProcess({
    store: { redis: { url: `redis://:password-in-url@127.0.0.1:${away.port}`, commandTimeout: '500ms' } },
    routes: [toRoute(app.port)],
  });
  gates.push(gate);
  await until(() => gate.log().some(({ msg }) => msg === 'store_down' || msg === 'store_up'));
  await away.stop();
  await until(async () => (await send(gate.port, makeDelivery())).code === 'store_unavailable');
  const isTold = (): boolean => gate.log().some(({ detail }) => String(detail).includes('connection refused'));
  await until(async () => {
    await send(gate.port, makeDelivery());
    return isTold();
  });
  const down = gate.log().find(({ msg }) => msg === 'store_down');
  const address = `127.0.0.1:${away.port}`;
  expect(down).toMatchObject({ store: 'redis', address, since: expect.stringMatching(/^\d{4}-\d{2}-\d{2}T.*Z$/) });
  const details = gate.log().flatMap(({ detail }) => (detail === undefined ? [] : [String(detail)]));
  for (const text of [...details, String(down?.['message'])]) {
    expect(text).toMatch(new RegExp(`^Redis at ${address} is down since \\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z: `));
    expect(text).not.toMatch(/writeable|offline queue|retries per request|password/i);
  }
});
