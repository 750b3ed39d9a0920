/** Simulates gates that share Redis: which calls they send, how long these wait, and how busy Redis is. */
import { SeededRandom } from '../../test/simulation/seeded-random.ts';
import { EventLoop, Timeline } from './event-loop.ts';
import type { ServiceTimes } from './results.ts';

/** As in src/state/redis/operations.ts. */
const MAX_BATCH = 64;
const CONFIRM_WAIT = 2_000;
const GAP_WEIGHT = 1 / 8;
const MAX_GAP = 10_000;
/** Microseconds of sleep after which a wake-up costs the most. Not measured: chosen so that the small case agrees. */
const COLD_AFTER = 300;

/** Called with the reply of an operation. */
type Operation = () => void;

/** The message of a gate to a shard: one call, or as many as operations in a Cluster. */
interface Message {
  readonly operations: readonly Operation[];
  readonly calls: number;
  readonly gate: Gate;
}

/** CPU time of a gate, and what follows. */
interface Step {
  readonly cost: number;
  readonly onEnd: () => void;
}

/** Times in microseconds. */
export interface FleetOptions {
  readonly seed: number;
  readonly gates: number;
  readonly shards: number;
  readonly service: ServiceTimes;
  /** From a gate to Redis. */
  readonly networkDelay: number;
  /** CPU time of a gate for a reply, and for each operation in it. */
  readonly replyCost: { readonly call: number; readonly operation: number };
}

/** Redis and the gates. */
export class Fleet {
  readonly timeline = new Timeline();
  readonly random: SeededRandom;
  readonly gates: readonly Gate[];
  /** From the claim to its reply. */
  readonly claimTimes: number[] = [];
  readonly #options: FleetOptions;
  readonly #shards: readonly EventLoop<Message>[];
  operations = 0;
  calls = 0;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.random = new SeededRandom(options.seed);
    this.#shards = Array.from({ length: options.shards }, () => this.#createShard());
    this.gates = Array.from({ length: options.gates }, () => new Gate(this));
  }

  get options(): FleetOptions {
    return this.#options;
  }

  /** CPU time of all shards. */
  get busy(): number {
    return this.#shards.reduce((sum, shard) => sum + shard.busy, 0);
  }

  /** How often a shard slept until something arrived. */
  get wakeups(): number {
    return this.#shards.reduce((sum, shard) => sum + shard.wakeups, 0);
  }

  /** Sends what a gate collected in one turn. In a Cluster, each operation is a call, and the calls to one node share a write. */
  send(gate: Gate, operations: readonly Operation[]): void {
    const { shards, networkDelay } = this.#options;
    const byShard = new Map<number, Operation[]>();
    for (const operation of operations) {
      const shard = this.random.below(shards);
      const list = byShard.get(shard);
      if (list === undefined) byShard.set(shard, [operation]);
      else list.push(operation);
    }
    for (const [shard, list] of byShard)
      for (let start = 0; start < list.length; start += MAX_BATCH) {
        const batch = list.slice(start, start + MAX_BATCH);
        const message = { operations: batch, calls: shards > 1 ? batch.length : 1, gate };
        this.timeline.after(networkDelay, () => this.#shards[shard]?.post(message));
      }
  }

  #createShard(): EventLoop<Message> {
    const { timeline } = this;
    const { wakeup, coldWakeup, read, call, operation } = this.#options.service;
    return new EventLoop<Message>({
      timeline,
      toWakeup: (slept) => wakeup + (coldWakeup - wakeup) * Math.min(slept / COLD_AFTER, 1),
      toCost: ({ calls, operations }) => read + calls * call + operations.length * operation,
      onTurn: (messages) => {
        for (const { gate, operations, calls } of messages) {
          this.operations += operations.length;
          this.calls += calls;
          timeline.after(this.#options.networkDelay, () => gate.receive(operations));
        }
      },
    });
  }
}

/** A process that uses the store. */
export class Gate {
  readonly #fleet: Fleet;
  readonly #loop: EventLoop<Step>;
  #collected: Operation[] = [];
  /** Confirms that wait for a claim. */
  #held: Operation[] = [];
  /** Counts the calls: a timer of an earlier one must not send what is held now. */
  #sent = 0;
  #isTimed = false;
  #claimedAt = 0;
  #claimGap = CONFIRM_WAIT;

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
    this.#loop = new EventLoop<Step>({
      timeline: fleet.timeline,
      toWakeup: () => 0,
      toCost: ({ cost }) => cost,
      onTurn: (steps) => this.#endTurn(steps),
    });
  }

  /** Works for so long, and then calls `onEnd`. */
  work(cost: number, onEnd: () => void): void {
    this.#loop.post({ cost, onEnd });
  }

  /** Works for so long, and claims in one call with all others of the same turn; the time until the reply counts. */
  claim(cost: number, onReply: Operation): void {
    const { timeline, claimTimes } = this.#fleet;
    const start = timeline.now;
    const onClaimed = (): void => {
      claimTimes.push(timeline.now - start);
      onReply();
    };
    this.work(cost, () => {
      this.#collected.push(onClaimed);
      this.#claimGap += (Math.min(timeline.now - this.#claimedAt, MAX_GAP) - this.#claimGap) * GAP_WEIGHT;
      this.#claimedAt = timeline.now;
    });
  }

  /** Confirms an event, with the next claim if claims are frequent. In a Cluster, each operation is a call anyway. */
  confirm(): void {
    const isHeld = this.#claimGap < CONFIRM_WAIT && this.#fleet.options.shards === 1;
    this.work(0, () => void (isHeld ? this.#held : this.#collected).push(() => undefined));
  }

  /** A reply of Redis. */
  receive(operations: readonly Operation[]): void {
    const { call, operation } = this.#fleet.options.replyCost;
    this.work(call + operations.length * operation, () => {
      for (const onReply of operations) onReply();
    });
  }

  #endTurn(steps: readonly Step[]): void {
    for (const { onEnd } of steps) onEnd();
    if (this.#collected.length > 0) this.#send();
    else if (this.#held.length > 0 && !this.#isTimed) this.#sendLater();
  }

  #send(): void {
    const operations = [...this.#held, ...this.#collected];
    this.#held = [];
    this.#collected = [];
    this.#sent++;
    this.#isTimed = false;
    this.#fleet.send(this, operations);
  }

  #sendLater(): void {
    const sent = this.#sent;
    this.#isTimed = true;
    this.#fleet.timeline.after(CONFIRM_WAIT, () => {
      if (this.#sent === sent) this.work(0, () => void this.#collected.push(...this.#held.splice(0)));
    });
  }
}
