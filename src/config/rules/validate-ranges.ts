/** The rules of lists of trusted addresses. */
import { type Path, type Rating, warning } from './rating.ts';

const ALL_ADDRESSES = new Set(['0.0.0.0/0', '::/0']);

/** Warns about ranges that contain every address. */
export function checkTrustedRanges(ranges: readonly string[], path: Path, message: string): Rating[] {
  return ranges.flatMap((range, index) =>
    ALL_ADDRESSES.has(range) ? [warning([...path, index], message, 'list only the ranges of your proxies')] : [],
  );
}
