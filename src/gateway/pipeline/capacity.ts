/** Limits how many requests the apps handle at once, and shares these slots among clients; a bounded number of requests may queue. */

import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { KEPT_CLIENTS, type ListElement, ROUTE_TO_FREE, UnorderedList } from '../../core/collections.ts';
import { rememberClientNetworks } from '../../core/ip-address.ts';
import type { ClientResponse, RequestBody } from '../../core/request.ts';

/** A share that is used up. */
type FullShare = 'queue_full' | 'client_share' | 'route_share' | 'unverified_share';

/** How the wait for a slot ended. The shares: these requests already fill their share of the queue. */
export type CapacityResult = 'entered' | FullShare | 'queue_timeout' | 'closed';

/** The limits for all requests together. */
export interface CapacityLimits {
  readonly maxInFlight: number;
  /** For one client network, which also gets no more than three times what it leaves free. The queue is shared in the same proportion. */
  readonly maxInFlightPerClient?: number | undefined;
  /** For requests that no gate verified; default: half of all. The queue is shared in the same proportion. */
  readonly maxInFlightUnverified?: number | undefined;
  readonly maxQueued: number;
  readonly queueTimeout: Milliseconds;
}

/** A request for a slot. */
interface AppSlotRequest {
  /** The client's address. */
  readonly address: string;
  /** Verified by a signature, a password or a certificate. */
  readonly isVerified: boolean;
  /** Undefined if it is the only route. */
  readonly route?: string | undefined;
}

/** A slot and its holder; returned by `leave`. */
export interface AppSlot extends Pick<AppSlotRequest, 'isVerified' | 'route'> {
  readonly client: string;
  /** Set by `follow`. */
  transfer?: FollowedTransfer;
}

/** An upload or a response that may last as long as its client and the app like. */
interface FollowedTransfer extends ListElement {
  readonly slot: AppSlot;
  readonly request: { readonly body: Pick<RequestBody, 'isArriving'> };
  readonly response: Pick<ClientResponse, 'headersSent'>;
  readonly maxTime: Milliseconds;
  /** The app had the whole request then, and its response had not begun. */
  before: Milliseconds;
  /** It has lasted longer than `maxTime`, and holds no slot. */
  isLong: boolean;
}

const SWEEP_INTERVAL_MS = 1_000;

interface QueuedRequest extends AppSlot {
  readonly resolve: (result: CapacityResult) => void;
  readonly cancel: CancelTimer;
}

/** The maximum number of slots, or of queue entries, for each kind of request. */
interface Shares {
  readonly all: number;
  readonly unverified: number;
  readonly client: number;
  readonly clientUnverified: number;
  /** A client may hold so many times what its route can still get. */
  readonly clientToFree: number;
}

/**
 * Assigns slots. Unverified requests can take only a part of them, so untrusted clients cannot use up what valid deliveries need. Those of one
 * route always leave some to others, whose apps may be well, and those of one client network leave some of these to other clients.
 */
export class Capacity {
  readonly #limits: CapacityLimits;
  readonly #clock: Clock;
  readonly #events;
  readonly #queue = new Set<QueuedRequest>();
  readonly #entered: SlotTally;
  readonly #queued: SlotTally;
  /** Long uploads and responses: as many again as there are slots, in the same shares. */
  readonly #long: SlotTally;
  readonly #followed = new UnorderedList<FollowedTransfer>();
  #stopSweep: CancelTimer | undefined;
  readonly #toNetwork = rememberClientNetworks();
  #isClosed = false;

  constructor(
    limits: CapacityLimits,
    clock: Clock,
    events: {
      onInFlight(delta: 1 | -1): void;
      onQueued(delta: 1 | -1): void;
    },
  ) {
    this.#limits = limits;
    this.#clock = clock;
    this.#events = events;
    const shares = toShares(limits);
    this.#entered = new SlotTally(shares);
    this.#long = new SlotTally(shares);
    this.#queued = new SlotTally(scale(shares, limits.maxQueued));
  }

