/** Decides which endpoint is served next: tenants take turns, and so do the endpoints of each. One timer is for the next that becomes due. */
import { type CancelTimer, type Clock, type EpochMilliseconds, type Milliseconds, pause } from '../../core/clock.ts';
import { TimeHeap } from '../../core/collections.ts';
import { SidegateError } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import { LARGE_BYTES, type StoreBudget, TurnQueue } from '../../core/throttle.ts';
import type { Delivery, Lane, LaneResult, LaneState, SettledDelivery, TakeOnly } from './delivery-queue.ts';
import type { SettleMessage, TakenMessage } from './messages.ts';
import type { Results } from './sql/store.ts';
import { isQueueBusy, type QueueHooks, type StoreClient } from './store-client.ts';

/** Bounds the error after the wall clock was set: due times are wall-clock times, and the timer is monotonic. */
const MAX_TIMER_MS = 10_000;
/** Before a run that rejected is repeated. */
const RETRY_MS = 1_000;
/** Before a run that left due deliveries without taking any is repeated, so that it cannot occupy the CPU. */
const IDLE_RUN_MS = 100;
/** Runs that claim their lanes at once: the store serves all that wait in order, of any tenant. */
const MAX_CLAIMS = 8;
/** NTP moves a clock back by less than this in small steps; pauses then are as much longer. */
const MAX_STEP_BACK_MS = 1_000;

/** An endpoint, as far as it is known without asking the database. */
export interface LaneEntry {
  readonly endpoint: string;
  /** When the next delivery is due that is not in flight; Infinity: none. Never later than in the database. */
  next: EpochMilliseconds;
  /** The first time that was reported since the last take began, which may not have seen it. */
  reported: EpochMilliseconds;
  /** The last run asked for this. */
  notBefore: EpochMilliseconds;
  isRunning: boolean;
  /** Until then, in monotonic time, smaller deliveries go before one that waited too long for memory. */
  passesUntil: Milliseconds;
  wakes: number;
  /** The time in the heap that counts; others of this entry are outdated. */
  timedAt: EpochMilliseconds;
}

export interface RunOutcome extends LaneResult {
  /** Took or settled something. */
  readonly isActive: boolean;
  /** Took something that it did not settle. */
  readonly hasUnsettled: boolean;
}

/** `onClaimed`: the run has its lane, or not. */
type StartRun = (entry: LaneEntry, onClaimed: () => void) => Promise<RunOutcome>;

export class LaneScheduler {
  readonly #clock: Clock;
  readonly #onRunError: (endpoint: string, error: unknown) => void;
  readonly #onSetBack: (() => void) | undefined;
  readonly #entries = new Map<string, LaneEntry>();
  /** Due and not running, in the order in which they are served. */
  readonly #ready = new TurnQueue<LaneEntry>();
  readonly #timed = new TimeHeap<LaneEntry>();
  #start: StartRun | undefined;
  #toTenant: (endpoint: string) => string | undefined = () => undefined;
  #lanes = 0;
  #running = 0;
  #claiming = 0;
  #cancelTimer: CancelTimer | undefined;
  /** In monotonic time: the wall clock can be set while the timer runs. */
  #timerAt: Milliseconds = Number.POSITIVE_INFINITY;
  #onIdle: (() => void) | undefined;
  /** Wall-clock time minus monotonic time, when times were set: lower once the clock was set back. */
  #offset = Number.NEGATIVE_INFINITY;

  /** `onSetBack`: the clock was set back, so deliveries may be due too late. */
  constructor(clock: Clock, onRunError: (endpoint: string, error: unknown) => void, onSetBack?: () => void) {
    this.#clock = clock;
    this.#onSetBack = onSetBack;
    this.#onRunError = onRunError;
  }

  /** Undefined for an endpoint that has never had a delivery. */
  find(endpoint: string): LaneEntry | undefined {
    return this.#entries.get(endpoint);
  }

  addDue(endpoint: string, at: EpochMilliseconds): void {
    const none = Number.POSITIVE_INFINITY;
    const times = { next: none, reported: none, timedAt: none };
    const added = { endpoint, ...times, notBefore: 0, isRunning: false, passesUntil: 0, wakes: 0 };
    const entry = this.#entries.get(endpoint) ?? added;
    this.#entries.set(endpoint, entry);
    const isEarlier = at < entry.next;
    reportDue(entry, at);
    if (!isEarlier) return;
    this.#noteOffset();
    this.#place(entry);
  }

