/**
 * Acquires the claims that an event needs: waits while another request holds one, applies the route's policy in a store outage, and joins the
 * grants of several gates. Settles each claim once the request has ended.
 */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { Counts, ROUTE_TO_FREE } from '../../core/collections.ts';
import type { Claim, ClaimGrant } from '../../core/event.ts';
import { type Reason, Refusal, refuse } from '../../core/refusal.ts';
import { whenSettled } from '../../core/safe-events.ts';
import type { LeaveRequest, NewestVersions } from '../../state/newest-versions.ts';
import { type SeenIds, toStoreUnavailable } from '../../state/seen-ids.ts';

/** Another request holds the claim, for at most this long. */
export class Busy {
  readonly remainingMs: Milliseconds;

  constructor(remainingMs: Milliseconds) {
    this.remainingMs = remainingMs;
  }
}

/** A grant, without the time at which it ends. */
export type Grant = Omit<ClaimGrant, 'expiresAt'>;

/** The result of asking the store once. */
export type ClaimReply = Grant | Refusal | Busy;

/** One event's attempt to get its claim. */
export interface ClaimAttempt {
  /** The address of its client. */
  readonly client: string;
  /** Of the ID or resource. */
  readonly key: string;
  /** Asks the store once; rejects with StoreUnavailable. `tries`: the number of earlier attempts. */
  ask(tries: number): Promise<ClaimReply>;
  /** Releases what the last `ask` may have written although its response was lost. */
  release(): void;
  /** For an event that is forwarded while the store is unavailable: its outcome is recorded once the store is back. */
  toUncheckedClaim(): Claim;
}

/** The policy of a gate and its route. */
export interface ClaimPolicy {
  readonly route: string;
  /** While another request holds the claim. */
  readonly inProgress: 'wait' | 'reject';
  readonly maxWait: Milliseconds;
  readonly lease: Milliseconds;
  readonly onStoreError: 'refuse' | 'forward';
  readonly busyReason: Reason;
  readonly unavailableReason: Reason;
}

/** The dependencies that all claiming gates share. */
export interface ClaimParts {
  readonly clock: Clock;
  readonly waiters: ClaimWaiters;
  readonly onEvent: (event: 'bypassed' | 'unavailable') => void;
  readonly onBusy: () => void;
}

/** Resolves with the grant, or why the event cannot be forwarded now. */
export function acquireClaim(attempt: ClaimAttempt, policy: ClaimPolicy, parts: ClaimParts): Promise<ClaimGrant | Refusal> {
  const askedAt = parts.clock.monotonic();
  return attempt.ask(0).then(
    (reply) => (reply instanceof Busy ? whileBusy(reply, attempt, policy, parts) : withLease(reply, askedAt, policy)),
    (thrown: unknown) =>
      policy.onStoreError === 'forward' ? grantUnchecked(thrown, attempt, parts) : refuseForStore(thrown, attempt, policy, parts),
  );
}

async function whileBusy(
  busy: Busy,
  attempt: ClaimAttempt,
  policy: ClaimPolicy,
  parts: ClaimParts,
): Promise<ClaimGrant | Refusal> {
  parts.onBusy();
  if (policy.inProgress === 'reject') return retryLater(busy.remainingMs, policy.busyReason);
  try {
    return await wait(busy, attempt, policy, parts);
  } catch (thrown) {
    // Never forwarded here, even with `onStoreError: forward`: the app may still be handling the other request.
    return refuseForStore(thrown, attempt, policy, parts);
  }
}

/** Asks the store repeatedly until the other request's claim is settled. */
async function wait(
  { remainingMs }: Busy,
  attempt: ClaimAttempt,
  policy: ClaimPolicy,
  { clock, waiters }: ClaimParts,
): Promise<ClaimGrant | Refusal> {
  const { route, maxWait, busyReason } = policy;
  let remaining = remainingMs;
  let tries = 0;
  const settled = await waiters.wait(attempt, {
    route,
    clock,
    timeout: maxWait,
    poll: async () => {
      tries++;
      const askedAt = clock.monotonic();
      const reply = await attempt.ask(tries);
      if (!(reply instanceof Busy)) return withLease(reply, askedAt, policy);
      remaining = reply.remainingMs;
      return undefined;
    },
  });
  if (settled === 'full') return retryLater(remaining, 'waiters_full');
  return settled === 'timeout' ? retryLater(remaining, busyReason) : settled;
}

