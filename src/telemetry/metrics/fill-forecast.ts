/** Estimates when a queue reaches its bounds, for a metric and its alert. */
import type { Milliseconds } from '../../core/clock.ts';

/** The growth is that of so much time, ... */
const WINDOW_MS: Milliseconds = 600_000;
/** ... and of at least so much: a burst after the start says nothing about the next hour. */
const MIN_WINDOW_MS: Milliseconds = 60_000;

type Undelivered = Readonly<Record<'events' | 'bytes', number>>;
type Sample = Undelivered & { readonly at: Milliseconds };

export class FillForecast {
  readonly #samples: Sample[] = [];

  /** Seconds until the first bound is reached if the growth continues; infinity while nothing grows. `at`: monotonic. */
  add(
    { events, bytes, maxEvents, maxBytes }: Undelivered & Readonly<Record<'maxEvents' | 'maxBytes', number>>,
    at: Milliseconds,
  ) {
    this.#samples.push({ at, events, bytes });
    while (this.#samples.length > 2 && (this.#samples[1]?.at ?? at) <= at - WINDOW_MS) this.#samples.shift();
    if (events >= maxEvents || bytes >= maxBytes) return 0;
    return Math.min(
      this.#until(at, events, maxEvents, (sample) => sample.events),
      this.#until(at, bytes, maxBytes, (sample) => sample.bytes),
    );
  }

  /** From the last sample that is the lowest: what left the queue before, by a purge, does not hide that it grows now. */
  #until(at: Milliseconds, value: number, bound: number, read: (sample: Undelivered) => number): number {
    let lowest: Sample | undefined;
    for (const sample of this.#samples) if (lowest === undefined || read(sample) <= read(lowest)) lowest = sample;
    if (lowest === undefined || at - lowest.at < MIN_WINDOW_MS) return Number.POSITIVE_INFINITY;
    const before = read(lowest);
    return value > before ? ((bound - value) * (at - lowest.at)) / 1_000 / (value - before) : Number.POSITIVE_INFINITY;
  }
}
