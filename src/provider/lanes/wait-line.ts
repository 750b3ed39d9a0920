/** Callers that wait in the order in which they came. */
import type { Clock, Milliseconds } from '../../core/clock.ts';

/** A caller in the line. */
export interface Place<Request, Grant> {
  readonly request: Request;
  /** Ends the wait. */
  readonly end: (grant: Grant | undefined) => void;
}

/** A caller that waits. */
export interface Waiting<Grant> {
  /** Undefined if the caller left, or waited too long. */
  readonly granted: Promise<Grant | undefined>;
  leave(): void;
}

export class WaitLine<Request, Grant> {
  readonly #clock: Clock;
  /** In the order in which they came. */
  readonly #places = new Set<Place<Request, Grant>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get length(): number {
    return this.#places.size;
  }

  get places(): Iterable<Place<Request, Grant>> {
    return this.#places;
  }

  get first(): Place<Request, Grant> | undefined {
    for (const place of this.#places) return place;
    return undefined;
  }

  /** `atMost`: how long to wait; by default until the caller leaves. */
  join(request: Request, atMost?: Milliseconds): Waiting<Grant> {
    const { promise, resolve } = Promise.withResolvers<Grant | undefined>();
    const place: Place<Request, Grant> = {
      request,
      end: (grant) => {
        cancel?.();
        this.#places.delete(place);
        resolve(grant);
      },
    };
    const cancel = atMost === undefined ? undefined : this.#clock.after(atMost, () => place.end(undefined));
    this.#places.add(place);
    return { granted: promise, leave: () => place.end(undefined) };
  }
}
