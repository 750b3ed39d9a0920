/** A delivery queue in memory, for tests of the API: it stores and finds, and hands out no lanes. */
import { systemClock } from '../../../src/core/clock.ts';
import { SidegateError } from '../../../src/core/errors.ts';
import type { EndpointStore, StoredEndpoint } from '../../../src/provider/endpoints/endpoint.ts';
import { toEventSource } from '../../../src/provider/events/event.ts';
import type {
  AppendResult,
  DeliveryFilter,
  DeliveryQueue,
  DeliveryRecord,
  EventFilter,
  EventRecord,
  Found,
  LaneState,
  NewEvent,
  Page,
  RepairAction,
  RepairProgress,
} from '../../../src/provider/queue/delivery-queue.ts';

/** A store whose replicas are several `MemoryEndpointStore` objects over one map. */
export class MemoryEndpointStore implements EndpointStore {
  readonly stored: Map<string, StoredEndpoint>;
  readonly #others: Set<MemoryEndpointStore>;
  readonly #listeners = new Set<() => void>();
  /** Thrown by the next call. */
  failure: Error | undefined;
  lists = 0;
  /** Successful ones. */
  puts = 0;
  pageSize = 100;

  constructor(replica?: MemoryEndpointStore) {
    this.stored = replica?.stored ?? new Map();
    this.#others = replica === undefined ? new Set() : replica.#others;
    this.#others.add(this);
  }

  async list(after = ''): Promise<readonly StoredEndpoint[]> {
    if (after === '') this.lists++;
    const list = [...this.stored.values()].filter(({ id }) => id > after).sort((a, b) => (a.id < b.id ? -1 : 1));
    await this.#respond();
    return list.slice(0, this.pageSize);
  }

  async readVersion(id: string): Promise<number> {
    const found = [this.stored.get(id), this.stored.get(`config:${id}`)];
    await this.#respond();
    return found.reduce((sum, stored) => sum + (stored?.version ?? 0), 0);
  }

  async put(endpoint: StoredEndpoint, replaced?: number): Promise<boolean> {
    await this.#respond();
    if (this.stored.get(endpoint.id)?.version !== replaced) return false;
    this.stored.set(endpoint.id, endpoint);
    this.puts++;
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
  readonly clock = systemClock;
  readonly endpoints = new MemoryEndpointStore();
  readonly events = new Map<string, NewEvent>();
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
  /** Deliveries in one step of a repair. */
  repairStep = 2;
  readonly rescheduled: [endpoint: string, delays: readonly number[]][] = [];
  readonly #erased = new Set<string>();

  async open() {
    return [];
  }

  async append(events: readonly NewEvent[]): Promise<readonly AppendResult[]> {
    this.appends++;
    await this.gate;
    await this.#respond();
    const fresh = events.filter(({ id }) => !this.events.has(id));
    if (this.events.size + fresh.length > this.maxEvents)
      throw new SidegateError('system', 'queue_full', 'the endpoint acme has 7 undelivered events');
    const known = new Map(this.events);
    for (const event of fresh) {
      this.events.set(event.id, event);
      for (const { endpoint, isSkipped } of event.targets)
        this.#put(
          event,
          endpoint,
          isSkipped === true ? { state: 'skipped', attempts: 0 } : { state: 'waiting', attempts: 0, due: event.createdAt },
        );
    }
    return events.map((event) => {
      const before = known.get(event.id);
      if (before === undefined) return 'stored';
      const isSame = before.type === event.type && before.tenant === event.tenant && toData(before) === toData(event);
      return isSame ? 'duplicate' : 'conflict';
    });
  }

  /** Ends a delivery. */
  settle(event: string, endpoint: string, settled: Settled): void {
    this.#put(this.events.get(event) as NewEvent, endpoint, settled);
  }

  async join() {
    return undefined;
  }

  serve() {
    return { stop: async () => undefined };
  }

  wake(): Promise<void> {
    return Promise.resolve();
  }

  async findEvent(id: string) {
    const event = await this.getEvent(id);
    if (event === undefined) return undefined;
    const { type, tenant, createdAt, body, metadata, isErased } = event;
    return { type, tenant, createdAt, source: toEventSource(metadata), bytes: body.length + metadata.length, isErased };
  }

  async getEvent(id: string) {
    await this.#respond();
    const event = this.events.get(id);
    if (event === undefined) return undefined;
    const isErased = this.#erased.has(id);
    return { ...event, body: isErased ? Buffer.alloc(0) : event.body, isErased };
  }

  async find(filter: DeliveryFilter, { limit, after }: Page): Promise<Found<DeliveryRecord>> {
    await this.#respond();
    const all = this.#select(filter).reverse();
    const start = after === undefined ? 0 : all.findIndex(({ event, endpoint }) => `${event}~${endpoint}` === after) + 1;
    if (after !== undefined && start === 0) throw new SidegateError('user', 'invalid_position', 'not a position');
    const found = all.slice(start, start + limit);
    const last = found.at(-1);
    return { found, next: start + limit < all.length && last !== undefined ? `${last.event}~${last.endpoint}` : undefined };
  }

  async findAttempts(event: string, endpoint: string) {
    await this.#respond();
    const found = this.#deliveries.get(`${event}~${endpoint}`);
    if (found === undefined) return undefined;
    return found.lastAttempt === undefined ? [] : [found.lastAttempt];
  }

