/** The rules of lists of addresses whose word is believed. */
import { type Path, type Rating, warning } from './rating.ts';

const EVERYBODY = new Set(['0.0.0.0/0', '::/0']);

/** Warns of ranges that take in everybody. */
export function checkTrustedRanges(ranges: readonly string[], path: Path, message: string): Rating[] {
  return ranges.flatMap((range, index) =>
    EVERYBODY.has(range) ? [warning([...path, index], message, 'name the ranges your proxies are in')] : [],
  );
}
