import { expect, test } from 'vitest';
import { freeChunk } from '../../../src/core/buffers.ts';

test('frees the memory of a chunk that does not share it', () => {
  const chunk = Buffer.allocUnsafeSlow(65_536);
  freeChunk(chunk);
  expect([chunk.length, chunk.buffer.byteLength]).toEqual([0, 0]);
});

test.each([
  ['a part of something larger', () => Buffer.allocUnsafeSlow(65_536).subarray(1)],
  ['its beginning', () => Buffer.allocUnsafeSlow(65_536).subarray(0, 65_535)],
  ['small', () => Buffer.allocUnsafeSlow(16_383)],
  ['of the pool that all small buffers share', () => Buffer.allocUnsafe(100)],
  ['in memory that threads share', () => Buffer.from(new SharedArrayBuffer(65_536))],
])('does not free %s', (_, make) => {
  const chunk = make();
  const { length } = chunk;
  freeChunk(chunk);
  expect(chunk.length).toBe(length);
  expect(chunk.buffer.byteLength).toBeGreaterThan(0);
});
