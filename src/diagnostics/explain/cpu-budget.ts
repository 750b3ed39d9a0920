/** Bounds the average share of one CPU core that a kind of work may use. */
import type { Clock, Milliseconds } from '../../core/clock.ts';

/** A share of one core, with a burst allowance. */
export class CpuBudget {
  readonly #share: number;
  readonly #burst: Milliseconds;
  readonly #clock: Clock;
  /** Negative if more was spent than allowed. */
  #credit: Milliseconds;
  #filledAt: Milliseconds;

  /** `share`: between 0 and 1; `burst`: what may be spent at once after an idle period. */
  constructor(share: number, burst: Milliseconds, clock: Clock) {
    this.#share = share;
    this.#burst = burst;
    this.#clock = clock;
    this.#credit = burst;
    this.#filledAt = clock.monotonic();
  }

  /** Records CPU time that was spent. */
  spend(spent: Milliseconds): void {
    this.#fill();
    this.#credit -= spent;
  }

  /** How long to wait before more may be spent; 0 if no wait is needed. */
  get delay(): Milliseconds {
    this.#fill();
    return Math.max(0, -this.#credit / this.#share);
  }

  #fill(): void {
    const now = this.#clock.monotonic();
    this.#credit = Math.min(this.#burst, this.#credit + (now - this.#filledAt) * this.#share);
    this.#filledAt = now;
  }
}
