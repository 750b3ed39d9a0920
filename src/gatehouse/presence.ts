/** Counts what is under way in a house, and tells when it stands empty. */

/** Who is in. */
export class Presence {
  #count = 0;
  #onIdle: (() => void)[] = [];

  enter(): void {
    this.#count++;
  }

  leave(): void {
    this.#count--;
    if (this.#count === 0) for (const tell of this.#onIdle.splice(0)) tell();
  }

  get count(): number {
    return this.#count;
  }

  /** Resolves when nobody is in. */
  idle(): Promise<void> {
    if (this.#count === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle.push(resolve);
    });
  }
}
