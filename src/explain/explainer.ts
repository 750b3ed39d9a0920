/** Explains refusals while the gate has other work: one at a time, off the request's way, so many a minute for each route. */
import type { Clock, Milliseconds } from '../core/clock.ts';
import type { Exchange } from '../core/exchange.ts';
import type { Reason, Refusal } from '../core/refusal.ts';
import { Meter, USUAL_BUDGET } from './meter.ts';
import { explainBeside } from './run.ts';
import type { Explanation, Suspect, SuspectRequest } from './suspect.ts';

/** How much is explained. */
export interface ExplainerOptions {
  /** For each route. */
  readonly perMinute: number;
  /** Larger contents are not kept, in bytes: their heads alone are looked at. */
  readonly maxBody: number;
}

/** What is known beside the request, when its turn comes. */
export type SuspectContext = Omit<Suspect, 'request'>;

/** What was found out about one refusal. */
export interface Explained extends Explanation {
  readonly route: string;
  readonly requestId: string;
}

/** What the explainer works with, and whom it tells. */
export interface ExplainerParts {
  readonly clock: Clock;
  /** Resolves when other work had its turn. */
  readonly pause: () => Promise<void>;
  /** Undefined for routes that are gone by now. */
  readonly find: (route: string) => SuspectContext | undefined;
  readonly onExplained: (explained: Explained) => void;
  /** A refusal that was not looked into. */
  readonly onSkipped: (route: string) => void;
  /** An analysis that failed; a fault of ours. */
  readonly onFailed: (requestId: string, error: unknown) => void;
}

/** Refusals that an analysis can say something about. */
const EXPLAINED: ReadonlySet<Reason> = new Set<Reason>([
  'bad_signature',
  'malformed_signature',
  'missing_signature',
  'timestamp_old',
  'timestamp_future',
]);
const MOST_WAITING = 32;
const MINUTE: Milliseconds = 60_000;

interface Bucket {
  tokens: number;
  filledAt: Milliseconds;
}

interface Waiting {
  readonly route: string;
  readonly requestId: string;
  readonly request: SuspectRequest;
}

/** The queue and the one who works on it. */
export class Explainer {
  readonly #parts: ExplainerParts;
  readonly #options: ExplainerOptions;
  readonly #queue: Waiting[] = [];
  readonly #buckets = new Map<string, Bucket>();
  #working: Promise<void> | undefined;

  constructor(options: ExplainerOptions, parts: ExplainerParts) {
    this.#options = options;
    this.#parts = parts;
  }

  /** Takes a refusal, if there is a place and the route has not had its share; returns at once, and never throws. */
  offer(route: string, exchange: Exchange, { reason }: Refusal): void {
    if (!EXPLAINED.has(reason)) return;
    if (this.#queue.length >= MOST_WAITING || !this.#takeToken(route)) return this.#parts.onSkipped(route);
    const { method, target, headers, receivedAt, requestId } = exchange;
    const request = { method, target: target.raw, headers, body: this.#toBody(exchange), receivedAt };
    this.#queue.push({ route, requestId, request });
    this.#working ??= this.#work();
  }

  /** Resolves when nothing waits. */
  async idle(): Promise<void> {
    await this.#working;
  }

  /** Only what a gate has read: a content that nobody asked for is not read for this. */
  #toBody({ body: { content } }: Exchange): Buffer | undefined {
    // A copy: the buffer may be a slice of a larger one, which would be kept with it.
    return Buffer.isBuffer(content) && content.length <= this.#options.maxBody ? Buffer.from(content) : undefined;
  }

  #takeToken(route: string): boolean {
    const { perMinute } = this.#options;
    const now = this.#parts.clock.monotonic();
    const bucket = this.#buckets.get(route) ?? { tokens: perMinute, filledAt: now };
    bucket.tokens = Math.min(perMinute, bucket.tokens + ((now - bucket.filledAt) * perMinute) / MINUTE);
    bucket.filledAt = now;
    this.#buckets.set(route, bucket);
    if (bucket.tokens < 1) return false;
    bucket.tokens--;
    return true;
  }

  async #work(): Promise<void> {
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      try {
        await this.#parts.pause();
        await this.#explain(next);
      } catch (thrown) {
        this.#parts.onFailed(next.requestId, thrown);
      }
    }
    this.#working = undefined;
  }

  async #explain({ route, requestId, request }: Waiting): Promise<void> {
    const context = this.#parts.find(route);
    if (context === undefined) return this.#parts.onSkipped(route);
    const explanation = await explainBeside({ ...context, request }, new Meter(USUAL_BUDGET), this.#parts.pause);
    this.#parts.onExplained({ route, requestId, ...explanation });
  }
}
