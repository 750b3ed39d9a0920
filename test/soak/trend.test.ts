import { expect, test } from 'vitest';
import { createRandom } from '../support/seeded.ts';
import { findSlope } from './trend.ts';

const toSamples = (toValue: (at: number) => number) => Array.from({ length: 100 }, (_, at) => ({ at, value: toValue(at) }));

test('the slope of a line is exact', () => {
  expect(findSlope(toSamples((at) => 5 + 0.25 * at))).toBeCloseTo(0.25, 10);
  expect(findSlope(toSamples(() => 7))).toBe(0);
  expect(findSlope([{ at: 3, value: 4 }])).toBe(0);
});

test('a slow leak shows through noise that is 40 times as large as its growth between two samples', () => {
  const random = createRandom(1);
  const noise = (): number => random(1_000) / 1_000;
  expect(findSlope(toSamples((at) => at / 40 + noise()))).toBeCloseTo(1 / 40, 2);
  expect(Math.abs(findSlope(toSamples(noise)))).toBeLessThan(1 / 200);
});
