import { connect } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { send, sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute } from '../support/gate.ts';

const app = useApp();
let gate: TestGate;

beforeEach(async () => {
  gate = await startGate({ routes: [toRoute(app.port)] });
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

test('probes are answered while two other clients scrape without a break on all connections', async () => {
  let isOver = false;
  const scrape = async (from: string): Promise<void> => {
    const sent = send(gate.adminPort, { method: 'GET', path: '/metrics', from });
    await sent.catch(() => undefined);
    if (!isOver) await scrape(from);
  };
  const scrapers = Array.from({ length: 64 }, (_, i) => scrape(`127.0.0.${3 + (i % 2)}`));
  for (let i = 0; i < 20; i++)
    expect((await send(gate.adminPort, { method: 'GET', path: '/healthz', from: '127.0.0.2' })).status).toBe(200);
  isOver = true;
  await Promise.all(scrapers);
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
