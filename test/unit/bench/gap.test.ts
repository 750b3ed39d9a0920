import { describe, expect, test } from 'vitest';
import { findGap, mannWhitney } from '../../../bench/basic/gap.ts';

/** Values about `middle`, spread like times: the same ones whenever it is asked. */
const around = (middle: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => middle * (1 + 0.02 * Math.sin(i * 12.9898) + 0.01 * Math.cos(i * 78.233)));

describe('the rank-sum test', () => {
  test('returns the p-value of a textbook sample (Hollander and Wolfe, permeability of membranes: W = 35)', () => {
    // 25 is expected, with a deviation of √(50 · 16 / 12) = 8.165: z = 9.5 / 8.165 = 1.1635. The exact p is 0.2544.
    const first = [0.8, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
    expect(mannWhitney(first, [1.15, 0.88, 0.9, 0.74, 1.21])).toBeCloseTo(0.2446, 3);
  });

  test('finds no difference between two lists with equal values', () => {
    expect(mannWhitney([1, 1, 1], [1, 1, 1])).toBe(1);
  });
});

describe('the gap of two lists', () => {
  test('has a sign, and is within its interval', () => {
    const { share, low, high, p } = findGap(around(105, 200), around(100, 200));
    expect(share).toBeCloseTo(0.05, 2);
    expect(low).toBeGreaterThan(0.03);
    expect(high).toBeLessThan(0.07);
    expect(p).toBeLessThan(0.001);
  });

  test('is zero if both are from one source', () => {
    const all = around(100, 400);
    const { low, high, p } = findGap(
      all.filter((_, i) => i % 2 === 0),
      all.filter((_, i) => i % 2 === 1),
    );
    expect(low).toBeLessThan(0);
    expect(high).toBeGreaterThan(0);
    expect(p).toBeGreaterThan(0.05);
  });

  test('is the same each time it is computed', () => {
    expect(findGap(around(101, 30), around(100, 30))).toEqual(findGap(around(101, 30), around(100, 30)));
  });
});
