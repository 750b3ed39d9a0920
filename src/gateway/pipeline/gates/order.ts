/** Rejects events that are older than a handled one of the same resource, and forwards a resource's events one at a time. */
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import type { Claim } from '../../../core/event.ts';
import type { JsonPath } from '../../../core/json-path.ts';
import type { ParsedHead } from '../../../core/parsed-head.ts';
import { acknowledge } from '../../../core/refusal.ts';
import type { EnterRequest, NewestVersions } from '../../../state/ordering/newest-versions.ts';
import {
  acquireClaim,
  Busy,
  type ClaimAttempt,
  type ClaimParts,
  type ClaimPolicy,
  type ClaimReply,
  type ClaimWaiters,
  type Grant,
  NOTHING_CLAIMED,
  SettledClaim,
} from '../claims.ts';
import { toResourceKey } from '../event-keys.ts';
import type { ResourceSettlement, Settlements } from '../settlements.ts';
import { readValues } from './exact-numbers.ts';
import type { ClaimGate } from './gate.ts';
import { toName, toSortable } from './order-version.ts';

/** A route's policy for events that arrive out of order. */
export interface OrderOptions {
  /** The route's name: resources of different routes never collide. */
  readonly route: string;
  /** Where the content names its resource. */
  readonly key: JsonPath;
  /** Where the content has its version: a number, digits, or an RFC 3339 time. */
  readonly version: JsonPath;
  /** How long the newest version of a resource is remembered. */
  readonly retention: Milliseconds;
  readonly lease: Milliseconds;
  readonly maxWait: Milliseconds;
  readonly onStale: 'acknowledge' | 'forward';
  readonly onStoreError: 'refuse' | 'forward';
}

/** An event that is counted. */
export type OrderEvent = 'entered' | 'stale' | 'busy' | 'unordered' | 'held' | 'bypassed' | 'unavailable';

/** The dependencies that the order gates of all routes share. */
interface OrderParts {
  readonly versions: NewestVersions;
  readonly settlements: Settlements;
  readonly clock: Clock;
  readonly waiters: ClaimWaiters;
  readonly onEvent: (event: OrderEvent) => void;
}

const STALE: Grant = { claim: undefined, isStale: true, isUnchecked: false };

/** Runs after dedup: otherwise a retry of the newest event would be forwarded again. */
export function createOrderGate(options: OrderOptions, parts: OrderParts): ClaimGate {
  const { onEvent } = parts;
  const policy: ClaimPolicy = {
    ...options,
    inProgress: 'wait',
    busyReason: 'resource_busy',
    unavailableReason: 'order_unavailable',
  };
  const shared: ClaimParts = { ...parts, onBusy: () => onEvent('busy') };
  return {
    claim(event, head) {
      const request = toRequest(options, event.body, head.requestId);
      if (request !== undefined) return acquireClaim(new OrderAttempt(request, head, options, parts), policy, shared);
      onEvent('unordered');
      return NOTHING_CLAIMED;
    },
  };
}

class OrderAttempt implements ClaimAttempt {
  readonly client: string;
  readonly key: string;
  readonly #request: EnterRequest;
  readonly #head: ParsedHead;
  readonly #options: OrderOptions;
  readonly #parts: OrderParts;

  constructor(request: EnterRequest, head: ParsedHead, options: OrderOptions, parts: OrderParts) {
    this.client = head.client.address;
    this.key = request.key;
    this.#request = request;
    this.#head = head;
    this.#options = options;
    this.#parts = parts;
  }

  async ask(): Promise<ClaimReply> {
    const { versions, onEvent } = this.#parts;
    const result = await versions.enter(this.#request);
    if (result.state === 'busy') return new Busy(result.remainingMs);
    onEvent(result.state);
    if (result.state === 'entered') return { claim: this.#toClaim(), isStale: false, isUnchecked: false };
    // It does not claim the resource; the app gets it marked as stale.
    return this.#options.onStale === 'forward' ? STALE : acknowledge(result);
  }

  release(): void {
    this.#settle('release');
  }

  /** An older event that arrives when the store is back is stale then. */
  toUncheckedClaim(): Claim {
    return this.#toClaim();
  }

  #toClaim(): Claim {
    return new SettledClaim((how) => {
      if (how === 'hold') this.#parts.onEvent('held');
      else this.#settle(how);
    });
  }

  #settle(kind: ResourceSettlement['kind']): void {
    const { versions, settlements } = this.#parts;
    const { retention, lease, maxWait } = this.#options;
    const { key, version, token } = this.#request;
    const isHandled = kind === 'confirm';
    settlements.settle({
      of: 'resource',
      kind,
      key,
      versions,
      leave: { key, token, ...(isHandled ? { handled: { version, retentionMs: retention } } : undefined) },
      mootAt: this.#head.startedAt + (isHandled ? retention : lease + maxWait),
    });
  }
}

/** Undefined if the content has no resource or no version. */
function toRequest(options: OrderOptions, body: Buffer, token: string): EnterRequest | undefined {
  const [named, numbered] = readValues(body, [options.key, options.version]);
  const resource = toName(named);
  const version = toSortable(numbered);
  if (resource === undefined || version === undefined) return undefined;
  // Versions of two kinds cannot be compared, so each kind is claimed separately.
  const key = toResourceKey(options.route, version.slice(0, 1), resource);
  return { key, version, token, leaseMs: options.lease };
}
