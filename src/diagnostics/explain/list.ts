/** Forms that are made when they are first asked for, and kept: making them costs, and most analyses end early. */

/** The unchanged ones first, then the changed ones. */
export class List<T extends { readonly cause: unknown }> {
  readonly #made: T[];
  readonly #source: Iterator<T | undefined>;
  #isDone = false;

  constructor(first: T | undefined, source: Iterator<T | undefined>) {
    this.#made = first === undefined ? [] : [first];
    this.#source = source;
  }

  /** The changed ones, or the unchanged; undefined where the next one takes longer, and other work may go first. */
  *all(isChanged: boolean): Generator<T | undefined> {
    for (let i = 0; ; i++) {
      while (i >= this.#made.length && !this.#isDone) if (!this.#make()) yield undefined;
      const form = this.#made[i];
      if (form === undefined || (!isChanged && form.cause !== undefined)) return;
      if (isChanged === (form.cause !== undefined)) yield form;
    }
  }

  /** False where there is nothing new yet. */
  #make(): boolean {
    const { value, done } = this.#source.next();
    if (done === true) this.#isDone = true;
    else if (value === undefined) return false;
    else this.#made.push(value);
    return true;
  }
}
