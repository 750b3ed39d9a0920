/** How fast the endpoints responded lately, as far as this process knows. */
import type { Clock, Milliseconds } from '../../core/clock.ts';

/** An attempt that takes longer is slow. */
export const MAX_QUICK_MS: Milliseconds = 1_000;
/** So many quick attempts in a row, and an endpoint no longer counts as slow: one that is slow now and then would otherwise change all the time. */
const QUICK_AFTER = 5;
/** Older attempts do not count. */
export const MAX_SPEED_AGE_MS: Milliseconds = 60_000;

interface Speed {
  /** When an attempt last ended, or became slow. */
  readonly at: Milliseconds;
  readonly quickAt: Milliseconds;
  /** Quick attempts until it no longer counts as slow. */
  readonly slowFor: number;
}

export class EndpointSpeeds {
  readonly #clock: Clock;
  /** The oldest first. */
  readonly #speeds = new Map<string, Speed>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** An attempt ended, or is older than `MAX_QUICK_MS`. */
  note(endpoint: string, took: Milliseconds): void {
    const at = this.#clock.monotonic();
    const { quickAt, slowFor } = this.#speeds.get(endpoint) ?? { quickAt: Number.NEGATIVE_INFINITY, slowFor: 0 };
    this.#speeds.delete(endpoint);
    const isQuick = took < MAX_QUICK_MS;
    this.#speeds.set(
      endpoint,
      isQuick ? { at, quickAt: at, slowFor: Math.max(0, slowFor - 1) } : { at, quickAt, slowFor: QUICK_AFTER },
    );
    for (const [oldest, speed] of this.#speeds) {
      if (speed.at >= at - MAX_SPEED_AGE_MS) break;
      this.#speeds.delete(oldest);
    }
  }

  isSlow(endpoint: string): boolean {
    return (this.#speeds.get(endpoint)?.slowFor ?? 0) > 0;
  }

  /** How long ago an attempt last was quick. */
  sinceQuick(endpoint: string): Milliseconds {
    return this.#clock.monotonic() - (this.#speeds.get(endpoint)?.quickAt ?? Number.NEGATIVE_INFINITY);
  }
}