  /** Serves the endpoint soon, although its last run asked for a pause. */
  wake(endpoint: string): void {
    const entry = this.#entries.get(endpoint);
    if (entry === undefined) return;
    entry.notBefore = 0;
    entry.wakes++;
    this.#place(entry);
  }

  /** Runs up to `lanes` at once. Endpoints without a tenant take turns with the tenants as if they had one. */
  serve(lanes: number, start: StartRun, toTenant = this.#toTenant): void {
    this.#lanes = lanes;
    this.#start = start;
    this.#toTenant = toTenant;
    for (const entry of this.#entries.values()) this.#place(entry);
  }

  /** Starts no further run; resolves when the last one has ended. */
  stop(): Promise<void> {
    this.#start = undefined;
    this.#cancelTimer?.();
    this.#timerAt = Number.POSITIVE_INFINITY;
    this.#ready.clear();
    this.#timed.clear();
    for (const entry of this.#entries.values()) entry.timedAt = Number.POSITIVE_INFINITY;
    if (this.#running === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle = resolve;
    });
  }

  /** Puts the entry where it belongs: among those that are ready, among those with a time, or nowhere. */
  #place(entry: LaneEntry): void {
    if (this.#start === undefined || entry.isRunning) return;
    const now = this.#clock.now();
    const at = Math.max(entry.next, entry.notBefore);
    if (at <= now) {
      this.#ready.add(this.#toTenant(entry.endpoint) ?? '', entry);
      return this.#startRuns();
    }
    this.#ready.remove(entry, false);
    if (at === Number.POSITIVE_INFINITY) entry.timedAt = at;
    else this.#addTimed(entry, at);
  }

  #addTimed(entry: LaneEntry, at: EpochMilliseconds): void {
    if (entry.timedAt === at) return;
    entry.timedAt = at;
    this.#timed.push(at, entry);
    this.#noteOffset();
    if (this.#timed.size > 4 * this.#entries.size + 64) this.#timed.keep((each, time) => each.timedAt === time);
    this.#setTimer();
  }

  #setTimer(): void {
    const first = this.#timed.first;
    if (first === undefined) return;
    const delay = Math.min(Math.max(first.at - this.#clock.now(), 0), MAX_TIMER_MS);
    const at = this.#clock.monotonic() + delay;
    if (at >= this.#timerAt) return;
    this.#cancelTimer?.();
    this.#timerAt = at;
    this.#cancelTimer = this.#clock.after(delay, () => this.#onTimer());
  }

  #onTimer(): void {
    this.#timerAt = Number.POSITIVE_INFINITY;
    this.#checkClock();
    const now = this.#clock.now();
    for (let first = this.#timed.first; first !== undefined && first.at <= now; first = this.#timed.first) {
      this.#timed.pop();
      if (first.value.timedAt !== first.at) continue;
      first.value.timedAt = Number.POSITIVE_INFINITY;
      this.#place(first.value);
    }
    this.#setTimer();
  }

  /** Times that were set while the clock was ahead may be too far away now. */
  #checkClock(): void {
    const offset = this.#readOffset();
    const isSetBack = offset < this.#offset - MAX_STEP_BACK_MS;
    this.#offset = offset;
    if (!isSetBack) return;
    this.#timed.clear();
    for (const entry of this.#entries.values()) {
      entry.timedAt = Number.POSITIVE_INFINITY;
      entry.notBefore = 0;
      this.#place(entry);
    }
    this.#onSetBack?.();
  }

  #noteOffset(): void {
    this.#offset = Math.max(this.#offset, this.#readOffset());
  }

