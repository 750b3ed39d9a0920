/** Was this event handled already, or is it being handled now? Claims the id for this request if not. */
import { hash } from 'node:crypto';
import type { Clock, Milliseconds } from '../core/clock.ts';
import type { Claim, Exchange, VerifiedDelivery } from '../core/exchange.ts';
import { type Refusal, refuse } from '../core/refusal.ts';
import type { Verdict } from '../core/verdict.ts';
import { type ClaimRequest, type ClaimResult, type SeenIds, StoreUnavailable } from '../store/seen-ids.ts';
import { toIdKey } from './event-keys.ts';
import type { Gate } from './gate.ts';
import type { Settlement, Settlements } from './settlements.ts';

/** A route's dedup policy. */
export interface DedupOptions {
  /** The route's name: two routes' ids never meet. */
  readonly route: string;
  readonly retention: Milliseconds;
  readonly lease: Milliseconds;
  readonly inProgress: 'wait' | 'reject';
  readonly waitAtMost: Milliseconds;
  readonly onStoreError: 'refuse' | 'forward';
}

/** Something worth counting. */
export type DedupEvent = 'new' | 'duplicate' | 'in_progress' | 'taken_over' | 'held' | 'id_reused' | 'bypassed' | 'unavailable';

/** What all routes' dedup gates share. */
export interface DedupParts {
  readonly store: SeenIds;
  readonly settlements: Settlements;
  readonly clock: Clock;
  readonly waitingRoom: WaitingRoom;
  readonly onEvent: (event: DedupEvent) => void;
  readonly onDuration: (duration: Milliseconds) => void;
}

/** Bounds how many requests may wait for another's outcome at once, so that replays of one delivery cannot pile up. */
export class WaitingRoom {
  readonly #places: number;
  readonly #onFull: () => void;
  #taken = 0;

  constructor(places: number, onFull: () => void) {
    this.#places = places;
    this.#onFull = onFull;
  }

  /** False when it is full. */
  enter(): boolean {
    if (this.#taken >= this.#places) {
      this.#onFull();
      return false;
    }
    this.#taken++;
    return true;
  }

  leave(): void {
    this.#taken--;
  }
}

const FIRST_POLL_MS = 20;
const LONGEST_POLL_MS = 250;
const FINGERPRINT_LENGTH = 16;
const LONGEST_RETRY_AFTER_S = 10;

/** Stands behind the signature: before it, a stranger could burn the ids of genuine deliveries. */
export function createDedupGate(options: DedupOptions, parts: DedupParts): Gate {
  return new DedupGate(options, parts);
}

class DedupGate implements Gate {
  readonly name = 'dedup';
  readonly #options: DedupOptions;
  readonly #parts: DedupParts;

  constructor(options: DedupOptions, parts: DedupParts) {
    this.#options = options;
    this.#parts = parts;
  }

  async check(exchange: Exchange): Promise<Verdict> {
    const { store, clock, onEvent, onDuration } = this.#parts;
    const delivery = exchange.facts.delivery;
    if (delivery === undefined) throw new Error('the dedup gate stands behind the signature gate');
    const request = toClaimRequest(this.#options, exchange, delivery);
    let first: ClaimResult;
    const startedAt = clock.monotonic();
    try {
      first = await store.claim(request);
    } catch (thrown) {
      return this.#onStoreDown(thrown, request, exchange);
    }
    onDuration(clock.monotonic() - startedAt);
    if (first.state === 'new') {
      onEvent('new');
      exchange.facts.claim = this.#createClaim(request, exchange);
      return undefined;
    }
    if (!first.sameContent) onEvent('id_reused');
    return first.state === 'handled' ? this.#duplicate() : this.#whileInProgress(first.remainingMs, request, exchange);
  }

  #duplicate(): Refusal {
    this.#parts.onEvent('duplicate');
    return refuse('duplicate', 'duplicate');
  }

