/** Histogram buckets that several areas use, in seconds. Each costs one series per route (docs/metrics.md has the budget). */

/** For operations that should take microseconds. */
export const OWN_BUCKETS = [0.0005, 0.0025, 0.01, 0.025, 0.1];
