/** Random choices that a seed repeats. */

const GOLDEN_RATIO = 0x6d2b79f5;
const UINT32 = 2 ** 32;

/** A seeded source of random choices (mulberry32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** From 0, below 1. */
  fraction(): number {
    this.#state = (this.#state + GOLDEN_RATIO) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / UINT32;
  }

  /** From 0, below `limit`. */
  below(limit: number): number {
    return Math.floor(this.fraction() * limit);
  }

  /** True with this probability. */
  chance(probability: number): boolean {
    return this.fraction() < probability;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)] as T;
  }
}
