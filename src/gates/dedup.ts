/** Was this event handled already, or is it being handled now? Claims the id for this request if not. */
import { hash } from 'node:crypto';
import type { Clock, Milliseconds } from '../core/clock.ts';
import type { Claim, Exchange, VerifiedDelivery } from '../core/exchange.ts';
import { type Refusal, refuse } from '../core/refusal.ts';
import type { Verdict } from '../core/verdict.ts';
import { type ClaimRequest, type ClaimResult, type SeenIds, toStoreUnavailable } from '../store/seen-ids.ts';
import type { Gate } from './gate.ts';
import type { IdSettlement, Settlements } from './settlements.ts';
import { toStoreKey } from './store-key.ts';
import { comeAgain, type WaitingRoom } from './waiting-room.ts';

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

const FINGERPRINT_LENGTH = 16;

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
    const { onEvent } = this.#parts;
    onEvent('in_progress');
    if (this.#options.inProgress === 'reject') return comeAgain(remaining, 'in_progress');
    try {
      return await this.#waitForOutcome(remaining, request, exchange);
    } catch (thrown) {
      // Never forward here, whatever the route says: the first run may still be at work.
      return this.#refuseForStore(thrown, request, exchange);
    }
  }

  /** Asks the store again and again what became of the first run. */
  async #waitForOutcome(remaining: Milliseconds, request: ClaimRequest, exchange: Exchange): Promise<Verdict> {
    const { store, clock, onEvent, waitingRoom } = this.#parts;
    let left = remaining;
    const outcome = await waitingRoom.wait({
      clock,
      atMost: this.#options.waitAtMost,
      look: async () => {
        const result = await store.claim(request);
        if (result.state !== 'in-progress') return result;
        left = result.remainingMs;
        return undefined;
      },
    });
    if (outcome === 'full') return comeAgain(left, 'waiters_full');
    if (outcome === 'late') return comeAgain(left, 'in_progress');
    if (outcome.state === 'handled') return this.#duplicate();
    onEvent('taken_over');
    exchange.facts.claim = this.#createClaim(request, exchange);
    return undefined;
  }

  #onStoreDown(thrown: unknown, request: ClaimRequest, exchange: Exchange): Verdict {
    if (this.#options.onStoreError === 'refuse') return this.#refuseForStore(thrown, request, exchange);
    const { onEvent } = this.#parts;
    const { failure } = toStoreUnavailable(thrown);
    onEvent('unavailable');
    onEvent('bypassed');
    // The outcome is still worth recording: a confirm that finds no claim writes `handled` as soon as the store is back.
    if (failure !== 'full') exchange.facts.claim = this.#createClaim(request, exchange);
    return undefined;
  }

  #refuseForStore(thrown: unknown, request: ClaimRequest, exchange: Exchange): Refusal {
    const { onEvent, settlements } = this.#parts;
    const { failure, message } = toStoreUnavailable(thrown);
    onEvent('unavailable');
    // A claim that timed out may have been written all the same: the sender's retry must not wait for a lease that nobody holds.
    if (failure !== 'full') settlements.settle(this.#toSettlement('release', request, exchange));
    return refuse('store_unavailable', 'dedup_unavailable', message);
  }

  #createClaim(request: ClaimRequest, exchange: Exchange): Claim {
    const { settlements, onEvent } = this.#parts;
    return {
      confirm: () => settlements.settle(this.#toSettlement('confirm', request, exchange)),
      release: () => settlements.settle(this.#toSettlement('release', request, exchange)),
      hold: () => onEvent('held'),
    };
  }

  #toSettlement(kind: IdSettlement['kind'], request: ClaimRequest, exchange: Exchange): IdSettlement {
    const { retention, lease, waitAtMost } = this.#options;
    const { key, token, fingerprint } = request;
    const mootAt = exchange.startedAt + (kind === 'confirm' ? retention : lease + waitAtMost);
    return { kind, key, token, fingerprint, retention, mootAt };
  }
}

function toClaimRequest(options: DedupOptions, exchange: Exchange, delivery: VerifiedDelivery): ClaimRequest {
  return {
    key: toStoreKey(options.route, delivery.id),
    token: exchange.requestId,
    fingerprint: hash('sha256', delivery.body, 'base64url').slice(0, FINGERPRINT_LENGTH),
    leaseMs: options.lease,
  };
}