  async findEvents(filter: EventFilter, { limit, after }: Page): Promise<Found<EventRecord>> {
    await this.#respond();
    const events = [...this.events.values()].reverse();
    const start = after === undefined ? 0 : events.findIndex(({ id }) => id === after) + 1;
    if (after !== undefined && start === 0) throw new SidegateError('user', 'invalid_position', 'not a position');
    const { lacks } = filter;
    const isLacking = ({ id, metadata }: NewEvent): boolean =>
      toEventSource(metadata) === 'app' && !this.#erased.has(id) && !this.#deliveries.has(`${id}~${lacks}`);
    const all = events.slice(start).filter((event) => matches(event, filter) && (lacks === undefined || isLacking(event)));
    const shown = all.slice(0, limit);
    const last = shown.at(-1);
    const found = shown.map(({ id, type, tenant, createdAt }) => {
      const states = this.#select({ event: id }).map(({ state }) => state);
      const count = (...given: readonly string[]) => states.filter((state) => given.includes(state)).length;
      const counted = { deliveries: states.length, waiting: count('waiting'), failed: count('dead', 'skipped') };
      return { id, type, tenant, createdAt, ...counted };
    });
    return { found, next: limit < all.length ? last?.id : undefined };
  }

  async *repair(action: RepairAction, filter: DeliveryFilter, now: number): AsyncIterable<RepairProgress> {
    await this.#respond();
    const found = this.#selectRepaired(action, filter);
    let changed = 0;
    for (const record of found) {
      const event = this.events.get(record.event) as NewEvent;
      const { attempts } = record;
      if (action === 'purge') this.#deliveries.delete(`${record.event}~${record.endpoint}`);
      else if (action === 'cancel') this.#put(event, record.endpoint, { state: 'skipped', attempts, settledAt: now });
      else this.#put(event, record.endpoint, { state: 'waiting', attempts, due: now });
      if (++changed % this.repairStep === 0) {
        yield { changed, total: found.length };
        await this.#respond();
      }
    }
    yield { changed, total: found.length };
  }

  async count(action: RepairAction, filter: DeliveryFilter): Promise<number> {
    await this.#respond();
    return this.#selectRepaired(action, filter).length;
  }

  async addDelivery(id: string, endpoint: string, now: number): Promise<boolean> {
    await this.#respond();
    const event = this.events.get(id);
    if (event === undefined || this.#erased.has(id) || this.#deliveries.has(`${id}~${endpoint}`)) return false;
    this.#put(event, endpoint, { state: 'waiting', attempts: 0, due: now });
    return true;
  }

  async erase(which: { readonly event: string } | { readonly tenant: string }, now: number): Promise<number> {
    await this.#respond();
    const found = [...this.events.values()].filter(
      ({ id, tenant }) => !this.#erased.has(id) && ('event' in which ? id === which.event : tenant === which.tenant),
    );
    for (const { id } of found) {
      this.#erased.add(id);
      for await (const _ of this.repair('cancel', { event: id }, now));
    }
    return found.length;
  }

  async reschedule(endpoint: string, delays: readonly number[]): Promise<void> {
    await this.#respond();
    this.rescheduled.push([endpoint, delays]);
  }

  async prune() {
    return 0;
  }

  async stats() {
    const figures = { waiting: 0, dead: 0, skipped: 0, events: 0, bytes: 0, storedEvents: 0, storedBytes: 0, prunedUntil: 0 };
    return { ...figures, maxEvents: 0, maxBytes: 0, usedShares: { endpoint: 0, tenant: 0 } };
  }

  async backlogs(endpoints: readonly string[]) {
    return endpoints.map((endpoint) => {
      const waiting = this.#select({ endpoint, states: ['waiting'] });
      const [oldest] = waiting;
      return { waiting: waiting.length, ...(oldest?.due !== undefined && { oldestDue: oldest.due }) };
    });
  }

  async inboxes() {
    return [];
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

  #put({ id, type, tenant, createdAt }: NewEvent, endpoint: string, settled: Settled): void {
    this.#deliveries.set(`${id}~${endpoint}`, { event: id, endpoint, type, tenant, createdAt, ...settled });
  }

  #selectRepaired(action: RepairAction, filter: DeliveryFilter): DeliveryRecord[] {
    return this.#select(filter).filter(({ event, state }) => {
      if (action === 'cancel') return state === 'waiting';
      return action === 'purge' || !this.#erased.has(event);
    });
  }

  #select({ event, endpoint, states, receivers, ...filter }: DeliveryFilter): DeliveryRecord[] {
    const isReceiver = (each: DeliveryRecord): boolean =>
      receivers?.some((to) => to.endpoint === each.endpoint && (to.allTenants || to.tenant === each.tenant)) !== false;
    return [...this.#deliveries.values()].filter(
      (each) =>
        (event === undefined || each.event === event) &&
        (endpoint === undefined || each.endpoint === endpoint) &&
        (states === undefined || states.includes(each.state)) &&
        isReceiver(each) &&
        matches({ ...(this.events.get(each.event) as NewEvent), targets: [] }, filter),
    );
  }
}

function matches({ type, tenant, createdAt, targets }: NewEvent, filter: EventFilter): boolean {
  return (
    (filter.type === undefined || type === filter.type) &&
    (filter.tenant === undefined || tenant === filter.tenant) &&
    createdAt >= (filter.from ?? 0) &&
    createdAt < (filter.to ?? Number.POSITIVE_INFINITY) &&
    (filter.isUnrouted === undefined || targets.length === 0)
  );
}

function toData({ body, comparedFrom = 0 }: NewEvent): string {
  return body.subarray(comparedFrom).toString();
}
