/** A queue in which groups take turns: a group with many entries delays only its own. */
export class TurnQueue<Entry> {
  /** The next one first; of each group, too. */
  readonly #groups = new Map<string, Set<Entry>>();
  readonly #groupOf = new Map<Entry, string>();

  get size(): number {
    return this.#groupOf.size;
  }

  /** Undefined if the queue is empty. */
  get first(): Entry | undefined {
    for (const entry of this) return entry;
    return undefined;
  }

  /** The next one of each group. */
  *firsts(): Iterable<Entry> {
    for (const [first] of this.#groups.values()) if (first !== undefined) yield first;
  }

  /** Adds an entry at the end of its group. One that is in the queue keeps its place. */
  add(group: string, entry: Entry): void {
    if (this.#groupOf.has(entry)) return;
    this.#groupOf.set(entry, group);
    this.#groups.set(group, (this.#groups.get(group) ?? new Set()).add(entry));
  }

  /** Removes an entry. `isServed`: its group has had its turn. */
  remove(entry: Entry, isServed: boolean): void {
    const name = this.#groupOf.get(entry);
    const group = name === undefined ? undefined : this.#groups.get(name);
    if (name === undefined || group === undefined) return;
    this.#groupOf.delete(entry);
    group.delete(entry);
    if (isServed || group.size === 0) this.#groups.delete(name);
    if (isServed && group.size > 0) this.#groups.set(name, group);
  }

  clear(): void {
    this.#groups.clear();
    this.#groupOf.clear();
  }

  *[Symbol.iterator](): Iterator<Entry> {
    for (const group of this.#groups.values()) yield* group;
  }
}
