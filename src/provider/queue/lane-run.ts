/** One run of a lane. */
import { type Clock, type EpochMilliseconds, type Milliseconds, pause } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import type { Delivery, Lane, LaneState, SettledDelivery, TakeOnly } from './delivery-queue.ts';
import type { LaneEntry } from './lane-scheduler.ts';
import type { SettleMessage, TakenMessage } from './messages.ts';
import type { Results } from './sql/store.ts';
import type { StoreClient } from './store-client.ts';

/** A taken delivery: the number of its event, which finds it faster than the ID, and the fence. */
type Taken = Pick<TakenMessage, 'seq' | 'attempt' | 'due' | 'facts'>;

const MIN_REPEAT_MS: Milliseconds = 50;
const MAX_REPEAT_MS: Milliseconds = 1_000;

interface StartedRun {
  readonly entry: LaneEntry;
  /** Later runs have higher numbers. */
  readonly number: number;
  readonly state: LaneState | undefined;
  readonly holder: string | null;
  readonly signal: AbortSignal;
}

export class LaneRun implements Lane {
  readonly endpoint: string;
  readonly state: LaneState | undefined;
  readonly signal: AbortSignal;
  readonly #run: StartedRun;
  readonly #client: StoreClient;
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

  constructor(run: StartedRun, client: StoreClient, clock: Clock) {
    const { entry, state, signal } = run;
    this.endpoint = entry.endpoint;
    this.state = state;
    this.signal = signal;
    this.#run = run;
    this.#client = client;
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
      this.#run.entry.next = Math.min(this.#run.entry.next, this.#clock.now());
    }
  }

  async take(limit: number, now: EpochMilliseconds, only?: TakeOnly): Promise<readonly Delivery[]> {
    // The entry is never later than the database, so this asks only if there may be something.
    if (limit <= 0 || this.#isEnded || this.signal.aborted || this.#run.entry.next > now) return [];
    const { endpoint } = this;
    const returned = this.#returned;
    this.#returned = [];
    const { result, bodies } = await this.#client.read('take', { endpoint, run: this.#run.number, limit, now, only, returned });
    // Only this one sees all that is due.
    if (only !== 'fresh') this.#run.entry.next = result.next ?? Number.POSITIVE_INFINITY;
    if (result.taken.length > 0) this.#isActive = true;
    return result.taken.flatMap((taken, i) => {
      const body = bodies[i];
      if (body === undefined) return [];
      this.#taken.set(taken.event, taken);
      return [toDelivery(endpoint, taken, body)];
    });
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
    if (next !== undefined) this.#run.entry.next = Math.min(this.#run.entry.next, next);
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

  /** Repeats while the disk is full or broken: the deliveries were sent, and would otherwise be sent again by each run until it is not. */
  async #send(settled: readonly SettleMessage[], state: string | undefined): Promise<Results['settle']> {
    for (let delay = MIN_REPEAT_MS; ; delay = Math.min(2 * delay, MAX_REPEAT_MS)) {
      try {
        const { number: run, holder } = this.#run;
        return await this.#client.call('settle', { endpoint: this.endpoint, run, holder, settled, state });
      } catch (error) {
        const isTemporary = error instanceof SidegateError && error.code === 'queue_unavailable' && settled.length > 0;
        if (!isTemporary || this.signal.aborted || this.#client.isBroken === true) {
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