/** The store's lease begins when it grants the claim, which is after it was asked. */
function withLease(reply: Grant | Refusal, askedAt: Milliseconds, { lease }: ClaimPolicy): ClaimGrant | Refusal {
  if (reply instanceof Refusal) return reply;
  return { ...reply, expiresAt: reply.claim === undefined ? Number.POSITIVE_INFINITY : askedAt + lease };
}

function grantUnchecked(thrown: unknown, attempt: ClaimAttempt, { onEvent }: ClaimParts): ClaimGrant {
  const { failure } = toStoreUnavailable(thrown);
  onEvent('unavailable');
  onEvent('bypassed');
  // A full store could not record the outcome either.
  const claim = failure === 'full' ? undefined : attempt.toUncheckedClaim();
  return { claim, isStale: false, isUnchecked: true, expiresAt: Number.POSITIVE_INFINITY };
}

function refuseForStore(
  thrown: unknown,
  attempt: ClaimAttempt,
  { unavailableReason }: ClaimPolicy,
  { onEvent }: ClaimParts,
): Refusal {
  const { failure, message } = toStoreUnavailable(thrown);
  onEvent('unavailable');
  // A claim may have been written although its response was lost: the sender's retry must not wait for a lease that no request holds.
  if (failure !== 'full') attempt.release();
  return refuse('store_unavailable', unavailableReason, message);
}

/** One wait. */
interface ClaimWait<Outcome> {
  readonly route: string;
  readonly clock: Clock;
  readonly timeout: Milliseconds;
  /** Undefined: not yet. A rejection ends the wait, which then rejects as well. */
  readonly poll: () => Promise<Outcome | undefined>;
}

const MIN_PAUSE_MS = 20;
const MAX_PAUSE_MS = 250;
const MAX_RETRY_AFTER_S = 10;

/**
 * Limits how many requests may wait for another one's outcome at once, so that replays of one delivery cannot pile up. A client of a route, an ID
 * or a resource that has more of the places than are free gets no further one, and neither does a route that has most of them.
 */
export class ClaimWaiters {
  readonly #max: number;
  readonly #onFull: () => void;
  readonly #toClient: (address: string) => string | undefined;
  /** Of clients, routes and keys, which have other names. */
  readonly #places = new Counts();
  #count = 0;

  /** `toClient`: the name of a client for its address; undefined: all share the places. */
  constructor(max: number, onFull: () => void, toClient: (address: string) => string | undefined) {
    this.#max = max;
    this.#onFull = onFull;
    this.#toClient = toClient;
  }

  /** Polls until there is an outcome; `full` if too many requests wait already, `timeout` if it takes too long. */
  async wait<Outcome extends object>(
    { client, key }: Pick<ClaimAttempt, 'client' | 'key'>,
    wait: ClaimWait<Outcome>,
  ): Promise<Outcome | 'full' | 'timeout'> {
    const name = this.#toClient(client);
    // Several tenants may use one provider, so a client of one route says nothing about the same address at another.
    const holders = name === undefined ? [key] : [key, `client ${name} of ${wait.route}`];
    const route = `route ${wait.route}`;
    const free = this.#max - this.#count;
    const isFull = this.#places.of(route) > free * ROUTE_TO_FREE || holders.some((holder) => this.#places.of(holder) > free);
    if (free <= 0 || isFull) {
      this.#onFull();
      return 'full';
    }
    this.#add([...holders, route], 1);
    try {
      return (await pollUntil(wait)) ?? 'timeout';
    } finally {
      this.#add([...holders, route], -1);
    }
  }

  #add(holders: readonly string[], change: 1 | -1): void {
    this.#count += change;
    for (const holder of holders) this.#places.add(holder, change);
  }
}

async function pollUntil<Outcome>({ clock, timeout, poll }: ClaimWait<Outcome>): Promise<Outcome | undefined> {
  const until = clock.monotonic() + timeout;
  for (let pause = MIN_PAUSE_MS; ; pause = Math.min(pause * 2, MAX_PAUSE_MS)) {
    const budget = until - clock.monotonic();
    if (budget <= 0) return undefined;
    await sleep(clock, Math.min(pause, budget));
    const outcome = await poll();
    if (outcome !== undefined) return outcome;
  }
}

