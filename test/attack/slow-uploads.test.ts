import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { toHead } from '../support/floods.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { sendDelivery } from '../support/memory-attacks.ts';

const app = useApp();
let gate: TestGate;
const sockets = new Set<Socket>();

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  sockets.clear();
  await gate.stop();
});

/** Uploads `sent` bytes of a body of `length`, and then nothing. */
function stall(length: number, sent: number): Promise<void> {
  const socket = connect({ port: gate.port, host: '127.0.0.1' });
  sockets.add(socket);
  socket.on('error', () => undefined);
  socket.write(toHead('/hooks/billing', { ...makeDelivery().headers, 'Content-Length': String(length) }));
  return new Promise((resolve) => socket.write(Buffer.alloc(sent, 0x20), () => resolve()));
}

const buffered = (): Promise<number> => gate.metric('sidegate_buffered_bytes');
const start = async (): Promise<void> => {
  gate = await startGate({ routes: [toRoute(app.port)], limits: { maxBufferedBytes: '1Mi' } });
};
const deliver = (bytes: number): Promise<number> => sendDelivery(gate.port, makeDelivery({ body: Buffer.alloc(bytes, 0x20) }));

describe('other clients are handled while one client stalls', () => {
  test('in small bodies that fill the buffer', async () => {
    await start();
    await Promise.all(Array.from({ length: 20 }, () => stall(64_000, 63_000)));
    await until(async () => (await buffered()) > 900_000);
    for (const size of [500, 5_000, 60_000]) expect(await deliver(size), String(size)).toBe(200);
    expect(await gate.metric('sidegate_limit_hits_total{limit="buffer_share"}')).toBeGreaterThan(0);
  });

  test('in large bodies that occupy every place', async () => {
    await start();
    await Promise.all(Array.from({ length: 20 }, () => stall(200_000, 1_000)));
    await until(async () => (await buffered()) >= 600_000);
    for (const size of [500, 60_000, 300_000]) expect(await deliver(size), String(size)).toBe(200);
  });
});

test('a declared body that never arrives occupies a place, but no memory', async () => {
  await start();
  const before = process.memoryUsage().arrayBuffers;
  await stall(700_000, 1);
  await until(async () => (await buffered()) === 700_000);
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(500_000);
});

test('the memory that a client occupies is freed when it disconnects', async () => {
  await start();
  await Promise.all([stall(64_000, 30_000), stall(500_000, 100_000)]);
  await until(async () => (await buffered()) > 500_000);
  for (const socket of sockets) socket.destroy();
  await until(async () => (await buffered()) === 0);
});
