/** Analyses rejections in the background: one at a time, without delaying requests, with a rate limit per route and a CPU budget. */

import type { Clock, Milliseconds } from '../../core/clock.ts';
import { rememberClientNetworks } from '../../core/ip-address.ts';
import type { Reason, Refusal } from '../../core/refusal.ts';
import type { ParsedHead } from '../../core/request.ts';
import { type AnalysisInput, DEFAULT_BUDGET, type Explanation, Meter, type RejectedRequest } from './analysis.ts';

/** The context of a request, read when its analysis starts. */
export type AnalysisContext = Omit<AnalysisInput, 'request'>;

/** The result of one analysis. */
export interface Explained extends Explanation {
  readonly route: string;
  readonly requestId: string;
}

/** Rejections that can be analyzed. */
export const EXPLAINED_REASONS: ReadonlySet<Reason> = new Set<Reason>([
  'bad_signature',
  'malformed_signature',
  'missing_signature',
  'timestamp_old',
  'timestamp_future',
]);
const MAX_WAITING = 32;
/** Per client network. */
const MAX_WAITING_PER_CLIENT = 8;
/** Clients whose CPU use is remembered. */
const MAX_CLIENTS = 256;
/** CPU time that all analyses may take at once; after that, each step waits until the share allows it. */
const BURST_MS: Milliseconds = 10;
/** CPU time that the analyses of one client may take at once: enough for a few deliveries of typical size. */
const CLIENT_BURST_MS: Milliseconds = 250;
const MINUTE: Milliseconds = 60_000;

interface Bucket {
  tokens: number;
  filledAt: Milliseconds;
}

/** A client network's use of the explainer. */
interface ClientUse {
  readonly cpu: CpuBudget;
  waiting: number;
}

interface WaitingAnalysis {
  readonly client: ClientUse;
  readonly route: string;
  readonly requestId: string;
  readonly request: RejectedRequest;
}

/** The queue of rejections and its worker. */
export class Explainer {
  readonly #parts;
  readonly #options;
  readonly #queue: WaitingAnalysis[] = [];
  readonly #buckets = new Map<string, Bucket>();
  readonly #cpu: CpuBudget;
  readonly #toNetwork = rememberClientNetworks();
  /** In the order of last use. */
  readonly #clients = new Map<string, ClientUse>();
  #working: Promise<void> | undefined;

  constructor(
    options: {
      /** Analyses per route. */
      readonly perMinute: number;
      /** In bytes. Larger bodies are not kept, so only the head is analyzed. */
      readonly maxBody: number;
      /** Share of one core for all analyses together: between 0 and 1. */
      readonly cpuShare: number;
      /** Share of one core for the rejections of one client network. */
      readonly cpuSharePerClient: number;
    },
    parts: {
      readonly clock: Clock;
      /** Resolves after other work had a chance to run. */
      readonly pause: () => Promise<void>;
      /** Returns undefined for a route that was removed. */
      readonly find: (route: string) => AnalysisContext | undefined;
      readonly onExplained: (explained: Explained) => void;
      /** Called for a rejection that is not analyzed. */
      readonly onSkipped: (route: string) => void;
      /** Called for an analysis that threw, which is our bug. */
      readonly onFailed: (requestId: string, error: unknown) => void;
    },
  ) {
    this.#options = options;
    this.#parts = parts;
    this.#cpu = new CpuBudget(options.cpuShare, BURST_MS, parts.clock);
  }