function sleep(clock: Clock, delay: Milliseconds): Promise<void> {
  return new Promise((resolve) => {
    clock.after(delay, resolve);
  });
}

/** Rejects a request that waited in vain; the sender retries when the other request's lease may have expired, or sooner. */
function retryLater(remaining: Milliseconds, reason: Reason): Refusal {
  const seconds = Math.min(Math.max(Math.ceil(remaining / 1000), 1), MAX_RETRY_AFTER_S);
  return refuse('in_progress', reason, { retryAfterSeconds: seconds });
}

/** The grant of an event for which nothing is stored. */
export const NOTHING_CLAIMED: ClaimGrant = {
  claim: undefined,
  isStale: false,
  isUnchecked: false,
  expiresAt: Number.POSITIVE_INFINITY,
};

/** Combines two grants. */
export function joinGrants(earlier: ClaimGrant, later: ClaimGrant): ClaimGrant {
  if (earlier === NOTHING_CLAIMED) return later;
  return {
    claim: joinClaims(earlier.claim, later.claim),
    isStale: earlier.isStale || later.isStale,
    isUnchecked: earlier.isUnchecked || later.isUnchecked,
    expiresAt: Math.min(earlier.expiresAt, later.expiresAt),
  };
}

/** Settles both, the later one first. */
function joinClaims(earlier: Claim | undefined, later: Claim | undefined): Claim | undefined {
  if (earlier === undefined || later === undefined) return later ?? earlier;
  return new SettledClaim((how) => {
    later[how]();
    earlier[how]();
  });
}

/** A claim that one function settles. */
export class SettledClaim implements Claim {
  readonly #settle: (how: keyof Claim) => void;

  constructor(settle: (how: keyof Claim) => void) {
    this.#settle = settle;
  }

  confirm(): void {
    this.#settle('confirm');
  }

  release(): void {
    this.#settle('release');
  }

  hold(): void {
    this.#settle('hold');
  }
}

/** Settles a claim once: the first settlement counts. */
export function toOneTimeClaim(claim: Claim): Claim {
  let open: Claim | undefined = claim;
  return new SettledClaim((how) => {
    const settled = open;
    open = undefined;
    settled?.[how]();
  });
}

// Settles every claim of an ID or a resource: retries failed confirms and releases until the store accepts them or they are moot.

interface AnySettlement {
  readonly kind: 'confirm' | 'release';
  readonly key: string;
  /** Monotonic time after which settling changes nothing: the lease has ended for a release, the retention for a confirm. */
  readonly mootAt: Milliseconds;
}

/** The end of one claim of an ID. */
export interface IdSettlement extends AnySettlement {
  readonly of: 'id';
  readonly token: string;
  readonly fingerprint: string;
  /** How long a confirmed ID is remembered. */
  readonly retention: Milliseconds;
}

/** The end of one event's claim of its resource. */
export interface ResourceSettlement extends AnySettlement {
  readonly of: 'resource';
  readonly versions: NewestVersions;
  readonly leave: LeaveRequest;
}

/** A settlement to be written to the store. */
export type ClaimSettlement = IdSettlement | ResourceSettlement;

/** The outcome of a settlement, for the metrics. */
export type SettlementOutcome = 'confirmed' | 'released' | 'fenced' | 'settle_retried' | 'settle_lost';

const MIN_RETRY_MS = 100;
const MAX_RETRY_MS = 5_000;
/** Waiting settlements are a few hundred bytes each. */
const MAX_WAITING = 10_000;
/** They take no place of confirms: deliveries that are rejected while the store is away would push out events that were handled. */
const MAX_RELEASES = 1_000;
const BATCH_SIZE = 100;

/** Settles claims off the sender's critical path. */
export class Settlements {
  readonly #store: SeenIds;
  readonly #clock: Clock;
  readonly #events;
  /** In their order, as a confirm can need that its ID was released before. */
  readonly #waiting: ClaimSettlement[] = [];
  #releases = 0;
  #inProgress = 0;
  #retryDelay = MIN_RETRY_MS;
  #timer: CancelTimer | undefined;
  /** Of the drains. */
  #onIdle: (() => void)[] = [];

