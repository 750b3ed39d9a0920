/** Rejects events that were handled already, waits for those in progress, and claims the ids of new ones. */
import { hash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../../core/clock.ts';
import { type Claim, toDigestId, type VerifiedEvent } from '../../../core/event.ts';
import { listForwarded, toComparedType } from '../../../core/head.ts';
import { acknowledge, type Refusal, refuse } from '../../../core/refusal.ts';
import type { ParsedHead } from '../../../core/request.ts';
import { type ClaimRequest, type ClaimResult, type Forgotten, type SeenIds, StoreUnavailable } from '../../../state/seen-ids.ts';
import {
  acquireClaim,
  Busy,
  type ClaimAttempt,
  type ClaimParts,
  type ClaimPolicy,
  type ClaimReply,
  type ClaimWaiters,
  type IdSettlement,
  NOTHING_CLAIMED,
  SettledClaim,
  type Settlements,
} from '../claims.ts';
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
  /** The sender can send the same signed bytes for different events, so that they do not prove that an event was handled. */
  readonly repeatsBytes: boolean;
  /** How many kinds (named by unsigned headers) the same signed content may be forwarded under; undefined if the route lists its kinds. */
  readonly maxKinds: number | undefined;
}

/** An event that is counted. */
export type DedupEvent =
  | 'new'
  | 'duplicate'
  | 'in_progress'
  | 'taken_over'
  | 'held'
  | 'id_reused'
  | 'kinds_exhausted'
  | 'replayed_under_new_id'
  | 'unidentified'
  | 'bypassed'
  | 'unavailable';

/** One of the claims that a delivery needs. */
interface ClaimStep {
  /** The signed ID, the digest of what was signed, an ID that an attacker can choose, or a slot for a kind. A kind keeps the slot that it has. */
  readonly of: 'signed-id' | 'digest' | 'unsigned-id' | 'kind';
  readonly fingerprint: string;
  /** In order; one granted claim is enough. */
  readonly requests: readonly ClaimRequest[];
}

/** The claims that one delivery needs, in order: all or none. */
type Steps = readonly ClaimStep[];

/** The claim that blocked a delivery; without `step` that of the only step. */
type Conflict = Exclude<ClaimResult, { state: 'new' }> & { readonly step?: ClaimStep };
type HandledConflict = Extract<Conflict, { state: 'handled' }>;

/**
 * Compares a delivery with the one that has its claim: `repeated`, the same; `reused`, other content that the sender signed with the
 * same ID; `replayed`, the same signed content under another ID. The others do not prove that this very event was handled.
 */
type Verdict = 'repeated' | 'reused' | 'replayed' | 'other-request' | 'other-content' | 'kinds-exhausted';

/** The result of claiming all steps. `held`: the granted claims; if omitted, all. */
type ClaimsResult = { readonly state: 'new'; readonly held?: readonly ClaimRequest[] } | Conflict;

/** The dependencies that the dedup gates of all routes share. */
export interface DedupParts {
  readonly store: SeenIds;
  readonly settlements: Pick<Settlements, 'settle'>;
  readonly clock: Clock;
  readonly waiters: ClaimWaiters;
  readonly onEvent: (event: DedupEvent) => void;
  readonly onDuration: (duration: Milliseconds) => void;
  /** For a route whose deliveries are stored, or were. */
  readonly stored?: StoredDeliveries | undefined;
}

/** Deliveries that are stored before the app handles them: their IDs are confirmed when they are accepted, which does not mean that it did. */
export interface StoredDeliveries {
  /** The time of their store: the clocks of replicas differ. */
  readonly clock: Pick<Clock, 'now'>;
  /** How long after it was accepted each delivery is certainly stored; undefined if the route stores none. */
  readonly storedFor: Milliseconds | undefined;
  /** Under which a delivery is stored that was accepted with the request; undefined if nothing distinguishes it from other ones. */
  toId(event: VerifiedEvent, head: ParsedHead, requestId: string | undefined): string | undefined;
  /**
   * The sender repeats a delivery with this ID. If the app never handled it, because it is dead or skipped, it is sent again. A refusal if nobody can
   * say what became of it: the sender has to retry. `lost` if it must be stored and is not: then it must be stored again. `acceptedAt`: before it
   * was stored; undefined if it was stored under another ID, or can have left since, as its time is over.
   */
  repeat(id: string, acceptedAt: EpochMilliseconds | undefined): Promise<'known' | 'lost' | Refusal>;
}

