import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { EventEmitter } from 'node:events';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import {
  ESCAPED_ERRORS,
  type EscapedError,
  guardCallback,
  guardDecision,
  offEvent,
  onceEvent,
  onEvent,
  reportEscaped,
  runDetached,
  runNextTurn,
  runSoon,
  waitForTurn,
} from '../../../src/core/safe-events.ts';

const BOOM = new Error('boom');
let escaped: unknown[] = [];
const collect = (message: unknown): void => {
  escaped.push(message);
};
const boom = (): never => {
  throw BOOM;
};

beforeEach(() => {
  escaped = [];
  subscribe(ESCAPED_ERRORS, collect);
});
afterEach(() => {
  unsubscribe(ESCAPED_ERRORS, collect);
});

test('a listener that throws destroys its emitter, and is reported', () => {
  const stream = new PassThrough();
  onEvent(stream, 'drain', boom);
  stream.emit('drain');
  expect(stream.destroyed).toBe(true);
  expect(escaped).toEqual([{ site: 'listener', error: BOOM }]);
});

test('a listener whose promise rejects destroys its emitter, and is reported', async () => {
  const stream = new PassThrough();
  onceEvent(stream, 'drain', async () => boom());
  stream.emit('drain');
  await expect.poll(() => stream.destroyed).toBe(true);
  expect(escaped).toEqual([{ site: 'listener', error: BOOM }]);
});

test("a server's listener that throws destroys the connection, and not the server", () => {
  const server = Object.assign(new EventEmitter(), { destroy: boom });
  const socket = new PassThrough();
  onEvent(server, 'data', boom as (socket: unknown) => void);
  server.emit('data', socket);
  expect(socket.destroyed).toBe(true);
  expect(escaped).toHaveLength(1);
});

test('offEvent removes a listener of onEvent and of onceEvent', () => {
  const stream = new PassThrough();
  let calls = 0;
  const listener = (): void => {
    calls++;
  };
  offEvent(stream, 'drain', onEvent(stream, 'drain', listener));
  offEvent(stream, 'drain', onceEvent(stream, 'drain', listener));
  stream.emit('drain');
  expect(calls).toBe(0);
  expect(stream.listenerCount('drain')).toBe(0);
});

test('onceEvent calls its listener for the first event only, even if that throws', () => {
  const stream = new PassThrough();
  onceEvent(stream, 'drain', boom);
  stream.emit('drain');
  stream.emit('drain');
  expect(escaped).toHaveLength(1);
});

test('reports what a timer, a microtask, a next turn, a callback and a promise throw', async () => {
  systemClock.after(0, boom);
  systemClock.after(0, async () => boom());
  runSoon(boom);
  runNextTurn(boom);
  runDetached(Promise.reject(BOOM));
  guardCallback(boom)();
  expect(guardDecision<[], boolean>(boom, false)()).toBe(false);
  await expect.poll(() => escaped.length).toBe(7);
  const sites = (escaped as EscapedError[]).map(({ site }) => site).sort();
  expect(sites).toEqual(['callback', 'callback', 'promise', 'promise', 'timer', 'timer', 'timer']);
});

test('those who wait for a turn take turns by group, one action in each', async () => {
  const ran: string[] = [];
  for (let i = 0; i < 3; i++) waitForTurn('flood', () => ran.push(`flood ${i}`));
  waitForTurn('other', () => {
    ran.push('other');
    waitForTurn('other', () => ran.push('other again'));
  });
  const counts: number[] = [];
  while (ran.length < 5) {
    await new Promise<void>(runNextTurn);
    counts.push(ran.length);
  }
  expect(ran).toEqual(['flood 0', 'other', 'flood 1', 'other again', 'flood 2']);
  expect(counts.every((count, i) => count - (counts[i - 1] ?? 0) <= 1)).toBe(true);
});

test('throws the exception again without a subscriber, as in a command', () => {
  unsubscribe(ESCAPED_ERRORS, collect);
  expect(() => reportEscaped('timer', BOOM)).toThrow(BOOM);
});
