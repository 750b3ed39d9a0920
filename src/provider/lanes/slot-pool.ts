/**
 * Bounds the attempts in flight over all endpoints, so that endpoints that do not respond, or respond slowly, cannot use up what the others
 * need. A young attempt has a fast slot. Once it is older than a second and others wait, it becomes a slow one. Attempts to endpoints that are
 * away, or whose attempts took longer than a second, are slow from the start. If there are several tenants, none holds more slots, slow ones, or bytes,
 * than are free. The fewer are free, the more recently an endpoint must have responded quickly to get one: many can become slow at once.
 */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { type LinePlace, type MemoryBudget, TenantParts, type Waiting, WaitLine } from '../../core/throttle.ts';
import type { Health } from './lane-state.ts';

/** An attempt that takes longer is slow. */
const MAX_QUICK_MS: Milliseconds = 1_000;
/** So many quick attempts in a row, and an endpoint no longer counts as slow: one that is slow now and then would otherwise change all the time. */
const QUICK_AFTER = 5;
/** Older attempts do not count. */
const MAX_SPEED_AGE_MS: Milliseconds = 60_000;

export type SlotFigures = SlotPool['figures'];

/** `slow`: attempts to it took longer than a second. */
export type SlotKind = Health | 'slow';

export interface SlotRequest {
  readonly endpoint: string;
  readonly tenant?: string | undefined;
  readonly kind: SlotKind;
  /** Its last attempt succeeded. */
  readonly isWell?: boolean;
  /** Memory of the delivery, which the slot takes over from the caller and gives back to the budget. */
  readonly bytes: number;
}

/** The right to have one attempt in flight. */
export interface Slot {
  readonly bytes: number;
  /** The attempt ended: the time that it took counts. */
  end(): void;
  /** Without an attempt. Calling one of both twice does nothing. */
  release(): void;
}

export interface SlotLimits {
  /** Fast slots. */
  readonly maxConcurrency: number;
  /** All slots. */
  readonly maxConnections: number;
  /** Of the deliveries of slow attempts. */
  readonly maxSlowBytes: number;
}

/** `slow`: it has an idle fast slot. */
type FastKind = Exclude<SlotKind, 'away' | 'failing'>;
const isQuick = (kind: SlotKind): kind is 'proven' | 'unproven' => kind === 'proven' || kind === 'unproven';
/** In the order in which attempts become slow. */
const FAST_KINDS: readonly FastKind[] = ['slow', 'unproven', 'proven'];
/** After this, a slot is given to the next one that waits, and the attempt counts as slow. */
const MAX_FAST_AGE_MS: Readonly<Record<FastKind, Milliseconds>> = { proven: MAX_QUICK_MS, unproven: 100, slow: 0 };
/** Slow and failing endpoints leave the rest of the slow slots to attempts of other endpoints. */
const SLOW_SHARE = 0.75;
/** Of the fast slots: while fewer are in use, slow endpoints that are well may have one. */
const IDLE_SHARE = 0.25;
/**
 * Of all slots: once fewer are free, endpoints get one only if they responded quickly in the last minute, or since the oldest attempt in flight began.
 * With half of these, in the last 30 s, or since half of the attempts began; and so on. Slow and failing endpoints leave so many anyway.
 */
const SCARCE_SHARE: Readonly<Record<SlotKind, number>> = { unproven: 0.25, proven: 0.125, slow: 0, away: 0, failing: 0 };
/** Of the fast slots: while more attempts are slow, the order of those that wait is another one. */
const MANY_SLOW_SHARE = 0.25;
/** Endpoints without a success leave the rest of the fast slots to proven ones: many can be new and dead at once. */
const UNPROVEN_SHARE = 0.75;
/** Of all slots: so many lanes may wait for a slot of one kind, half of them if they may not have one yet; further ones are returned. */
const WAITING_SHARE = 0.25;

interface HeldSlot extends SlotRequest {
  readonly startedAt: Milliseconds;
  /** Its bytes count as those of slow attempts. */
  isSlow: boolean;
  /** Its endpoint counts as slow for it. */
  isNoted: boolean;
}

