/** Explains refusals while the gate has other work: one at a time, off the request's way, so many a minute for each route. */
import { rememberClientNetworks } from '../../core/client-network.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { ParsedHead } from '../../core/parsed-head.ts';
import type { Reason, Refusal } from '../../core/refusal.ts';
import { CpuBudget } from './cpu-budget.ts';
import { Meter, USUAL_BUDGET } from './meter.ts';
import { explainBeside } from './run.ts';
import type { Explanation, Suspect, SuspectRequest } from './suspect.ts';

/** How much is explained. */
export interface ExplainerOptions {
  /** For each route. */
  readonly perMinute: number;
  /** Larger contents are not kept, in bytes: their heads alone are looked at. */
  readonly maxBody: number;
  /** Of one core, for all analyses together: between 0 and 1. */
  readonly cpuShare: number;
  /** Of one core, for the refusals of one client network. */
  readonly cpuSharePerClient: number;
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
/** Of one client network. */
const MAX_WAITING_PER_CLIENT = 8;
/** Clients whose cost is remembered. */
const MAX_CLIENTS = 256;
/** What all analyses together may take at once: the next step waits until the share has paid for it. */
const BURST_MS: Milliseconds = 10;
/** What the analyses of one client may take at once: a few deliveries of usual size. */
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

interface Waiting {
  readonly client: ClientUse;
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
  readonly #cpu: CpuBudget;
  readonly #toNetwork = rememberClientNetworks();
  /** The one seen last comes last. */
  readonly #clients = new Map<string, ClientUse>();
  #working: Promise<void> | undefined;

  constructor(options: ExplainerOptions, parts: ExplainerParts) {
    this.#options = options;
    this.#parts = parts;
    this.#cpu = new CpuBudget(options.cpuShare, BURST_MS, parts.clock);
  }

  /** Takes a refusal, if there is a place and neither the client nor the route has had its share; returns at once, and never throws. */
  offer(route: string, head: ParsedHead, { reason }: Refusal): void {
    if (!EXPLAINED.has(reason)) return;
    if (this.#queue.length >= MOST_WAITING) return this.#parts.onSkipped(route);
    const client = this.#toClient(head.client.address);
    // Before the route's token: one client must not use up what others are due.
    if (client.waiting >= MAX_WAITING_PER_CLIENT || client.cpu.delay > 0 || !this.#takeToken(route))
      return this.#parts.onSkipped(route);
    client.waiting++;
    const { method, target, headers, receivedAt, requestId } = head;
    const request = { method, target: target.raw, headers, body: this.#toBody(head), receivedAt };
    this.#queue.push({ client, route, requestId, request });
    this.#working ??= this.#work();
  }

  /** Resolves when nothing waits. */
  async idle(): Promise<void> {
    await this.#working;
  }

  /** Only what a gate has read: a content that nobody asked for is not read for this. */
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

  /** Other work goes first, and so much of it that analyses have their share of the core and no more. */
  async #pause(): Promise<void> {
    const { clock, pause } = this.#parts;
    const { delay } = this.#cpu;
    if (delay > 0)
      await new Promise<void>((resolve) => {
        clock.after(delay, resolve);
      });
    await pause();
  }

  async #explain({ client, route, requestId, request }: Waiting): Promise<void> {
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
    const pace = { pause: () => this.#pause(), measure };
    const explanation = await explainBeside({ ...context, request }, new Meter(USUAL_BUDGET), pace);
    this.#parts.onExplained({ route, requestId, ...explanation });
  }
}
