import { expect, test } from 'vitest';
import { RateLimits } from '../../../../src/provider/runtime/provider.ts';

test('finds the endpoints whose rate limit was raised or removed, and no others', () => {
  const limits = new RateLimits();
  const of = (id: string, rateLimit: number | undefined): { id: string; rateLimit: number | undefined } => ({ id, rateLimit });
  expect(limits.replace([of('raised', 1), of('removed', 1), of('lowered', 2), of('same', 3), of('set', undefined)])).toEqual([]);
  const next = [of('raised', 1.5), of('removed', undefined), of('lowered', 1), of('same', 3), of('set', 4), of('new', 1)];
  expect(limits.replace(next)).toEqual(['raised', 'removed']);
  expect(limits.replace(next)).toEqual([]);
  expect(limits.replace([])).toEqual([]);
});
