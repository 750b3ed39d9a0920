/** Bounds how many requests are with the apps at once, and shares the places among clients; a few more requests may queue. */
import { rememberClientNetworks } from '../../core/client-network.ts';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';

/** How the wait for a place ended. `client_share`, `unverified_share`: these requests have their share of the queue already. */
export type CapacityResult = 'entered' | 'queue_full' | 'client_share' | 'unverified_share' | 'queue_timeout' | 'closed';

/** Bounds of all requests together. */
export interface CapacityLimits {
  readonly maxInFlight: number;
  /** Of one client network; three quarters of all by default. The queue is shared in the same proportion. */
  readonly maxInFlightPerClient?: number | undefined;
  /** Of requests that no gate verified; half of all by default. The queue is shared in the same proportion. */
  readonly maxInFlightUnverified?: number | undefined;
  readonly maxQueued: number;
  readonly queueTimeout: Milliseconds;
}

/** Who asks for a place. */
export interface Entrant {
  /** The client's address. */
  readonly address: string;
  /** By a signature, a password or a certificate. */
  readonly isVerified: boolean;
}

/** Whose place it is; given back by `leave`. */
export interface Place {
  readonly client: string;
  readonly isVerified: boolean;
}

interface Waiting extends Place {
  readonly resolve: (result: CapacityResult) => void;
  readonly cancel: CancelTimer;
}

/** Told how both numbers change, for the gauges. */
export interface CapacityEvents {
  onInFlight(delta: 1 | -1): void;
  onQueued(delta: 1 | -1): void;
}

/** The most that each kind of request may have, of the places or of the queue. */
interface Shares {
  readonly all: number;
  readonly unverified: number;
  readonly client: number;
  readonly clientUnverified: number;
}

/**
 * Counts places. Requests of open routes can take only a part of them, and those of one client network only a part of that, so
 * untrusted clients cannot use up what valid deliveries need.
 */
export class Capacity {
  readonly #limits: CapacityLimits;
  readonly #clock: Clock;
  readonly #events: CapacityEvents;
  readonly #queue = new Set<Waiting>();
  readonly #entered: Tally;
  readonly #queued: Tally;
  readonly #toNetwork = rememberClientNetworks();
  #isClosed = false;

  constructor(limits: CapacityLimits, clock: Clock, events: CapacityEvents) {
    this.#limits = limits;
    this.#clock = clock;
    this.#events = events;
    const shares = toShares(limits);
    this.#entered = new Tally(shares);
    this.#queued = new Tally(scale(shares, limits.maxQueued));
  }

  /** The place that `entrant` would have. */
  toPlace({ address, isVerified }: Entrant): Place {
    return { client: this.#toNetwork(address), isVerified };
  }

  /** Takes the place now (`entered`), or gives a promise of how the wait for it ends. What entered must leave. */
  enter(place: Place): CapacityResult | Promise<CapacityResult> {
    if (this.#isClosed) return 'closed';
    if (this.#entered.findFull(place) === undefined) {
      this.#take(place);
      return 'entered';
    }
    const full = this.#queued.findFull(place);
    if (full !== undefined) return full;
    this.#queued.add(place);
    return new Promise((resolve) => {
      const waiting: Waiting = {
        ...place,
        resolve,
        cancel: this.#clock.after(this.#limits.queueTimeout, () => this.#unqueue(waiting, 'queue_timeout')),
      };
      this.#queue.add(waiting);
      this.#events.onQueued(1);
    });
  }

  /** Gives the place to the request that has waited longest of those that may have it. */
  leave(place: Place): void {
    this.#entered.remove(place);
    this.#events.onInFlight(-1);
    if (this.#queue.size === 0) return;
    for (const waiting of this.#queue) {
      if (this.#entered.isFull) return;
      if (this.#entered.findFull(waiting) !== undefined) continue;
      this.#take(waiting);
      this.#unqueue(waiting, 'entered');
    }
  }

  /** Rejects all that wait, now and later: nothing more goes to the apps. */
  close(): void {
    this.#isClosed = true;
    for (const waiting of this.#queue) this.#unqueue(waiting, 'closed');
  }

  /** How many are inside. */
  get inFlight(): number {
    return this.#entered.count;
  }

  #take(place: Place): void {
    this.#entered.add(place);
    this.#events.onInFlight(1);
  }

  #unqueue(waiting: Waiting, result: CapacityResult): void {
    if (!this.#queue.delete(waiting)) return;
    waiting.cancel();
    this.#queued.remove(waiting);
    this.#events.onQueued(-1);
    waiting.resolve(result);
  }
}

interface ClientCount {
  all: number;
  unverified: number;
}

/** Counts against the shares. */
class Tally {
  readonly #shares: Shares;
  readonly #clients = new Map<string, ClientCount>();
  #all = 0;
  #unverified = 0;

  constructor(shares: Shares) {
    this.#shares = shares;
  }

  get count(): number {
    return this.#all;
  }

  get isFull(): boolean {
    return this.#all >= this.#shares.all;
  }

  /** Which share keeps `place` out; undefined where none does. */
  findFull({ client, isVerified }: Place): 'queue_full' | 'client_share' | 'unverified_share' | undefined {
    if (this.isFull) return 'queue_full';
    const { unverified, client: most, clientUnverified } = this.#shares;
    const count = this.#clients.get(client);
    if (count !== undefined && count.all >= most) return 'client_share';
    if (isVerified) return undefined;
    if (count !== undefined && count.unverified >= clientUnverified) return 'client_share';
    return this.#unverified >= unverified ? 'unverified_share' : undefined;
  }

  add({ client, isVerified }: Place): void {
    const unverified = isVerified ? 0 : 1;
    const count = this.#clients.get(client);
    if (count === undefined) this.#clients.set(client, { all: 1, unverified });
    else {
      count.all++;
      count.unverified += unverified;
    }
    this.#all++;
    this.#unverified += unverified;
  }

  remove({ client, isVerified }: Place): void {
    const unverified = isVerified ? 0 : 1;
    this.#all--;
    this.#unverified -= unverified;
    const count = this.#clients.get(client);
    if (count === undefined) return;
    count.all--;
    count.unverified -= unverified;
    if (count.all === 0) this.#clients.delete(client);
  }
}

function toShares(limits: CapacityLimits): Shares {
  const all = limits.maxInFlight;
  const unverified = Math.min(all, limits.maxInFlightUnverified ?? Math.ceil(all / 2));
  const client = Math.min(all, limits.maxInFlightPerClient ?? Math.ceil((all * 3) / 4));
  return { all, unverified, client, clientUnverified: Math.ceil((unverified * client) / all) };
}

function scale(shares: Shares, all: number): Shares {
  const toShare = (share: number): number => Math.ceil((share * all) / shares.all);
  return {
    all,
    unverified: toShare(shares.unverified),
    client: toShare(shares.client),
    clientUnverified: toShare(shares.clientUnverified),
  };
}
