/** Finds due work that no lane will serve. It does not depend on what BullMQ stored, because it repairs what BullMQ lost: it is not a job. */
import type { Clock, Milliseconds } from '../../../core/clock.ts';
import { toList, toText } from './codec.ts';
import type { LaneQueue } from './lane-queue.ts';
import type { Operations } from './operations.ts';

/** When the sweep runs. */
export interface SweepTimes {
  readonly sweepEvery: Milliseconds;
  /** Work that is due for less than this may still get its lane. */
  readonly sweepGrace: Milliseconds;
}

/** The parts that the sweep uses. */
export interface SweepSettings {
  readonly shards: readonly Operations[];
  /** Of each shard. */
  readonly lanes: readonly LaneQueue[];
  readonly clock: Clock;
  readonly grace: Milliseconds;
  readonly onError: (error: unknown) => void;
}

/** Endpoints that one call of the script reads. */
const STEP = 1_000;
/** Clocks of replicas may differ by this. An event that was created later is of a clock that was ahead. */
const MAX_CLOCK_SKEW_MS = 60_000;
/** Such events that one run of the sweep reads in each shard. */
const HASTENED_PER_RUN = 500;

export class Sweep {
  readonly #settings: SweepSettings;
  /** Of each shard: where the search for events of the future goes on. */
  readonly #offsets: number[] = [];
  #finds = 0;

  constructor(settings: SweepSettings) {
    this.#settings = settings;
  }

  /** Endpoints that were woken because their wake-up was lost. */
  get finds(): number {
    return this.#finds;
  }

  /** Wakes endpoints with due work and without a lane, unless a replica did so within the interval. */
  async run(interval: Milliseconds): Promise<void> {
    const { shards, onError } = this.#settings;
    for (const [number, shard] of shards.entries()) {
      try {
        await this.#hasten(number, shard);
        await this.#sweepShard(number, shard, interval);
      } catch (error) {
        onError(error);
      }
    }
  }

  async #sweepShard(number: number, shard: Operations, interval: Milliseconds): Promise<void> {
    const { clock, grace, lanes } = this.#settings;
    let read = STEP;
    for (let offset = 0; read === STEP; offset += STEP) {
      const [count, ...found] = toList(await shard.run('sweep', [clock.now(), interval, grace, offset, STEP]));
      read = Number(count);
      this.#finds += found.length;
      for (const endpoint of found) lanes[number]?.wake(toText(endpoint));
    }
  }

  /** Deliveries that were appended while a clock was ahead do not wait until then. */
  async #hasten(number: number, shard: Operations): Promise<void> {
    const { clock, lanes } = this.#settings;
    const offset = this.#offsets[number] ?? 0;
    const [count, ...found] = toList(await shard.run('hasten', [clock.now(), MAX_CLOCK_SKEW_MS, offset, HASTENED_PER_RUN]));
    this.#offsets[number] = count === HASTENED_PER_RUN ? offset + HASTENED_PER_RUN : 0;
    for (const endpoint of found) lanes[number]?.wake(toText(endpoint));
  }
}