const NOTHING_TO_SETTLE: Claim = new SettledClaim(() => undefined);

/** Claims the ids of a route's events. */
export function createDedupGate(options: DedupOptions, parts: DedupParts): ClaimGate {
  const { onEvent } = parts;
  const policy: ClaimPolicy = { ...options, busyReason: 'in_progress', unavailableReason: 'dedup_unavailable' };
  const shared: ClaimParts = { ...parts, onBusy: () => onEvent('in_progress') };
  return {
    claim(event, head) {
      const steps = toSteps(options, head, event, parts.stored);
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

  get client(): string {
    return this.#head.client.address;
  }

  get key(): string {
    return this.#steps[0]?.requests[0]?.key ?? '';
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

  #concludeFirst(found: ClaimsResult): ClaimReply | Promise<ClaimReply> {
    const { onEvent } = this.#parts;
    const verdict = found.state === 'new' ? 'repeated' : this.#judge(found);
    if (verdict === 'replayed') onEvent('replayed_under_new_id');
    else if (verdict !== 'repeated' && verdict !== 'kinds-exhausted') onEvent('id_reused');
    return this.#conclude(found, 'new');
  }

  #conclude(found: ClaimsResult, whenNew: 'new' | 'taken_over'): ClaimReply | Promise<ClaimReply> {
    if (found.state === 'in-progress') return new Busy(found.remainingMs);
    if (found.state === 'handled') return this.#concludeHandled(found);
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
    const held: ClaimRequest[] = [];
    try {
      for (const step of this.#attempted) {
        const found = await this.#claimStep(step);
        if (!('key' in found)) return found;
        held.push(found);
      }
      return { state: 'new', held: held.splice(0) };
    } finally {
      // Only a part was granted: there is a conflict, or the store has no room for the others.
      for (const request of held) this.#settle('release', request);
    }
  }

  /** The granted request, or the conflict: a claim in progress counts before a handled one, as it may still be released. */
  async #claimStep(step: ClaimStep): Promise<ClaimRequest | Conflict> {
    let conflict: Conflict | undefined;
    for (const request of step.requests) {
      const result = await this.#parts.store.claim(request);
      if (result.state === 'new' || (step.of === 'kind' && result.fingerprint === step.fingerprint)) return request;
      if (conflict?.state !== 'in-progress') conflict = { ...result, step };
    }
    if (conflict === undefined) throw new Error('a step has no requests');
    return conflict;
  }

  /** A 2xx needs the proof that this very event was handled: what an attacker can write or use up proves nothing. */
  #concludeHandled(found: HandledConflict): Refusal | Promise<ClaimReply> {
    const { onEvent, stored } = this.#parts;
    const verdict = this.#judge(found);
    if (verdict === 'kinds-exhausted') {
      onEvent('kinds_exhausted');
      const detail = `its content was handled under other kinds, as many as dedup.maxKinds allows (${this.#options.maxKinds}): list the kinds of the sender in webhook.kinds`;
      return refuse('event_conflict', 'kinds_exhausted', detail);
    }
    if (verdict === 'other-request' || verdict === 'other-content')
      return refuse('event_conflict', 'id_reused', this.#explain(found, verdict));
    if (verdict === 'replayed' && this.#options.repeatsBytes)
      return refuse('event_conflict', 'replayed_under_new_id', this.#explainReplay());
    if (stored !== undefined) return this.#repeat(stored, found, verdict);
    onEvent('duplicate');
    return this.#acknowledge(verdict);
  }

  async #repeat(
    { clock, storedFor, toId, repeat }: StoredDeliveries,
    { fingerprint }: HandledConflict,
    verdict: Verdict,
  ): Promise<ClaimReply> {
    const accepted = splitFingerprint(fingerprint);
    const isYoung = clock.now() - accepted.acceptedAt < Math.min(accepted.storedFor, storedFor ?? 0);
    const id = toId(this.#event, this.#head, accepted.requestId);
    // Another delivery that counts as a repetition may never have been stored: an attacker can vary what the comparison leaves out.
    const isStored = id !== undefined && toIdFingerprint(id) === accepted.queuedAs;
    const result = id === undefined ? 'known' : await repeat(id, isYoung && isStored ? accepted.acceptedAt : undefined);
    this.#parts.onEvent(result === 'lost' ? 'new' : 'duplicate');
    if (result === 'known') return this.#acknowledge(verdict);
    // The ID stays confirmed: the queue stores the event once, however many repetitions arrive.
    return result === 'lost' ? { claim: NOTHING_TO_SETTLE, isStale: false, isUnchecked: false } : result;
  }

  #acknowledge(verdict: Verdict): Refusal {
    if (verdict === 'reused')
      return acknowledge(
        { state: 'handled', isSameEvent: true, reason: 'id_reused' },
        'the content differs from that of the event which was handled under this ID: does id name the ID of an event, or that of an object?',
      );
    if (verdict !== 'replayed') return acknowledge({ state: 'handled', isSameEvent: true, reason: 'duplicate' });
    return acknowledge({ state: 'handled', isSameEvent: true, reason: 'replayed_under_new_id' }, this.#explainReplay());
  }

  /** The ID of the first delivery is not known here, so only this text names what to forget for an intended redelivery. */
  #explainReplay(): string {
    const { digest = '' } = this.#event;
    const hint = this.#options.repeatsBytes ? ', or set dedup.unsignedId: trust if the sender sends equal events' : '';
    return `already handled under another id; to forward it again, forget the id ${toDigestId(digest)}${hint}`;
  }

  #explain({ step }: HandledConflict, verdict: 'other-request' | 'other-content'): string {
    if (verdict === 'other-request')
      return 'the event was handled with another method, path, query, media type, kind or header, which are not signed; to forward this one, forget its ID';
    return (step ?? this.#steps[0])?.of === 'unsigned-id'
      ? 'an event with other content was handled under this ID, which is not signed; to forward this one, forget the ID'
      : 'another body with the same signature, which does not cover all of it, was handled, or the same body under another ID';
  }

  #judge({ fingerprint, step = this.#steps[0] }: Conflict): Verdict {
    if (step === undefined || step.of === 'kind') return 'kinds-exhausted';
    const [seen, own] = [splitFingerprint(fingerprint), splitFingerprint(step.fingerprint)];
    if (seen.request !== own.request) return 'other-request';
    if (seen.content === own.content) return 'repeated';
    if (step.of === 'unsigned-id' || this.#event.openContent !== undefined) return 'other-content';
    return step.of === 'digest' ? 'replayed' : 'reused';
  }

  #toClaim(held: readonly ClaimRequest[]): Claim {
    return new SettledClaim((how) => {
      if (how === 'hold') this.#parts.onEvent('held');
      else for (const request of held) this.#settle(how, request);
    });
  }

  #settle(kind: IdSettlement['kind'], { key, token, fingerprint }: ClaimRequest): void {
    const { clock, settlements } = this.#parts;
    const { retention, lease } = this.#options;
    const mootAt = clock.monotonic() + (kind === 'confirm' ? retention : lease);
    settlements.settle({ of: 'id', kind, key, token, fingerprint, retention, mootAt });
  }
}

