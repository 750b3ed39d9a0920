/** The one source of randomness of a simulation (mulberry32), shared by the code under test and by the faults. */

export class SeededRandom {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** A whole number from 0 to below 2^32. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  /** From 0 to below 1. */
  fraction(): number {
    return this.next() / 4_294_967_296;
  }

  /** A whole number from 0 to below `limit`. */
  below(limit: number): number {
    return this.next() % limit;
  }

  between(least: number, limit: number): number {
    return least + this.fraction() * (limit - least);
  }

  isLikely(probability: number): boolean {
    return probability > 0 && this.fraction() < probability;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)] as T;
  }

  /** Most are near the low end, some are far from it. */
  skewed(least: number, limit: number): number {
    return least + (limit - least) * this.fraction() ** 4;
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.alloc(length);
    for (let at = 0; at < length; at++) bytes[at] = this.next() & 0xff;
    return bytes;
  }
}
