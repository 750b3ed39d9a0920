/** A ring buffer: the newest entry replaces the oldest. */

/** Of a fixed size. Adding an entry neither copies nor allocates, because every request does it. */
export class Ring<Entry> {
  readonly size: number;
  readonly #entries: Entry[] = [];
  #next = 0;
  #length = 0;

  /** `size`: how many entries are kept; 0 keeps none. */
  constructor(size: number) {
    this.size = size;
  }

  /** How many entries are kept now. */
  get length(): number {
    return this.#length;
  }

  /** Replaces the oldest entry. */
  add(entry: Entry): void {
    if (this.size === 0) return;
    const place = this.#next;
    this.#entries[place] = entry;
    this.#next = place + 1 === this.size ? 0 : place + 1;
    if (this.#length < this.size) this.#length++;
  }

  /** The entry of this age: 1 is the newest, `length` the oldest. */
  at(age: number): Entry {
    return this.#entries[this.#toPlace(age)] as Entry;
  }

  #toPlace(age: number): number {
    const place = this.#next - age;
    return place < 0 ? place + this.size : place;
  }
}
