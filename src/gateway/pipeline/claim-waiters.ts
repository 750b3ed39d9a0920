/** Waits for the outcome of another request: limited in number and time, with growing pauses between polls. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { type Reason, type Refusal, refuse } from '../../core/refusal.ts';

/** One wait. */
export interface Wait<Outcome> {
  readonly clock: Clock;
  readonly timeout: Milliseconds;
  /** Undefined: not yet. A rejection ends the wait, which then rejects as well. */
  readonly poll: () => Promise<Outcome | undefined>;
}

const MIN_PAUSE_MS = 20;
const MAX_PAUSE_MS = 250;
const MAX_RETRY_AFTER_S = 10;

/** Limits how many requests may wait for another one's outcome at once, so that replays of one delivery cannot pile up. */
export class ClaimWaiters {
  readonly #max: number;
  readonly #onFull: () => void;
  #count = 0;

  constructor(max: number, onFull: () => void) {
    this.#max = max;
    this.#onFull = onFull;
  }

  /** Polls until there is an outcome; `full` if too many requests wait already, `timeout` if it takes too long. */
  async wait<Outcome extends object>(wait: Wait<Outcome>): Promise<Outcome | 'full' | 'timeout'> {
    if (this.#count >= this.#max) {
      this.#onFull();
      return 'full';
    }
    this.#count++;
    try {
      return (await pollUntil(wait)) ?? 'timeout';
    } finally {
      this.#count--;
    }
  }
}

async function pollUntil<Outcome>({ clock, timeout, poll }: Wait<Outcome>): Promise<Outcome | undefined> {
  const until = clock.monotonic() + timeout;
  for (let pause = MIN_PAUSE_MS; ; pause = Math.min(pause * 2, MAX_PAUSE_MS)) {
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

/** Rejects a request that waited in vain; the sender retries when the other request's lease may have expired, or sooner. */
export function retryLater(remaining: Milliseconds, reason: Reason): Refusal {
  const seconds = Math.min(Math.max(Math.ceil(remaining / 1000), 1), MAX_RETRY_AFTER_S);
  return refuse('in_progress', reason, { retryAfterSeconds: seconds });
}
