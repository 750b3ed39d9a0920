/** Compares, without a test runner. */
import { isDeepStrictEqual } from 'node:util';

/** Throws if the two differ. */
export function expectEqual(what: string, actual: unknown, expected: unknown): void {
  if (isDeepStrictEqual(actual, expected)) return;
  throw new Error(`${what}: ${JSON.stringify(actual)} instead of ${JSON.stringify(expected)}`);
}
