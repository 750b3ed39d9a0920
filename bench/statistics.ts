/** Middle values: on a shared machine a mean tells more about the neighbours than about the gate. */

/** The median; NaN of nothing. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  if (sorted.length % 2 === 1) return sorted[middle] as number;
  return ((sorted[middle - 1] ?? Number.NaN) + (sorted[middle] ?? Number.NaN)) / 2;
}

/** The median of the rounds' own quotients: rivals of one round share the machine's mood, those of different rounds do not. */
export function pairedRatio(values: readonly number[], of: readonly number[]): number {
  return median(values.map((value, round) => value / (of[round] as number)));
}
