/** The trend of a measured value. */

/** A value at a time, both in any unit. */
export interface Sample {
  readonly at: number;
  readonly value: number;
}

/** The slope of the line through the samples by least squares, in values per unit of time. */
export function findSlope(samples: readonly Sample[]): number {
  const mean = (pick: (sample: Sample) => number): number => samples.reduce((sum, each) => sum + pick(each), 0) / samples.length;
  const [time, value] = [mean(({ at }) => at), mean((sample) => sample.value)];
  const covariance = mean((sample) => (sample.at - time) * (sample.value - value));
  const variance = mean(({ at }) => (at - time) ** 2);
  return variance === 0 ? 0 : covariance / variance;
}
