/** Decides what happens to each message between simulated processes, and to each request to a disk. */
import type { Ledger } from './ledger.ts';
import type { Faults, MessageFate } from './network.ts';
import type { Owner, Scheduler } from './scheduler.ts';
import type { Disk } from './sqlite-thread.ts';

/** How often faults occur. */
export type FaultLevel = 'none' | 'sparse' | 'dense';

/** The probability of each fault at one crossing, while there is a storm. */
interface CrossingRates {
  readonly cut: number;
  readonly slow: number;
  readonly crash: number;
  readonly pause: number;
}

const STORM_RATES: Readonly<Record<FaultLevel, CrossingRates>> = {
  none: { cut: 0, slow: 0, crash: 0, pause: 0 },
  sparse: { cut: 0.01, slow: 0.02, crash: 0.004, pause: 0.004 },
  dense: { cut: 0.03, slow: 0.06, crash: 0.01, pause: 0.01 },
};
/** Messages are often split, also without a fault: TCP has no messages. */
const SPLIT_RATE = 0.1;
const MAX_SLOW_MS = 20_000;
const MAX_PAUSE_MS = 45_000;
const SLOW_DISK_RATE = 0.1;
const MAX_DISK_MS = 3_000;

/** What crossings do to processes. */
export interface Victims {
  machineOf(owner: Owner): string;
  /** Kills the process after `delay`, if it is one that can be killed. */
  crash(owner: Owner, delay: number): void;
  pause(owner: Owner, duration: number): void;
}

export class CrossingFaults implements Faults, Disk {
  readonly #scheduler: Scheduler;
  readonly #ledger: Ledger;
  readonly #level: FaultLevel;
  readonly #victims: Victims;
  readonly #blocks = new Map<string, number>();
  #stormUntil = 0;

  constructor(scheduler: Scheduler, ledger: Ledger, level: FaultLevel, victims: Victims) {
    this.#scheduler = scheduler;
    this.#ledger = ledger;
    this.#level = level;
    this.#victims = victims;
  }

  /** From now on, each crossing may have a fault. */
  storm(duration: number): void {
    this.#stormUntil = Math.max(this.#stormUntil, this.#scheduler.now + duration);
  }

  /** Ends all faults that last. */
  heal(): void {
    this.#stormUntil = 0;
    this.#blocks.clear();
  }

  /** No message passes between the machines, as if a switch had failed. */
  block(a: string, b: string, duration: number): void {
    const until = this.#scheduler.now + duration;
    for (const key of [`${a} ${b}`, `${b} ${a}`]) this.#blocks.set(key, until);
    this.#ledger.addFault('partition', this.#scheduler.now, until, [a, b]);
  }

  blockedUntil(from: string, to: string): number {
    return this.#blocks.size === 0 ? 0 : (this.#blocks.get(`${from} ${to}`) ?? 0);
  }

  judge(from: Owner, to: Owner, bytes: number): MessageFate {
    const { random, now } = this.#scheduler;
    const isLocal = this.#victims.machineOf(from) === this.#victims.machineOf(to);
    const delay = isLocal ? random.between(0.01, 0.1) : random.skewed(0.1, 40);
    const pieces = bytes > 1 && random.isLikely(SPLIT_RATE) ? 1 + random.below(4) : 1;
    if (now >= this.#stormUntil) return { kind: 'delivered', delay, pieces };
    return this.#judgeInStorm(from, to, { kind: 'delivered', delay, pieces });
  }

  delay(owner: Owner): number {
    const { random, now } = this.#scheduler;
    if (now >= this.#stormUntil) return random.skewed(0.1, 5);
    const rates = STORM_RATES[this.#level];
    if (random.isLikely(rates.crash)) this.#victims.crash(owner, random.pick([0, 0.2]));
    return random.isLikely(SLOW_DISK_RATE) ? random.between(5, MAX_DISK_MS) : random.skewed(0.1, 5);
  }

  #judgeInStorm(from: Owner, to: Owner, usual: MessageFate & { readonly kind: 'delivered' }): MessageFate {
    const { random, now } = this.#scheduler;
    const { cut, slow, crash, pause } = STORM_RATES[this.#level];
    const machines = [this.#victims.machineOf(from), this.#victims.machineOf(to)];
    const { delay } = usual;
    if (random.isLikely(cut)) {
      this.#ledger.addFault('cut', now, now + delay, machines);
      return { kind: 'cut', delay, arrives: random.isLikely(0.5) };
    }
    if (random.isLikely(slow)) {
      const late = random.skewed(50, MAX_SLOW_MS);
      this.#ledger.addFault('slow', now, now + late, machines);
      return { ...usual, delay: late };
    }
    // Before the message is sent, on its way, or just after it arrived.
    if (random.isLikely(crash)) this.#victims.crash(random.pick([from, to]), random.pick([0, delay / 2, delay + 0.02]));
    if (random.isLikely(pause)) this.#victims.pause(random.pick([from, to]), random.skewed(100, MAX_PAUSE_MS));
    return usual;
  }
}
