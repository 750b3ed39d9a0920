import { EventEmitter } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, test } from 'vitest';
import { PortRequests } from '../../../../src/http/server/port-requests.ts';
import { stopParsing } from '../../../../src/http/server/strict-server.ts';
import { until } from '../../../support/gate.ts';
import { measureHeap } from '../../../support/heap.ts';

const COUNT = 1_000;

type Seen = Parameters<typeof stopParsing>[0];

/** Sends `text` and destroys the connection with the first request. Resolves with the requests that Node built. */
async function receiveAll(text: string, afterDestroy: (request: Seen) => void): Promise<readonly Seen[]> {
  const built: Seen[] = [];
  const server = createServer((request) => {
    built.push(request);
    request.socket.destroy();
    afterDestroy(request);
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1').on('error', () => undefined);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.write(text);
  await closed;
  await new Promise((resolve) => server.close(resolve));
  return built;
}

const REQUESTS = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(COUNT);
const CHUNKS = `POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${'1\r\nx\r\n'.repeat(COUNT)}`;

test('Node builds no more than one further request of a connection whose parser is stopped', async () => {
  expect(await receiveAll(REQUESTS, stopParsing)).toHaveLength(1);
});

test('without that, it builds those of other requests that it has read, even of a destroyed connection', async () => {
  expect((await receiveAll(REQUESTS, () => undefined)).length).toBeGreaterThan(1);
});

test('Node keeps nothing of the body that nobody reads', async () => {
  const [request] = await receiveAll(CHUNKS, stopParsing);
  expect(request?.readableLength).toBe(0);
});

test('without that, it keeps each chunk that it has read', async () => {
  const [request] = await receiveAll(CHUNKS, () => undefined);
  expect(request?.readableLength).toBe(COUNT);
});

test('a parser that Node keeps for other connections does not keep the request', async () => {
  const seen = await (async () => {
    const [request] = await receiveAll(CHUNKS, stopParsing);
    return new WeakRef(request as Seen);
  })();
  await until(() => {
    measureHeap();
    return seen.deref() === undefined;
  });
});

test('a Node that does not ask before it releases a connection for an upgrade gets no listener for upgrades', () => {
  const listenersOn = (server: Server): number[] => {
    new PortRequests({} as ConstructorParameters<typeof PortRequests>[0]).bind(server, ['upgrade', 'connect']);
    return ['upgrade', 'connect'].map((event) => server.listenerCount(event));
  };
  expect(listenersOn(createServer())).toEqual([1, 1]);
  expect(listenersOn(new EventEmitter() as Server)).toEqual([0, 1]);
});
