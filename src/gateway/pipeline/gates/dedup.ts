/** Was this event handled already, or is it being handled now? Claims the id for this request if not. */
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import { type Claim, type Exchange, toDigestId, type VerifiedDelivery } from '../../../core/exchange.ts';
import { type Refusal, refuse } from '../../../core/refusal.ts';
import type { Verdict } from '../../../core/verdict.ts';
import { type ClaimRequest, type ClaimResult, type SeenIds, toStoreUnavailable } from '../../../state/claims/seen-ids.ts';
import { type ClaimWaiters, comeAgain } from '../claim-waiters.ts';
import { toDigestKey, toFingerprint, toIdKey, toKindKey } from '../event-keys.ts';
import type { IdSettlement, Settlements } from '../settlements.ts';
import type { Gate } from './gate.ts';

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

/** The end of a wait. */
type Settled = Exclude<Found, { state: 'in-progress' }>;

/** What all routes' dedup gates share. */
export interface DedupParts {
  readonly store: SeenIds;
  readonly settlements: Settlements;
  readonly clock: Clock;
  readonly waiters: ClaimWaiters;
  readonly onEvent: (event: DedupEvent) => void;
  readonly onDuration: (duration: Milliseconds) => void;
}

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
    const { clock, onEvent, onDuration } = this.#parts;
    const delivery = exchange.facts.delivery;
    if (delivery === undefined) throw new Error('the dedup gate stands behind the signature gate');
    const steps = toSteps(this.#options, exchange, delivery);
    if (steps.length === 0) {
      onEvent('unidentified');
      return undefined;
    }
    let first: Found;
    const startedAt = clock.monotonic();
    try {
      first = await this.#claim(steps, exchange);
    } catch (thrown) {
      return this.#onStoreDown(thrown, steps, exchange);
    }
    onDuration(clock.monotonic() - startedAt);
    if (first.state === 'new') {
      onEvent('new');
      exchange.facts.claim = this.#createClaim(first.held ?? toAll(steps), exchange);
      return undefined;
    }
    if (first.replay !== undefined) onEvent('replayed_under_new_id');
    else if (!first.sameContent) onEvent('id_reused');
    return first.state === 'handled'
      ? this.#duplicate(first, exchange)
      : this.#whileInProgress(first.remainingMs, steps, exchange);
  }

  #claim(steps: Steps, exchange: Exchange): Promise<Found> {
    const [only] = steps;
    const [request] = only?.requests ?? [];
    // Nearly every delivery has one id and nothing else to claim.
    if (steps.length === 1 && only?.requests.length === 1 && request !== undefined) return this.#parts.store.claim(request);
    return this.#claimAll(steps, exchange);
  }

  /** One after the other, and always in the same order: of two deliveries that share one claim, one gets all of its own. */
  async #claimAll(steps: Steps, exchange: Exchange): Promise<Found> {
    const held: ClaimRequest[] = [];
    for (const [index, step] of steps.entries()) {
      const found = await this.#claimStep(step);
      if ('key' in found) {
        held.push(found);
        continue;
      }
      for (const request of held) this.#settle('release', request, exchange);
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

  #duplicate({ replay }: Pick<Taken, 'replay'>, { facts }: Exchange): Refusal {
    this.#parts.onEvent('duplicate');
    const digest = facts.delivery?.digest;
    if (replay === undefined || digest === undefined) return refuse('duplicate', 'duplicate');
    if (replay === 'kind') {
      const detail = `handled before under as many other kinds as dedup.maxKinds allows (${this.#options.maxKinds}); raise it if the sender sends one content under more`;
      return refuse('duplicate', 'replayed_under_new_id', detail);
    }
    // The id that it came under first is not known here, so nothing else tells what to forget where the sender means it.
    const detail = `handled before under another id; to let it through once more, forget the id ${toDigestId(digest)}`;
    return refuse('duplicate', 'replayed_under_new_id', detail);
  }

  async #whileInProgress(remaining: Milliseconds, steps: Steps, exchange: Exchange): Promise<Verdict> {
    this.#parts.onEvent('in_progress');
    if (this.#options.inProgress === 'reject') return comeAgain(remaining, 'in_progress');
    return this.#waitForOutcome(remaining, steps, exchange);
  }

  /** Asks the store again and again what became of the first run. */
  async #waitForOutcome(remaining: Milliseconds, steps: Steps, exchange: Exchange): Promise<Verdict> {
    const { clock, onEvent, waiters } = this.#parts;
    const atMost = this.#options.waitAtMost;
    let left = remaining;
    let tries = 0;
    let own = steps;
    const look = async (): Promise<Settled | undefined> => {
      tries++;
      // A token of its own for each try: what an earlier one gives back, perhaps late, must not be what a later one holds.
      own = steps.map((step) => ({
        ...step,
        requests: step.requests.map((each) => ({ ...each, token: `${each.token}.${tries}` })),
      }));
      const result = await this.#claim(own, exchange);
      if (result.state !== 'in-progress') return result;
      left = result.remainingMs;
      return undefined;
    };
    try {
      const outcome = await waiters.wait({ clock, atMost, look });
      if (outcome === 'full') return comeAgain(left, 'waiters_full');
      if (outcome === 'late') return comeAgain(left, 'in_progress');
      if (outcome.state === 'handled') return this.#duplicate(outcome, exchange);
      onEvent('taken_over');
      exchange.facts.claim = this.#createClaim(outcome.held ?? toAll(own), exchange);
      return undefined;
    } catch (thrown) {
      // Never forward here, whatever the route says: the first run may still be at work.
      return this.#refuseForStore(thrown, own, exchange);
    }
  }

  #onStoreDown(thrown: unknown, steps: Steps, exchange: Exchange): Verdict {
    if (this.#options.onStoreError === 'refuse') return this.#refuseForStore(thrown, steps, exchange);
    const { onEvent } = this.#parts;
    const { failure } = toStoreUnavailable(thrown);
    onEvent('unavailable');
    onEvent('bypassed');
    exchange.facts.isUnchecked = true;
    // The outcome is still worth recording: a confirm that finds no claim writes `handled` as soon as the store is back.
    if (failure !== 'full')
      exchange.facts.claim = this.#createClaim(
        steps.flatMap(({ requests }) => requests.slice(0, 1)),
        exchange,
      );
    return undefined;
  }

  #refuseForStore(thrown: unknown, steps: Steps, exchange: Exchange): Refusal {
    const { failure, message } = toStoreUnavailable(thrown);
    this.#parts.onEvent('unavailable');
    // A claim that timed out may have been written all the same: the sender's retry must not wait for a lease that nobody holds.
    if (failure !== 'full') for (const request of toAll(steps)) this.#settle('release', request, exchange);
    return refuse('store_unavailable', 'dedup_unavailable', message);
  }

  #createClaim(held: readonly ClaimRequest[], exchange: Exchange): Claim {
    const settleAll = (kind: IdSettlement['kind']): void => {
      for (const request of held) this.#settle(kind, request, exchange);
    };
    return {
      confirm: () => settleAll('confirm'),
      release: () => settleAll('release'),
      hold: () => this.#parts.onEvent('held'),
    };
  }

  #settle(kind: IdSettlement['kind'], request: ClaimRequest, exchange: Exchange): void {
    this.#parts.settlements.settle(this.#toSettlement(kind, request, exchange));
  }

  #toSettlement(kind: IdSettlement['kind'], request: ClaimRequest, exchange: Exchange): IdSettlement {
    const { retention, lease, waitAtMost } = this.#options;
    const { key, token, fingerprint } = request;
    const mootAt = exchange.startedAt + (kind === 'confirm' ? retention : lease + waitAtMost);
    return { kind, key, token, fingerprint, retention, mootAt };
  }
}

/**
 * By the id, where the signature covers it. Where it does not, by what was signed first: whoever holds a genuine delivery could
 * give it another id. The entry of the id remembers the digest, so that whoever forgets the id finds both.
 */
function toSteps(options: DedupOptions, exchange: Exchange, { id, digest, contentDigest, body }: VerifiedDelivery): Steps {
  const { route, lease, unsignedId } = options;
  const common = { token: exchange.requestId, leaseMs: lease };
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