/**
 * Claims by the id if the signature covers it. If not, first by the digest of what was signed: an attacker with a valid delivery
 * could give it another id. The entry of the id stores the digest, so that forgetting the id clears both; if the digest differs in
 * each attempt, what lasts is compared in its place, so that a retry is recognized.
 */
function toSteps(options: DedupOptions, head: ParsedHead, event: VerifiedEvent, stored: StoredDeliveries | undefined): Steps {
  const { route, lease, unsignedId, repeatsBytes } = options;
  const { id, digest, contentDigest } = event;
  const toStep = (of: ClaimStep['of'], fingerprint: string, ...keys: string[]): ClaimStep => ({
    of,
    fingerprint,
    requests: keys.map((key) => ({ key, fingerprint, token: head.requestId, leaseMs: lease })),
  });
  if (id === undefined) return [];
  const request = toRequestFingerprint(head, event);
  const queuedAs = stored?.storedFor === undefined ? '' : toIdFingerprint(stored.toId(event, head, head.requestId) ?? '');
  const join = (content: string, signed?: string): string => {
    const joined = joinFingerprint(request, content, signed);
    if (stored?.storedFor === undefined) return joined;
    const { clock, storedFor } = stored;
    return markStored(joined, { acceptedAt: clock.now(), storedFor, queuedAs, requestId: head.requestId });
  };
  const open = event.openContent === undefined ? undefined : toBodyFingerprint(event.openContent);
  if (digest === undefined) return [toStep('signed-id', join(open ?? toContentFingerprint(event.body)), toKey(route, id))];
  const byId = toStep('unsigned-id', join(toEventFingerprint(event, digest), digest), toKey(route, id));
  const hasOwnId = id !== toDigestId(digest);
  if (hasOwnId && unsignedId === 'trust') return [byId];
  // Of bytes that may repeat, only the same ID proves that it is the same event.
  const content = open === undefined || (repeatsBytes && hasOwnId) ? `${open ?? ''}${toIdFingerprint(id)}` : open;
  const byDigest = toStep('digest', join(content), toDigestKey(route, digest));
  const slots = contentDigest === undefined ? [] : toKindKeys(options, contentDigest);
  return [byDigest, ...(slots.length > 0 ? [toStep('kind', digest, ...slots)] : []), ...(hasOwnId ? [byId] : [])];
}

