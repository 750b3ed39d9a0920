import { expect, test } from 'vitest';
import { findRaised, toMemoryShares } from '../../../../src/provider/runtime/provider.ts';

const NONE = Number.POSITIVE_INFINITY;

test('finds the endpoints whose rate limit was raised or removed, and no others', () => {
  const before = new Map(Object.entries({ raised: 1, removed: 1, lowered: 2, same: 3, set: NONE }));
  const after = new Map(Object.entries({ raised: 1.5, removed: NONE, lowered: 1, same: 3, set: 4, new: 1 }));
  expect(findRaised(new Map(), before)).toEqual([]);
  expect(findRaised(before, after)).toEqual(['raised', 'removed']);
  expect(findRaised(after, after)).toEqual([]);
  expect(findRaised(after, new Map())).toEqual([]);
});

const MIB = 1024 * 1024;

test('leaves most of a small container to copies and garbage', () => {
  expect(toMemoryShares(128 * MIB)).toEqual({ accepting: 2.5 * MIB, storing: 2.5 * MIB, waiting: 5 * MIB, slow: 10 * MIB });
});

test('gives nothing that the process itself needs', () => {
  expect(toMemoryShares(64 * MIB)).toEqual({ accepting: 0, storing: 0, waiting: 0, slow: 0 });
});

test.each([undefined, 4_096 * MIB])('has an upper bound with a limit of %s', (limit) => {
  expect(toMemoryShares(limit)).toEqual({ accepting: 16 * MIB, storing: 8 * MIB, waiting: 32 * MIB, slow: 64 * MIB });
});

test('grows with the limit, and never exceeds it with the copies that were measured', () => {
  let last = toMemoryShares(0);
  for (let limit = 0; limit <= 1_024; limit += 8) {
    const shares = toMemoryShares(limit * MIB);
    for (const part of ['accepting', 'storing', 'waiting', 'slow'] as const)
      expect(shares[part]).toBeGreaterThanOrEqual(last[part]);
    const { accepting, storing, waiting, slow } = shares;
    expect(Math.min(88 * MIB, limit * MIB) + 2 * accepting + 6 * storing + waiting + slow).toBeLessThanOrEqual(limit * MIB);
    last = shares;
  }
});
