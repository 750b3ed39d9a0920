/** Serves one lane for a slice of time: takes due deliveries, starts attempts as the endpoint's state allows, and settles each when it ends. */
import type { CancelTimer, Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { freeChunk } from '../../core/reading.ts';
import { onAbort, runDetached, runNextTurn } from '../../core/safe-events.ts';
import type { Waiting } from '../../core/throttle.ts';
import { type AttemptResult, withJitter } from '../attempt/attempt.ts';
import { type Endpoint, isForTenant, toIdentity } from '../endpoints/endpoint.ts';
import {
  type Delivery,
  FRESH_MS,
  type Lane,
  type LaneAbsence,
  type LaneResult,
  type LaneState,
  type SettledDelivery,
  type TakeOnly,
} from '../queue/delivery-queue.ts';
import { isAbandoned, isAppAway, isReachable, leaveLane, RESERVED_BYTES, takeDue, toAbsence } from './absence.ts';
import { endAttempt, isUnsentToApp, type LaneContext } from './end-attempt.ts';
import {
  isBreakerOpen,
  isSetBack,
  type Limits,
  MAX_BREAKER_PAUSE_MS,
  mayGiveWay,
  takeToken,
  toCurrentState,
  toHealth,
  toLimits,
  toPause,
  toRank,
} from './lane-state.ts';
import type { Slot, SlotRequest } from './slot-pool.ts';

/** No attempt starts later than this after the run began: then other lanes have their turn. */
const SLICE_MS = 5_000;
/** If attempts are still in flight so long after that, the run goes on meanwhile: it has to wait for them anyway. */
const MAX_END_MS = 1_000;
const MAX_SUSPECT_WAIT_MS = 1_000;
/** After so long, the lane of an endpoint that got no slot is served again. */
const RETURN_MS = { proven: 250, unproven: 250, slow: 2_000, away: 2_000, failing: 2_000 } as const;
/** For a token that comes later, the lane is returned. */
const MAX_TOKEN_WAIT_MS = 100;
/** While attempts are in flight, the lane looks so often for deliveries that became due meanwhile; less and less often if there are none. */
const MIN_POLL_MS = 25;
const MAX_POLL_MS = 200;
/** While events hang, the lane looks so often for new events. */
const MIN_FRESH_POLL_MS = 50;
/** A first attempt that is older can give way to one of these, ... */
const MIN_GIVE_WAY_MS = 1_000;
/** ... and so much older, to another one that was not tried yet. */
const MAX_GIVE_WAY_MS = 3_000;
/** Then it ends, although others may be due: each take passes over them. */
const MAX_LEFT = 64;
/** A delivery takes this besides its body and metadata. */
const EXTRA_BYTES = 1_024;

/** Whether to go on, or the result with which the run starts nothing more. */
type Step = 'more' | LaneResult;

interface InFlight {
  readonly delivery: Delivery;
  readonly startedAt: Milliseconds;
  readonly abort: AbortController;
  gaveWay: boolean;
}

export class LaneRun {
  readonly #context: LaneContext;
  readonly #clock: Clock;
  readonly #lane: Lane;
  /** Of what this run holds, also if the config gives the endpoint another one meanwhile. */
  readonly #tenant: string | undefined;
  #endAt: Milliseconds = 0;
  /** Without those that only have to be settled; the oldest first. */
  readonly #attempts = new Set<InFlight>();
  #state: LaneState;
  /** Of replicas that serve deliveries of other tenants, because their config gives the endpoint another one. */
  #absence: LaneAbsence | undefined;
  /** Such deliveries that were taken: they stay due when the run ends. */
  #left = 0;
  /** Taken, and not yet started. */
  readonly #taken: Delivery[] = [];
  /** Started, and not yet durably settled: so a crash repeats at most as many attempts as the endpoint may have at once. */
  #inFlight = 0;
  /** Those of them that are retries, or of failing types. */
  #suspectsInFlight = 0;
  /** Of the next attempt. */
  #slot: Slot | undefined;
  #slotFor: Delivery | undefined;
  #ended: SettledDelivery[] = [];
  /** The last take returned fewer deliveries than asked for. */
  #isDrained = false;
  /** So did the last take of first attempts only. */
  #isDrainedOfFirsts = false;
  /** The endpoint was found to be reachable. */
  #isReachable = false;
  #nextTakeAt: Milliseconds = 0;
  #nextFreshTakeAt: Milliseconds = 0;
  #freshPoll: Milliseconds = MIN_FRESH_POLL_MS;
  #poll: Milliseconds = MIN_POLL_MS;
  /** The endpoint is being disabled, or the lane is left to others. */
  #isEnding = false;
  /** The slice is over: timers can be a little early. */
  #isOver = false;
  #failure: { readonly error: unknown } | undefined;
  /** For a slot or for memory. */
  #waiting: Waiting<unknown> | undefined;
  /** Ends the current wait for a change. */
  #resume: (() => void) | undefined;
  #cancelDrain: CancelTimer | undefined;
  #cancelSlice: CancelTimer | undefined;

  constructor(context: LaneContext, lane: Lane, endpoint: Endpoint) {
    this.#context = context;
    this.#clock = context.clock;
    this.#lane = lane;
    this.#tenant = endpoint.tenant;
    this.#absence = lane.state?.absence;
    this.#state = toCurrentState(lane.state, endpoint);
  }

  /** Resolves when no attempt is in flight any more. Rejects if the queue failed. */
  async run(): Promise<LaneResult> {
    const stopListening = onAbort(this.#lane.signal, () => this.#stop());
    let result: LaneResult;
    do {
      this.#endAt = this.#clock.monotonic() + SLICE_MS;
      this.#isOver = false;
      this.#endSlice();
      result = await this.#serve();
      this.#isEnding ||= this.#left > 0 || this.#lane.isLeft === true;
      this.#returnTaken();
      await this.#drain(result.notBefore);
    } while (this.#inFlight > 0);
    stopListening();
    this.#cancelDrain?.();
    this.#endSlice();
    if (this.#failure !== undefined) throw this.#failure.error;
    const resumeAt = toPause(this.#state, this.#clock.now()) ?? result.notBefore;
    const absence = this.#left === 0 ? undefined : this.#absence;
    if (absence) await this.#lane.settle([], { ...this.#state, absence: { ...absence, seenAt: this.#clock.now() } });
    if (absence !== undefined || this.#lane.isLeft === true) return leaveLane(this.#context, resumeAt);
    return { ...result, notBefore: resumeAt };
  }

  #endSlice(): void {
    this.#cancelSlice?.();
    this.#cancelSlice = undefined;
  }

  /** Waits for attempts in flight, or until they hold up what the run could do meanwhile. */
  async #drain(notBefore: EpochMilliseconds | undefined): Promise<void> {
    const pause = notBefore === undefined ? 0 : notBefore - this.#clock.now();
    const until = this.#clock.monotonic() + Math.max(MAX_END_MS, pause);
    while (this.#inFlight > 0) {
      const left = until - this.#clock.monotonic();
      if (left <= 0 && !this.#isStopped) return;
      await this.#change(this.#isStopped ? undefined : left);
    }
  }

  async #serve(): Promise<LaneResult> {
    try {
      for (;;) {
        const step = await this.#step();
        if (step !== 'more') return step;
      }
    } catch (error) {
      this.#failure ??= { error };
      return {};
    }
  }

  /** Checks everything each time, because everything can change while it waits. */
  #step(): Step | Promise<Step> {
    const endpoint = this.#context.registry.get(this.#lane.endpoint);
    const isOver = this.#isOver || this.#clock.monotonic() >= this.#endAt;
    if (endpoint === undefined || endpoint.disabled !== undefined || isOver || this.#isStopped) return {};
    this.#state = toCurrentState(this.#state, endpoint);
    if (this.#lane.isOutdated) this.#returnTaken();
    const now = this.#clock.now();
    if (this.#context.away.has(endpoint.id)) return this.#checkReachable(endpoint, now);
    const pausedUntil = toPause(this.#state, now);
    if (pausedUntil !== undefined) return { notBefore: pausedUntil };
    const limits = toLimits(this.#state, endpoint, now);
    if (limits.fresh === undefined && this.#inFlight >= limits.concurrency) return this.#waitForChange();
    const token = endpoint.rateLimit === undefined ? undefined : takeToken(this.#state, endpoint.rateLimit, now);
    if (token?.wait !== undefined) return this.#waitForToken(token.state, token.wait, now);
    if (!this.#isReachable && isBreakerOpen(this.#state)) return this.#checkReachable(endpoint, now);
    return this.#startNext(endpoint, limits, token?.state ?? this.#state);
  }

  #startNext(endpoint: Endpoint, limits: Limits, next: LaneState): Step | Promise<Step> {
    if (limits.fresh !== undefined && this.#clock.monotonic() >= this.#nextFreshTakeAt)
      return this.#takeFresh(endpoint, limits.fresh);
    const fresh = limits.fresh === undefined ? undefined : this.#findFresh();
    if (this.#inFlight >= ((fresh && limits.fresh) ?? limits.concurrency)) return this.#makeRoom(endpoint, limits, fresh);
    const delivery = fresh ?? this.#findNext(limits);
    if (delivery !== this.#slotFor) this.#dropSlot();
    if (delivery === undefined) return this.#take(limits);
    if (!isForTenant(endpoint, delivery.tenant)) return this.#skip(delivery, endpoint);
    const { slots } = this.#context;
    const [kind, bytes] = [slots.toKind(endpoint.id, toHealth(this.#state)), this.#toBytes(delivery)];
    const request = { endpoint: endpoint.id, tenant: this.#tenant, kind, bytes, isWell: this.#state.failures === 0 };
    this.#slotFor = delivery;
    this.#slot ??= slots.take(request);
    if (this.#slot === undefined) return this.#waitForSlot(request);
    this.#state = next;
    this.#start(delivery, endpoint, this.#slot, this.#isSuspect(delivery, limits));
    return 'more';
  }

  /** The next delivery to start, without new ones while events hang. */
  #findNext(limits: Limits): Delivery | undefined {
    const first = this.#taken.find((delivery) => toRank(delivery, this.#state) === 0);
    if (first !== undefined) return first;
    if (this.#suspectsInFlight < limits.suspects) return this.#taken[0];
    return this.#taken.find((delivery) => !this.#isSuspect(delivery, limits));
  }

  #isSuspect(delivery: Delivery, { fresh }: Limits): boolean {
    return toRank(delivery, this.#state) > (fresh === undefined ? 0 : 1);
  }

  /** The newest of the new ones, of a type that does not fail if there is one. */
  #findFresh(): Delivery | undefined {
    const now = this.#clock.now();
    const precedes = (a: Delivery, b: Delivery): boolean => {
      const later = toRank(b, this.#state) - toRank(a, this.#state);
      return later > 0 || (later === 0 && a.due > b.due);
    };
    let first: Delivery | undefined;
    for (const delivery of this.#taken)
      if (isFresh(delivery, now) && (first === undefined || precedes(delivery, first))) first = delivery;
    return first;
  }

  async #takeFresh(endpoint: Endpoint, most: number): Promise<Step> {
    const mayStart = this.#inFlight < most || mayGiveWay(this.#state, endpoint);
    // Newer ones go before those that were taken.
    if (mayStart && this.#taken.length > most) this.#returnTaken();
    // Without memory for them, what is taken has to be sent first.
    const reserved = mayStart ? this.#context.budget.reserve(this.#toRequest(most)) : 0;
    const count = reserved === 0 ? 0 : await this.#takeInto(reserved, most, 'fresh');
    this.#freshPoll = count > 0 ? MIN_FRESH_POLL_MS : Math.min(MAX_POLL_MS, 2 * this.#freshPoll);
    this.#nextFreshTakeAt = this.#clock.monotonic() + this.#freshPoll;
    return 'more';
  }

  /** All attempts are in use. The oldest first attempt that hangs gives way to an event that was not tried yet, sooner to a new one. */
  #makeRoom(endpoint: Endpoint, limits: Limits, fresh: Delivery | undefined): Step | Promise<Step> {
    const now = this.#clock.monotonic();
    const isOpen = isBreakerOpen(this.#state);
    // An endpoint that is away must not get one after the other.
    const minAge = Math.max(2 * (this.#state.slowMs ?? 0), fresh !== undefined && !isOpen ? MIN_GIVE_WAY_MS : MAX_GIVE_WAY_MS);
    const hanging = mayGiveWay(this.#state, endpoint) ? this.#findHanging(now - minAge) : undefined;
    if (hanging !== undefined && (fresh !== undefined || !isOpen)) {
      const isNeeded = fresh !== undefined || this.#taken.some((delivery) => !this.#isSuspect(delivery, limits));
      if (isNeeded) {
        hanging.gaveWay = true;
        hanging.abort.abort();
      } else if (now >= this.#nextTakeAt) return this.#take({ ...limits, suspects: 0 });
    }
    return this.#waitForChange(Math.max(1, this.#nextFreshTakeAt - now));
  }

  /** The oldest first attempt that began before; none while another one gives way. */
  #findHanging(before: Milliseconds): InFlight | undefined {
    if (this.#attempts.size < this.#inFlight) return undefined;
    for (const attempt of this.#attempts) {
      if (attempt.gaveWay || attempt.startedAt > before) return undefined;
      if (attempt.delivery.tries === 0 && !attempt.delivery.isReplay) return attempt;
    }
    return undefined;
  }

  /** Spares an event the attempt if the sender knows without one that the endpoint is still away. */
  async #checkReachable(endpoint: Endpoint, now: EpochMilliseconds): Promise<Step> {
    this.#isReachable = await isReachable(this.#context, endpoint);
    if (this.#isReachable) return 'more';
    const { random, hooks, away } = this.#context;
    const notBefore = Math.round(now + withJitter(MAX_BREAKER_PAUSE_MS.app, random()));
    hooks.onFailing(endpoint, notBefore);
    return { notBefore, isLeft: away.has(endpoint.id) || undefined };
  }

  /** Starts nothing more, even while attempts are in flight. */
  get #isStopped(): boolean {
    return this.#isEnding || this.#failure !== undefined || this.#lane.signal.aborted;
  }

  async #take({ concurrency, suspects, others, fresh }: Limits): Promise<Step> {
    const only = this.#suspectsInFlight < suspects ? undefined : others;
    if (only === undefined ? this.#isDrained : this.#isDrainedOfFirsts) {
      if (this.#inFlight === 0) return {};
      const nextAt = fresh === undefined ? this.#nextTakeAt : Math.min(this.#nextTakeAt, this.#nextFreshTakeAt);
      const left = nextAt - this.#clock.monotonic();
      if (left > 0) return this.#waitForChange(left);
    }
    const reserved = await this.#reserve(concurrency);
    // Freed memory can come after the end of the slice.
    if (reserved === 0) return 'more';
    const count = await this.#takeInto(reserved, concurrency, only);
    this.#isDrainedOfFirsts = count < concurrency && this.#lane.needs === undefined;
    if (only === undefined) this.#isDrained = this.#isDrainedOfFirsts;
    this.#poll = count > 0 ? MIN_POLL_MS : Math.min(MAX_POLL_MS, 2 * this.#poll);
    this.#nextTakeAt = this.#clock.monotonic() + this.#poll;
    return 'more';
  }

  #toRequest(most: number) {
    return { most, size: this.#lane.needs ?? RESERVED_BYTES, tenant: this.#tenant };
  }

  async #reserve(most: number): Promise<number> {
    const { budget, slots } = this.#context;
    const request = this.#toRequest(most);
    return budget.reserve(request) || ((await this.#waitFor(slots.waitForMemory(request))) ?? 0);
  }

  /** With memory that was reserved for so many. Returns how many were due. */
  async #takeInto(reserved: number, limit: number, only: TakeOnly | undefined): Promise<number> {
    const { size } = this.#toRequest(limit);
    let taken: readonly Delivery[] = [];
    try {
      taken = await takeDue(this.#context, this.#lane, limit, reserved * size, only);
    } finally {
      this.#context.budget.settle(reserved, size, this.#toBytes(...taken), this.#tenant);
    }
    this.#taken.push(...taken);
    return taken.length;
  }

  /** A proven endpoint waits, unless too many do; others do not hold their lane for long while there is no slot for them. */
  async #waitForSlot(request: SlotRequest): Promise<Step> {
    const { slots, random } = this.#context;
    const { kind } = request;
    const atMost = kind === 'proven' ? undefined : MAX_SUSPECT_WAIT_MS;
    const isCrowded = slots.isCrowded(request);
    if (!isCrowded) this.#slot = await this.#waitFor(slots.wait(request, atMost));
    if (this.#slot !== undefined || (kind === 'proven' && !isCrowded)) return 'more';
    return { notBefore: Math.round(this.#clock.now() + withJitter(RETURN_MS[kind], random())) };
  }

  async #waitForToken(state: LaneState, wait: Milliseconds, now: EpochMilliseconds): Promise<Step> {
    if (isSetBack(this.#state, state)) {
      this.#state = state;
      await this.#lane.settle([], state);
    }
    if (this.#inFlight === 0 && wait > MAX_TOKEN_WAIT_MS) return { notBefore: now + wait };
    return this.#waitForChange(wait);
  }

  async #waitForChange(atMost?: Milliseconds): Promise<Step> {
    this.#dropSlot();
    await this.#change(atMost);
    return 'more';
  }

  /** Waits for a slot or for memory; a stop or the end of the slice ends it. */
  async #waitFor<Grant>(waiting: Waiting<Grant>): Promise<Grant | undefined> {
    this.#waiting = waiting;
    // One timer for all waits of the run: under load each attempt waits for a slot.
    this.#cancelSlice ??= this.#clock.after(this.#endAt - this.#clock.monotonic(), () => {
      this.#isOver = true;
      this.#waiting?.leave();
    });
    const granted = await waiting.granted;
    this.#waiting = undefined;
    return granted;
  }

  #start(delivery: Delivery, endpoint: Endpoint, slot: Slot, isSuspect: boolean): void {
    this.#taken.splice(this.#taken.indexOf(delivery), 1);
    this.#slot = undefined;
    this.#inFlight++;
    runDetached(this.#attempt(delivery, endpoint, slot, isSuspect));
  }

  /** Its event is of another tenant: the config gave the endpoint another one since then, or the endpoint was deleted and created again. */
  #skip(delivery: Delivery, endpoint: Endpoint): Step {
    this.#dropSlot();
    this.#taken.splice(this.#taken.indexOf(delivery), 1);
    this.#context.budget.release(this.#toBytes(delivery), this.#tenant);
    this.#absence = toAbsence(this.#absence, toIdentity(endpoint), this.#clock.now());
    if (endpoint.source === 'config' && !isAbandoned(this.#absence, delivery.due)) {
      if (++this.#left === MAX_LEFT) this.#isEnding = true;
      return 'more';
    }
    this.#inFlight++;
    this.#context.hooks.onSkipped(this.#lane.endpoint, 1);
    const { event, attempt } = delivery;
    this.#settleSoon({ event, attempt, at: this.#clock.now(), settlement: { kind: 'skipped' } });
    return 'more';
  }

  async #attempt(delivery: Delivery, endpoint: Endpoint, slot: Slot, isSuspect: boolean): Promise<void> {
    const suspects = isSuspect ? 1 : 0;
    const attempt = { delivery, startedAt: this.#clock.monotonic(), abort: new AbortController(), gaveWay: false };
    this.#suspectsInFlight += suspects;
    this.#attempts.add(attempt);
    try {
      const ended = await this.#context.sender.send(delivery, endpoint, attempt.abort.signal);
      // As garbage, it would count in no budget: a burst would leave tens of megabytes.
      freeChunk(delivery.body);
      slot.end();
      this.#attempts.delete(attempt);
      this.#suspectsInFlight -= suspects;
      const gaveWay = attempt.gaveWay && ended.outcome === 'aborted' && !this.#lane.signal.aborted;
      const result = gaveWay ? toGivenWay(ended) : ended;
      const isAway = isUnsentToApp(endpoint, result) && (await isAppAway(this.#context, endpoint, this.#state));
      const end = endAttempt(this.#context, this.#state, { ...attempt, endpoint, result, gaveWay, isAway });
      const { state, settled, before, isDisabling } = end;
      this.#state = state;
      this.#isEnding ||= isDisabling;
      if (before !== undefined) await before;
      this.#settleSoon(settled);
    } catch (error) {
      slot.release();
      this.#finish(1, { error });
    }
  }

  /** Attempts that end in the same turn of the event loop are settled together. */
  #settleSoon(settled: SettledDelivery): void {
    this.#ended.push(settled);
    if (this.#ended.length === 1) runNextTurn(() => runDetached(this.#settle()));
  }

  async #settle(): Promise<void> {
    const settled = this.#ended;
    this.#ended = [];
    try {
      await this.#lane.settle(settled, this.#state);
      this.#finish(settled.length);
    } catch (error) {
      this.#finish(settled.length, { error });
    }
  }

  #finish(count: number, failure?: { readonly error: unknown }): void {
    this.#inFlight -= count;
    this.#failure ??= failure;
    // A delivery that waited for its predecessor with the same order key can be taken now.
    const { orderBy } = this.#context.registry.get(this.#lane.endpoint) ?? {};
    if (orderBy !== undefined) this.#isDrained = this.#isDrainedOfFirsts = false;
    this.#resume?.();
  }

  /** Waits until an attempt was settled, the lane has to stop, or the time is over. */
  async #change(atMost?: Milliseconds): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#resume = resolve;
    const cancel = atMost === undefined ? undefined : this.#clock.after(Math.ceil(atMost), resolve);
    await promise;
    cancel?.();
  }

  #stop(): void {
    this.#cancelDrain = this.#clock.after(this.#context.settings.drainTimeout, () => {
      for (const { abort } of this.#attempts) abort.abort();
    });
    this.#waiting?.leave();
    this.#resume?.();
  }

  /** The delivery that the slot was for belongs to the lane again, with its memory. */
  #dropSlot(): void {
    if (this.#slot === undefined) return;
    this.#slot.release();
    this.#context.budget.release(-this.#slot.bytes, this.#tenant);
    this.#slot = undefined;
  }

  /** They stay due. */
  #returnTaken(): void {
    this.#dropSlot();
    this.#context.budget.release(this.#toBytes(...this.#taken), this.#tenant);
    this.#lane.giveBack(this.#taken);
    this.#taken.length = 0;
    this.#isDrained = this.#isDrainedOfFirsts = false;
  }

  #toBytes(...deliveries: readonly Delivery[]): number {
    let sum = 0;
    for (const { body, metadata } of deliveries) sum += this.#context.budget.toShare(body.length + metadata.length + EXTRA_BYTES);
    return sum;
  }
}

/** A new event: one that was not tried, and became due in the last `FRESH_MS`. */
function isFresh({ tries, isReplay, due }: Delivery, now: EpochMilliseconds): boolean {
  return tries === 0 && !isReplay && Math.abs(now - due) < FRESH_MS;
}

function toGivenWay(result: AttemptResult): AttemptResult {
  const detail = `no response within ${Math.round(result.duration)} ms, while other events time out and new ones wait`;
  return { ...result, outcome: 'timeout', detail };
}
