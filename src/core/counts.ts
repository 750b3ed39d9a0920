/** Counts by name. */

/** How many of something each client, or anything else with a name, has. */
export class Counts {
  readonly #counts = new Map<string, number>();

  of(name: string): number {
    return this.#counts.get(name) ?? 0;
  }

  add(name: string, change: number): void {
    const count = this.of(name) + change;
    if (count === 0) this.#counts.delete(name);
    else this.#counts.set(name, count);
  }

  [Symbol.iterator](): Iterator<readonly [name: string, count: number]> {
    return this.#counts.entries();
  }
}