  async #whileInProgress(remaining: Milliseconds, request: ClaimRequest, exchange: Exchange): Promise<Verdict> {
    const { onEvent, waitingRoom } = this.#parts;
    onEvent('in_progress');
    if (this.#options.inProgress === 'reject') return inProgress(remaining);
    if (!waitingRoom.enter()) return { ...inProgress(remaining), reason: 'waiters_full' };
    try {
      return await this.#waitForOutcome(remaining, request, exchange);
    } catch (thrown) {
      // Never forward here, whatever the route says: the first run may still be at work.
      onEvent('unavailable');
      return refuse('store_unavailable', 'dedup_unavailable', toStoreFailure(thrown).message);
    } finally {
      waitingRoom.leave();
    }
  }

  /** Asks the store again and again, less and less often, what became of the first run. */
  async #waitForOutcome(remaining: Milliseconds, request: ClaimRequest, exchange: Exchange): Promise<Verdict> {
    const { store, clock, onEvent } = this.#parts;
    const until = clock.monotonic() + this.#options.waitAtMost;
    let pause = FIRST_POLL_MS;
    let left = remaining;
    for (;;) {
      const budget = until - clock.monotonic();
      if (budget <= 0) return inProgress(left);
      await sleep(clock, Math.min(pause, budget));
      pause = Math.min(pause * 2, LONGEST_POLL_MS);
      const result = await store.claim(request);
      if (result.state === 'handled') return this.#duplicate();
      if (result.state === 'new') {
        onEvent('taken_over');
        exchange.facts.claim = this.#createClaim(request, exchange);
        return undefined;
      }
      left = result.remainingMs;
    }
  }

  #onStoreDown(thrown: unknown, request: ClaimRequest, exchange: Exchange): Verdict {
    const { onEvent, settlements } = this.#parts;
    const failure = toStoreFailure(thrown);
    onEvent('unavailable');
    if (this.#options.onStoreError === 'refuse') {
      // A claim that timed out may have been written all the same: the sender's retry must not wait for a lease that nobody holds.
      if (failure.failure !== 'full') settlements.settle(this.#toSettlement('release', request, exchange));
      return refuse('store_unavailable', 'dedup_unavailable', failure.message);
    }
    onEvent('bypassed');
    // The outcome is still worth recording: a confirm that finds no claim writes `handled` as soon as the store is back.
    if (failure.failure !== 'full') exchange.facts.claim = this.#createClaim(request, exchange);
    return undefined;
  }

  #createClaim(request: ClaimRequest, exchange: Exchange): Claim {
    const { settlements, onEvent } = this.#parts;
    return {
      confirm: () => settlements.settle(this.#toSettlement('confirm', request, exchange)),
      release: () => settlements.settle(this.#toSettlement('release', request, exchange)),
      hold: () => onEvent('held'),
    };
  }

  #toSettlement(kind: Settlement['kind'], request: ClaimRequest, exchange: Exchange): Settlement {
    const { retention, lease, waitAtMost } = this.#options;
    const { key, token, fingerprint } = request;
    const mootAt = exchange.startedAt + (kind === 'confirm' ? retention : lease + waitAtMost);
    return { kind, key, token, fingerprint, retention, mootAt };
  }
}

function sleep(clock: Clock, delay: Milliseconds): Promise<void> {
  return new Promise((resolve) => {
    clock.after(delay, resolve);
  });
}

/** Anything but a StoreUnavailable is a bug, and goes on to be refused as one. */
function toStoreFailure(thrown: unknown): StoreUnavailable {
  if (thrown instanceof StoreUnavailable) return thrown;
  throw thrown;
}

function inProgress(remaining: Milliseconds): Refusal {
  const seconds = Math.min(Math.max(Math.ceil(remaining / 1000), 1), LONGEST_RETRY_AFTER_S);
  return { code: 'in_progress', reason: 'in_progress', retryAfterSeconds: seconds };
}

function toClaimRequest(options: DedupOptions, exchange: Exchange, delivery: VerifiedDelivery): ClaimRequest {
  return {
    key: toIdKey(options.route, delivery.id),
    token: exchange.requestId,
    fingerprint: hash('sha256', delivery.body, 'base64url').slice(0, FINGERPRINT_LENGTH),
    leaseMs: options.lease,
  };
}
