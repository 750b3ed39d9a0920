/** A binary heap: values by time, the earliest first. */

interface Timed<T> {
  readonly at: number;
  readonly value: T;
}

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
