/** What can go wrong, the seeded order in which it does, and the record of what did. */
import type { Random } from '../support/seeded.ts';

/** A fault that can be made. */
export interface Fault {
  readonly kind: string;
  /** Faults of one target exclude each other. */
  readonly target: string;
  /** Makes the fault, and resolves when it has ended. */
  // biome-ignore lint/suspicious/noConfusingVoidType: most faults make the store forget nothing
  readonly make: (random: Random) => Promise<Forgets | undefined | void>;
}

/** What the store forgot: `all` IDs from before the end, or the `recent` ones, that were written shortly before the fault and during it. */
export type Forgets = 'all' | 'recent';

/** A fault that was made. */
export interface FaultRecord extends Pick<Fault, 'kind' | 'target'> {
  readonly from: number;
  to: number;
  forgets?: Forgets | undefined;
}

/** A failover is noticed within this time. */
const NOTICED_MS = 3_000;
/** Sentinels make a master that was replaced a replica within this time. */
const REPLACED_MS = 12_000;

/** Makes faults that overlap. Each kind is made once before any is made again. */
export class FaultPlan {
  readonly records: FaultRecord[] = [];
  readonly #faults: readonly Fault[];
  readonly #random: Random;
  readonly #busy = new Set<string>();
  readonly #running = new Set<Promise<void>>();
  readonly #failures: Error[] = [];
  #bag: Fault[] = [];

  constructor(faults: readonly Fault[], random: Random) {
    this.#faults = faults;
    this.#random = random;
  }

  /** Starts the next fault whose target has none. */
  startNext(): void {
    if (this.#bag.length === 0) this.#bag = shuffle(this.#faults, this.#random);
    const at = this.#bag.findIndex(({ target }) => !this.#busy.has(target));
    // All remaining targets are busy: the fault is made at the next call.
    if (at === -1) return;
    const [fault] = this.#bag.splice(at, 1);
    if (fault !== undefined) this.#start(fault);
  }

  #start({ kind, target, make }: Fault): void {
    const record: FaultRecord = { kind, target, from: Date.now(), to: Number.POSITIVE_INFINITY };
    this.records.push(record);
    this.#busy.add(target);
    const running = make(this.#random)
      .then((forgets) => {
        record.forgets = forgets ?? undefined;
      })
      .catch((thrown: unknown) => {
        this.#failures.push(new Error(`the fault could not be made: ${kind}`, { cause: thrown }));
      })
      .then(() => {
        record.to = Date.now();
        this.#busy.delete(target);
        this.#running.delete(running);
      });
    this.#running.add(running);
  }

  /** Records that the store failed over by itself, shortly before or after another fault; a master that was replaced takes writes for a while. */
  recordFailover(): void {
    const now = Date.now();
    this.records.push({
      kind: 'failover noticed',
      target: 'store',
      from: now - NOTICED_MS,
      to: now + REPLACED_MS,
      forgets: 'recent',
    });
  }

  /** Resolves when all faults have ended; rejects if one failed. */
  async end(): Promise<void> {
    await Promise.all(this.#running);
    const [failure] = this.#failures;
    if (failure !== undefined) throw failure;
  }
}

function shuffle<T>(items: readonly T[], random: Random): T[] {
  const shuffled = [...items];
  for (let i = shuffled.length - 1; i > 0; i--) {
    const other = random(i + 1);
    [shuffled[i], shuffled[other]] = [shuffled[other] as T, shuffled[i] as T];
  }
  return shuffled;
}
