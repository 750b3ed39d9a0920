import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, test } from 'vitest';
import { stopParsing } from '../../../../src/gateway/server/strict-server.ts';

const COUNT = 1_000;

/** Resolves with the number of requests for which Node built a message and a response. */
async function countBuilt(afterDestroy: (socket: Parameters<typeof stopParsing>[0]) => void): Promise<number> {
  let built = 0;
  const server = createServer(({ socket }) => {
    built++;
    socket.destroy();
    afterDestroy(socket);
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1').on('error', () => undefined);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(COUNT));
  await closed;
  await new Promise((resolve) => server.close(resolve));
  return built;
}

test('Node builds no more than one further request of a connection whose parser is stopped', async () => {
  expect(await countBuilt(stopParsing)).toBe(1);
});

test('without that, it builds those of other requests that it has read, even of a destroyed connection', async () => {
  expect(await countBuilt(() => undefined)).toBeGreaterThan(1);
});
