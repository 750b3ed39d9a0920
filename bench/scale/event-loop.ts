/** A queueing model of programs with an event loop, such as Redis and Node: one thread, which takes all that waits in one turn. */

/** Virtual time in microseconds, and what happens when. */
export class Timeline {
  /** A binary heap by time. */
  readonly #heap: { readonly at: number; readonly order: number; readonly run: () => void }[] = [];
  #now = 0;
  #count = 0;

  get now(): number {
    return this.#now;
  }

  /** Runs `run` after so many microseconds. Functions that are due at the same time run in the order of the calls. */
  after(delay: number, run: () => void): void {
    const heap = this.#heap;
    const item = { at: this.#now + delay, order: this.#count++, run };
    let at = heap.push(item) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#isBefore(item, heap[parent])) break;
      heap[at] = heap[parent] as typeof item;
      at = parent;
    }
    heap[at] = item;
  }

  /** Runs everything that is due until then. */
  runUntil(end: number): void {
    for (;;) {
      const [first] = this.#heap;
      if (first === undefined || first.at > end) break;
      this.#removeFirst();
      this.#now = first.at;
      first.run();
    }
    this.#now = end;
  }

  #removeFirst(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (this.#isBefore(heap[child + 1], heap[child])) child++;
      if (!this.#isBefore(heap[child], last)) break;
      heap[at] = heap[child] as typeof last;
      at = child;
    }
    heap[at] = last;
  }

  #isBefore(
    one: { readonly at: number; readonly order: number } | undefined,
    other: { readonly at: number; readonly order: number } | undefined,
  ): boolean {
    if (one === undefined || other === undefined) return one !== undefined;
    return one.at < other.at || (one.at === other.at && one.order < other.order);
  }
}

/** Properties of a loop; times in microseconds. */
export interface LoopOptions<Item> {
  readonly timeline: Timeline;
  /** CPU time to wake up after it slept for so long. Items that arrive meanwhile are in the same turn. */
  readonly toWakeup: (slept: number) => number;
  readonly toCost: (item: Item) => number;
  /** Called at the end of a turn, when the results are sent. */
  readonly onTurn: (items: readonly Item[]) => void;
  /** Default: all. */
  readonly maxPerTurn?: number;
}

/** One thread. */
export class EventLoop<Item> {
  readonly #options: LoopOptions<Item>;
  #waiting: Item[] = [];
  #isAwake = false;
  #busy = 0;
  #sleepsSince = 0;
  #wakeups = 0;

  constructor(options: LoopOptions<Item>) {
    this.#options = options;
  }

  /** CPU time so far. */
  get busy(): number {
    return this.#busy;
  }

  /** How often it slept until an item arrived. */
  get wakeups(): number {
    return this.#wakeups;
  }

  post(item: Item): void {
    this.#waiting.push(item);
    if (this.#isAwake) return;
    this.#isAwake = true;
    this.#wakeups++;
    const { timeline, toWakeup } = this.#options;
    this.#work(toWakeup(timeline.now - this.#sleepsSince), () => this.#turn());
  }

  #turn(): void {
    const { toCost, onTurn, maxPerTurn = this.#waiting.length } = this.#options;
    const items = this.#waiting.splice(0, maxPerTurn);
    const cost = items.reduce((sum, item) => sum + toCost(item), 0);
    this.#work(cost, () => {
      onTurn(items);
      if (this.#waiting.length > 0) this.#turn();
      else this.#sleep();
    });
  }

  #sleep(): void {
    this.#isAwake = false;
    this.#sleepsSince = this.#options.timeline.now;
  }

  #work(duration: number, onEnd: () => void): void {
    this.#options.timeline.after(duration, () => {
      this.#busy += duration;
      onEnd();
    });
  }
}
