/** Collections that limits and schedules need: counts by name, a list in no order, and a heap of times. */

/**
 * So many clients without requests may stay in a table of clients. If each client were removed with its last request, and added again with
 * the next one, V8 would replace the table again and again, as it does with a Set (`UnorderedList`).
 */
export const KEPT_CLIENTS = 1_024;

/** A route, or a client of the app's slots, may hold so many times what is free: something remains, however many hold as much as they may. */
export const ROUTE_TO_FREE = 3;

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

  clear(): void {
    this.#counts.clear();
  }

  [Symbol.iterator](): Iterator<readonly [name: string, count: number]> {
    return this.#counts.entries();
  }
}

/** An object that can be in one list. */
export interface ListElement {
  /** Its index in the list; managed by the list. */
  listIndex: number | undefined;
}

/**
 * A list in no particular order; adding and removing take constant time. It is for objects that come and go with each request. Not a Set: V8 replaces
 * the table of a Set again and again as elements come and go, and each old table refers to the next one and to its elements. Once one of
 * them is old, all of them wait for a full garbage collection.
 */
export class UnorderedList<T extends ListElement> implements Iterable<T> {
  readonly #elements: T[] = [];

  /** Adds an element that is in no list. */
  add(element: T): void {
    element.listIndex = this.#elements.length;
    this.#elements.push(element);
  }

  /** Removes the element if it is in the list. */
  remove(element: T): void {
    const index = element.listIndex;
    if (index === undefined || this.#elements[index] !== element) return;
    element.listIndex = undefined;
    const last = this.#elements.pop();
    if (last === undefined || last === element) return;
    this.#elements[index] = last;
    last.listIndex = index;
  }

  /** Remove no elements while iterating. */
  [Symbol.iterator](): Iterator<T> {
    return this.#elements.values();
  }
}

interface Timed<T> {
  readonly at: number;
  readonly value: T;
}

/** A binary heap: values by time, the earliest first. */
export class TimeHeap<T> {
  #items: Timed<T>[] = [];

  get size(): number {
    return this.#items.length;
  }

  get first(): Timed<T> | undefined {
    return this.#items[0];
  }

  clear(): void {
    this.#items = [];
  }

  push(at: number, value: T): void {
    const items = this.#items;
    const item = { at, value };
    let i = items.push(item) - 1;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      const above = items[parent];
      if (above === undefined || above.at <= at) break;
      items[i] = above;
      i = parent;
    }
    items[i] = item;
  }

  pop(): void {
    const items = this.#items;
    const last = items.pop();
    if (last === undefined || items.length === 0) return;
    let i = 0;
    for (;;) {
      const child = this.#earlierChild(i);
      const below = items[child];
      if (below === undefined || below.at >= last.at) break;
      items[i] = below;
      i = child;
    }
    items[i] = last;
  }

  keep(isKept: (value: T, at: number) => boolean): void {
    const kept = this.#items.filter(({ at, value }) => isKept(value, at));
    this.#items = [];
    for (const { at, value } of kept) this.push(at, value);
  }

  #earlierChild(i: number): number {
    const [left, right] = [this.#items[2 * i + 1], this.#items[2 * i + 2]];
    return 2 * i + (right !== undefined && left !== undefined && right.at < left.at ? 2 : 1);
  }
}
