/** Was this event handled already, or is it being handled now? Claims the id for this request if not. */
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import { type Claim, toDigestId, type VerifiedEvent } from '../../../core/event.ts';
import type { ParsedHead } from '../../../core/parsed-head.ts';
import { type Refusal, refuse } from '../../../core/refusal.ts';
import type { ClaimRequest, ClaimResult, SeenIds } from '../../../state/claims/seen-ids.ts';
import { Busy, type ClaimAnswer, type ClaimAttempt, type ClaimParts, type ClaimPolicy, takeClaim } from '../claim-attempt.ts';
import type { ClaimWaiters } from '../claim-waiters.ts';
import { toDigestKey, toFingerprint, toIdKey, toKindKey } from '../event-keys.ts';
import { NOTHING_CLAIMED } from '../grants.ts';
import type { IdSettlement, Settlements } from '../settlements.ts';
import type { ClaimGate } from './gate.ts';

/** A route's dedup policy. */
export interface DedupOptions {
  /** The route's name: two routes' ids never meet. */
  readonly route: string;
  readonly retention: Milliseconds;
  readonly lease: Milliseconds;
  readonly inProgress: 'wait' | 'reject';
  readonly waitAtMost: Milliseconds;
  readonly onStoreError: 'refuse' | 'forward';
  /** What an id counts that the signature does not cover. */
  readonly unsignedId: 'check' | 'trust';
  /** Under how many kinds, named by headers that are not signed, the same signed content may reach the app. */
  readonly maxKinds: number;
}

/** Something worth counting. */
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
  /** In order; one of them is enough. */
  readonly requests: readonly ClaimRequest[];
  /** The requests are places for kinds: one that this kind has already is as good as a new one. */
  readonly isPlace: boolean;
}

/** The claims that one delivery needs, in order: all or none. */
type Steps = readonly Step[];

/** What kept a delivery from its claims; `replay`: these bytes were seen, under another id or under as many kinds as there may be. */
type Taken = Exclude<ClaimResult, { state: 'new' }> & { readonly replay?: 'id' | 'kind' };

/** What claiming them found. `held`: if omitted, all of them. */
type Found = { readonly state: 'new'; readonly held?: readonly ClaimRequest[] } | Taken;

