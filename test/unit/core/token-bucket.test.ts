import { expect, test } from 'vitest';
import { TokenBucket } from '../../../src/core/throttle.ts';
import { FakeClock } from '../../support/fake-clock.ts';

test('a token bucket allows its burst, then its rate, and accumulates no more than the burst', async () => {
  const clock = new FakeClock();
  const bucket = new TokenBucket(2, 3, clock);
  const take = (count: number): boolean[] => Array.from({ length: count }, () => bucket.take());
  expect(take(4)).toEqual([true, true, true, false]);
  await clock.advance(500);
  expect(take(2)).toEqual([true, false]);
  await clock.advance(60_000);
  expect(take(4)).toEqual([true, true, true, false]);
});