  constructor(
    store: SeenIds,
    clock: Clock,
    events: {
      onOutcome(outcome: SettlementOutcome, settlement: ClaimSettlement): void;
      onLost(settlement: ClaimSettlement, message: string): void;
    },
  ) {
    this.#store = store;
    this.#clock = clock;
    this.#events = events;
  }

  /** The number of settlements that are in progress or wait for the store. */
  get pending(): number {
    return this.#inProgress + this.#waiting.length;
  }

  /** Settles now, or as soon as the store can; never throws. */
  settle(settlement: ClaimSettlement): void {
    this.#inProgress++;
    whenSettled(
      this.#write(settlement),
      (held) => this.#onWritten(settlement, held),
      // The store reports the reason through its own events; here only the retry matters.
      () => this.#onFailed(settlement),
    );
  }

  /** Resolves when nothing is pending, or after `timeout`; what remains then is reported as lost. */
  async drain(timeout: Milliseconds): Promise<void> {
    if (this.pending > 0) {
      await new Promise<void>((resolve) => {
        const cancel = this.#clock.after(timeout, resolve);
        this.#onIdle.push(() => {
          cancel();
          resolve();
        });
        this.#retryNow();
      });
    }
    this.#timer?.();
    this.#releases = 0;
    for (const left of this.#waiting.splice(0))
      if (left.kind === 'confirm') this.#lose(left, 'sidegate stopped before the store came back');
  }

  #onWritten(settlement: ClaimSettlement, held: boolean): void {
    this.#inProgress--;
    // The store is back.
    if (this.#retryDelay > MIN_RETRY_MS && this.#timer !== undefined) this.#retryAfter(MIN_RETRY_MS);
    // A drain has little time: the next ones follow as soon as these are written.
    if (this.#onIdle.length > 0 && this.#inProgress === 0 && this.#waiting.length > 0) this.#retryNow();
    this.#retryDelay = MIN_RETRY_MS;
    const outcome = settlement.kind === 'confirm' ? 'confirmed' : 'released';
    this.#events.onOutcome(held ? outcome : 'fenced', settlement);
    this.#reportIdle();
  }

  #onFailed(settlement: ClaimSettlement): void {
    this.#inProgress--;
    this.#enqueue(settlement);
    this.#reportIdle();
  }

  #write(settlement: ClaimSettlement): Promise<boolean> {
    if (settlement.of === 'resource') return settlement.versions.leave(settlement.leave);
    const { kind, key, token, fingerprint, retention } = settlement;
    return kind === 'confirm' ? this.#store.confirm(key, token, fingerprint, retention) : this.#store.release(key, token);
  }

  #enqueue(settlement: ClaimSettlement): void {
    const isRelease = settlement.kind === 'release';
    // Without a release, nothing is lost: the lease ends.
    if (isRelease && this.#releases >= MAX_RELEASES) return;
    if (!isRelease && this.#waiting.length - this.#releases >= MAX_WAITING)
      return this.#lose(settlement, 'too many settlements wait for the store');
    if (isRelease) this.#releases++;
    this.#events.onOutcome('settle_retried', settlement);
    this.#waiting.push(settlement);
    if (this.#timer === undefined) this.#retryAfter(this.#retryDelay);
  }

  #retryAfter(delay: Milliseconds): void {
    this.#timer?.();
    this.#timer = this.#clock.after(delay, () => this.#retryNow());
  }

  #retryNow(): void {
    this.#timer?.();
    this.#timer = undefined;
    this.#retryDelay = Math.min(this.#retryDelay * 2, MAX_RETRY_MS);
    const now = this.#clock.monotonic();
    for (const settlement of this.#waiting.splice(0, BATCH_SIZE)) {
      if (settlement.kind === 'release') this.#releases--;
      if (now < settlement.mootAt) this.settle(settlement);
      else if (settlement.kind === 'confirm') this.#lose(settlement, 'the store was unavailable for the whole retention');
      // Dropping a moot release loses nothing: the lease has expired, so the sender's retry is forwarded anyway.
    }
    if (this.#waiting.length > 0) this.#retryAfter(this.#retryDelay);
    this.#reportIdle();
  }

  #lose(settlement: ClaimSettlement, message: string): void {
    this.#events.onOutcome('settle_lost', settlement);
    this.#events.onLost(settlement, message);
  }

  #reportIdle(): void {
    if (this.pending > 0) return;
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }
}
