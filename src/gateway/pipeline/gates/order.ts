/** Is this event older than one of the same resource that was handled already? Lets one of a resource's events at a time to the app. */
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import type { Claim, Exchange } from '../../../core/exchange.ts';
import type { JsonPath } from '../../../core/json-path.ts';
import { refuse } from '../../../core/refusal.ts';
import type { Verdict } from '../../../core/verdict.ts';
import { toStoreUnavailable } from '../../../state/claims/seen-ids.ts';
import type { EnterRequest, EnterResult, NewestVersions } from '../../../state/ordering/newest-versions.ts';
import { type ClaimWaiters, comeAgain } from '../claim-waiters.ts';
import { joinClaims } from '../claims.ts';
import { toResourceKey } from '../event-keys.ts';
import type { PlaceSettlement, Settlements } from '../settlements.ts';
import { readPlaces } from './exact-numbers.ts';
import type { Gate } from './gate.ts';
import { toName, toSortable } from './order-version.ts';

/** A route's policy for events that overtake each other. */
export interface OrderOptions {
  /** The route's name: two routes' resources never meet. */
  readonly route: string;
  /** Where the content names its resource. */
  readonly key: JsonPath;
  /** Where it says how new it is: a number, digits, or an RFC 3339 time. */
  readonly version: JsonPath;
  /** How long the newest version of a resource is remembered. */
  readonly retention: Milliseconds;
  readonly lease: Milliseconds;
  readonly waitAtMost: Milliseconds;
  readonly onStale: 'answer' | 'forward';
  readonly onStoreError: 'refuse' | 'forward';
}

/** Something worth counting. */
export type OrderEvent = 'entered' | 'stale' | 'busy' | 'unordered' | 'held' | 'bypassed' | 'unavailable';

/** What all routes' order gates share. */
export interface OrderParts {
  readonly versions: NewestVersions;
  readonly settlements: Settlements;
  readonly clock: Clock;
  readonly waiters: ClaimWaiters;
  readonly onEvent: (event: OrderEvent) => void;
}

/**
 * Stands behind the signature, as it parses the content and keeps what that says; and behind dedup, or a retry of the newest
 * event would go to the app again.
 */
export function createOrderGate(options: OrderOptions, parts: OrderParts): Gate {
  return new OrderGate(options, parts);
}

class OrderGate implements Gate {
  readonly name = 'order';
  readonly #options: OrderOptions;
  readonly #parts: OrderParts;

  constructor(options: OrderOptions, parts: OrderParts) {
    this.#options = options;
    this.#parts = parts;
  }

  async check(exchange: Exchange): Promise<Verdict> {
    const { versions, onEvent } = this.#parts;
    const delivery = exchange.facts.delivery;
    if (delivery === undefined) throw new Error('the order gate stands behind the signature gate');
    const request = this.#toRequest(delivery.body, exchange.requestId);
    if (request === undefined) {
      onEvent('unordered');
      return undefined;
    }
    let first: EnterResult;
    try {
      first = await versions.enter(request);
    } catch (thrown) {
      return this.#onStoreDown(thrown, request, exchange);
    }
    if (first.state !== 'busy') return this.#conclude(first, request, exchange);
    onEvent('busy');
    try {
      return await this.#waitForPlace(first.remainingMs, request, exchange);
    } catch (thrown) {
      // Never forward here, whatever the route says: the other event may still be at work.
      return this.#refuseForStore(thrown, request, exchange);
    }
  }

  #conclude({ state }: EnterResult, request: EnterRequest, exchange: Exchange): Verdict {
    const { onEvent } = this.#parts;
    const { facts } = exchange;
    if (state !== 'stale') {
      onEvent('entered');
      facts.claim = joinClaims(facts.claim, this.#createClaim(request, exchange));
      return undefined;
    }
    onEvent('stale');
    if (this.#options.onStale === 'answer') return refuse('stale', 'stale');
    // It takes no place: the app knows that it is not to be taken for what the resource is now.
    facts.isStale = true;
    return undefined;
  }

  /** Asks the store again and again whether the place is free, or a newer event was handled meanwhile. */
  async #waitForPlace(remaining: Milliseconds, request: EnterRequest, exchange: Exchange): Promise<Verdict> {
    const { versions, clock, waiters } = this.#parts;
    let left = remaining;
    const outcome = await waiters.wait({
      clock,
      atMost: this.#options.waitAtMost,
      look: async () => {
        const result = await versions.enter(request);
        if (result.state !== 'busy') return result;
        left = result.remainingMs;
        return undefined;
      },
    });
    if (outcome === 'full') return comeAgain(left, 'waiters_full');
    return outcome === 'late' ? comeAgain(left, 'resource_busy') : this.#conclude(outcome, request, exchange);
  }

  #onStoreDown(thrown: unknown, request: EnterRequest, exchange: Exchange): Verdict {
    const { onEvent } = this.#parts;
    if (this.#options.onStoreError === 'refuse') return this.#refuseForStore(thrown, request, exchange);
    const { failure } = toStoreUnavailable(thrown);
    onEvent('unavailable');
    onEvent('bypassed');
    const { facts } = exchange;
    facts.isUnchecked = true;
    // The outcome is still worth recording: an older event that comes when the store is back is stale then.
    if (failure !== 'full') facts.claim = joinClaims(facts.claim, this.#createClaim(request, exchange));
    return undefined;
  }

  #refuseForStore(thrown: unknown, request: EnterRequest, exchange: Exchange): Verdict {
    const { onEvent, settlements } = this.#parts;
    const { failure, message } = toStoreUnavailable(thrown);
    onEvent('unavailable');
    // The place may have been taken all the same, its answer lost: the sender's retry must not wait for a lease that nobody holds.
    if (failure !== 'full') settlements.settle(this.#toSettlement('release', request, exchange));
    return refuse('store_unavailable', 'order_unavailable', message);
  }

  #createClaim(request: EnterRequest, exchange: Exchange): Claim {
    const { settlements, onEvent } = this.#parts;
    return {
      confirm: () => settlements.settle(this.#toSettlement('confirm', request, exchange)),
      release: () => settlements.settle(this.#toSettlement('release', request, exchange)),
      hold: () => onEvent('held'),
    };
  }

  #toSettlement(kind: PlaceSettlement['kind'], request: EnterRequest, exchange: Exchange): PlaceSettlement {
    const { retention, lease, waitAtMost } = this.#options;
    const { key, version, token } = request;
    const isHandled = kind === 'confirm';
    return {
      kind,
      key,
      versions: this.#parts.versions,
      leave: { key, token, ...(isHandled ? { handled: { version, retentionMs: retention } } : undefined) },
      mootAt: exchange.startedAt + (isHandled ? retention : lease + waitAtMost),
    };
  }

  /** Undefined where the content does not say which resource it is about, or how new it is. */
  #toRequest(body: Buffer, token: string): EnterRequest | undefined {
    const [named, numbered] = readPlaces(body, [this.#options.key, this.#options.version]);
    const resource = toName(named);
    const version = toSortable(numbered);
    if (resource === undefined || version === undefined) return undefined;
    // Versions of two kinds cannot be compared, so each kind has a place of its own.
    const key = toResourceKey(this.#options.route, version.slice(0, 1), resource);
    return { key, version, token, leaseMs: this.#options.lease };
  }
}
