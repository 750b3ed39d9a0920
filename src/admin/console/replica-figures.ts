/** The requests of the last minutes by route, summed over the replicas: each shares its own while a console is open. */
import * as z from 'zod';
import { type Clock, type Milliseconds, toInstant } from '../../core/clock.ts';
import { parseJson } from '../../core/json-path.ts';
import type { SharedStreams } from '../../state/shared-streams.ts';
import type { Journal, JournalEntry } from '../../telemetry/journal/journal.ts';
import { MAX_RATED_ROUTES, RATE_INTERVAL_MS, type RouteRates } from '../rate-history.ts';
import { type RouteFigures, routeFigures } from './schemas.ts';
import { type RequestOutcome, toOutcome } from './stages.ts';

/** The figures of other replicas. */
interface OtherReplica {
  readonly replica: string;
  readonly routes: ReadonlyMap<string, RouteFigures>;
  /** When they arrived in the store, by its clock in Unix milliseconds. */
  readonly at: number;
}

/** The requests that the journal has. */
interface RecentRequests {
  /** Undefined: without a route. */
  readonly byRoute: ReadonlyMap<string | undefined, readonly JournalEntry[]>;
  /** The time that they span. */
  readonly seconds: number;
}

/** Reads them once for all routes. */
export function readRecent({
  clock,
  journal,
}: Readonly<{ clock: Clock; journal: Pick<Journal, 'find' | 'size'> }>): RecentRequests {
  const entries = journal.find({ limit: Math.max(1, journal.size) });
  const oldest = entries.at(-1);
  const seconds = oldest === undefined ? 0 : Math.max(0, clock.now() - oldest.at) / 1_000;
  return { byRoute: Map.groupBy(entries, ({ line }) => line.route), seconds };
}

/** The others keep sharing for so long after the last request to a console. */
export const WATCH_MS: Milliseconds = 60_000;
/** A replica that shared nothing for so long has ended. */
const EXPIRES_MS: Milliseconds = 3 * RATE_INTERVAL_MS;
/** Each has up to 200 routes, of about 200 bytes. */
const MAX_REPLICAS = 100;
/** Of hosts and routes. */
const MAX_NAME_LENGTH = 256;

const batch = z.strictObject({
  instance: z.string(),
  replica: z.string().max(MAX_NAME_LENGTH),
  routes: z.array(z.tuple([z.string().max(MAX_NAME_LENGTH), routeFigures])).max(MAX_RATED_ROUTES),
});

/** Shares the figures of this replica, and reads those of the others. */
export class ReplicaFigures {
  readonly #instance: string;
  readonly #parts;
  readonly #others = new Map<string, OtherReplica>();
  #readUpTo = '0';
  #reading: Promise<void> | undefined;
  #sharedAt: Milliseconds = Number.NEGATIVE_INFINITY;

  constructor(
    instance: string,
    parts: {
      readonly clock: Clock;
      readonly journal: Pick<Journal, 'find' | 'size'>;
      readonly rates: { of(route: string): RouteRates | undefined };
      readonly replica: string;
      readonly routes: () => readonly { readonly name: string }[];
      /** Undefined without Redis. */
      readonly shared: SharedStreams | undefined;
    },
  ) {
    this.#instance = instance;
    this.#parts = parts;
  }

  /** Those of this replica, by route. */
  toOwn({ byRoute, seconds }: RecentRequests): ReadonlyMap<string, RouteFigures> {
    const { rates, routes } = this.#parts;
    return new Map(routes().map(({ name }) => [name, toFigures(rates.of(name), byRoute.get(name) ?? [], seconds)]));
  }

  /** Publishes those of this replica, at an interval. */
  async share(shared: SharedStreams): Promise<void> {
    const now = this.#parts.clock.monotonic();
    if (now - this.#sharedAt < RATE_INTERVAL_MS) return;
    this.#sharedAt = now;
    const used = [...this.toOwn(readRecent(this.#parts))].filter(
      ([, { lastMinutes, lastAt }]) => lastMinutes.requests > 0 || lastAt !== null,
    );
    const routes = used.slice(0, MAX_RATED_ROUTES);
    await shared.publish('figures', JSON.stringify({ instance: this.#instance, replica: this.#parts.replica, routes }));
  }

  /** Of the other replicas; none while the store does not respond. */
  async readOthers(): Promise<readonly OtherReplica[]> {
    const { shared } = this.#parts;
    if (shared === undefined) return [];
    // Two reads at once would both take the same batches.
    this.#reading ??= this.#read(shared);
    await this.#reading;
    return [...this.#others.values()];
  }

  async #read(shared: SharedStreams): Promise<void> {
    try {
      await shared.watch(WATCH_MS);
      // Its own batch is the newest, so that those of replicas that have ended are older by the clock of the store.
      await this.share(shared);
      for (const { id, text } of await shared.read('figures', this.#readUpTo)) {
        this.#readUpTo = id;
        this.#take(text, Number.parseInt(id, 10));
      }
      const newest = Number.parseInt(this.#readUpTo, 10);
      for (const [instance, { at }] of this.#others) if (newest - at > EXPIRES_MS) this.#others.delete(instance);
    } catch {
      this.#others.clear();
      this.#readUpTo = '0';
    }
    this.#reading = undefined;
  }

  /** Ignores what a replica of another version wrote. */
  #take(text: string, at: number): void {
    const data = parseJson(text, batch);
    if (data === undefined || data.instance === this.#instance) return;
    const { instance, replica, routes } = data;
    if (this.#others.size < MAX_REPLICAS || this.#others.has(instance))
      this.#others.set(instance, { replica, routes: new Map(routes), at });
  }
}

/** The figures of a route in all replicas. */
export function sumFigures(all: readonly RouteFigures[]): RouteFigures {
  const add = (name: 'perSecond' | 'requests' | 'failed' | 'rejected'): number =>
    sum(all.map(({ lastMinutes }) => lastMinutes[name]));
  return {
    lastMinutes: {
      seconds: Math.max(0, ...all.map(({ lastMinutes }) => lastMinutes.seconds)),
      perSecond: add('perSecond'),
      requests: add('requests'),
      failed: add('failed'),
      rejected: add('rejected'),
    },
    lastAt:
      all
        .flatMap(({ lastAt }) => lastAt ?? [])
        .toSorted()
        .at(-1) ?? null,
  };
}

/** From the journal while there are no rates. */
function toFigures(rates: RouteRates | undefined, recent: readonly JournalEntry[], seconds: number): RouteFigures {
  const lastAt = recent[0] === undefined ? null : toInstant(recent[0].at);
  if (rates === undefined || rates.accepted.length === 0) {
    const count = (outcome: RequestOutcome): number => recent.filter((entry) => toOutcome(entry) === outcome).length;
    return { lastMinutes: toLastMinutes(seconds, recent.length, count('failed'), count('rejected')), lastAt };
  }
  const [accepted, failed, rejected] = [rates.accepted, rates.failed, rates.rejected].map(sum) as [number, number, number];
  const span = (rates.accepted.length * RATE_INTERVAL_MS) / 1_000;
  return { lastMinutes: toLastMinutes(span, accepted + failed + rejected, failed, rejected), lastAt };
}

function toLastMinutes(seconds: number, requests: number, failed: number, rejected: number): RouteFigures['lastMinutes'] {
  return { seconds, perSecond: seconds > 0 ? requests / seconds : 0, requests, failed, rejected };
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
