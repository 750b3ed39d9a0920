import { expect, test } from 'vitest';
import { toOwnBytes } from '../../../src/core/buffers.ts';

const MEMORY = Buffer.allocUnsafeSlow(65_536).fill('x');

test.each([0, 1, 1_024, 50_000])('copies %i bytes of 64 KiB that others share', (length) => {
  const view = MEMORY.subarray(7, 7 + length);
  const own = toOwnBytes(view);
  expect([own.length, own.buffer.byteLength]).toEqual([length, length]);
  expect(own.equals(view)).toBe(true);
});

test.each([58_000, 65_536])('keeps %i bytes of 64 KiB where they are', (length) => {
  const view = MEMORY.subarray(65_536 - length);
  expect(toOwnBytes(view)).toBe(view);
});
