import { describe, expect, test } from 'vitest';
import { toHashBudget, toLargestHash, toThreadCount } from '../../../src/users/hash-pool.ts';

const MIB = 2 ** 20;
const ARGON2 = 19 * MIB;

describe('password threads', () => {
  test.each([
    [64, 1],
    [96, 1],
    [128, 1],
    [192, 2],
    [256, 2],
    [512, 5],
    [4_096, 15],
  ])('in a container of %d MiB are %d of 15 for argon2id', (mebibytes, threads) => {
    expect(toThreadCount(15, toHashBudget(mebibytes * MIB), ARGON2)).toBe(threads);
  });

  test('are as many as requested without a limit', () => {
    expect(toThreadCount(15, toHashBudget(undefined), 256 * MIB)).toBe(15);
    expect(toLargestHash(undefined)).toBe(Number.POSITIVE_INFINITY);
  });

  test('accept argon2id with 19 MiB from 96 MiB on', () => {
    expect(toLargestHash(toHashBudget(96 * MIB))).toBeGreaterThan(ARGON2);
    expect(toLargestHash(toHashBudget(64 * MIB))).toBeLessThan(ARGON2);
    expect(toLargestHash(MIB)).toBe(0);
  });
});
