/**
 * Divides the memory for bodies between requests: it counts allocated bytes, and neither one client nor the deliveries of one route
 * can use up the memory of all others.
 */

import type { Milliseconds } from '../../core/clock.ts';
import { Counts } from '../../core/collections.ts';
import { toSite } from '../../core/ip-address.ts';

/** The limits for all bodies together. */
export interface BudgetLimits {
  /** Bytes. */
  readonly maxBufferedBytes: number;
  /** The maximum number of bodies above SMALL_BODY that are read at once. */
  readonly maxLargeBodies: number;
}

/** A body or a pause, which holds memory for a client. */
export interface Holder {
  readonly startedAt: Milliseconds;
  /** The network of the client (core/ip-address.ts). */
  readonly network: string;
  /** In bytes. */
  readonly held: number;
}

/** A body in the budget. */
export interface BudgetedBody extends Holder {
  /** The bytes that it counts for: the capacity of its buffer, or its whole declared size once that was granted. */
  held: number;
  /** Undefined if it is the only route, or unknown. */
  readonly route?: string | undefined;
  /**
   * `large`: it has a slot among the large bodies that are being read; `read`: it had one, and is held until the response is
   * sent.
   */
  state: BodyState;
}

/** The state of a body in the budget. */
export type BodyState = 'small' | 'large' | 'read';

/** In bytes; a body up to this size needs no slot. */
export const SMALL_BODY = 64 * 1024;
/** The share of the budget that is reserved for small bodies, so that common deliveries pass during a flood of large ones. */
const SMALL_SHARE = 1 / 4;
/** The share of the budget that requests may use which wait behind another one on their connection: nothing can evict them. */
const WAITING_SHARE = 1 / 8;
/** Each eviction frees at least this share of the budget: evicting one body for each chunk would take quadratic time. */
export const EVICTED_SHARE = 1 / 16;

/** A route may hold so many times what is left: something remains, however many routes have apps that hang. */
const ROUTE_TO_FREE = 3;

/** The bodies of one route. */
interface RouteUse {
  held: number;
  largeHeld: number;
  largeCount: number;
}

/** The memory budget for bodies. */
export class BodyBudget {
  readonly #limits: BudgetLimits;
  #held = 0;
  #largeHeld = 0;
  #largeCount = 0;
  #waiting = 0;
  /** Only of routes of the config. */
  readonly #routes = new Map<string, RouteUse>();

  constructor(limits: BudgetLimits) {
    this.#limits = limits;
  }

  /** Bytes that all bodies hold. */
  get held(): number {
    return this.#held;
  }

