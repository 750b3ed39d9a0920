/** Whether two lists of times differ: the gap of their medians with a bootstrap interval, and the Mann-Whitney test. */
import { median } from '../statistics.ts';

/** The difference between two lists. */
export interface Gap {
  /** Median of the first minus that of the second, as a share of the second. */
  readonly share: number;
  /** The 95 % confidence interval of the share. */
  readonly low: number;
  readonly high: number;
  /** Probability that two lists of the same source differ at least as much (two-sided). */
  readonly p: number;
}

const RESAMPLES = 2_000;
const CONFIDENCE = 0.95;
/** Fixed, so that the same lists result in the same interval, and a report can be verified. */
const SEED = 20_261_121;

/** Compares them. */
export function findGap(first: readonly number[], second: readonly number[]): Gap {
  const random = createRandom(SEED);
  const draws = Array.from({ length: RESAMPLES }, () => toShare(resample(first, random), resample(second, random)));
  draws.sort((a, b) => a - b);
  const tail = Math.floor((RESAMPLES * (1 - CONFIDENCE)) / 2);
  return {
    share: toShare(first, second),
    low: draws[tail] as number,
    high: draws[RESAMPLES - 1 - tail] as number,
    p: mannWhitney(first, second),
  };
}

/** The two-sided p of the rank-sum test by its normal approximation, with a correction for ties; accurate for ten values and more. */
export function mannWhitney(first: readonly number[], second: readonly number[]): number {
  const all = [...first.map((value) => ({ value, isFirst: true })), ...second.map((value) => ({ value, isFirst: false }))];
  all.sort((a, b) => a.value - b.value);
  let rankSum = 0;
  let ties = 0;
  for (let start = 0; start < all.length; ) {
    let end = start;
    while (end < all.length && all[end]?.value === all[start]?.value) end++;
    const rank = (start + 1 + end) / 2;
    const count = end - start;
    ties += count ** 3 - count;
    rankSum += rank * all.slice(start, end).filter(({ isFirst }) => isFirst).length;
    start = end;
  }
  const [m, n, total] = [first.length, second.length, all.length];
  const u = rankSum - (m * (m + 1)) / 2;
  const deviation = Math.sqrt(((m * n) / 12) * (total + 1 - ties / (total * (total - 1))));
  if (deviation === 0) return 1;
  // Continuity correction: ranks are integers, the normal distribution is continuous.
  const z = Math.max(Math.abs(u - (m * n) / 2) - 0.5, 0) / deviation;
  return 2 * toUpperTail(z);
}

function toShare(first: readonly number[], second: readonly number[]): number {
  const base = median(second);
  return (median(first) - base) / base;
}

function resample(values: readonly number[], random: () => number): number[] {
  return values.map(() => values[Math.floor(random() * values.length)] as number);
}

/** Abramowitz and Stegun 26.2.17, to 7 digits. */
function toUpperTail(z: number): number {
  const t = 1 / (1 + 0.2316419 * z);
  const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
  return density * t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
}

/** Mulberry32: small, and sufficient for sampling. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
