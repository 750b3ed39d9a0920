import { describe, expect, test } from 'vitest';
import { freeChunk, GrowingBuffer, toOwnBytes } from '../../../src/core/reading.ts';

describe('freeChunk', () => {
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
});

describe('toOwnBytes', () => {
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
});

describe('GrowingBuffer', () => {
  const KIB = 1_024;
  /** A chunk that does not share its memory, like those of Node. */
  const toChunk = (length: number, byte = 1): Buffer => Buffer.allocUnsafeSlow(length).fill(byte);

  test('adopts a single chunk without a copy', () => {
    const bytes = new GrowingBuffer();
    const chunk = toChunk(100);
    bytes.append(chunk, 1_000);
    expect(bytes.view()).toBe(chunk);
    expect([bytes.length, bytes.capacity]).toEqual([100, 100]);
  });

  test('copies a slice, which would keep its whole backing buffer', () => {
    const bytes = new GrowingBuffer();
    const whole = toChunk(64 * KIB);
    bytes.append(whole.subarray(10, 12), 64 * KIB);
    expect(bytes.view()).toEqual(Buffer.from([1, 1]));
    expect(bytes.capacity).toBe(KIB);
    expect(whole.length).toBe(64 * KIB);
  });

  test('holds 100,000 chunks of one byte in the memory of their bytes', () => {
    const bytes = new GrowingBuffer();
    for (let i = 0; i < 100_000; i++) bytes.append(toChunk(1, i % 256), 1024 * KIB);
    expect(bytes.length).toBe(100_000);
    expect(bytes.capacity).toBeLessThanOrEqual(2 * 100_000);
    expect(bytes.view()[99_999]).toBe(99_999 % 256);
  });

  test('never grows beyond the maximum, and reports the next capacity in advance', () => {
    const bytes = new GrowingBuffer();
    const sizes = [600 * KIB, 300 * KIB, 100 * KIB];
    for (const size of sizes) {
      const chunk = toChunk(size);
      const capacity = bytes.toCapacity(chunk, 1_000 * KIB);
      bytes.append(chunk, 1_000 * KIB);
      expect(bytes.capacity).toBe(capacity);
    }
    expect([bytes.length, bytes.capacity]).toEqual([1_000 * KIB, 1_000 * KIB]);
  });

  describe('memory', () => {
    test('of chunks is freed as soon as they are copied', () => {
      const bytes = new GrowingBuffer();
      const chunks = [toChunk(64 * KIB), toChunk(64 * KIB)];
      for (const chunk of chunks) bytes.append(chunk, 128 * KIB);
      expect(chunks.map(({ length }) => length)).toEqual([0, 0]);
      expect(bytes.view()).toEqual(toChunk(128 * KIB));
    });

    test('of the bytes is freed on demand', () => {
      const bytes = new GrowingBuffer();
      bytes.append(toChunk(64 * KIB), 64 * KIB);
      const view = bytes.view();
      bytes.free();
      expect([view.length, bytes.length, bytes.capacity]).toEqual([0, 0, 0]);
    });
  });
});
