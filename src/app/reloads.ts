/** Remembers the last attempt to load the config, for the console. */
import type { Clock, EpochMilliseconds } from '../core/clock.ts';
import { formatProblem, type LocatedProblem } from '../core/problem.ts';
import type { ConfigMetrics } from './metrics.ts';

/** Counts and remembers reloads. */
export class Reloads {
  readonly #clock: Clock;
  readonly #metrics: Pick<ConfigMetrics, 'reload'>;
  #hash = '';
  #loadedAt: EpochMilliseconds = 0;
  #last: { readonly at: EpochMilliseconds; readonly problems: readonly LocatedProblem[] } = { at: 0, problems: [] };

  constructor(clock: Clock, metrics: Pick<ConfigMetrics, 'reload'>) {
    this.#clock = clock;
    this.#metrics = metrics;
  }

  /** The config with this hash is active from now on. */
  succeed(hash: string): void {
    const at = this.#clock.now();
    this.#hash = hash;
    this.#loadedAt = at;
    this.#last = { at, problems: [] };
    this.#metrics.reload(true, at, hash);
  }

  /** The active config stays. */
  fail(problems: readonly LocatedProblem[]): void {
    const at = this.#clock.now();
    this.#last = { at, problems };
    this.#metrics.reload(false, at, this.#hash);
  }

  /** The active config, and the last attempt to replace it. */
  get active() {
    const { at, problems } = this.#last;
    return {
      hash: this.#hash,
      loadedAt: this.#loadedAt,
      lastReload: { at, isSuccessful: problems.length === 0, problems: problems.map(formatProblem) },
    };
  }
}
