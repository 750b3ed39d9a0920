/** Callers that wait in line for what they asked for. */
import type { Clock, Milliseconds } from './clock.ts';
import { TurnQueue } from './turn-queue.ts';

export interface LinePlace<Request, Grant> {
  readonly request: Request;
  readonly end: (grant: Grant | undefined) => void;
}

export interface Waiting<Grant> {
  /** Undefined if the caller left, or waited too long. */
  readonly granted: Promise<Grant | undefined>;
  leave(): void;
}

/** Callers that wait: groups take turns, and those of each wait in the order in which they came. */
export class WaitLine<Request, Grant> {
  readonly #clock: Clock;
  readonly #places = new TurnQueue<LinePlace<Request, Grant>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get length(): number {
    return this.#places.size;
  }

  get places(): Iterable<LinePlace<Request, Grant>> {
    return this.#places;
  }

  /** Of each group, in turns. */
  firsts(): Iterable<LinePlace<Request, Grant>> {
    return this.#places.firsts();
  }

  get first(): LinePlace<Request, Grant> | undefined {
    return this.#places.first;
  }

  /** `group`: the tenant, for one. `atMost`: how long to wait; by default until the caller leaves. */
  join(request: Request, group: string | undefined, atMost?: Milliseconds): Waiting<Grant> {
    const { promise, resolve } = Promise.withResolvers<Grant | undefined>();
    const place: LinePlace<Request, Grant> = {
      request,
      end: (grant) => {
        cancel?.();
        this.#places.remove(place, grant !== undefined);
        resolve(grant);
      },
    };
    const cancel = atMost === undefined ? undefined : this.#clock.after(atMost, () => place.end(undefined));
    this.#places.add(group ?? '', place);
    return { granted: promise, leave: () => place.end(undefined) };
  }
}
