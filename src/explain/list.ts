/** Forms that are made when they are first asked for, and kept: making them costs, and most analyses end early. */

/** The unchanged ones first, then the changed ones. */
export class List<T extends { readonly cause: unknown }> {
  readonly #made: T[];
  readonly #source: Iterator<T>;
  #isDone = false;

  constructor(first: T | undefined, source: Iterator<T>) {
    this.#made = first === undefined ? [] : [first];
    this.#source = source;
  }

  /** The changed ones, or the unchanged. */
  *all(isChanged: boolean): Generator<T> {
    for (let i = 0; ; i++) {
      const form = this.#at(i);
      if (form === undefined || (!isChanged && form.cause !== undefined)) return;
      if (isChanged === (form.cause !== undefined)) yield form;
    }
  }

  #at(index: number): T | undefined {
    if (index < this.#made.length || this.#isDone) return this.#made[index];
    const { value, done } = this.#source.next();
    if (done === true) this.#isDone = true;
    else this.#made.push(value);
    return this.#made[index];
  }
}