/** What all routes' dedup gates share. */
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
      if (steps.length > 0) return takeClaim(new DedupAttempt(steps, event, head, options, parts), policy, shared);
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
  /** What the last try asked for. */
  #asked: Steps;

  constructor(steps: Steps, event: VerifiedEvent, head: ParsedHead, options: DedupOptions, parts: DedupParts) {
    this.#steps = steps;
    this.#asked = steps;
    this.#event = event;
    this.#head = head;
    this.#options = options;
    this.#parts = parts;
  }

  ask(tries: number): Promise<ClaimAnswer> {
    return tries === 0 ? this.#askFirst() : this.#askAgain(tries);
  }

  async #askAgain(tries: number): Promise<ClaimAnswer> {
    // A token of its own for each try: what an earlier one gives back, perhaps late, must not be what a later one holds.
    this.#asked = this.#steps.map((step) => ({
      ...step,
      requests: step.requests.map((each) => ({ ...each, token: `${each.token}.${tries}` })),
    }));
    const found = await this.#claim();
    return this.#conclude(found, 'taken_over');
  }

  giveBack(): void {
    for (const request of toAll(this.#asked)) this.#settle('release', request);
  }

  /** A confirm that finds no claim writes `handled`. */
  toUncheckedClaim(): Claim {
    return this.#toClaim(this.#steps.flatMap(({ requests }) => requests.slice(0, 1)));
  }

  async #askFirst(): Promise<ClaimAnswer> {
    const { clock, onDuration, onEvent } = this.#parts;
    const startedAt = clock.monotonic();
    const found = await this.#claim();
    onDuration(clock.monotonic() - startedAt);
    if (found.state !== 'new' && found.replay !== undefined) onEvent('replayed_under_new_id');
    else if (found.state !== 'new' && !found.sameContent) onEvent('id_reused');
    return this.#conclude(found, 'new');
  }

  #conclude(found: Found, whenNew: 'new' | 'taken_over'): ClaimAnswer {
    if (found.state === 'in-progress') return new Busy(found.remainingMs);
    if (found.state === 'handled') return this.#refuseDuplicate(found);
    this.#parts.onEvent(whenNew);
    return { claim: this.#toClaim(found.held ?? toAll(this.#asked)), isStale: false, isUnchecked: false };
  }

  #claim(): Promise<Found> {
    const [only] = this.#asked;
    const [request] = only?.requests ?? [];
    // Nearly every delivery has one id and nothing else to claim.
    if (this.#asked.length === 1 && only?.requests.length === 1 && request !== undefined) return this.#parts.store.claim(request);
    return this.#claimAll();
  }

  /** One after the other, and always in the same order: of two deliveries that share one claim, one gets all of its own. */
  async #claimAll(): Promise<Found> {
    const steps = this.#asked;
    const held: ClaimRequest[] = [];
    for (const [index, step] of steps.entries()) {
      const found = await this.#claimStep(step);
      if ('key' in found) {
        held.push(found);
        continue;
      }
      for (const request of held) this.#settle('release', request);
      if (step.isPlace) return { ...found, replay: 'kind' };
      return index === 0 && steps.length > 1 && !found.sameContent ? { ...found, replay: 'id' } : found;
    }
    return { state: 'new', held };
  }

  /** The request that got its claim, or what is in the way: a claim in progress before a handled one, as it may still be released. */
  async #claimStep({ requests, isPlace }: Step): Promise<ClaimRequest | Taken> {
    let taken: Taken | undefined;
    for (const request of requests) {
      const result = await this.#parts.store.claim(request);
      if (result.state === 'new' || (isPlace && result.sameContent)) return request;
      if (taken?.state !== 'in-progress') taken = result;
    }
    if (taken === undefined) throw new Error('a step has no requests');
    return taken;
  }

  #refuseDuplicate({ replay }: Pick<Taken, 'replay'>): Refusal {
    this.#parts.onEvent('duplicate');
    const { digest } = this.#event;
    if (replay === undefined || digest === undefined) return refuse('duplicate', 'duplicate');
    if (replay === 'kind') {
      const detail = `handled before under as many other kinds as dedup.maxKinds allows (${this.#options.maxKinds}); raise it if the sender sends one content under more`;
      return refuse('duplicate', 'replayed_under_new_id', detail);
    }
    // The id of the first delivery is not known here, so nothing else says what to forget where the sender means it.
    const detail = `handled before under another id; to let it through once more, forget the id ${toDigestId(digest)}`;
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
    const { retention, lease, waitAtMost } = this.#options;
    const mootAt = this.#head.startedAt + (kind === 'confirm' ? retention : lease + waitAtMost);
    this.#parts.settlements.settle({ of: 'id', kind, key, token, fingerprint, retention, mootAt });
  }
}

/**
 * By the id, where the signature covers it. Where it does not, by what was signed first: whoever holds a genuine delivery could
 * give it another id. The entry of the id remembers the digest, so that whoever forgets the id finds both.
 */
function toSteps(options: DedupOptions, head: ParsedHead, { id, digest, contentDigest, body }: VerifiedEvent): Steps {
  const { route, lease, unsignedId } = options;
  const common = { token: head.requestId, leaseMs: lease };
  if (id === undefined) return [];
  if (digest === undefined) return [toStep({ ...common, key: toIdKey(route, id), fingerprint: toFingerprint(body) })];
  const byId = toStep({ ...common, key: toIdKey(route, id), fingerprint: digest });
  const hasOwnId = id !== toDigestId(digest);
  if (hasOwnId && unsignedId === 'trust') return [byId];
  const byDigest = toStep({ ...common, key: toDigestKey(route, digest), fingerprint: toFingerprint(id) });
  const places =
    contentDigest === undefined ? [] : [toPlaces(options, contentDigest, { ...common, key: '', fingerprint: digest })];
  return [byDigest, ...places, ...(hasOwnId ? [byId] : [])];
}

function toAll(steps: Steps): ClaimRequest[] {
  return steps.flatMap(({ requests }) => requests);
}

function toStep(request: ClaimRequest): Step {
  return { requests: [request], isPlace: false };
}

/** Each kind needs a place of its own: anybody can invent kinds for content that they captured. */
function toPlaces({ route, maxKinds }: DedupOptions, contentDigest: string, request: ClaimRequest): Step {
  const requests = Array.from({ length: maxKinds }, (_, at) => ({ ...request, key: toKindKey(route, contentDigest, at + 1) }));
  return { requests, isPlace: true };
}
