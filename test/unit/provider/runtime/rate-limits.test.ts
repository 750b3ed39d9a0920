import { expect, test } from 'vitest';
import { findRaised } from '../../../../src/provider/runtime/provider.ts';

const NONE = Number.POSITIVE_INFINITY;

test('finds the endpoints whose rate limit was raised or removed, and no others', () => {
  const before = new Map(Object.entries({ raised: 1, removed: 1, lowered: 2, same: 3, set: NONE }));
  const after = new Map(Object.entries({ raised: 1.5, removed: NONE, lowered: 1, same: 3, set: 4, new: 1 }));
  expect(findRaised(new Map(), before)).toEqual([]);
  expect(findRaised(before, after)).toEqual(['raised', 'removed']);
  expect(findRaised(after, after)).toEqual([]);
  expect(findRaised(after, new Map())).toEqual([]);
});
