/**
 * Bounds the attempts in flight over all endpoints, so that endpoints that do not respond cannot use up what the others need. A young attempt
 * has a fast slot. Once it is older than a second and others wait, it becomes a slow one. Attempts to failing endpoints are slow from the start.
 */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import type { Health } from './lane-state.ts';
import type { MemoryBudget } from './memory-budget.ts';
import { type Waiting, WaitLine } from './wait-line.ts';

/** Attempts in flight. */
export interface SlotFigures {
  readonly fast: number;
  readonly slow: number;
  /** Lanes that wait for a slot. */
  readonly waiting: number;
}

/** The purpose of a slot. */
export interface SlotRequest {
  readonly health: Health;
  /** Memory of the delivery, which the slot takes over from the caller and gives back to the budget. */
  readonly bytes: number;
}

/** The right to have one attempt in flight. */
export interface Slot {
  readonly bytes: number;
  /** Calling it twice does nothing. */
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

type FastHealth = Exclude<Health, 'failing'>;
/** In the order in which attempts become slow. */
const FAST_HEALTHS: readonly FastHealth[] = ['unproven', 'proven'];
/** After this, a slot is given to the next one that waits, and the attempt counts as slow. */
const MAX_FAST_AGE_MS: Readonly<Record<FastHealth, Milliseconds>> = { proven: 1_000, unproven: 100 };
/** Failing endpoints leave the rest of the slow slots to attempts of other endpoints. */
const FAILING_SHARE = 0.75;
/** Endpoints without a success leave the rest of the fast slots to proven ones: many can be new and dead at once. */
const UNPROVEN_SHARE = 0.75;
/** Of all slots: so many lanes may wait for a slot of one kind; further ones are returned. */
const WAITING_SHARE = 0.25;

interface HeldSlot extends SlotRequest {
  readonly startedAt: Milliseconds;
  isSlow: boolean;
  isReleased: boolean;
}

export class SlotPool {
  readonly #clock: Clock;
  readonly #budget: MemoryBudget;
  readonly #maxFast: number;
  readonly #maxSlow: number;
  readonly #maxSlowBytes: number;
  readonly #maxFailing: number;
  readonly #maxUnproven: number;
  readonly #maxWaiting: number;
  /** Oldest first. */
  readonly #fast = { proven: new Set<HeldSlot>(), unproven: new Set<HeldSlot>() };
  #slow = 0;
  #slowBytes = 0;
  readonly #lines: Readonly<Record<Health, WaitLine<SlotRequest, Slot>>>;
  #cancelTimer: CancelTimer | undefined;

  constructor({ maxConcurrency, maxConnections, maxSlowBytes }: SlotLimits, budget: MemoryBudget, clock: Clock) {
    this.#clock = clock;
    this.#budget = budget;
    this.#maxFast = maxConcurrency;
    this.#maxSlowBytes = maxSlowBytes;
    this.#maxSlow = Math.max(1, maxConnections - maxConcurrency);
    this.#maxFailing = Math.ceil(this.#maxSlow * FAILING_SHARE);
    this.#maxUnproven = Math.ceil(maxConcurrency * UNPROVEN_SHARE);
    this.#maxWaiting = Math.ceil(maxConnections * WAITING_SHARE);
    this.#lines = { proven: new WaitLine(clock), unproven: new WaitLine(clock), failing: new WaitLine(clock) };
  }

  get figures(): SlotFigures {
    const { proven, unproven, failing } = this.#lines;
    return { fast: this.#fastCount, slow: this.#slow, waiting: proven.length + unproven.length + failing.length };
  }

  /** A slot, if there is one and nobody waits for one of the same kind. */
  take(request: SlotRequest): Slot | undefined {
    return this.#lines[request.health].length === 0 ? this.#hold(request) : undefined;
  }

  /** Waits for a slot, in the order of calls. */
  wait(request: SlotRequest, atMost?: Milliseconds): Waiting<Slot> {
    const waiting = this.#lines[request.health].join(request, atMost);
    this.#admit();
    return waiting;
  }

  /** So many lanes wait for such a slot that one more should not: those that wait hold lanes that others need. */
  isCrowded(health: Health): boolean {
    return this.#lines[health].length >= this.#maxWaiting;
  }

  /** Waits for memory of the budget. Old attempts become slow for it, too: their deliveries then no longer count. */
  waitForMemory(deliveries: number, atMost?: Milliseconds): Waiting<number> {
    const waiting = this.#budget.wait(deliveries, atMost);
    this.#admit();
    return waiting;
  }

  get #fastCount(): number {
    return this.#fast.proven.size + this.#fast.unproven.size;
  }

