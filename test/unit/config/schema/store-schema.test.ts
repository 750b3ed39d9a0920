import { describe, expect, test } from 'vitest';
import { BYTES_PER_ID, deriveMaxIds, store } from '../../../../src/config/schema/store-schema.ts';

const MIB = 1024 * 1024;

describe('the number of IDs in memory', () => {
  test.each([
    [8, 10_000],
    [54, 58_000],
    [70, 76_000],
    [102, 111_000],
    [134, 146_000],
    [4_096, 250_000],
  ])('follows a heap of %i MiB', (heap, ids) => {
    expect(deriveMaxIds(heap * MIB)).toBe(ids);
  });

  test('leaves two thirds of a heap of 32 MiB or more to resources and requests', () => {
    for (let heap = 32; heap < 512; heap++) expect(deriveMaxIds(heap * MIB) * BYTES_PER_ID).toBeLessThanOrEqual((heap * MIB) / 3);
  });

  test('is the configured one with any heap', () => {
    expect(store.parse({ memory: { maxIds: 3 } }).memory.maxIds).toBe(3);
    expect(store.parse({ memory: {} }).memory.maxIds).toBe(store.parse(undefined).memory.maxIds);
  });
});
