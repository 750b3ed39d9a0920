import { writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { holdResponses } from '../support/app.ts';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { makeFolder, useApp, useRedis } from '../support/fixtures.ts';
import { toRoute, until } from '../support/gate.ts';
import { ATTACKS, expectSurvival, toSections } from '../support/memory-attacks.ts';
import { NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import { makeEntry, toBasic } from '../support/users.ts';
import { readMetric, toStore, useWorkers, workersOf } from '../support/workers.ts';

// Each test starts a process with two threads.
vi.setConfig({ testTimeout: 60_000 });
const app = useApp();
const redis = useRedis();
const start = useWorkers(redis);
const MIB = 1024 * 1024;

test('of duplicates that race on all workers, the app gets one', async () => {
  const gate = await start({ routes: [toRoute(app.port)], limits: { maxWaiting: 1_000 } });
  const deliveries = Array.from({ length: 40 }, () => makeDelivery());
  const answers = await Promise.all(deliveries.flatMap((delivery) => Array.from({ length: 8 }, () => send(gate.port, delivery))));
  expect(answers.filter(({ text }) => text === 'handled')).toHaveLength(40);
  expect(answers.filter(({ code }) => code === 'duplicate')).toHaveLength(280);
  expect(new Set(app.received.map(({ headers }) => headers['webhook-id'])).size).toBe(40);
  expect(app.received).toHaveLength(40);
  expect(await readMetric(gate, 'sidegate_dedup_operations_total{outcome="confirmed"}')).toBe(40);
  // One of them may have won every race.
  await until(() => workersOf(gate, ({ msg }) => msg === 'request').length === 2);
});

test('a client that guesses passwords is banned by all workers', async () => {
  const users = join(makeFolder(), 'users');
  writeFileSync(users, makeEntry('alice', 'right'));
  const basic = { realm: 'r', users: { file: users }, requireTls: false, limit: { failures: 4, per: '1m', ban: '5m' } };
  const route = { name: 'admin', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, basic };
  const gate = await start({ routes: [route] });
  const ask = (user: string, password: string): Promise<number> =>
    send(gate.port, { method: 'GET', path: '/', headers: toBasic(user, password) }).then(({ status }) => status);
  const guesses: number[] = [];
  for (let i = 0; i < 30; i++) guesses.push(await ask(`nobody-${i}`, 'wrong'));
  expect(guesses.filter((status) => status === 401)).toHaveLength(4);
  expect(guesses.filter((status) => status === 429)).toHaveLength(26);
  expect(await ask('alice', 'right')).toBe(429);
  await until(() => workersOf(gate, ({ msg, status }) => msg === 'request' && status === 429).length === 2);
});

test('a flood of unfinished bodies on all workers stays within the memory for bodies', async () => {
  const gate = await start({ routes: [toRoute(app.port)], limits: { maxBufferedBytes: '4Mi' } });
  const sockets = Array.from({ length: 60 }, (): Socket => connect(gate.port, '127.0.0.1'));
  for (const socket of sockets) {
    socket.on('error', () => undefined);
    const { headers } = makeDelivery();
    const fields = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`POST /hooks/billing HTTP/1.1\r\nHost: gate\r\nContent-Length: 400000\r\n${fields.join('')}\r\n`);
    socket.write(Buffer.alloc(300_000, 'x'));
  }
  const held = await until(async () => {
    const bytes = (await readMetric(gate, 'sidegate_buffered_bytes')) ?? 0;
    return bytes > MIB && { bytes };
  });
  expect(held.bytes).toBeLessThanOrEqual(4 * MIB);
  // Small bodies evict unfinished ones.
  const answers = await Promise.all(Array.from({ length: 20 }, () => send(gate.port, makeDelivery())));
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  for (const socket of sockets) socket.destroy();
});

test.skipIf(NO_CGROUPS !== undefined)('floods of bodies do not get a process with two workers killed', async () => {
  app.handler = (_request, response) => {
    app.received.length = 0;
    response.end('handled');
  };
  const gate = await startGateInCgroup(192, { workers: 2, store: toStore(redis), ...toSections(app.port) });
  onTestFinished(() => gate.stop());
  const flood = { connections: 128, milliseconds: 2_000 };
  await expectSurvival(gate, { ...flood, attack: ATTACKS['forged bodies with a length'] });
  await expectSurvival(gate, { ...flood, attack: ATTACKS['valid bodies'] });
});

test('a worker that is busy delays only its own connections, and neither metrics nor the others', async () => {
  const gate = await start({ routes: [toRoute(app.port)] }, 'block');
  gate.child.kill('SIGUSR2');
  const answers = Array.from({ length: 40 }, async () => (await send(gate.port, makeDelivery())).status);
  // More than the first worker gets for sure, while the second one is still busy.
  await until(() => app.received.length >= 5 && app.received.length < 40);
  expect((await fetch(`http://127.0.0.1:${gate.adminPort}/healthz`)).status).toBe(200);
  expect(await readMetric(gate, 'sidegate_dedup_up')).toBe(1);
  expect(new Set(await Promise.all(answers))).toEqual(new Set([200]));
  expect(await readMetric(gate, 'sidegate_dedup_operations_total{outcome="new"}')).toBe(40);
});

test('an exception in one worker drains all of them, and the process exits 1', async () => {
  const gate = await start({ routes: [toRoute(app.port)], shutdown: { grace: '0ms', drain: '20s' } }, 'throw');
  const finish = holdResponses(app, 'late but whole');
  const held = Array.from({ length: 40 }, () => send(gate.port, makeDelivery()));
  await until(() => app.received.length === 40);
  gate.child.kill('SIGUSR2');
  await until(() => gate.log().some(({ msg }) => msg === 'draining'));
  for (let i = 0; i < 40; i++) finish();
  expect(new Set((await Promise.all(held)).map(({ text }) => text))).toEqual(new Set(['late but whole']));
  expect(await gate.exit).toBe(1);
  const lines = gate.log();
  expect(lines).toContainEqual(expect.objectContaining({ msg: 'escaped_error', worker: 2, error: 'TypeError ERR_TEST' }));
  expect(lines).toContainEqual(expect.objectContaining({ msg: 'worker_lost', lost: 2 }));
  expect(lines).toContainEqual(expect.objectContaining({ msg: 'draining', reason: 'worker_lost' }));
  expect(JSON.stringify(lines)).not.toContain('secret-in');
});

test('a worker that ends takes the process with it, after the requests of the others', async () => {
  const gate = await start({ routes: [toRoute(app.port)], shutdown: { grace: '0ms', drain: '20s' } }, 'exit');
  const finish = holdResponses(app, 'late but whole');
  const held = Array.from({ length: 40 }, () =>
    send(gate.port, makeDelivery()).then(
      ({ text }) => text,
      () => 'cut',
    ),
  );
  await until(() => app.received.length === 40);
  gate.child.kill('SIGUSR2');
  await until(() => gate.log().some(({ msg }) => msg === 'draining'));
  for (let i = 0; i < 40; i++) finish();
  expect(new Set(await Promise.all(held))).toEqual(new Set(['cut', 'late but whole']));
  expect(await gate.exit).toBe(1);
  expect(gate.log()).toContainEqual(expect.objectContaining({ msg: 'worker_lost', message: 'its thread ended with code 3' }));
});