  #readOffset(): Milliseconds {
    return this.#clock.now() - this.#clock.monotonic();
  }

  #startRuns(): void {
    while (this.#start !== undefined && this.#running < this.#lanes && this.#claiming < MAX_CLAIMS) {
      const entry = this.#ready.first;
      if (entry === undefined) return;
      this.#ready.remove(entry, true);
      this.#running++;
      this.#claiming++;
      entry.isRunning = true;
      runDetached(this.#runOne(entry, this.#start));
    }
  }

  async #runOne(entry: LaneEntry, start: StartRun): Promise<void> {
    let notBefore: number;
    const { wakes } = entry;
    let isClaiming = true;
    const onClaimed = (): void => {
      if (isClaiming) this.#claiming--;
      isClaiming = false;
      this.#startRuns();
    };
    try {
      const outcome = await start(entry, onClaimed);
      if (outcome.hasUnsettled) reportDue(entry, this.#clock.now());
      const now = this.#clock.now();
      notBefore = outcome.notBefore ?? (outcome.isActive || entry.next > now ? 0 : now + IDLE_RUN_MS);
    } catch (error) {
      this.#onRunError(entry.endpoint, error);
      reportDue(entry, this.#clock.now());
      notBefore = this.#clock.now() + RETRY_MS;
    }
    entry.notBefore = entry.wakes === wakes ? notBefore : 0;
    entry.isRunning = false;
    this.#running--;
    this.#place(entry);
    onClaimed();
    if (this.#running === 0) this.#onIdle?.();
  }
}

/** A taken delivery: the number of its event, which finds it faster than the ID, and the fence. */
type Taken = Pick<TakenMessage, 'seq' | 'attempt' | 'due' | 'facts'>;

const MIN_REPEAT_MS: Milliseconds = 50;
const MAX_REPEAT_MS: Milliseconds = 1_000;
const NO_MEMORY_INTERVAL_MS: Milliseconds = 60_000;

interface StartedRun {
  readonly entry: LaneEntry;
  /** Later runs have higher numbers. */
  readonly number: number;
  readonly state: LaneState | undefined;
  readonly holder: string | null;
  readonly signal: AbortSignal;
  readonly isStopping: () => boolean;
  readonly onNoMemory: QueueHooks['onNoMemory'];
}

function reportDue(entry: LaneEntry, at: EpochMilliseconds): void {
  entry.next = Math.min(entry.next, at);
  entry.reported = Math.min(entry.reported, at);
}

export class LaneRun implements Lane {
  readonly endpoint: string;
  readonly state: LaneState | undefined;
  readonly signal: AbortSignal;
  needs: number | undefined;
  isLeft = false;
  readonly #run: StartedRun;
  readonly #client: StoreClient;
  readonly #budget: StoreBudget;
  readonly #clock: Clock;
  readonly #taken = new Map<string, Taken>();
  /** The numbers of events that were given back since the last take. */
  #returned: number[] = [];
  /** Of the entry, when all that was taken and not started was given back. */
  #wakes: number;
  /** JSON of the state as it is stored, or is being stored; undefined: not known. */
  #stateText: string | undefined;
  #isActive = false;
  #isEnded = false;

  constructor(run: StartedRun, client: StoreClient, clock: Clock, budget: StoreBudget) {
    const { entry, state, signal } = run;
    this.endpoint = entry.endpoint;
    this.state = state;
    this.signal = signal;
    this.#run = run;
    this.#client = client;
    this.#budget = budget;
    this.#clock = clock;
    this.#stateText = state && JSON.stringify(state);
    this.#wakes = entry.wakes;
  }

  get isOutdated(): boolean {
    return this.#run.entry.wakes !== this.#wakes;
  }

  giveBack(deliveries: readonly Pick<Delivery, 'event'>[]): void {
    this.#wakes = this.#run.entry.wakes;
    for (const { event } of deliveries) {
      const taken = this.#taken.get(event);
      if (taken === undefined) continue;
      this.#taken.delete(event);
      this.#returned.push(taken.seq);
      reportDue(this.#run.entry, this.#clock.now());
    }
  }

  async take(limit: number, now: EpochMilliseconds, only?: TakeOnly, maxBytes?: number): Promise<readonly Delivery[]> {
    const { endpoint, needs } = this;
    const { entry } = this.#run;
    this.needs = undefined;
    // The entry is never later than the database, so this asks only if there may be something.
    if (limit <= 0 || this.#isEnded || this.signal.aborted || entry.next > now) return [];
    const read = (most?: number, passes = false) => {
      const taking = () => {
        const returned = this.#returned;
        this.#returned = [];
        if (only !== 'fresh') entry.reported = Number.POSITIVE_INFINITY;
        return this.#client.read('take', { endpoint, run: this.#run.number, limit, maxBytes: most, now, only, passes, returned });
      };
      if (most === undefined || most <= LARGE_BYTES) return taking();
      // In a line apart from the appends of an inbox.
      return this.#budget.run(most, taking, `take ${endpoint}`).catch((thrown: unknown) => {
        if (!isQueueBusy(thrown)) throw thrown;
      });
    };
    // Without room for all, one delivery is taken.
    const hasRoom = maxBytes === undefined || this.#budget.hasRoom(maxBytes);
    const most = hasRoom ? maxBytes : Math.min(maxBytes, Math.max(needs ?? 0, LARGE_BYTES));
    const fit = most && this.#clock.monotonic() < entry.passesUntil ? this.#budget.fit(most) : most;
    let found = fit === most ? undefined : await read(fit, true);
    if (found === undefined || found.result.taken.length === 0) found = await read(most);
    this.needs = found === undefined ? needs : found.result.needs;
    if (found === undefined) return this.#leave(most);
    const { result, bodies } = found;
    // Only this one sees all that is due.
    if (only !== 'fresh') entry.next = Math.min(result.next ?? Number.POSITIVE_INFINITY, entry.reported);
    this.#isActive ||= result.taken.length > 0;
    return result.taken.flatMap((taken, i) => {
      const body = bodies[i];
      if (body === undefined) return [];
      this.#taken.set(taken.event, taken);
      return [toDelivery(endpoint, taken, body)];
    });
  }

  /** The process had no memory for the next delivery. */
  #leave(bytes = 0): readonly Delivery[] {
    const { entry, onNoMemory } = this.#run;
    const now = this.#clock.monotonic();
    this.isLeft = true;
    if (now < entry.passesUntil) return [];
    entry.passesUntil = now + NO_MEMORY_INTERVAL_MS;
    onNoMemory(this.endpoint, bytes);
    return [];
  }

  async settle(settled: readonly SettledDelivery[], state: LaneState): Promise<void> {
    const messages = settled.flatMap((each) => this.#toMessage(each));
    const isHolder = !this.#isEnded;
    this.#isActive = true;
    const text = isHolder ? this.#noteState(state) : undefined;
    if (messages.length === 0 && text === undefined) return;
    const { next, isLost } = await this.#send(messages, text);
    // Any replica can take these deliveries again.
    if (isLost) return;
    for (const { event, attempt } of settled) if (this.#taken.get(event)?.attempt === attempt) this.#taken.delete(event);
    if (next !== undefined) reportDue(this.#run.entry, next);
  }

  /** Ends the run; what it took can still be settled. */
  end(): { readonly isActive: boolean; readonly hasUnsettled: boolean } {
    this.#isEnded = true;
    return { isActive: this.#isActive, hasUnsettled: this.#taken.size > 0 };
  }

  /** The state as text, if it has to be written: most settlements do not change it. Before it is sent: the next settlement may take it back. */
  #noteState(state: LaneState): string | undefined {
    const text = JSON.stringify(state);
    if (text === this.#stateText) return undefined;
    this.#stateText = text;
    return text;
  }

  /** Repeats while the store does not work, also after the lease ends: the deliveries were sent, and would otherwise be sent again. */
  async #send(settled: readonly SettleMessage[], state: string | undefined): Promise<Results['settle']> {
    for (let delay = MIN_REPEAT_MS; ; delay = Math.min(2 * delay, MAX_REPEAT_MS)) {
      try {
        const { number: run, holder } = this.#run;
        return await this.#client.call('settle', { endpoint: this.endpoint, run, holder, settled, state });
      } catch (error) {
        const isTemporary = error instanceof SidegateError && error.code === 'queue_unavailable' && settled.length > 0;
        if (!isTemporary || this.#run.isStopping() || this.#client.isBroken === true) {
          if (state !== undefined) this.#stateText = undefined;
          throw error;
        }
        await pause(this.#clock, delay);
      }
    }
  }

  #toMessage({ event, attempt, at, settlement, record }: SettledDelivery): SettleMessage[] {
    const taken = this.#taken.get(event);
    if (taken?.attempt !== attempt) return [];
    const { seq, due, facts } = taken;
    return [{ seq, event, attempt, due, at, settlement, record: record && JSON.stringify(record), facts }];
  }
}

function toDelivery(endpoint: string, taken: TakenMessage, body: Buffer): Delivery {
  const { event, version, type, createdAt, attempt, tries, isReplay, due, metadata } = taken;
  const { tenant } = taken.facts;
  return { event, endpoint, version, type, tenant, createdAt, attempt, tries, isReplay, due, body, metadata };
}