export class SlotPool {
  readonly #clock: Clock;
  readonly #budget: MemoryBudget;
  readonly #most;
  readonly #speeds: EndpointSpeeds;
  /** Oldest first. */
  readonly #held = new Set<HeldSlot>();
  readonly #fast = { slow: new Set<HeldSlot>(), unproven: new Set<HeldSlot>(), proven: new Set<HeldSlot>() };
  readonly #parts = new TenantParts();
  /** Of those that are not fast. */
  readonly #slowSlots = new TenantParts();
  /** The results of `#toQuickSince` until a slot is given or returned. */
  readonly #quickSince = new Map<number, Milliseconds>();
  readonly #slowParts = new TenantParts();
  readonly #lines: Readonly<Record<SlotKind, WaitLine<SlotRequest, Slot>>>;
  #isFirstNext = true;
  /** The next kind to be admitted first. */
  readonly #turns: readonly SlotKind[][] = [
    ['unproven', 'proven'],
    ['slow', 'away', 'failing'],
  ];
  #cancelTimer: CancelTimer | undefined;

  constructor({ maxConcurrency, maxConnections, maxSlowBytes }: SlotLimits, budget: MemoryBudget, clock: Clock) {
    this.#clock = clock;
    this.#budget = budget;
    const slow = Math.max(1, maxConnections - maxConcurrency);
    this.#most = {
      fast: maxConcurrency,
      slow,
      all: maxConcurrency + slow,
      slowBytes: maxSlowBytes,
      ofSlow: Math.ceil(slow * SLOW_SHARE),
      unproven: Math.ceil(maxConcurrency * UNPROVEN_SHARE),
      idle: Math.floor(maxConcurrency * IDLE_SHARE),
      waiting: Math.ceil(maxConnections * WAITING_SHARE),
    };
    this.#speeds = new EndpointSpeeds(clock);
    const line = () => new WaitLine<SlotRequest, Slot>(clock);
    this.#lines = { proven: line(), unproven: line(), slow: line(), away: line(), failing: line() };
  }

  get figures() {
    const waiting = Object.values(this.#lines).reduce((sum, { length }) => sum + length, 0);
    return { fast: this.#fastCount, slow: this.#slow, waiting };
  }

  /** Which slots the endpoint gets. */
  toKind(endpoint: string, health: Health): SlotKind {
    this.#noteSlow();
    return health !== 'failing' && health !== 'away' && this.#speeds.isSlow(endpoint) ? 'slow' : health;
  }

  /** A slot, if there is one and nobody waits for one of the same kind. */
  take(request: SlotRequest): Slot | undefined {
    return this.#lines[request.kind].length === 0 ? this.#hold(request) : undefined;
  }

  /**
   * Waits for a slot: tenants take turns, and their callers go in order. While many attempts are slow, the one whose endpoint responded quickly
   * most recently has every other slot: most of those that wait are slow, too, and not yet known to be.
   */
  wait(request: SlotRequest, atMost?: Milliseconds): Waiting<Slot> {
    const waiting = this.#lines[request.kind].join(request, request.tenant, atMost);
    this.#admit();
    return waiting;
  }

  /** So many lanes wait for such a slot that this one should not: those that wait hold lanes that others need. */
  isCrowded(request: SlotRequest): boolean {
    const mayHold = this.#mayHold(request);
    if (mayHold && request.kind === 'proven') return false;
    return this.#lines[request.kind].length >= this.#most.waiting * (mayHold ? 1 : 0.5);
  }

  /** Waits for memory of the budget; tenants take turns. Old attempts become slow for it, too: their deliveries then no longer count. */
  waitForMemory(request: Parameters<MemoryBudget['wait']>[0]): Waiting<number> {
    const waiting = this.#budget.wait(request);
    this.#admit();
    return waiting;
  }

  get #fastCount(): number {
    return this.#held.size - this.#slow;
  }

  get #slow(): number {
    return this.#slowSlots.sum;
  }

  get #free(): number {
    return this.#most.all - this.#held.size;
  }

  #hold(request: SlotRequest): Slot | undefined {
    const isFree = this.#mayHold(request) && (!isQuick(request.kind) || this.#makeRoom(request.kind));
    return isFree ? this.#holdNow(request) : undefined;
  }

  /** A tenant never holds more slots, slow ones, or bytes of slow attempts, than it leaves. While few are free, only endpoints that responded quickly of late may hold one. */
  #mayHold(request: SlotRequest): boolean {
    const { kind, endpoint, tenant = '', isWell = false } = request;
    // In an idle slot, it becomes slow as soon as another attempt needs that one, and the tenant may have a slow one.
    const hasSlot = this.#hasSlow(request) || (kind === 'slow' && isWell && this.#fastCount < this.#most.idle);
    if (this.#parts.most(tenant, 1, this.#free) < 1) return false;
    if (!isQuick(kind) && !(this.#fitsSlow(request, SLOW_SHARE) && hasSlot)) return false;
    // Half of the last slots are for tenants without one: their endpoints may seldom have events.
    const share = this.#parts.of(tenant) === 0 && kind === 'proven' ? SCARCE_SHARE.proven / 2 : SCARCE_SHARE[kind];
    return this.#speeds.quickAt(endpoint) >= this.#toQuickSince(share);
  }

  /** Since when an endpoint must have responded quickly to get a slot; `share`: of the slots, for which it need not. */
  #toQuickSince(share: number): Milliseconds {
    const scarce = this.#most.all * share;
    if (this.#free >= scarce) return Number.NEGATIVE_INFINITY;
    const known = this.#quickSince.get(share);
    if (known !== undefined) return known;
    const older = Math.floor(this.#held.size * (1 - this.#free / scarce));
    const begun = [...this.#held][older]?.startedAt ?? Number.POSITIVE_INFINITY;
    const since = Math.min(begun, this.#clock.monotonic() - (MAX_SPEED_AGE_MS * this.#free) / scarce);
    this.#quickSince.set(share, since);
    return since;
  }

  /** Whether there is a slow slot for a slow endpoint of the tenant. */
  #hasSlow({ tenant = '' }: SlotRequest): boolean {
    return this.#slowSlots.most(tenant, 1, this.#most.ofSlow - this.#slow) >= 1;
  }

  #makeRoom(kind: FastKind): boolean {
    if (kind === 'unproven' && this.#fast.unproven.size >= this.#most.unproven && !this.#ageOne(['unproven'])) return false;
    return this.#fastCount < this.#most.fast || this.#ageOne(FAST_KINDS);
  }

  /** One of any size always fits. */
  #fitsSlow({ bytes, tenant = '' }: SlotRequest, share = 1): boolean {
    const most = this.#slowParts.most(tenant, bytes, share * this.#most.slowBytes - this.#slowParts.sum);
    return this.#slow === 0 || most >= 1;
  }

  #holdNow(request: SlotRequest): Slot {
    const { kind, tenant = '' } = request;
    const held = { ...request, startedAt: this.#clock.monotonic(), isSlow: false, isNoted: false };
    if (isQuick(kind)) this.#fast[kind].add(held);
    else if (this.#hasSlow(request)) this.#slowSlots.add(tenant, 1);
    else this.#fast.slow.add(held);
    if (!isQuick(kind)) this.#makeSlow(held);
    this.#held.add(held);
    this.#quickSince.clear();
    this.#parts.add(tenant, 1);
    const end = (): void => {
      if (this.#held.has(held)) this.#speeds.note(held.endpoint, this.#clock.monotonic() - held.startedAt);
      this.#release(held);
    };
    return { bytes: held.bytes, end, release: () => this.#release(held) };
  }

  /** Endpoints count as slow as soon as an attempt is. */
  #noteSlow(): void {
    const now = this.#clock.monotonic();
    for (const held of this.#fast.proven) {
      if (now - held.startedAt < MAX_QUICK_MS) break;
      this.#noteOne(held, now);
    }
  }

  #noteOne(held: HeldSlot, now: Milliseconds): void {
    if (!held.isNoted) this.#speeds.note(held.endpoint, now - held.startedAt);
    held.isNoted = true;
  }

  #makeSlow(held: HeldSlot): void {
    held.isSlow = true;
    this.#slowParts.add(held.tenant ?? '', held.bytes);
    this.#budget.release(held.bytes, held.tenant);
  }

  #release(held: HeldSlot): void {
    if (!this.#held.delete(held)) return;
    const { bytes, tenant = '' } = held;
    this.#quickSince.clear();
    this.#parts.add(tenant, -1);
    if (!FAST_KINDS.some((kind) => this.#fast[kind].delete(held))) this.#slowSlots.add(tenant, -1);
    if (held.isSlow) this.#slowParts.add(tenant, -bytes);
    else this.#budget.release(bytes, tenant);
    this.#admit();
  }

  /** Makes the oldest fast attempt a slow one, if it is old enough. Its bytes stay in the budget if they do not fit; `forBytes`: not of such a one. */
  #ageOne(kinds: readonly FastKind[], forBytes = false): boolean {
    const old = this.#slow < this.#most.slow ? this.#findOld(kinds, forBytes) : undefined;
    if (old === undefined) return false;
    const fits = !old.isSlow && this.#fitsSlow(old);
    if (old.kind === 'proven') this.#noteOne(old, this.#clock.monotonic());
    for (const kind of kinds) this.#fast[kind].delete(old);
    this.#slowSlots.add(old.tenant ?? '', 1);
    if (fits) this.#makeSlow(old);
    return true;
  }

  #findOld(kinds: readonly FastKind[], forBytes: boolean): HeldSlot | undefined {
    const now = this.#clock.monotonic();
    for (const kind of kinds)
      for (const held of this.#fast[kind]) {
        if (now - held.startedAt < MAX_FAST_AGE_MS[kind]) break;
        if (kind === 'slow' ? !forBytes && this.#hasSlow(held) : !forBytes || this.#fitsSlow(held)) return held;
      }
    return undefined;
  }

  #admit(): void {
    while (this.#budget.waiting > 0) if (!this.#ageOne(FAST_KINDS, true)) break;
    // In turns, so that no kind waits permanently.
    for (const kinds of this.#turns) {
      for (let at = 0; at < kinds.length; at++) {
        const kind = kinds[at] as SlotKind;
        if (!this.#admitOne(kind)) continue;
        // The next slot is for another kind.
        kinds.push(...kinds.splice(at, 1));
        at = -1;
      }
    }
    this.#setTimer();
  }

  #admitOne(kind: SlotKind): boolean {
    const [first, quickest] = this.#findNext(kind);
    for (const place of this.#isFirstNext ? [first, quickest] : [quickest, first]) {
      const slot = place && this.#hold(place.request);
      if (slot === undefined) continue;
      this.#isFirstNext = !this.#isFirstNext;
      place?.end(slot);
      return true;
    }
    return false;
  }

  /** Of those that may hold a slot: the first one, and, while many attempts are slow, the one whose endpoint responded quickly most recently. */
  #findNext(kind: SlotKind): readonly (LinePlace<SlotRequest, Slot> | undefined)[] {
    let [first, quickest]: (LinePlace<SlotRequest, Slot> | undefined)[] = [];
    let latest = Number.NEGATIVE_INFINITY;
    for (const place of this.#lines[kind].places) {
      if (!this.#mayHold(place.request)) continue;
      first ??= place;
      if (this.#slow < this.#most.fast * MANY_SLOW_SHARE) break;
      const at = this.#speeds.quickAt(place.request.endpoint);
      if (at > latest) [quickest, latest] = [place, at];
    }
    return [first, quickest];
  }

  /** For the moment when the next fast attempt becomes slow. Without a timer while nobody waits: attempts are mostly faster than that. */
  #setTimer(): void {
    if (this.#cancelTimer !== undefined || this.#slow >= this.#most.slow) return;
    if (this.#lines.proven.length + this.#lines.unproven.length + this.#budget.waiting === 0) return;
    const now = this.#clock.monotonic();
    const delays = FAST_KINDS.flatMap((kind) =>
      [...this.#fast[kind]].map(({ startedAt }) => startedAt + MAX_FAST_AGE_MS[kind] - now).filter((delay) => delay > 0),
    );
    // An older one that stayed fast has a chance when a slow one ends.
    if (delays.length === 0) return;
    this.#cancelTimer = this.#clock.after(Math.ceil(Math.min(...delays)), () => {
      this.#cancelTimer = undefined;
      this.#admit();
    });
  }
}

interface Speed {
  /** When an attempt last ended, or became slow. */
  readonly at: Milliseconds;
  readonly quickAt: Milliseconds;
  /** Quick attempts until it no longer counts as slow. */
  readonly slowFor: number;
}

/** How fast the endpoints responded lately, as far as this process knows. */
class EndpointSpeeds {
  readonly #clock: Clock;
  /** The oldest first. */
  readonly #speeds = new Map<string, Speed>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** An attempt ended, or is older than `MAX_QUICK_MS`. */
  note(endpoint: string, took: Milliseconds): void {
    const at = this.#clock.monotonic();
    const { quickAt, slowFor } = this.#speeds.get(endpoint) ?? { quickAt: Number.NEGATIVE_INFINITY, slowFor: 0 };
    this.#speeds.delete(endpoint);
    const [quick, slow] = [
      { at, quickAt: at, slowFor: Math.max(0, slowFor - 1) },
      { at, quickAt, slowFor: QUICK_AFTER },
    ];
    this.#speeds.set(endpoint, took < MAX_QUICK_MS ? quick : slow);
    for (const [oldest, speed] of this.#speeds) {
      if (speed.at >= at - MAX_SPEED_AGE_MS) break;
      this.#speeds.delete(oldest);
    }
  }

  isSlow(endpoint: string): boolean {
    return (this.#speeds.get(endpoint)?.slowFor ?? 0) > 0;
  }

  /** When an attempt last was quick. */
  quickAt(endpoint: string): Milliseconds {
    return this.#speeds.get(endpoint)?.quickAt ?? Number.NEGATIVE_INFINITY;
  }
}