  /** The slot that a request would hold. */
  toSlot({ address, isVerified, route }: AppSlotRequest): AppSlot {
    return { client: this.#toNetwork(address), isVerified, route };
  }

  /** Takes the slot now (`entered`), or returns a promise of how the wait for it ends. Each request that entered must leave. */
  enter(slot: AppSlot): CapacityResult | Promise<CapacityResult> {
    if (this.#isClosed) return 'closed';
    if (this.#entered.findFull(slot) === undefined) {
      this.#take(slot);
      return 'entered';
    }
    const full = this.#queued.findFull(slot);
    if (full !== undefined) return full;
    this.#queued.add(slot);
    return new Promise((resolve) => {
      const waiting: QueuedRequest = {
        ...slot,
        resolve,
        cancel: this.#clock.after(this.#limits.queueTimeout, () => this.#unqueue(waiting, 'queue_timeout')),
      };
      this.#queue.add(waiting);
      this.#events.onQueued(1);
    });
  }

  /** An upload or a response that lasts longer than `maxTime` leaves its slot to other requests. Without room among the long ones, it keeps it. */
  follow(slot: AppSlot, transfer: Pick<FollowedTransfer, 'request' | 'response'>, maxTime: Milliseconds): void {
    slot.transfer = { ...transfer, slot, maxTime, before: this.#clock.monotonic(), isLong: false, listIndex: undefined };
    this.#followed.add(slot.transfer);
    this.#stopSweep ??= this.#clock.every(SWEEP_INTERVAL_MS, () => this.#sweep());
  }

  leave(slot: AppSlot): void {
    const { transfer } = slot;
    if (transfer !== undefined) this.#followed.remove(transfer);
    if (transfer?.isLong === true) this.#long.remove(slot);
    else this.#free(slot);
  }

  #sweep(): void {
    const now = this.#clock.monotonic();
    const followed = [...this.#followed];
    if (followed.length === 0) {
      this.#stopSweep?.();
      this.#stopSweep = undefined;
    }
    for (const each of followed) {
      const { slot, request, response, maxTime } = each;
      if (!response.headersSent && request.body.isArriving !== true) each.before = now;
      if (each.isLong || now - each.before < maxTime || this.#long.findFull(slot) !== undefined) continue;
      each.isLong = true;
      this.#long.add(slot);
      this.#free(slot);
    }
  }

  /** Passes the slot on to the request that has waited longest among those within their shares. */
  #free(slot: AppSlot): void {
    this.#entered.remove(slot);
    this.#events.onInFlight(-1);
    if (this.#queue.size === 0) return;
    for (const waiting of this.#queue) {
      if (this.#entered.isFull) return;
      if (this.#entered.findFull(waiting) !== undefined) continue;
      this.#take(waiting);
      this.#unqueue(waiting, 'entered');
    }
  }

  /** Rejects all waiting and all later requests: nothing more is forwarded. */
  close(): void {
    this.#isClosed = true;
    for (const waiting of this.#queue) this.#unqueue(waiting, 'closed');
  }

  /** The most requests that the apps can have at once: those with a slot, and the long ones. */
  get most(): number {
    return 2 * this.#limits.maxInFlight;
  }

  #take(slot: AppSlot): void {
    this.#entered.add(slot);
    this.#events.onInFlight(1);
  }

  #unqueue(waiting: QueuedRequest, result: CapacityResult): void {
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

const NO_REQUESTS: Readonly<ClientCount> = { all: 0, unverified: 0 };

/** Counts requests against their shares. */
class SlotTally {
  readonly #shares: Shares;
  readonly #clients = new Map<string, ClientCount>();
  readonly #routes = new Map<string, number>();
  #all = 0;
  #unverified = 0;

  constructor(shares: Shares) {
    this.#shares = shares;
  }

  get isFull(): boolean {
    return this.#all >= this.#shares.all;
  }

  /** The share that is full for `slot`; undefined if none is. */
  findFull({ client, isVerified, route }: AppSlot): FullShare | undefined {
    if (this.isFull) return 'queue_full';
    const { all, unverified, client: clientMax, clientUnverified } = this.#shares;
    const { all: held, unverified: heldUnverified } = this.#clients.get(client) ?? NO_REQUESTS;
    const free = all - this.#all;
    if (isVerified) return this.#findFullPart(route, free, held, clientMax);
    const freeUnverified = Math.min(free, unverified - this.#unverified);
    if (freeUnverified <= 0) return 'unverified_share';
    return (
      this.#findFullPart(route, freeUnverified, heldUnverified, clientUnverified) ??
      this.#findFullPart(route, free, held, clientMax)
    );
  }

  /** Whether a route, or a client that holds so many, must leave what is `free` to others. */
  #findFullPart(route: string | undefined, free: number, held: number, max: number): FullShare | undefined {
    let left = free;
    // The route may hold three times what is free then.
    if (route !== undefined) left = (ROUTE_TO_FREE * free - (this.#routes.get(route) ?? 0)) / (ROUTE_TO_FREE + 1);
    if (left <= 0) return 'route_share';
    return held >= Math.min(max, this.#shares.clientToFree * left) ? 'client_share' : undefined;
  }

  add({ client, isVerified, route }: AppSlot): void {
    const unverified = isVerified ? 0 : 1;
    if (route !== undefined) this.#routes.set(route, (this.#routes.get(route) ?? 0) + 1);
    const count = this.#clients.get(client);
    if (count === undefined) this.#clients.set(client, { all: 1, unverified });
    else {
      count.all++;
      count.unverified += unverified;
    }
    this.#all++;
    this.#unverified += unverified;
  }

  remove({ client, isVerified, route }: AppSlot): void {
    const unverified = isVerified ? 0 : 1;
    if (route !== undefined) this.#routes.set(route, (this.#routes.get(route) ?? 1) - 1);
    this.#all--;
    this.#unverified -= unverified;
    const count = this.#clients.get(client);
    if (count === undefined) return;
    count.all--;
    count.unverified -= unverified;
    if (count.all === 0 && this.#clients.size > KEPT_CLIENTS) this.#clients.delete(client);
  }
}

function toShares(limits: CapacityLimits): Shares {
  const all = limits.maxInFlight;
  const unverified = Math.min(all, limits.maxInFlightUnverified ?? Math.ceil(all / 2));
  const max = limits.maxInFlightPerClient;
  const client = Math.min(all, max ?? all);
  // A client that has all slots of the only route to itself gets as many as the config says.
  const clientToFree = max === undefined ? ROUTE_TO_FREE : Math.max(ROUTE_TO_FREE, client / (all - client));
  return { all, unverified, client, clientUnverified: Math.ceil((unverified * client) / all), clientToFree };
}

function scale(shares: Shares, all: number): Shares {
  const toShare = (share: number): number => Math.ceil((share * all) / shares.all);
  return {
    ...shares,
    all,
    unverified: toShare(shares.unverified),
    client: toShare(shares.client),
    clientUnverified: toShare(shares.clientUnverified),
  };
}
