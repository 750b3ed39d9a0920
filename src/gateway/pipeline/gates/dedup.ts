/** Rejects events that were handled already, waits for those in progress, and claims the ids of new ones. */
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import { type Claim, toDigestId, type VerifiedEvent } from '../../../core/event.ts';
import type { ParsedHead } from '../../../core/parsed-head.ts';
import { type Refusal, refuse } from '../../../core/refusal.ts';
import type { ClaimRequest, ClaimResult, SeenIds } from '../../../state/claims/seen-ids.ts';
import { acquireClaim, Busy, type ClaimAttempt, type ClaimParts, type ClaimPolicy, type ClaimReply } from '../claim-attempt.ts';
import type { ClaimWaiters } from '../claim-waiters.ts';
import { toContentFingerprint, toDigestKey, toIdFingerprint, toIdKey, toKindKey } from '../event-keys.ts';
import { NOTHING_CLAIMED } from '../grants.ts';
import type { IdSettlement, Settlements } from '../settlements.ts';
import type { ClaimGate } from './gate.ts';

/** A route's dedup policy. */
export interface DedupOptions {
  /** The route's name: ids of different routes never collide. */
  readonly route: string;
  readonly retention: Milliseconds;
  readonly lease: Milliseconds;
  readonly inProgress: 'wait' | 'reject';
  readonly maxWait: Milliseconds;
  readonly onStoreError: 'refuse' | 'forward';
  /** How an id is treated that the signature does not cover. */
  readonly unsignedId: 'check' | 'trust';
  /** How many kinds (named by unsigned headers) the same signed content may be forwarded under. */
  readonly maxKinds: number;
}

/** An event that is counted. */
export type DedupEvent =
  | 'new'
  | 'duplicate'
  | 'in_progress'
  | 'taken_over'
  | 'held'
  | 'id_reused'
  | 'replayed_under_new_id'
  | 'unidentified'
  | 'bypassed'
  | 'unavailable';

/** One of the claims that a delivery needs. */
interface Step {
  /** In order; one granted claim is enough. */
  readonly requests: readonly ClaimRequest[];
  /** The requests are for slots of kinds: a slot that this kind already has is as good as a new one. */
  readonly isKindSlot: boolean;
}

/** The claims that one delivery needs, in order: all or none. */
type Steps = readonly Step[];

/** The claim that blocked a delivery; `replay`: the content was seen under another id, or under the maximum number of kinds. */
type Conflict = Exclude<ClaimResult, { state: 'new' }> & { readonly replay?: 'id' | 'kind' };

/** The result of claiming all steps. `held`: the granted claims; if omitted, all. */
type ClaimsResult = { readonly state: 'new'; readonly held?: readonly ClaimRequest[] } | Conflict;

/** The dependencies that the dedup gates of all routes share. */
export interface DedupParts {
  readonly store: SeenIds;
  readonly settlements: Settlements;
  readonly clock: Clock;
  readonly waiters: ClaimWaiters;
  readonly onEvent: (event: DedupEvent) => void;
  readonly onDuration: (duration: Milliseconds) => void;
}

/** Claims the ids of a route's events. */
export function createDedupGate(options: DedupOptions, parts: DedupParts): ClaimGate {
  const { onEvent } = parts;
  const policy: ClaimPolicy = { ...options, busyReason: 'in_progress', unavailableReason: 'dedup_unavailable' };
  const shared: ClaimParts = { ...parts, onBusy: () => onEvent('in_progress') };
  return {
    claim(event, head) {
      const steps = toSteps(options, head, event);
      if (steps.length > 0) return acquireClaim(new DedupAttempt(steps, event, head, options, parts), policy, shared);
      onEvent('unidentified');
      return NOTHING_CLAIMED;
    },
  };
}

class DedupAttempt implements ClaimAttempt {
  readonly #steps: Steps;
  readonly #event: VerifiedEvent;
  readonly #head: ParsedHead;
  readonly #options: DedupOptions;
  readonly #parts: DedupParts;
  /** The claims of the last attempt. */
  #attempted: Steps;

  constructor(steps: Steps, event: VerifiedEvent, head: ParsedHead, options: DedupOptions, parts: DedupParts) {
    this.#steps = steps;
    this.#attempted = steps;
    this.#event = event;
    this.#head = head;
    this.#options = options;
    this.#parts = parts;
  }

  ask(tries: number): Promise<ClaimReply> {
    return tries === 0 ? this.#askFirst() : this.#askAgain(tries);
  }