  /** Queues a rejection if the queue has room and neither the client nor the route has used up its share; never blocks or throws. */
  offer(route: string, head: ParsedHead, { reason }: Refusal): void {
    if (!EXPLAINED_REASONS.has(reason)) return;
    // In a flood nearly all rejections end here, before anything is looked up for them.
    const bucket = this.#fill(route);
    if (this.#queue.length >= MAX_WAITING || bucket.tokens < 1) return this.#parts.onSkipped(route);
    const client = this.#toClient(head.client.address);
    // The client's limits first: a client over its limits must not use up the route's tokens.
    if (client.waiting >= MAX_WAITING_PER_CLIENT || client.cpu.delay > 0) return this.#parts.onSkipped(route);
    bucket.tokens--;
    client.waiting++;
    const { method, target, headers, receivedAt, requestId } = head;
    const request = { method, target: target.raw, headers, body: this.#toBody(head), receivedAt };
    this.#queue.push({ client, route, requestId, request });
    this.#working ??= this.#work();
  }

  /** Resolves when the queue is empty. */
  async idle(): Promise<void> {
    await this.#working;
  }

  /** Only a body that a gate has read: the analysis does not read it. */
  #toBody({ body: { content } }: ParsedHead): Buffer | undefined {
    // A copy: the buffer may be a slice of a larger one, which would be kept with it.
    return Buffer.isBuffer(content) && content.length <= this.#options.maxBody ? Buffer.from(content) : undefined;
  }

  #toClient(address: string): ClientUse {
    const network = this.#toNetwork(address);
    const known = this.#clients.get(network);
    const { clock } = this.#parts;
    const client = known ?? { cpu: new CpuBudget(this.#options.cpuSharePerClient, CLIENT_BURST_MS, clock), waiting: 0 };
    this.#clients.delete(network);
    this.#clients.set(network, client);
    const [oldest] = this.#clients.keys();
    if (this.#clients.size > MAX_CLIENTS && oldest !== undefined) this.#clients.delete(oldest);
    return client;
  }

  /** The tokens of the route now. */
  #fill(route: string): Bucket {
    const { perMinute } = this.#options;
    const now = this.#parts.clock.monotonic();
    const known = this.#buckets.get(route);
    if (known === undefined) {
      const full = { tokens: perMinute, filledAt: now };
      this.#buckets.set(route, full);
      return full;
    }
    known.tokens = Math.min(perMinute, known.tokens + ((now - known.filledAt) * perMinute) / MINUTE);
    known.filledAt = now;
    return known;
  }

  async #work(): Promise<void> {
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      next.client.waiting--;
      try {
        await this.#pause();
        await this.#explain(next);
      } catch (thrown) {
        this.#parts.onFailed(next.requestId, thrown);
      }
    }
    this.#working = undefined;
  }

  /** Lets other work run, for as long as the CPU budget requires. */
  async #pause(): Promise<void> {
    const { clock, pause } = this.#parts;
    const { delay } = this.#cpu;
    if (delay > 0)
      await new Promise<void>((resolve) => {
        clock.after(delay, resolve);
      });
    await pause();
  }

  async #explain({ client, route, requestId, request }: WaitingAnalysis): Promise<void> {
    const { clock } = this.#parts;
    const measure = <T>(step: () => T): T => {
      const before = clock.monotonic();
      try {
        return step();
      } finally {
        const spent = clock.monotonic() - before;
        this.#cpu.spend(spent);
        client.cpu.spend(spent);
      }
    };
    const context = measure(() => this.#parts.find(route));
    if (context === undefined) return this.#parts.onSkipped(route);
    const { explainInBackground } = await import('./background.ts');
    const pace = { pause: () => this.#pause(), measure };
    const explanation = await explainInBackground({ ...context, request }, new Meter(DEFAULT_BUDGET), pace);
    this.#parts.onExplained({ route, requestId, ...explanation });
  }
}

/** A share of one core, with a burst allowance. */
class CpuBudget {
  readonly #share: number;
  readonly #burst: Milliseconds;
  readonly #clock: Clock;
  /** Negative if more was spent than allowed. */
  #credit: Milliseconds;
  #filledAt: Milliseconds;

  /** `share`: between 0 and 1; `burst`: what may be spent at once after an idle period. */
  constructor(share: number, burst: Milliseconds, clock: Clock) {
    this.#share = share;
    this.#burst = burst;
    this.#clock = clock;
    this.#credit = burst;
    this.#filledAt = clock.monotonic();
  }

  /** Records CPU time that was spent. */
  spend(spent: Milliseconds): void {
    this.#fill();
    this.#credit -= spent;
  }

  /** How long to wait before more may be spent; 0 if no wait is needed. */
  get delay(): Milliseconds {
    this.#fill();
    return Math.max(0, -this.#credit / this.#share);
  }

  #fill(): void {
    const now = this.#clock.monotonic();
    this.#credit = Math.min(this.#burst, this.#credit + (now - this.#filledAt) * this.#share);
    this.#filledAt = now;
  }
}
