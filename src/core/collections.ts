/**
 * A list for objects that come and go with each request. Not a Set: V8 replaces the table of a Set again and again as elements come and go, and
 * each old table refers to the next one and to its elements. Once one of them is old, all of them wait for a full garbage collection.
 */

// Counts by name.

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

/** An object that can be in one list. */
export interface ListElement {
  /** Its index in the list; managed by the list. */
  listIndex: number | undefined;
}

/** A list in no particular order; adding and removing take constant time. */
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