  async #askAgain(tries: number): Promise<ClaimReply> {
    // Each attempt has its own token: a late release by an earlier attempt must not release the claim of a later one.
    this.#attempted = this.#steps.map((step) => ({
      ...step,
      requests: step.requests.map((each) => ({ ...each, token: `${each.token}.${tries}` })),
    }));
    const found = await this.#claim();
    return this.#conclude(found, 'taken_over');
  }

  release(): void {
    for (const request of toAll(this.#attempted)) this.#settle('release', request);
  }

  /** A confirm that finds no claim writes `handled`. */
  toUncheckedClaim(): Claim {
    return this.#toClaim(this.#steps.flatMap(({ requests }) => requests.slice(0, 1)));
  }

  #askFirst(): Promise<ClaimReply> {
    const { clock, onDuration } = this.#parts;
    const startedAt = clock.monotonic();
    return this.#claim().then((found) => {
      onDuration(clock.monotonic() - startedAt);
      return this.#concludeFirst(found);
    });
  }

  #concludeFirst(found: ClaimsResult): ClaimReply {
    const { onEvent } = this.#parts;
    if (found.state !== 'new' && found.replay !== undefined) onEvent('replayed_under_new_id');
    else if (found.state !== 'new' && !found.sameContent) onEvent('id_reused');
    return this.#conclude(found, 'new');
  }

  #conclude(found: ClaimsResult, whenNew: 'new' | 'taken_over'): ClaimReply {
    if (found.state === 'in-progress') return new Busy(found.remainingMs);
    if (found.state === 'handled') return this.#refuseDuplicate(found);
    this.#parts.onEvent(whenNew);
    return { claim: this.#toClaim(found.held ?? toAll(this.#attempted)), isStale: false, isUnchecked: false };
  }

  #claim(): Promise<ClaimsResult> {
    const [only] = this.#attempted;
    const [request] = only?.requests ?? [];
    // Nearly every delivery has one id and nothing else to claim.
    if (this.#attempted.length === 1 && only?.requests.length === 1 && request !== undefined)
      return this.#parts.store.claim(request);
    return this.#claimAll();
  }

  /** One after the other, and always in the same order: of two deliveries that share one claim, one gets all its claims. */
  async #claimAll(): Promise<ClaimsResult> {
    const steps = this.#attempted;
    const held: ClaimRequest[] = [];
    for (const [index, step] of steps.entries()) {
      const found = await this.#claimStep(step);
      if ('key' in found) {
        held.push(found);
        continue;
      }
      for (const request of held) this.#settle('release', request);
      if (step.isKindSlot) return { ...found, replay: 'kind' };
      return index === 0 && steps.length > 1 && !found.sameContent ? { ...found, replay: 'id' } : found;
    }
    return { state: 'new', held };
  }

  /** The granted request, or the conflict: a claim in progress counts before a handled one, as it may still be released. */
  async #claimStep({ requests, isKindSlot }: Step): Promise<ClaimRequest | Conflict> {
    let conflict: Conflict | undefined;
    for (const request of requests) {
      const result = await this.#parts.store.claim(request);
      if (result.state === 'new' || (isKindSlot && result.sameContent)) return request;
      if (conflict?.state !== 'in-progress') conflict = result;
    }
    if (conflict === undefined) throw new Error('a step has no requests');
    return conflict;
  }

  #refuseDuplicate({ replay }: Pick<Conflict, 'replay'>): Refusal {
    this.#parts.onEvent('duplicate');
    const { digest } = this.#event;
    if (replay === undefined || digest === undefined) return refuse('duplicate', 'duplicate');
    if (replay === 'kind') {
      const detail = `already handled under the maximum number of other kinds (dedup.maxKinds: ${this.#options.maxKinds}); raise it if the sender delivers one content under more kinds`;
      return refuse('duplicate', 'replayed_under_new_id', detail);
    }
    // The id of the first delivery is not known here, so only this text names what to forget for an intended redelivery.
    const detail = `already handled under another id; to forward it again, forget the id ${toDigestId(digest)}`;
    return refuse('duplicate', 'replayed_under_new_id', detail);
  }

  #toClaim(held: readonly ClaimRequest[]): Claim {
    const settleAll = (kind: IdSettlement['kind']): void => {
      for (const request of held) this.#settle(kind, request);
    };
    return {
      confirm: () => settleAll('confirm'),
      release: () => settleAll('release'),
      hold: () => this.#parts.onEvent('held'),
    };
  }

  #settle(kind: IdSettlement['kind'], { key, token, fingerprint }: ClaimRequest): void {
    const { retention, lease, maxWait } = this.#options;
    const mootAt = this.#head.startedAt + (kind === 'confirm' ? retention : lease + maxWait);
    this.#parts.settlements.settle({ of: 'id', kind, key, token, fingerprint, retention, mootAt });
  }
}

/**
 * Claims by the id if the signature covers it. If not, first by the digest of what was signed: an attacker with a valid delivery
 * could give it another id. The entry of the id stores the digest, so that forgetting the id clears both.
 */
function toSteps(options: DedupOptions, head: ParsedHead, { id, digest, contentDigest, body }: VerifiedEvent): Steps {
  const { route, lease, unsignedId } = options;
  const common = { token: head.requestId, leaseMs: lease };
  if (id === undefined) return [];
  if (digest === undefined) return [toStep({ ...common, key: toIdKey(route, id), fingerprint: toContentFingerprint(body) })];
  const byId = toStep({ ...common, key: toIdKey(route, id), fingerprint: digest });
  const hasOwnId = id !== toDigestId(digest);
  if (hasOwnId && unsignedId === 'trust') return [byId];
  const byDigest = toStep({ ...common, key: toDigestKey(route, digest), fingerprint: toIdFingerprint(id) });
  const kindSlots =
    contentDigest === undefined ? [] : [toKindSlots(options, contentDigest, { ...common, key: '', fingerprint: digest })];
  return [byDigest, ...kindSlots, ...(hasOwnId ? [byId] : [])];
}

function toAll(steps: Steps): ClaimRequest[] {
  return steps.flatMap(({ requests }) => requests);
}

function toStep(request: ClaimRequest): Step {
  return { requests: [request], isKindSlot: false };
}

/** Each kind needs its own slot, and slots are limited: an attacker can invent kinds for captured content. */
function toKindSlots({ route, maxKinds }: DedupOptions, contentDigest: string, request: ClaimRequest): Step {
  const requests = Array.from({ length: maxKinds }, (_, at) => ({ ...request, key: toKindKey(route, contentDigest, at + 1) }));
  return { requests, isKindSlot: true };
}
