import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { Readable } from 'node:stream';
import { beforeEach, expect, test } from 'vitest';
import { takePushed } from '../../../src/core/pushed-chunks.ts';
import { ESCAPED_ERRORS } from '../../../src/core/safe-events.ts';

interface Taken {
  readonly chunks: string[];
  ends: number;
}

const take = takePushed<Taken>({
  onChunk: (taken, chunk) => taken.chunks.push(chunk.toString()),
  onEnd: (taken) => {
    taken.ends++;
  },
});
let stream: Readable;
let taken: Taken;

beforeEach(() => {
  stream = new Readable({ read: () => undefined });
  taken = { chunks: [], ends: 0 };
  take(stream, taken);
});

test('each chunk is passed on by the call that pushes it, without waiting for the stream', () => {
  expect(stream.push(Buffer.from('a'))).toBe(true);
  expect(taken).toEqual({ chunks: ['a'], ends: 0 });
  expect(stream.push(Buffer.alloc(stream.readableHighWaterMark, 'b'))).toBe(true);
  stream.push(null);
  expect(taken.chunks).toHaveLength(2);
  expect(taken.ends).toBe(1);
  expect(stream.readableLength).toBe(0);
});

test('streams have separate targets', () => {
  const other = new Readable({ read: () => undefined });
  const otherTaken: Taken = { chunks: [], ends: 0 };
  take(other, otherTaken);
  other.push(Buffer.from('b'));
  stream.push(Buffer.from('a'));
  expect([taken.chunks, otherTaken.chunks]).toEqual([['a'], ['b']]);
});

test('the stream ends when somebody reads it to its end', async () => {
  const ended = new Promise((resolve) => stream.on('end', resolve));
  stream.push(null);
  expect(stream.readableEnded).toBe(false);
  stream.resume();
  await ended;
  expect(taken.ends).toBe(1);
});

test('a stream that flows gives its own listeners what is pushed', async () => {
  const seen: string[] = [];
  stream.on('data', (chunk: Buffer) => seen.push(chunk.toString()));
  const ended = new Promise((resolve) => stream.on('end', resolve));
  stream.push(Buffer.from('a'));
  stream.push(null);
  await ended;
  expect(seen).toEqual(['a']);
  expect(taken).toEqual({ chunks: [], ends: 0 });
});

test.each([
  ['chunk', Buffer.from('a')],
  ['end', null],
])('an exception at a %s destroys the stream, and is reported', (_, pushed) => {
  const error = new Error('boom');
  const boom = (): never => {
    throw error;
  };
  const escaped: unknown[] = [];
  const collect = (message: unknown): void => {
    escaped.push(message);
  };
  subscribe(ESCAPED_ERRORS, collect);
  takePushed({ onChunk: boom, onEnd: boom })(stream, undefined);
  stream.push(pushed);
  unsubscribe(ESCAPED_ERRORS, collect);
  expect(stream.destroyed).toBe(true);
  expect(escaped).toEqual([{ site: 'listener', error }]);
});
