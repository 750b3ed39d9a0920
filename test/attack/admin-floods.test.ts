import { createServer, type ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { send, sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { useApp, useServer } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute } from '../support/gate.ts';

const app = useApp();
const held: ServerResponse[] = [];
let hangs = true;
const hanging = useServer(createServer((_request, response) => void (hangs ? held.push(response) : response.end())));
let gate: TestGate;

beforeEach(async () => {
  hangs = true;
  const url = `http://127.0.0.1:${hanging.port}/`;
  const appProbes = ['livez', 'readyz'].map((kind) => ({ container: 'app', kind, url }));
  gate = await startGate({ admin: { address: '127.0.0.1:0', appProbes }, routes: [toRoute(app.port)] });
});
afterEach(() => gate.stop());

const SCRAPE = toRequestText(['GET /metrics HTTP/1.1', 'Host: a']);
const MANY = 1_900;

test('a connection gets at most 65 responses: requests pipelined behind them end it', async () => {
  const statuses = toStatuses(await sendRaw(gate.adminPort, SCRAPE.repeat(MANY)));
  expect(statuses.length).toBeLessThanOrEqual(65);
  expect((await send(gate.adminPort, { method: 'GET', path: '/healthz' })).status).toBe(200);
});

test('a flood of pipelined scrapes closes its connections, and probes of another client are answered', async () => {
  const flood = Promise.all(Array.from({ length: 20 }, () => sendRaw(gate.adminPort, SCRAPE.repeat(MANY))));
  expect((await send(gate.adminPort, { method: 'GET', path: '/healthz', from: '127.0.0.2' })).status).toBe(200);
  for (const text of await flood) expect(toStatuses(text).length).toBeLessThanOrEqual(65);
});

test.each([
  ['scrape', ['/metrics']],
  ['probe an app that hangs', ['/app-health/app/livez', '/app-health/app/readyz']],
])('probes are answered while two other clients %s without a break on all connections', async (_, paths) => {
  const flood = async (from: string, path: string): Promise<void> => {
    const sent = send(gate.adminPort, { method: 'GET', path, from });
    await sent.catch(() => undefined);
    if (hangs) await flood(from, path);
  };
  const floods = Array.from({ length: 64 }, (__, i) => flood(`127.0.0.${3 + (i % 2)}`, paths[(i >> 1) % paths.length] as string));
  // 127.0.0.3: a kubelet in the network of the flood.
  for (let i = 0; i < 20; i++)
    for (const from of ['127.0.0.2', '127.0.0.3'])
      expect((await send(gate.adminPort, { method: 'GET', path: '/healthz', from })).status).toBe(200);
  hangs = false;
  for (const response of held.splice(0)) response.end();
  await Promise.all(floods);
});

test('a connection can be used for any number of requests, one after another', async () => {
  const socket = connect(gate.adminPort, '127.0.0.1');
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  const probe = toRequestText(['GET /healthz HTTP/1.1', 'Host: a']);
  for (let count = 1; count <= 20; count++) {
    socket.write(probe);
    while (toStatuses(text).length < count) await new Promise((resolve) => socket.once('data', resolve));
  }
  expect(new Set(toStatuses(text))).toEqual(new Set([200]));
  socket.destroy();
});
