import { createServer, type Socket } from 'node:net';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { type DialFailure, dial, Opening } from '../../../../src/http/dial/dial.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { startServer } from '../../../support/fixtures.ts';
import { startDeafApp } from '../../../support/script-app.ts';

let clock: FakeClock;
let opening: Opening;
let port: number;
let accepted: Socket[];

beforeEach(async () => {
  clock = new FakeClock();
  opening = new Opening(5_000);
  accepted = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => accepted.push(socket));
  port = await startServer(server);
});

const connect = async (...addresses: string[]): Promise<Socket> => {
  const socket = await dial(addresses, port, opening, clock);
  onTestFinished(() => {
    socket.destroy();
  });
  return socket;
};
const findFailure = async (connected: Promise<Socket>): Promise<Partial<DialFailure> | undefined> => {
  const failure: DialFailure | undefined = await connected.then(
    () => undefined,
    (thrown) => thrown,
  );
  return failure && { name: failure.name, kind: failure.kind, message: failure.message };
};

// The event loop does not turn between a call and `advance`, so that the connection cannot be open yet.
test('gives all addresses together the timeout', async () => {
  const failure = findFailure(connect('127.0.0.1'));
  await clock.advance(5_000);
  expect(await failure).toEqual({ name: 'DialFailure', kind: 'timeout', message: 'no connection within 5000 ms' });
  expect(clock.timers).toBe(0);
  const deaf = await startDeafApp();
  onTestFinished(() => deaf.close());
  opening = new Opening(5_000);
  const shared = findFailure(dial(['127.0.0.1', '127.0.0.1', '127.0.0.1'], deaf.port, opening, clock));
  await clock.advance(5_000);
  expect(await shared).toMatchObject({ kind: 'timeout' });
  expect(clock.timers).toBe(0);
});

test('tries the next address after a share of the time', async () => {
  const connected = connect('127.0.0.1', '127.0.0.1');
  await clock.advance(2_500);
  expect((await connected).destroyed).toBe(false);
  expect(clock.timers).toBe(0);
});

test('tries the next address at once if one refuses, but at most four', async () => {
  expect((await connect('127.0.0.9', '127.0.0.9', '127.0.0.9', '127.0.0.1')).remoteAddress).toBe('127.0.0.1');
  const failure = await findFailure(connect('127.0.0.9', '127.0.0.9', '127.0.0.9', '127.0.0.9', '127.0.0.1'));
  expect(failure).toMatchObject({ kind: 'connect', message: 'the connection failed (ECONNREFUSED)' });
  expect(clock.timers).toBe(0);
});

test('ends when it is canceled, before or while it connects', async () => {
  const connecting = findFailure(connect('127.0.0.1', '127.0.0.1'));
  opening.cancel();
  expect(await connecting).toMatchObject({ kind: 'aborted' });
  expect(await findFailure(connect('127.0.0.1'))).toMatchObject({ kind: 'aborted' });
  expect(accepted).toHaveLength(0);
  expect(clock.timers).toBe(0);
});

test('lets either side end on its own', async () => {
  const socket = await connect('127.0.0.1');
  await expect.poll(() => accepted.length).toBe(1);
  const ended = new Promise((resolve) => socket.once('end', resolve));
  accepted[0]?.end();
  socket.resume();
  await ended;
  const received = new Promise((resolve) => accepted[0]?.once('data', resolve));
  socket.write('late');
  expect(String(await received)).toBe('late');
});
