/** Medians and other quantiles, because on a shared machine other processes distort a mean. */

/** The median; NaN for an empty list. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  if (sorted.length % 2 === 1) return sorted[middle] as number;
  return ((sorted[middle - 1] ?? Number.NaN) + (sorted[middle] ?? Number.NaN)) / 2;
}

/** The median of the ratios of each round, because the conditions of the machine are the same only within a round. */
export function pairedRatio(values: readonly number[], of: readonly number[]): number {
  return median(values.map((value, round) => value / (of[round] as number)));
}

/** The value below which this share of the values is; NaN for an empty list. */
export function toQuantile(values: readonly number[], share: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(Math.floor(sorted.length * share), sorted.length - 1)] ?? Number.NaN;
}
