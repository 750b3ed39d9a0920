/** Shares the memory for bodies among requests: what is allocated counts, and one client cannot fill it for all others. */
import type { Milliseconds } from '../../core/clock.ts';

/** Bounds of all bodies together. */
export interface BudgetLimits {
  /** Bytes. */
  readonly maxBufferedBytes: number;
  /** Bodies above SMALL_BODY that are read at once. */
  readonly maxLargeBodies: number;
}

/** A body as the budget sees it. */
export interface BudgetedBody {
  readonly startedAt: Milliseconds;
  /** Of the client (core/client-network.ts). */
  readonly network: string;
  /** Bytes that it counts for: its buffer's capacity, or all of its declared size once that was granted. */
  held: number;
  /** `large`: it has a state among the large bodies being read; `read`: it had one, and is held until it is answered. */
  state: BodyState;
}

/** How a body counts. */
export type BodyState = 'small' | 'large' | 'read';

/** Bytes; a body up to this size needs no state among the large ones. */
export const SMALL_BODY = 64 * 1024;
/** The share of the budget that large bodies leave to small ones, so that common deliveries pass during a flood of large ones. */
const SMALL_SHARE = 1 / 4;
/** A pass of eviction frees at least this share of the budget: evicting one body for each chunk would cost quadratic time. */
const EVICTED_SHARE = 1 / 16;

/** The budget. */
export class BodyBudget {
  readonly #limits: BudgetLimits;
  #held = 0;
  #largeHeld = 0;
  #largeCount = 0;

  constructor(limits: BudgetLimits) {
    this.#limits = limits;
  }

  /** Bytes held by all bodies. */
  get held(): number {
    return this.#held;
  }

  /** Takes what a small body needs to have `bytes` in all; false if the budget is spent. */
  take(body: BudgetedBody, bytes: number): boolean {
    const more = bytes - body.held;
    if (more <= 0) return true;
    if (this.#held + more > this.#limits.maxBufferedBytes) return false;
    this.#add(body, more);
    return true;
  }

  /** The same for a large body, which also needs a state; false if there is none, or if too little is left for small bodies. */
  takeLarge(body: BudgetedBody, bytes: number): boolean {
    const { maxBufferedBytes, maxLargeBodies } = this.#limits;
    const isNew = body.state === 'small';
    if (!isNew && bytes <= body.held) return true;
    if (isNew && this.#largeCount >= maxLargeBodies) return false;
    const others = isNew ? this.#largeHeld : this.#largeHeld - body.held;
    // One alone may have all of it.
    if (others > 0 && others + bytes > maxBufferedBytes * (1 - SMALL_SHARE)) return false;
    if (this.#held - body.held + bytes > maxBufferedBytes) return false;
    if (isNew) {
      body.state = 'large';
      this.#largeCount++;
      this.#largeHeld += body.held;
    }
    this.#add(body, bytes - body.held);
    return true;
  }

  /** It is read, and counts for `bytes` until it is given back. */
  finish(body: BudgetedBody, bytes: number): void {
    this.#add(body, bytes - body.held);
    if (body.state !== 'large') return;
    body.state = 'read';
    this.#largeCount--;
  }

  /** Gives back all that a body holds. */
  release(body: BudgetedBody): void {
    this.finish(body, 0);
    body.state = 'small';
  }

  /** Whether another large body may be read, if the bytes suffice. */
  get hasFreeSlot(): boolean {
    return this.#largeCount < this.#limits.maxLargeBodies;
  }

  /** Could `bytes` ever be granted? */
  canHold(bytes: number): boolean {
    return bytes <= this.#limits.maxBufferedBytes;
  }

  /**
   * Which unfinished bodies must go to make room for `bytes`: the oldest of the client network that holds most, so that slow
   * uploads of one client do not keep out others. Bodies younger than `minAge` stay.
   */
  pickVictims<B extends BudgetedBody>(bodies: Iterable<B>, bytes: number, now: Milliseconds, minAge: Milliseconds): B[] {
    const clients = new Map<string, { held: number; bodies: B[] }>();
    for (const body of bodies) {
      if (body.held === 0) continue;
      const { network } = body;
      const client = clients.get(network) ?? { held: 0, bodies: [] };
      client.held += body.held;
      client.bodies.push(body);
      clients.set(network, client);
    }
    const [heaviest] = [...clients.values()].sort((a, b) => b.held - a.held);
    if (heaviest === undefined) return [];
    const wanted = Math.max(bytes, this.#limits.maxBufferedBytes * EVICTED_SHARE);
    const victims: B[] = [];
    let freed = 0;
    for (const body of heaviest.bodies.sort((a, b) => a.startedAt - b.startedAt)) {
      if (freed >= wanted || now - body.startedAt < minAge) break;
      victims.push(body);
      freed += body.held;
    }
    return victims;
  }

  #add(body: BudgetedBody, bytes: number): void {
    body.held += bytes;
    this.#held += bytes;
    if (body.state !== 'small') this.#largeHeld += bytes;
  }
}
