/** Waits for the outcome of another request: bounded in number and in time, with growing pauses between polls. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { type Reason, type Refusal, refuse } from '../../core/refusal.ts';

/** One wait. */
export interface Wait<Outcome> {
  readonly clock: Clock;
  readonly atMost: Milliseconds;
  /** Undefined: not yet. A rejection ends the wait, which then rejects as well. */
  readonly poll: () => Promise<Outcome | undefined>;
}

const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 250;
const LONGEST_RETRY_AFTER_S = 10;

/** Bounds how many requests may wait for another's outcome at once, so that replays of one delivery cannot pile up. */
export class ClaimWaiters {
  readonly #places: number;
  readonly #onFull: () => void;
  #taken = 0;

  constructor(places: number, onFull: () => void) {
    this.#places = places;
    this.#onFull = onFull;
  }

  /** Polls until there is an outcome; `full` where no place is left, `late` where the time is over. */
  async wait<Outcome extends object>(wait: Wait<Outcome>): Promise<Outcome | 'full' | 'late'> {
    if (this.#taken >= this.#places) {
      this.#onFull();
      return 'full';
    }
    this.#taken++;
    try {
      return (await pollUntil(wait)) ?? 'late';
    } finally {
      this.#taken--;
    }
  }
}

async function pollUntil<Outcome>({ clock, atMost, poll }: Wait<Outcome>): Promise<Outcome | undefined> {
  const until = clock.monotonic() + atMost;
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    const budget = until - clock.monotonic();
    if (budget <= 0) return undefined;
    await sleep(clock, Math.min(pause, budget));
    const outcome = await poll();
    if (outcome !== undefined) return outcome;
  }
}

function sleep(clock: Clock, delay: Milliseconds): Promise<void> {
  return new Promise((resolve) => {
    clock.after(delay, resolve);
  });
}

/** For a request that waited in vain: retry when the other's lease may be over, or soon. */
export function retryLater(remaining: Milliseconds, reason: Reason): Refusal {
  const seconds = Math.min(Math.max(Math.ceil(remaining / 1000), 1), LONGEST_RETRY_AFTER_S);
  return refuse('in_progress', reason, { retryAfterSeconds: seconds });
}