  /** Increases the share of a small body to `bytes`; returns false if the budget is exhausted. */
  take(body: BudgetedBody, bytes: number): boolean {
    const more = bytes - body.held;
    if (more <= 0) return true;
    if (this.#missingOfAll(body, bytes) > 0 || this.isOverShare(body, bytes)) return false;
    this.#add(body, more);
    return true;
  }

  /** Whether other bodies of its route leave it no more than what other routes need. A single body of a route may use all that is left. */
  isOverShare(body: BudgetedBody, bytes: number): boolean {
    const use = body.route === undefined ? undefined : this.#routes.get(body.route);
    if (use === undefined || use.held === body.held) return false;
    const { maxBufferedBytes, maxLargeBodies } = this.#limits;
    const { held, state } = body;
    if (this.#missingOfRoute(body, bytes) > 0) return true;
    if (bytes <= SMALL_BODY) return false;
    if (state === 'small' && use.largeCount >= ROUTE_TO_FREE * (maxLargeBodies - this.#largeCount)) return true;
    const added = state === 'small' ? bytes : bytes - held;
    const free = maxBufferedBytes * (1 - SMALL_SHARE) - this.#largeHeld - added;
    return use.largeHeld > 0 && use.largeHeld + added > ROUTE_TO_FREE * free;
  }

  /**
   * Like `take`, for a large body, which also needs a slot; returns false if there is none, or if too little would be left for
   * small bodies.
   */
  takeLarge(body: BudgetedBody, bytes: number): boolean {
    const isNew = body.state === 'small';
    if (!isNew && bytes <= body.held) return true;
    if (isNew && !this.hasFreeSlot) return false;
    if (this.#missingOfLarge(body, bytes) > 0 || this.#missingOfAll(body, bytes) > 0 || this.isOverShare(body, bytes))
      return false;
    if (isNew) {
      const use = this.#findUse(body);
      body.state = 'large';
      this.#largeCount++;
      this.#largeHeld += body.held;
      if (use !== undefined) {
        use.largeCount++;
        use.largeHeld += body.held;
      }
    }
    this.#add(body, bytes - body.held);
    return true;
  }

  /** The body is read, and counts for `bytes` until it is released. */
  finish(body: BudgetedBody, bytes: number): void {
    this.#add(body, bytes - body.held);
    if (body.state !== 'large') return;
    body.state = 'read';
    this.#largeCount--;
    const use = this.#findUse(body);
    if (use !== undefined) use.largeCount--;
  }

  /** Releases all bytes that a body holds. */
  release(body: BudgetedBody): void {
    this.finish(body, 0);
    body.state = 'small';
  }

  /** Takes bytes for a request that waits for the response before it; returns false if such requests have used up their share. */
  takeForWaiting(bytes: number): boolean {
    const { maxBufferedBytes } = this.#limits;
    if (this.#waiting + bytes > maxBufferedBytes * WAITING_SHARE || this.#held + bytes > maxBufferedBytes) return false;
    this.#waiting += bytes;
    this.#held += bytes;
    return true;
  }

  /** Picks the connections to end to free `bytes`, if connections on which something waits have used up their share. */
  pickWaitingVictims<H extends Holder>(connections: readonly H[], bytes: number, now: Milliseconds): H[] {
    const share = this.#limits.maxBufferedBytes * WAITING_SHARE;
    return this.#waiting + bytes > share ? pickVictims(connections, Math.max(bytes, share * EVICTED_SHARE), now) : [];
  }

  releaseWaiting(bytes: number): void {
    this.#waiting -= bytes;
    this.#held -= bytes;
  }

  /** Whether another large body may be read, if there are enough bytes. */
  get hasFreeSlot(): boolean {
    return this.#largeCount < this.#limits.maxLargeBodies;
  }

  /** Whether `bytes` could ever be granted. */
  canHold(bytes: number): boolean {
    return bytes <= this.#limits.maxBufferedBytes;
  }

  /** How many bytes others have to free before the body can have `bytes`, by each limit; 0 or less: none, or only a slot is missing. */
  findMissing(body: BudgetedBody, bytes: number): number {
    const hasSlot = body.state !== 'small' || this.hasFreeSlot;
    const ofLarge = bytes > SMALL_BODY && hasSlot ? this.#missingOfLarge(body, bytes) : 0;
    return Math.max(this.#missingOfAll(body, bytes), this.#missingOfRoute(body, bytes), ofLarge);
  }

  /** Picks the unfinished bodies to evict to free `bytes`; `missing`: of `findMissing`. Those that began after `latest` are kept. */
  pickVictims<B extends BudgetedBody>(bodies: readonly B[], bytes: number, latest: Milliseconds, missing = 0): B[] {
    return pickVictims(bodies, Math.max(bytes, this.#limits.maxBufferedBytes * EVICTED_SHARE), latest, missing);
  }

  #missingOfAll(body: BudgetedBody, bytes: number): number {
    return this.#held - body.held + bytes - this.#limits.maxBufferedBytes;
  }

  /** Of the part for large bodies. A single one may use all of it. */
  #missingOfLarge(body: BudgetedBody, bytes: number): number {
    const others = body.state === 'small' ? this.#largeHeld : this.#largeHeld - body.held;
    return others > 0 ? others + bytes - this.#limits.maxBufferedBytes * (1 - SMALL_SHARE) : 0;
  }

  /** Of the share of the route: bytes that leave it are free then. */
  #missingOfRoute(body: BudgetedBody, bytes: number): number {
    const use = body.route === undefined ? undefined : this.#routes.get(body.route);
    if (use === undefined || use.held === body.held) return 0;
    const over = use.held - body.held + bytes + ROUTE_TO_FREE * this.#missingOfAll(body, bytes);
    return over / (ROUTE_TO_FREE + 1);
  }

  #add(body: BudgetedBody, bytes: number): void {
    body.held += bytes;
    this.#held += bytes;
    if (body.state !== 'small') this.#largeHeld += bytes;
    const use = this.#findUse(body);
    if (use === undefined) return;
    use.held += bytes;
    if (body.state !== 'small') use.largeHeld += bytes;
  }

  #findUse({ route }: BudgetedBody): RouteUse | undefined {
    if (route === undefined) return undefined;
    let use = this.#routes.get(route);
    if (use === undefined) {
      use = { held: 0, largeHeld: 0, largeCount: 0 };
      this.#routes.set(route, use);
    }
    return use;
  }
}

/**
 * Sums up what each client network holds. It runs only when memory is short, and takes less than a tenth of a millisecond for a thousand holders. Sums
 * that are kept up to date would cost each request.
 */
export function sumHeld(holders: Iterable<Holder>): ReadonlyMap<string, number> {
  const sums = new Map<string, number>();
  for (const { network, held } of holders) if (held > 0) sums.set(network, (sums.get(network) ?? 0) + held);
  return sums;
}

/** The client network that holds most; undefined if none holds anything. */
export function findHeaviest(sums: ReadonlyMap<string, number>): string | undefined {
  let heaviest: string | undefined;
  let most = 0;
  for (const [network, held] of sums)
    if (held > most) {
      heaviest = network;
      most = held;
    }
  return heaviest;
}

/**
 * Picks what to end to free `bytes`: the oldest of the client network that holds most, so that one client does not use up the memory of
 * others. If that frees less than `needed`, those of the next ones, too, in the order of what their sites hold: one client can have many networks.
 * Those that began after `latest` are kept.
 */
export function pickVictims<H extends Holder>(holders: readonly H[], bytes: number, latest: Milliseconds, needed = 0): H[] {
  const sums = sumHeld(holders);
  const heaviest = findHeaviest(sums);
  const old = holders.filter(({ held, startedAt }) => held > 0 && startedAt <= latest);
  const victims: H[] = [];
  let freed = 0;
  const pick = (candidates: readonly H[], enough: number): void => {
    for (const holder of candidates) {
      if (freed >= enough) return;
      victims.push(holder);
      freed += holder.held;
    }
  };
  const own = old.filter(({ network }) => network === heaviest);
  pick(own.sort(byAge), bytes);
  if (freed >= needed) return victims;
  const sites = new Counts();
  for (const [network, held] of sums) sites.add(toSite(network), held);
  const heldAround = new Map([...sums.keys()].map((network) => [network, sites.of(toSite(network))]));
  const toHeld = ({ network }: H): number => heldAround.get(network) ?? 0;
  const others = old.filter(({ network }) => network !== heaviest);
  pick(
    others.sort((a, b) => toHeld(b) - toHeld(a) || byAge(a, b)),
    needed,
  );
  return victims;
}

function byAge(a: Holder, b: Holder): number {
  return a.startedAt - b.startedAt;
}