  #hold({ health, bytes }: SlotRequest): Slot | undefined {
    const isFailing = health === 'failing';
    const hasRoom = isFailing ? this.#slow < this.#maxFailing && this.#fitsSlow(bytes, FAILING_SHARE) : this.#makeRoom(health);
    if (!hasRoom) return undefined;
    const held: HeldSlot = { health, bytes, startedAt: this.#clock.monotonic(), isSlow: false, isReleased: false };
    if (isFailing) this.#makeSlow(held);
    else this.#fast[health].add(held);
    return { bytes, release: () => this.#release(held) };
  }

  #makeRoom(health: FastHealth): boolean {
    if (health === 'unproven' && this.#fast.unproven.size >= this.#maxUnproven && !this.#ageOne(['unproven'])) return false;
    return this.#fastCount < this.#maxFast || this.#ageOne(FAST_HEALTHS);
  }

  /** One of any size always fits. */
  #fitsSlow(bytes: number, share = 1): boolean {
    return this.#slow === 0 || this.#slowBytes + bytes <= share * this.#maxSlowBytes;
  }

  #makeSlow(held: HeldSlot): void {
    held.isSlow = true;
    this.#slow++;
    this.#slowBytes += held.bytes;
    this.#budget.release(held.bytes);
  }

  #release(held: HeldSlot): void {
    if (held.isReleased) return;
    held.isReleased = true;
    if (held.isSlow) {
      this.#slow--;
      this.#slowBytes -= held.bytes;
    } else {
      this.#fast.proven.delete(held);
      this.#fast.unproven.delete(held);
      this.#budget.release(held.bytes);
    }
    this.#admit();
  }

  /** Makes the oldest fast attempt a slow one, if it is old enough. */
  #ageOne(healths: readonly FastHealth[]): boolean {
    if (this.#slow >= this.#maxSlow) return false;
    const now = this.#clock.monotonic();
    for (const health of healths) {
      for (const held of this.#fast[health]) {
        if (now - held.startedAt < MAX_FAST_AGE_MS[health]) break;
        if (!this.#fitsSlow(held.bytes)) continue;
        this.#fast[health].delete(held);
        this.#makeSlow(held);
        return true;
      }
    }
    return false;
  }

  #admit(): void {
    while (this.#budget.waiting > 0) if (!this.#ageOne(FAST_HEALTHS)) break;
    // In turns, so that neither kind waits permanently.
    for (let isDone = false; !isDone; )
      isDone = FAST_HEALTHS.map((health) => this.#admitOne(health)).every((isAdmitted) => !isAdmitted);
    while (this.#admitOne('failing'));
    this.#setTimer();
  }

  #admitOne(health: Health): boolean {
    const request = this.#lines[health].first;
    const slot = request === undefined ? undefined : this.#hold(request);
    if (slot === undefined) return false;
    this.#lines[health].admit(slot);
    return true;
  }

  /** For the moment when the next fast attempt becomes slow. Without a timer while nobody waits: attempts are mostly faster than that. */
  #setTimer(): void {
    if (this.#cancelTimer !== undefined || this.#slow >= this.#maxSlow) return;
    if (this.#lines.proven.length + this.#lines.unproven.length + this.#budget.waiting === 0) return;
    const now = this.#clock.monotonic();
    const delays = FAST_HEALTHS.flatMap((health) =>
      [...this.#fast[health]].map(({ startedAt }) => startedAt + MAX_FAST_AGE_MS[health] - now).filter((delay) => delay > 0),
    );
    // An older one that stayed fast did not fit; it has a chance when a slow one ends.
    if (delays.length === 0) return;
    this.#cancelTimer = this.#clock.after(Math.ceil(Math.min(...delays)), () => {
      this.#cancelTimer = undefined;
      this.#admit();
    });
  }
}
