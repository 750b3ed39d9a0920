/** Serves one lane for a slice of time: takes due deliveries, starts attempts as the endpoint's state allows, and settles each when it ends. */
import type { CancelTimer, Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { onAbort, runDetached, runNextTurn } from '../../core/safe-events.ts';
import { withJitter } from '../attempt/attempt.ts';
import { type Endpoint, isForTenant } from '../endpoints/endpoint.ts';
import type { Delivery, Lane, LaneResult, LaneState, SettledDelivery } from '../queue/delivery-queue.ts';
import { endAttempt, type LaneContext } from './end-attempt.ts';
import {
  isBreakerOpen,
  isSetBack,
  MAX_BREAKER_PAUSE_MS,
  takeToken,
  toConcurrency,
  toCurrentState,
  toHealth,
  toPause,
  toRank,
} from './lane-state.ts';
import type { Waiting } from './memory-budget.ts';
import type { Slot, SlotRequest } from './slot-pool.ts';

/** No attempt starts later than this after the run began: then other lanes have their turn. */
const SLICE_MS = 5_000;
const MAX_SUSPECT_WAIT_MS = 1_000;
/** After so long, the lane of an endpoint that got no slot is served again. */
const RETURN_MS = { proven: 250, unproven: 250, slow: 2_000, failing: 2_000 } as const;
/** For a token that comes later, the lane is returned. */
const MAX_TOKEN_WAIT_MS = 100;
/** While attempts are in flight, the lane looks so often for deliveries that became due meanwhile; less and less often if there are none. */
const MIN_POLL_MS = 25;
const MAX_POLL_MS = 200;
/** A delivery takes this besides its body and metadata. */
const DELIVERY_OVERHEAD_BYTES = 1_024;

/** `more`: go on. `end`: start nothing more; `notBefore`: when the next run makes sense. */
type Step = { readonly kind: 'more' } | { readonly kind: 'end'; readonly notBefore?: EpochMilliseconds };
const MORE: Step = { kind: 'more' };
const END: Step = { kind: 'end' };

export class LaneRun {
  readonly #context: LaneContext;
  readonly #clock: Clock;
  readonly #lane: Lane;
  readonly #endAt: Milliseconds;
  readonly #abort = new AbortController();
  #state: LaneState;
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
  #poll: Milliseconds = MIN_POLL_MS;
  #isDisabling = false;
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
    this.#endAt = this.#clock.monotonic() + SLICE_MS;
    this.#state = toCurrentState(lane.state, endpoint);
  }

  /** Resolves when no attempt is in flight any more. Rejects if the queue failed. */
  async run(): Promise<LaneResult> {
    const stopListening = onAbort(this.#lane.signal, () => this.#stop());
    const { notBefore } = await this.#serve();
    this.#returnTaken();
    while (this.#inFlight > 0) await this.#change();
    stopListening();
    this.#cancelDrain?.();
    this.#cancelSlice?.();
    if (this.#failure !== undefined) throw this.#failure.error;
    return { notBefore: toPause(this.#state, this.#clock.now()) ?? notBefore };
  }

  async #serve(): Promise<Step & { readonly kind: 'end' }> {
    try {
      for (;;) {
        const step = await this.#step();
        if (step.kind === 'end') return step;
      }
    } catch (error) {
      this.#failure ??= { error };
      return { kind: 'end' };
    }
  }

  /** Checks everything each time, because everything can change while it waits. */
  #step(): Step | Promise<Step> {
    const endpoint = this.#context.registry.get(this.#lane.endpoint);
    if (endpoint === undefined || endpoint.disabled !== undefined || this.#mustEnd()) return END;
    this.#state = toCurrentState(this.#state, endpoint);
    if (this.#lane.isOutdated) this.#returnTaken();
    const now = this.#clock.now();
    const pausedUntil = toPause(this.#state, now);
    if (pausedUntil !== undefined) return { kind: 'end', notBefore: pausedUntil };
    const concurrency = toConcurrency(this.#state, endpoint);
    if (this.#inFlight >= concurrency) return this.#waitForChange();
    const token =
      endpoint.rateLimit === undefined ? undefined : takeToken(this.#state, endpoint.rateLimit, this.#lane.storeTime());
    if (token?.wait !== undefined) return this.#waitForToken(token.state, token.wait, now);
    if (!this.#isReachable && isBreakerOpen(this.#state)) return this.#checkReachable(endpoint, now);
    const delivery = this.#findNext(concurrency);
    if (delivery !== this.#slotFor) this.#dropSlot();
    if (delivery === undefined) return this.#take(concurrency);
    if (!isForTenant(endpoint, delivery.tenant)) return this.#skip(delivery);
    const { slots } = this.#context;
    const kind = slots.toKind(endpoint.id, toHealth(this.#state));
    const request = { endpoint: endpoint.id, kind, bytes: toBytes(delivery) };
    this.#slotFor = delivery;
    this.#slot ??= slots.take(request);
    if (this.#slot === undefined) return this.#waitForSlot(request);
    if (token !== undefined) this.#state = token.state;
    this.#start(delivery, endpoint, this.#slot);
    return MORE;
  }

  /**
   * The next delivery to start. Retries and failing types leave one attempt to others: they may be slow, and an event that comes meanwhile
   * must not wait for them.
   */
  #findNext(concurrency: number): Delivery | undefined {
    const first = this.#taken.find((delivery) => !this.#isSuspect(delivery));
    if (first !== undefined) return first;
    return this.#mayStartSuspect(concurrency) ? this.#taken[0] : undefined;
  }

  #isSuspect(delivery: Delivery): boolean {
    return toRank(delivery, this.#state) > 0;
  }

  #mayStartSuspect(concurrency: number): boolean {
    return this.#suspectsInFlight < Math.max(1, concurrency - 1);
  }

  /** Spares an event the attempt if the sender knows without one that the endpoint is still away. */
  async #checkReachable(endpoint: Endpoint, now: EpochMilliseconds): Promise<Step> {
    this.#isReachable = (await this.#context.sender.isReachable?.(endpoint)) ?? true;
    if (this.#isReachable) return MORE;
    const { random, hooks } = this.#context;
    const notBefore = Math.round(now + withJitter(MAX_BREAKER_PAUSE_MS.app, random()));
    hooks.onFailing(endpoint, notBefore);
    return { kind: 'end', notBefore };
  }

  #mustEnd(): boolean {
    const isOver = this.#isOver || this.#clock.monotonic() >= this.#endAt;
    return isOver || this.#isDisabling || this.#failure !== undefined || this.#lane.signal.aborted;
  }

  async #take(concurrency: number): Promise<Step> {
    const only = this.#mayStartSuspect(concurrency) ? undefined : 'first';
    if (only === undefined ? this.#isDrained : this.#isDrainedOfFirsts) {
      if (this.#inFlight === 0) return END;
      const left = this.#nextTakeAt - this.#clock.monotonic();
      if (left > 0) return this.#waitForChange(left);
    }
    const { budget, slots } = this.#context;
    const reserved = budget.reserve(concurrency) || ((await this.#waitFor(slots.waitForMemory(concurrency))) ?? 0);
    // Freed memory can come after the end of the slice.
    if (reserved === 0) return MORE;
    let bytes = 0;
    try {
      const deliveries = await this.#lane.take(reserved, this.#clock.now(), only);
      for (const delivery of deliveries) bytes += toBytes(delivery);
      this.#taken.push(...deliveries);
      this.#isDrainedOfFirsts = deliveries.length < reserved;
      if (only === undefined) this.#isDrained = this.#isDrainedOfFirsts;
      this.#poll = deliveries.length > 0 ? MIN_POLL_MS : Math.min(MAX_POLL_MS, 2 * this.#poll);
      this.#nextTakeAt = this.#clock.monotonic() + this.#poll;
    } finally {
      budget.settle(reserved, bytes);
    }
    return MORE;
  }

  /** A proven endpoint waits, unless too many do; others do not hold their lane for long while there is no slot for them. */
  async #waitForSlot(request: SlotRequest): Promise<Step> {
    const { slots, random } = this.#context;
    const { kind } = request;
    const atMost = kind === 'proven' ? undefined : MAX_SUSPECT_WAIT_MS;
    const isCrowded = slots.isCrowded(request);
    if (!isCrowded) this.#slot = await this.#waitFor(slots.wait(request, atMost));
    if (this.#slot !== undefined || (kind === 'proven' && !isCrowded)) return MORE;
    return { kind: 'end', notBefore: Math.round(this.#clock.now() + withJitter(RETURN_MS[kind], random())) };
  }

  async #waitForToken(state: LaneState, wait: Milliseconds, now: EpochMilliseconds): Promise<Step> {
    if (isSetBack(this.#state, state)) {
      this.#state = state;
      await this.#lane.settle([], state);
    }
    if (this.#inFlight === 0 && wait > MAX_TOKEN_WAIT_MS) return { kind: 'end', notBefore: now + wait };
    return this.#waitForChange(wait);
  }

  async #waitForChange(atMost?: Milliseconds): Promise<Step> {
    this.#dropSlot();
    await this.#change(atMost);
    return MORE;
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

  #start(delivery: Delivery, endpoint: Endpoint, slot: Slot): void {
    this.#taken.splice(this.#taken.indexOf(delivery), 1);
    this.#slot = undefined;
    this.#inFlight++;
    runDetached(this.#attempt(delivery, endpoint, slot));
  }

  /** Its event is of another tenant: the config gave the endpoint another one since then, or the endpoint was deleted and created again. */
  #skip(delivery: Delivery): Step {
    this.#dropSlot();
    this.#taken.splice(this.#taken.indexOf(delivery), 1);
    this.#context.budget.release(toBytes(delivery));
    this.#inFlight++;
    this.#context.hooks.onSkipped(this.#lane.endpoint, 1);
    const { event, attempt } = delivery;
    this.#settleSoon({ event, attempt, at: this.#clock.now(), settlement: { kind: 'skipped' } });
    return MORE;
  }

  async #attempt(delivery: Delivery, endpoint: Endpoint, slot: Slot): Promise<void> {
    const suspects = this.#isSuspect(delivery) ? 1 : 0;
    this.#suspectsInFlight += suspects;
    try {
      const result = await this.#context.sender.send(delivery, endpoint, this.#abort.signal);
      slot.end();
      this.#suspectsInFlight -= suspects;
      const { state, settled, before, isDisabling } = endAttempt(this.#context, this.#state, { endpoint, delivery, result });
      this.#state = state;
      this.#isDisabling ||= isDisabling;
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
    if (this.#orderBy !== undefined) this.#isDrained = this.#isDrainedOfFirsts = false;
    this.#resume?.();
  }

  get #orderBy(): string | undefined {
    return this.#context.registry.get(this.#lane.endpoint)?.orderBy;
  }

  /** Waits until an attempt was settled, the lane has to stop, or the time is over. */
  #change(atMost?: Milliseconds): Promise<void> {
    return new Promise((resolve) => {
      const cancel = atMost === undefined ? undefined : this.#clock.after(Math.ceil(atMost), () => this.#resume?.());
      this.#resume = () => {
        this.#resume = undefined;
        cancel?.();
        resolve();
      };
    });
  }

  #stop(): void {
    this.#cancelDrain = this.#clock.after(this.#context.settings.drainTimeout, () => this.#abort.abort());
    this.#waiting?.leave();
    this.#resume?.();
  }

  /** The delivery that the slot was for belongs to the lane again, with its memory. */
  #dropSlot(): void {
    if (this.#slot === undefined) return;
    this.#slot.release();
    this.#context.budget.release(-this.#slot.bytes);
    this.#slot = undefined;
  }

  /** They stay due. */
  #returnTaken(): void {
    this.#dropSlot();
    this.#context.budget.release(this.#taken.reduce((sum, delivery) => sum + toBytes(delivery), 0));
    this.#lane.giveBack(this.#taken);
    this.#taken.length = 0;
    this.#isDrained = this.#isDrainedOfFirsts = false;
  }
}

function toBytes({ body, metadata }: Delivery): number {
  return body.length + metadata.length + DELIVERY_OVERHEAD_BYTES;
}
