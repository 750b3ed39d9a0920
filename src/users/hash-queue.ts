/** A queue in which groups take turns, such as realms and their client networks: one with many entries delays only its own. */

/** Groups may contain groups. All paths must have the same length. */
export class HashQueue<Entry> {
  /** The next one first. */
  readonly #groups = new Map<string, HashQueue<Entry>>();
  /** Of the innermost group, oldest first. */
  readonly #entries: Entry[] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add([name, ...rest]: readonly string[], entry: Entry): void {
    this.#size++;
    if (name === undefined) {
      this.#entries.push(entry);
      return;
    }
    const group = this.#groups.get(name) ?? new HashQueue<Entry>();
    this.#groups.set(name, group);
    group.add(rest, entry);
  }

  /** Takes the oldest entry of the group whose turn it is. */
  take(): Entry | undefined {
    if (this.#size === 0) return undefined;
    this.#size--;
    const [next] = this.#groups;
    if (next === undefined) return this.#entries.shift();
    const [name, group] = next;
    const entry = group.take();
    this.#groups.delete(name);
    if (group.#size > 0) this.#groups.set(name, group);
    return entry;
  }

  /**
   * Makes room for an entry at this path: takes the newest entry of the group that has most. Undefined if that is the entry's own group,
   * or would be with the entry.
   */
  displace([name, ...rest]: readonly string[]): Entry | undefined {
    const [, largest] = this.#findLargest() ?? [];
    if (name === undefined || largest === undefined) return undefined;
    const own = this.#groups.get(name);
    const entry = largest.size > (own?.size ?? 0) + 1 ? largest.#takeNewest() : own?.displace(rest);
    if (entry !== undefined) this.#size--;
    return entry;
  }

  #takeNewest(): Entry | undefined {
    this.#size--;
    const found = this.#findLargest();
    if (found === undefined) return this.#entries.pop();
    const [name, group] = found;
    const entry = group.#takeNewest();
    if (group.#size === 0) this.#groups.delete(name);
    return entry;
  }

  /** Of several, the one whose turn is last. */
  #findLargest(): readonly [string, HashQueue<Entry>] | undefined {
    let largest: readonly [string, HashQueue<Entry>] | undefined;
    for (const each of this.#groups) if (each[1].size >= (largest?.[1].size ?? 0)) largest = each;
    return largest;
  }
}
