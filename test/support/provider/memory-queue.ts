/** A delivery queue in memory, for tests of the API: it stores and finds, and hands out no lanes. */
import { SidegateError } from '../../../src/core/errors.ts';
import type { EndpointStore, StoredEndpoint } from '../../../src/provider/endpoints/endpoint-store.ts';
import type {
  AppendResult,
  DeliveryFilter,
  DeliveryPage,
  DeliveryQueue,
  DeliveryRecord,
  LaneState,
  NewEvent,
  Page,
  ReplayProgress,
} from '../../../src/provider/queue/delivery-queue.ts';

/** A store whose replicas are several `MemoryEndpointStore` objects over one map. */
export class MemoryEndpointStore implements EndpointStore {
  readonly stored: Map<string, StoredEndpoint>;
  readonly #others: Set<MemoryEndpointStore>;
  readonly #listeners = new Set<() => void>();
  /** Thrown by the next call. */
  failure: Error | undefined;
  lists = 0;

  constructor(replica?: MemoryEndpointStore) {
    this.stored = replica?.stored ?? new Map();
    this.#others = replica === undefined ? new Set() : replica.#others;
    this.#others.add(this);
  }

  async list(): Promise<readonly StoredEndpoint[]> {
    this.lists++;
    const list = [...this.stored.values()];
    await this.#respond();
    return list;
  }

  async put(endpoint: StoredEndpoint): Promise<boolean> {
    await this.#respond();
    if ((this.stored.get(endpoint.id)?.version ?? 0) !== endpoint.version - 1) return false;
    this.stored.set(endpoint.id, endpoint);
    this.#report();
    return true;
  }

  async remove(id: string, version?: number): Promise<boolean> {
    await this.#respond();
    if (version !== undefined && this.stored.get(id)?.version !== version) return false;
    this.#report();
    return this.stored.delete(id);
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async #respond(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    const { failure } = this;
    this.failure = undefined;
    if (failure !== undefined) throw failure;
  }

  #report(): void {
    for (const other of this.#others) if (other !== this) for (const listener of other.#listeners) listener();
  }
}

type Settled = Pick<DeliveryRecord, 'state' | 'attempts' | 'settledAt' | 'lastAttempt' | 'due'>;

export class MemoryQueue implements DeliveryQueue {
  readonly endpoints = new MemoryEndpointStore();
  readonly events = new Map<string, NewEvent>();
  readonly woken: string[] = [];
  /** No lane is served here; a test sets their states. */
  readonly states = new Map<string, LaneState>();
  readonly #deliveries = new Map<string, DeliveryRecord>();
  maxEvents = Number.POSITIVE_INFINITY;
  /** Thrown by every call. */
  failure: Error | undefined;
  /** An append is stored when it resolves. */
  gate: Promise<void> | undefined;
  /** Calls of append. */
  appends = 0;
  /** Deliveries in one step of a replay. */
  replayStep = 2;

  async open() {
    return [];
  }

  async append(events: readonly NewEvent[]): Promise<readonly AppendResult[]> {
    this.appends++;
    await this.gate;
    await this.#respond();
    const fresh = events.filter(({ id }) => !this.events.has(id));
    if (this.events.size + fresh.length > this.maxEvents) throw new SidegateError('system', 'queue_full', 'full');
    for (const event of fresh) {
      this.events.set(event.id, event);
      for (const { endpoint, isSkipped } of event.targets)
        this.#put(
          event,
          endpoint,
          isSkipped === true ? { state: 'skipped', attempts: 0 } : { state: 'waiting', attempts: 0, due: event.createdAt },
        );
    }
    return events.map((event) => (fresh.includes(event) ? 'stored' : 'duplicate'));
  }

  /** Ends a delivery. */
  settle(event: string, endpoint: string, settled: Settled): void {
    this.#put(this.events.get(event) as NewEvent, endpoint, settled);
  }

  serve() {
    return { stop: async () => undefined };
  }

  async wake(endpoint: string): Promise<void> {
    this.woken.push(endpoint);
  }

  async getEvent(id: string) {
    await this.#respond();
    return this.events.get(id);
  }

  async find(filter: DeliveryFilter, { limit, after }: Page): Promise<DeliveryPage> {
    await this.#respond();
    const all = this.#select(filter).reverse();
    const start = after === undefined ? 0 : all.findIndex(({ event, endpoint }) => `${event}~${endpoint}` === after) + 1;
    if (after !== undefined && start === 0) throw new SidegateError('user', 'invalid_position', 'not a position');
    const deliveries = all.slice(start, start + limit);
    const last = deliveries.at(-1);
    return start + limit < all.length && last !== undefined
      ? { deliveries, next: `${last.event}~${last.endpoint}` }
      : { deliveries };
  }

  async findAttempts(event: string, endpoint: string) {
    await this.#respond();
    const found = this.#deliveries.get(`${event}~${endpoint}`);
    if (found === undefined) return undefined;
    return found.lastAttempt === undefined ? [] : [found.lastAttempt];
  }

  async *replay(filter: DeliveryFilter, now: number): AsyncIterable<ReplayProgress> {
    await this.#respond();
    const event = this.events.get(filter.event ?? '');
    if (event !== undefined && filter.endpoint !== undefined && !this.#deliveries.has(`${event.id}~${filter.endpoint}`))
      this.#put(event, filter.endpoint, { state: 'skipped', attempts: 0 });
    const found = this.#select(filter).filter(({ state }) => state !== 'waiting');
    let replayed = 0;
    for (const record of found) {
      this.#put(this.events.get(record.event) as NewEvent, record.endpoint, {
        state: 'waiting',
        attempts: record.attempts,
        due: now,
      });
      if (++replayed % this.replayStep === 0) {
        yield { replayed, total: found.length };
        await this.#respond();
      }
    }
    yield { replayed, total: found.length };
  }

  async prune() {
    return 0;
  }

  async stats() {
    return { waiting: 0, dead: 0, skipped: 0, events: 0, bytes: 0, maxEvents: 0, maxBytes: 0, sweepFinds: 0 };
  }

  async backlogs(endpoints: readonly string[]) {
    return endpoints.map((endpoint) => {
      const waiting = this.#select({ endpoint, states: ['waiting'] });
      const [oldest] = waiting;
      return { waiting: waiting.length, ...(oldest?.due !== undefined && { oldestDue: oldest.due }) };
    });
  }

  async laneStates(endpoints: readonly string[]) {
    return endpoints.map((endpoint) => this.states.get(endpoint));
  }

  async close(): Promise<void> {
    this.events.clear();
  }

  async #respond(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    if (this.failure !== undefined) throw this.failure;
  }

  #put({ id, type, channel, createdAt }: NewEvent, endpoint: string, settled: Settled): void {
    this.#deliveries.set(`${id}~${endpoint}`, { event: id, endpoint, type, channel, createdAt, ...settled });
  }

  #select({ event, endpoint, type, states, from, to }: DeliveryFilter): DeliveryRecord[] {
    return [...this.#deliveries.values()].filter(
      (each) =>
        (event === undefined || each.event === event) &&
        (endpoint === undefined || each.endpoint === endpoint) &&
        (type === undefined || each.type === type) &&
        (states === undefined || states.includes(each.state)) &&
        each.createdAt >= (from ?? 0) &&
        each.createdAt < (to ?? Number.POSITIVE_INFINITY),
    );
  }
}
