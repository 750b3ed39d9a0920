/** A lane on Redis. The token that its run owns fences it: once another run owns the lane, this one can neither take nor settle. */
import { type Clock, type EpochMilliseconds, type Milliseconds, pause } from '../../../core/clock.ts';
import { SidegateError } from '../../../core/errors.ts';
import type { Delivery, Lane, LaneState, SettledDelivery } from '../delivery-queue.ts';
import { decodeDeliveries, encodeSettlement, type Taken, type TakenDelivery, toList } from './codec.ts';
import type { Lease } from './lease.ts';
import type { Argument, OperationName, Operations, Reply } from './operations.ts';

/** The properties of a lane. */
export interface RedisLaneSettings {
  readonly endpoint: string;
  readonly token: string;
  readonly state: LaneState | undefined;
  readonly lease: Lease;
  /** Taken when the run began. */
  readonly first: readonly TakenDelivery[];
  /** No others were due. */
  readonly isFirstComplete: boolean;
  /** When the run began. */
  readonly storeTime: EpochMilliseconds;
  readonly operations: Operations;
  readonly clock: Clock;
}

const FIRST_RETRY_MS = 50;
const MAX_RETRY_MS = 1_000;

/** One run of a lane. */
export class RedisLane implements Lane {
  readonly endpoint: string;
  readonly state: LaneState | undefined;
  readonly #settings: RedisLaneSettings;
  readonly #startedAt: Milliseconds;
  /** By event: deliveries that were taken and not settled. */
  readonly #inFlight = new Map<string, Taken>();
  #first: readonly TakenDelivery[];
  /** As of the last settlement, nothing waits: the next delivery of the endpoint starts another run. */
  #isEmpty = false;
  #taking: Promise<unknown> = Promise.resolve();

  constructor(settings: RedisLaneSettings) {
    this.endpoint = settings.endpoint;
    this.state = settings.state;
    this.#settings = settings;
    this.#startedAt = settings.clock.monotonic();
    this.#first = settings.first;
  }

  /** Nothing is left to do for this run and the next ones. */
  get isDone(): boolean {
    return this.#isEmpty && this.#inFlight.size === 0 && this.#first.length === 0;
  }

  get signal(): AbortSignal {
    return this.#settings.lease.signal;
  }

  storeTime(): EpochMilliseconds {
    const { storeTime, clock } = this.#settings;
    return Math.floor(storeTime + clock.monotonic() - this.#startedAt);
  }

  take(limit: number, now: EpochMilliseconds): Promise<readonly Delivery[]> {
    // One after the other, because each excludes what those before it took.
    const taken = this.#taking.then(() => this.#take(limit, now));
    this.#taking = taken.catch(() => undefined);
    return taken;
  }

  async #take(limit: number, now: EpochMilliseconds): Promise<readonly Delivery[]> {
    const { endpoint, token, operations, lease } = this.#settings;
    if (lease.signal.aborted) return [];
    const deliveries = this.#takeFirst(limit);
    if (deliveries.length > 0 && (deliveries.length === limit || this.#settings.isFirstComplete)) return deliveries;
    if (this.isDone) {
      this.#isEmpty = false;
      return [];
    }
    this.#isEmpty = false;
    const left = limit - deliveries.length;
    const [isHeld, values] = toList(await operations.run('take', [endpoint, token, now, left, ...this.#inFlight.keys()]));
    if (isHeld !== 1) {
      lease.lose();
      return [];
    }
    return [...deliveries, ...this.#hold(decodeDeliveries(endpoint, values))];
  }

  #takeFirst(limit: number): readonly Delivery[] {
    const deliveries = this.#first.slice(0, limit);
    this.#first = this.#first.slice(limit);
    return this.#hold(deliveries);
  }

  #hold(deliveries: readonly TakenDelivery[]): readonly Delivery[] {
    return deliveries.map(({ delivery, taken }) => {
      this.#inFlight.set(delivery.event, taken);
      return delivery;
    });
  }

  async settle(settled: readonly SettledDelivery[], state: LaneState): Promise<void> {
    const { endpoint, token, lease } = this.#settings;
    if (lease.isLost) return;
    const [isHeld, isEmpty] = toList(
      await this.persist('settle', [endpoint, token, JSON.stringify(state), ...settled.flatMap((each) => this.#encode(each))]),
    );
    for (const { event, attempt } of settled) if (this.#inFlight.get(event)?.attempt === attempt) this.#inFlight.delete(event);
    this.#isEmpty = isEmpty === 1;
    if (isHeld !== 1) lease.lose();
  }

  /** Nothing for a delivery that is settled already. */
  #encode(settled: SettledDelivery): readonly Argument[] {
    const taken = this.#inFlight.get(settled.event);
    return taken?.attempt === settled.attempt ? encodeSettlement(taken, settled) : [];
  }

  /**
   * Runs an operation again while Redis is down, until the lease ends: what was sent and not settled would be sent again.
   * Running it twice does no harm.
   */
  async persist(name: OperationName, args: readonly Argument[]): Promise<Reply> {
    const { operations, clock, lease } = this.#settings;
    for (let delay = FIRST_RETRY_MS; ; delay = Math.min(2 * delay, MAX_RETRY_MS)) {
      try {
        return await operations.run(name, args);
      } catch (error) {
        const isTemporary = error instanceof SidegateError && error.code === 'queue_unavailable';
        if (!isTemporary || lease.signal.aborted || clock.monotonic() + delay >= lease.until) throw error;
        await pause(clock, delay);
      }
    }
  }
}
