/** A list of forms that are created on demand and kept: creating them is expensive, and most analyses end early. */

/** The source yields unchanged forms first, then changed ones. */
export class LazyList<T extends { readonly cause: unknown }> {
  readonly #created: T[];
  readonly #source: Iterator<T | undefined>;
  #isDone = false;

  constructor(first: T | undefined, source: Iterator<T | undefined>) {
    this.#created = first === undefined ? [] : [first];
    this.#source = source;
  }

  /** Yields either the changed or the unchanged forms; undefined where other work can run. */
  *all(isChanged: boolean): Generator<T | undefined> {
    for (let i = 0; ; i++) {
      while (i >= this.#created.length && !this.#isDone) if (!this.#create()) yield undefined;
      const form = this.#created[i];
      if (form === undefined || (!isChanged && form.cause !== undefined)) return;
      if (isChanged === (form.cause !== undefined)) yield form;
    }
  }

  /** Returns false if the source let other work run first. */
  #create(): boolean {
    const { value, done } = this.#source.next();
    if (done === true) this.#isDone = true;
    else if (value === undefined) return false;
    else this.#created.push(value);
    return true;
  }
}