function toAll(steps: Steps): ClaimRequest[] {
  return steps.flatMap(({ requests }) => requests);
}

/** Each kind needs its own slot, and slots are limited: an attacker can invent kinds for captured content. */
function toKindKeys({ route, maxKinds = 0 }: DedupOptions, contentDigest: string): string[] {
  return Array.from({ length: maxKinds }, (_, at) => toKindKey(route, contentDigest, at + 1));
}

// Builds the store keys of events and resources: short, and readable where that is safe. Also clears events from the store.

/** Longer names are hashed, so that senders cannot make keys long; so are names that cannot be printed. */
const PLAIN = /^[\x21-\x7e]{1,64}$/;
const FINGERPRINT_LENGTH = 16;
const RADIX = 36;
/** The output of `toDigestId`. */
const DIGEST_ID = /^sha256-([A-Za-z0-9_-]{16,43})$/;

/** The key of the signed content, for signatures that do not cover the id. */
export function toDigestKey(route: string, digest: string): string {
  return `${route}:d:${digest}`;
}

/** The key of one of the kinds that the same signed content may be delivered under; `slot` is counted from 1. */
function toKindKey(route: string, contentDigest: string, slot: number): string {
  return `${route}:k${slot}:${contentDigest}`;
}

/** The key of a resource; `sequence`: digits that say which versions can be compared. */
export function toResourceKey(route: string, sequence: string, name: string): string {
  return toKey(`${route}:o${sequence}`, name);
}

/** A short hash that distinguishes ids; has no spaces. */
export function toIdFingerprint(id: string): string {
  return hash('sha256', id, 'base64url').slice(0, FINGERPRINT_LENGTH);
}

/**
 * Distinguishes the contents that a sender signed with the same id; has no spaces. It decides only what is counted, so a checksum will
 * do: SHA-256 would take as much CPU as the signature.
 */
export function toContentFingerprint(content: Buffer): string {
  return `${content.length.toString(RADIX)}-${crc32(content).toString(RADIX)}`;
}

/**
 * The last words of the headers by which senders say what an event is and where it is from. Other headers, such as counters of retries,
 * can differ in a retry, so that not all of them can be compared.
 */
const TELLING =
  /(?:^|[^a-z0-9])(?:event|topic|type|action|kind|operation|resource|source|project|dataset|domain|environment|subject|event[^a-z0-9]key|(?:event|source|webhook)[^a-z0-9]name)$/;
/** Where a proxy found the app. */
const FORWARDED = /^x[^a-z0-9]forwarded[^a-z0-9](?:host|prefix)$/;
/** A host that is an address, perhaps with a port: it selects no virtual host, and a retry at another replica has another one. */
const ADDRESS = /^(?:[0-9.]+|\[[0-9a-f:.]+\])(?::[0-9]{0,5})?$/i;

/**
 * Distinguishes requests by what few signatures cover and apps read: the method, the path with the query, the host, the media type, and
 * headers that name the event. It is made of what the app gets.
 */
