/**
 * Owns virtual time. Every timer, turn of an event loop and arrival of bytes is an event of one queue. The seed decides the order of events
 * that are due at the same time. An event runs only after all microtasks and ticks of the one before it.
 */
import { runTimer } from '../../src/core/safe-events.ts';
import { SeededRandom } from './seeded-random.ts';
import { Trace } from './trace.ts';

/** Real turns of the event loop: the simulation replaces the global function. */
const nextRealTurn = setImmediate;
/** What Node calls between two timers; nothing else runs microtasks and ticks without a turn of the real event loop, which takes microseconds. */
const runTicks = (process as unknown as { readonly _tickCallback: () => void })._tickCallback;
/** Events that run between two turns of the real event loop. */
const EVENTS_PER_POLL = 1_024;

const DAY_MS = 86_400_000;

/** What owns events: all of them are dropped when it is killed. */
export interface Owner {
  readonly name: string;
  /** Mixed into the hash of the trace. */
  readonly number: number;
  isDead: boolean;
  /** Events wait until then: the process is stopped, as by SIGSTOP. */
  pausedUntil: number;
}

/** An event in the queue. */
export interface ScheduledEvent {
  time: number;
  /** Decides between events that are due at the same time. */
  order: number;
  /** It waited for the end of a pause: its order is final, even if the pause becomes longer. */
  isDeferred: boolean;
  readonly owner: Owner;
  run: (() => void) | undefined;
  /** Of a periodic timer: such events do not count as work to be done. */
  readonly interval: number;
}

export class Scheduler {
  readonly random: SeededRandom;
  readonly trace: Trace;
  /** Milliseconds since the simulation started. */
  now = 0;
  /** The owner of the event that runs; undefined outside the simulation. */
  current: Owner | undefined;
  executed = 0;
  readonly #heap: ScheduledEvent[] = [];
  /** Turns of the simulated event loops: before time moves on. */
  #turns: { readonly owner: Owner; readonly run: () => void }[] = [];
  #firstTurn = 0;
  #owners = 0;
  /** What waits for the end of a pause keeps its order. */
  #deferred = 0;

  constructor(seed: number) {
    this.random = new SeededRandom(seed);
    this.trace = new Trace();
  }

  createOwner(name: string): Owner {
    return { name, number: ++this.#owners, isDead: false, pausedUntil: 0 };
  }

  /** Runs `run` after `delay`. */
  after(delay: number, owner: Owner, run: () => void): ScheduledEvent {
    const event = { time: this.now + delay, order: this.random.next(), owner, run, interval: 0, isDeferred: false };
    this.#push(event);
    return event;
  }

  /** Runs `run` every `interval`. */
  every(interval: number, owner: Owner, run: () => void): ScheduledEvent {
    const event = { time: this.now + interval, order: this.random.next(), owner, run, interval, isDeferred: false };
    this.#push(event);
    return event;
  }

  /** Runs `run` in the next turn of the owner's event loop; turns keep their order, as they do in Node. */
  nextTurn(owner: Owner, run: () => void): void {
    this.#turns.push({ owner, run });
  }

  /** Ends the pause of an owner: what waits for its end runs now, before anything else. */
  resume(owner: Owner): void {
    owner.pausedUntil = 0;
    for (const event of this.#heap.splice(0)) {
      if (event.owner === owner && event.isDeferred) event.time = this.now;
      this.#push(event);
    }
  }

  cancel(event: ScheduledEvent): void {
    event.run = undefined;
  }

  /** The timers and other events that an owner still has within a day. */
  pendingOf(owner: Owner): number {
    const isPending = (event: ScheduledEvent) =>
      event.owner === owner && event.run !== undefined && event.time < this.now + DAY_MS;
    return this.#heap.filter(isPending).length;
  }

  /** Runs events until `until` (exclusive), or until `isDone`. */
  run(until: number, isDone: () => boolean = () => false): Promise<void> {
    return new Promise((resolve, reject) => {
      const poll = (): void => {
        try {
          for (let left = EVENTS_PER_POLL; left > 0; left--) {
            const isOver = isDone() || !this.#runNext(until);
            // As Node does between two timers: first ticks and microtasks, in the name of the same process.
            runTicks();
            if (!isOver) continue;
            this.current = undefined;
            resolve();
            return;
          }
          this.current = undefined;
          nextRealTurn(poll);
        } catch (error) {
          this.current = undefined;
          reject(error);
        }
      };
      nextRealTurn(poll);
    });
  }

  #runNext(until: number): boolean {
    const turn = this.#takeTurn();
    if (turn !== undefined) {
      this.#execute(turn.owner, turn.run);
      return true;
    }
    const event = this.#takeDue(until);
    if (event === undefined) {
      this.now = Math.max(this.now, until);
      return false;
    }
    const { owner, run, interval } = event;
    this.now = Math.max(this.now, event.time);
    if (run === undefined) return true;
    // As in Node, a late periodic timer does not catch up.
    if (interval > 0) {
      event.time = this.now + interval;
      event.isDeferred = false;
      this.#push(event);
    } else event.run = undefined;
    this.#execute(owner, run);
    return true;
  }

  #takeTurn(): { readonly owner: Owner; readonly run: () => void } | undefined {
    while (this.#firstTurn < this.#turns.length) {
      const turn = this.#turns[this.#firstTurn++];
      if (turn === undefined || turn.owner.isDead) continue;
      if (turn.owner.pausedUntil > this.now) {
        const { owner, run } = turn;
        this.#push({ time: owner.pausedUntil, order: this.#deferred++, owner, run, interval: 0, isDeferred: true });
        continue;
      }
      return turn;
    }
    this.#turns = [];
    this.#firstTurn = 0;
    return undefined;
  }

  /** The next event of an owner that runs. */
  #takeDue(until: number): ScheduledEvent | undefined {
    for (;;) {
      const [first] = this.#heap;
      if (first === undefined || first.time >= until) return undefined;
      this.#pop();
      if (first.run === undefined || first.owner.isDead) continue;
      if (first.owner.pausedUntil > first.time) {
        first.time = first.owner.pausedUntil;
        if (!first.isDeferred) first.order = this.#deferred++;
        first.isDeferred = true;
        this.#push(first);
        continue;
      }
      return first;
    }
  }

  #execute(owner: Owner, run: () => void): void {
    this.executed++;
    this.current = owner;
    this.trace.mix(this.now, owner.number);
    runTimer(run);
  }

  #push(event: ScheduledEvent): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as ScheduledEvent;
      if (!isBefore(event, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop() as ScheduledEvent;
    const { length } = heap;
    if (length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= length) break;
      if (child + 1 < length && isBefore(heap[child + 1] as ScheduledEvent, heap[child] as ScheduledEvent)) child++;
      const below = heap[child] as ScheduledEvent;
      if (!isBefore(below, last)) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
  }
}

function isBefore(a: ScheduledEvent, b: ScheduledEvent): boolean {
  return a.time < b.time || (a.time === b.time && a.order < b.order);
}