export function toRequestFingerprint({ method, target, headers, client }: ComparedHead, { openHead }: VerifiedEvent): string {
  const isTrusted = client.viaTrustedProxy || client.viaIdentityProxy;
  const isPlace = (name: string): boolean => name === 'host' || (isTrusted && FORWARDED.test(name));
  const fields = listForwarded(headers, (name) => isPlace(name) || isTelling(name));
  for (const field of fields) if (isPlace(field[0]) && ADDRESS.test(field[1])) field[1] = '';
  const type = toComparedType(headers.all('content-type'));
  return toIdFingerprint(JSON.stringify([method, openHead ?? target.raw, client.scheme, type, fields]));
}

function isTelling(name: string): boolean {
  return TELLING.test(name) && name !== 'content-type';
}

/** The part of a head that identifies an event. */
type ComparedHead = Pick<ParsedHead, 'method' | 'target' | 'headers' | 'client'>;

/** Distinguishes contents, so that no two are taken for each other. */
export function toBodyFingerprint(content: Buffer): string {
  return hash('sha256', content, 'base64url').slice(0, FINGERPRINT_LENGTH);
}

/** Distinguishes the events that may share an unsigned ID, with a digest of what was signed. */
export function toEventFingerprint({ openContent, lastingContent }: VerifiedEvent, digest: string): string {
  if (lastingContent !== undefined) return toBodyFingerprint(lastingContent);
  return openContent === undefined ? digest : `${toBodyFingerprint(openContent)}${digest}`;
}

/** The value stored with a key, without spaces: what is compared, and at the end the digest, by which `forgetEvent` clears that key as well. */
function joinFingerprint(request: string, content: string, digest: string = content): string {
  return (digest === content ? [request, content] : [request, content, digest]).join('.');
}

/** How a delivery was accepted that is stored before the app handles it. Later settings of the config do not say that. */
interface Acceptance {
  readonly acceptedAt: EpochMilliseconds;
  /** How long it is certainly stored. */
  readonly storedFor: Milliseconds;
  /** The fingerprint of the ID under which it is stored. */
  readonly queuedAs: string;
  readonly requestId: string;
}

/** Adds how the delivery was accepted. A template would keep the parts beside the text, for as long as the ID is known. */
function markStored(fingerprint: string, { acceptedAt, storedFor, queuedAs, requestId }: Acceptance): string {
  return [acceptedAt.toString(RADIX), storedFor, queuedAs, requestId, fingerprint].join('~');
}

/** The parts that are compared, and what `markStored` added: no request and zeros if the app handled it before the response. */
function splitFingerprint(fingerprint: string) {
  const [joined = '', requestId, queuedAs, storedFor = '0', acceptedAt = '0'] = fingerprint.split('~').reverse();
  const [request, content] = joined.split('.');
  const times = { storedFor: Number(storedFor), acceptedAt: Number.parseInt(acceptedAt, RADIX) };
  return { request, content, requestId, queuedAs, ...times };
}

/** The tags `i`, `h` and `d` prevent collisions between the forms of keys. */
export function toKey(group: string, name: string): string {
  return PLAIN.test(name) ? `${group}:i:${name}` : `${group}:h:${hash('sha256', name, 'base64url')}`;
}

/**
 * Clears one event, so that its next valid delivery is forwarded: the id, and the digest that was recorded with it.
 * Rejects with StoreUnavailable; if only the digest remains, the message says how to clear it.
 */
export async function forgetEvent(store: SeenIds, route: string, id: string): Promise<Forgotten['was']> {
  const byId = await store.forget(toKey(route, id));
  const digest = byId.fingerprint?.split('.').at(-1) ?? DIGEST_ID.exec(id)?.[1];
  if (digest === undefined) return byId.was;
  const byDigest = await forgetDigest(store, route, digest, byId.was);
  return byId.was === 'absent' ? byDigest : byId.was;
}

async function forgetDigest(store: SeenIds, route: string, digest: string, was: Forgotten['was']): Promise<Forgotten['was']> {
  try {
    return (await store.forget(toDigestKey(route, digest))).was;
  } catch (thrown) {
    if (!(thrown instanceof StoreUnavailable) || was === 'absent') throw thrown;
    // The id's entry, which named the digest, is gone: without this message nobody would know which digest to clear.
    const message = `${thrown.message}; the id was cleared, but not the digest of its content: forget the id ${toDigestId(digest)} as well`;
    throw new StoreUnavailable(thrown.failure, message, { cause: thrown });
  }
}
