/** The delivery queue in a database: SQLite for one process, PostgreSQL for several replicas. */
import type pg from 'pg';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import { type FreeMemory, StoreBudget } from '../../core/throttle.ts';
import type { ConnectionResult } from '../../state/postgres.ts';
import type { EndpointStore, Target } from '../endpoints/endpoint.ts';
import { isInboxEndpoint } from '../events/event.ts';
import type {
  DeliveryFilter,
  DeliveryQueue,
  EventFilter,
  EventPageRequest,
  Found,
  JoinedQueue,
  NewEvent,
  Page,
  QueueBounds,
  RepairAction,
  RunLane,
  StoredEvent,
} from './delivery-queue.ts';
import { type LaneEntry, LaneRun, LaneScheduler, type RunOutcome } from './lane-scheduler.ts';
import type { EventMessage, FoundStep, Position, PrunePosition, RepairPosition } from './messages.ts';
import { openPostgresStore } from './postgres/postgres-client.ts';
import { PostgresDatabase, type PostgresSettings } from './postgres/postgres-database.ts';
import type { Results } from './sql/store.ts';
import { openSqliteStore } from './sqlite/worker-client.ts';
import type { JoinedStore, OpenStore, QueueHooks, StoreClient } from './store-client.ts';

/** Of a body on its way to or from the store: the results of PostgreSQL are hexadecimal. */
const COPIES = { sqlite: 3, postgres: 8 } as const;
const CHANGED_PER_STEP = 500;
const PRUNED_PER_STEP = 200;
/** An event on its way to the store, besides its body, and a delivery; before copies, as for bodies. */
const [EVENT_BYTES, DELIVERY_BYTES] = [1_024, 256];
/** At once: lists and events use the same connections, or the same thread. */
const MAX_SEARCHES = 2;
/** Clocks of replicas may differ by this. A settlement that is further in the future was stored by a clock that was wrong. */
const MAX_CLOCK_SKEW_MS: Milliseconds = 60_000;
/** Steps, and time, in which one page is searched; the next page goes on. A filter that matches nothing would otherwise read the whole store. */
const MAX_FIND_STEPS = 20;
const MAX_FIND_MS: Milliseconds = 20;

export interface QueueParts {
  readonly clock: Clock;
  readonly bounds: QueueBounds;
  readonly hooks: QueueHooks;
  /** Of what is stored or read at once, before copies. */
  readonly maxStoreBytes: number;
  readonly memory?: FreeMemory | undefined;
  readonly copies?: number;
}

/** The database, with the secrets of its settings. */
export type QueuePlace =
  | {
      readonly kind: 'sqlite';
      readonly path: string;
      /** Accept a file system on which accepted events can be lost. */
      readonly allowVolatile: boolean;
    }
  | ({ readonly kind: 'postgres' } & PostgresSettings);

export function createQueue(place: QueuePlace, parts: QueueParts): DeliveryQueue {
  const { clock, bounds } = parts;
  const openStore =
    place.kind === 'sqlite' ? openSqliteStore(place.path, place.allowVolatile, bounds) : openPostgresStore(place, bounds, clock);
  return new SqlQueue(openStore, { ...parts, copies: COPIES[place.kind] });
}

/** Tests that the queue can be used, without a change; undefined for a file, which only one process can open. */
export function testQueue(place: QueuePlace): Promise<ConnectionResult> | undefined {
  if (place.kind === 'sqlite') return undefined;
  const title = `PostgreSQL, schema ${place.schema}`;
  const hint = 'docs/provider.md lists what the URL, the server and the role need';
  return PostgresDatabase.test(place).then(
    () => ({ title, hint, failure: undefined }),
    (thrown: unknown) => {
      if (thrown instanceof SidegateError) return { title, hint, failure: thrown.message };
      throw thrown;
    },
  );
}

/** Whether the queue cannot be opened because its server does not respond, has no resources, or holds locks: nobody has to correct anything else. */
export function isOutage(thrown: unknown): boolean {
  return thrown instanceof SidegateError && thrown.code === 'queue_unavailable' && thrown.kind === 'system';
}

class SqlQueue implements DeliveryQueue {
  readonly clock: Clock;
  readonly endpoints: EndpointStore = {
    list: (after = '') => this.#store.call('listEndpoints', { after }),
    readVersion: (id) => this.#store.call('endpointVersion', { id }),
    put: (endpoint, replaced) => this.#changeEndpoints(this.#store.call('putEndpoint', { endpoint, replaced })),
    remove: (id, version) => this.#changeEndpoints(this.#store.call('removeEndpoint', { id, version })),
    onChange: (listener) => {
      this.#listeners.add(listener);
      return () => this.#listeners.delete(listener);
    },
  };
  readonly #openStore: OpenStore;
  readonly #hooks: QueueHooks;
  readonly #scheduler: LaneScheduler;
  readonly #listeners = new Set<() => void>();
  readonly #budget: StoreBudget;
  /** Of what was read, until it was sent. */
  readonly #events: StoreBudget;
  readonly #searches: StoreBudget;
  readonly #aborts = new Map<string, AbortController>();
  #client: StoreClient | undefined;
  #runs = 0;
  #pruned: PrunePosition | undefined;
  #stopping: Promise<void> | undefined;

  constructor(openStore: OpenStore, { clock, hooks, maxStoreBytes, memory, copies }: QueueParts) {
    this.#openStore = openStore;
    this.clock = {
      now: () => clock.now() + (this.#client?.clockOffset ?? 0),
      monotonic: () => clock.monotonic(),
      after: (delay, action) => clock.after(delay, action),
      every: (interval, action) => clock.every(interval, action),
    };
    this.#hooks = hooks;
    this.#budget = new StoreBudget(maxStoreBytes, clock, memory, copies);
    this.#events = new StoreBudget(maxStoreBytes, clock);
    this.#searches = new StoreBudget(MAX_SEARCHES, clock);
    this.#scheduler = new LaneScheduler(this.clock, hooks.onRunError, () => runDetached(this.#hasten()));
  }

  get #store(): StoreClient {
    if (this.#client === undefined) throw new SidegateError('system', 'queue_unavailable', 'the queue is not open');
    return this.#client;
  }

  async open() {
    // Of an attempt that failed later.
    await this.#client?.close();
    const { client, warnings } = await this.#openStore({
      ...this.#hooks,
      onFatal: (error) => {
        this.#abortAll();
        this.#hooks.onFatal(error);
      },
      onDue: (endpoint, at) => this.#scheduler.addDue(endpoint, at),
      onNews: (endpoint) => {
        const isKnown = this.#scheduler.find(endpoint) !== undefined;
        if (isKnown) this.#scheduler.addDue(endpoint, this.clock.now());
        return isKnown;
      },
      onWake: (endpoint) => this.#scheduler.wake(endpoint),
      onEndpoints: () => {
        for (const listener of this.#listeners) listener();
      },
      onLeaseLost: (endpoint) => this.#aborts.get(endpoint)?.abort(),
    });
    this.#client = client;
    for (const { endpoint, next } of await client.call('dueLanes', { owner: '', now: this.clock.now() }))
      this.#scheduler.addDue(endpoint, next);
    await this.#hasten();
    return warnings;
  }

  async append(events: readonly NewEvent[], route?: (event: NewEvent) => readonly Target[]) {
    if (events.length === 0) return [];
    const results = await this.#append(events, (operation, bodies) => this.#store.call('append', operation, bodies), route);
    // Also what was stored before: the reply may have been lost.
    this.#addDue(events);
    return results;
  }

  async join(client: pg.ClientBase): Promise<JoinedQueue | undefined> {
    const append = await this.#store.join?.(client);
    if (append === undefined) return undefined;
    return {
      append: (events) => this.#append(events, append),
      serve: (events) => this.#store.announce?.({ due: [...this.#addDue(events)] }),
    };
  }

  serve(lanes: number, run: RunLane, toTenant?: (endpoint: string) => string | undefined) {
    this.#stopping = undefined;
    this.#scheduler.serve(lanes, (entry, onClaimed) => this.#run(entry, run, onClaimed), toTenant);
    return {
      stop: () => {
        if (this.#stopping === undefined) {
          this.#stopping = this.#scheduler.stop();
          this.#abortAll();
          runDetached(this.#store.release?.(undefined, true) ?? Promise.resolve());
        }
        return this.#stopping;
      },
    };
  }

  async wake(endpoint: string): Promise<void> {
    this.#scheduler.wake(endpoint);
    this.#store.announce?.({ wake: endpoint });
  }

  readonly findEvent = (id: string) => this.#store.call('findEvent', { id });

  async getEvent(id: string, used?: Promise<void>): Promise<StoredEvent | undefined> {
    const head = await this.findEvent(id);
    if (head === undefined) return undefined;
    const { type, tenant, createdAt, bytes } = head;
    return new Promise((resolve, reject) => {
      const read = async (): Promise<void> => {
        const { result, bodies } = await this.#budget.run(bytes, () => this.#store.read('readPayload', { id }), tenant);
        const [body] = bodies;
        resolve(result && body && { id, type, tenant, createdAt, body, metadata: result.metadata, isErased: result.isErased });
        if (result !== undefined) await used;
      };
      this.#events.run(bytes, read, tenant).catch(reject);
    });
  }

  find(filter: DeliveryFilter, page: Page) {
    return this.#findPage(page, filter, (part) => this.#store.call('findStep', { filter, page: part }));
  }

  findEvents(filter: EventFilter, page: EventPageRequest) {
    return this.#findPage(page, filter, (part) => this.#store.call('findEventsStep', { filter, page: { ...page, ...part } }));
  }

  readonly findAttempts = (event: string, endpoint: string) => this.#store.call('findAttempts', { event, endpoint });

  async *repair(action: RepairAction, filter: DeliveryFilter, now: EpochMilliseconds) {
    const { total, end } = await this.#count(action, filter, now);
    let changed = 0;
    let rejected = 0;
    let reason: string | undefined;
    let position: RepairPosition | undefined = { event: 0, lane: 0, end };
    while (position !== undefined) {
      const until = this.clock.now() + MAX_CLOCK_SKEW_MS;
      const step: Results['repairStep'] = await this.#store.call('repairStep', { action, filter, now, until, position });
      await this.#serveSoon(step.endpoints, now);
      changed += step.changed;
      rejected += step.rejected;
      reason ??= step.reason;
      position = step.position;
      // Deliveries that another repair changed meanwhile no longer match.
      yield { changed, total: position === undefined ? changed + rejected : Math.max(total, changed + rejected) };
    }
    if (rejected === 0) return;
    const count = rejected === 1 ? '1 delivery was' : `${rejected} deliveries were`;
    throw new SidegateError('system', 'queue_full', `${count} not made due: ${reason}`);
  }

  async count(action: RepairAction, filter: DeliveryFilter, now: EpochMilliseconds): Promise<number> {
    return (await this.#count(action, filter, now)).total;
  }

  async addDelivery(event: string, endpoint: string, now: EpochMilliseconds, orderKey?: string): Promise<boolean> {
    const isAdded = await this.#store.call('addDelivery', { event, endpoint, now, orderKey: orderKey ?? null });
    if (isAdded) await this.#serveSoon([endpoint], now);
    return isAdded;
  }

  async erase(which: { readonly event: string } | { readonly tenant: string }, now: EpochMilliseconds): Promise<number> {
    let erased = 0;
    for (let after: number | undefined = 0; after !== undefined; ) {
      const step: Results['eraseStep'] = await this.#store.call('eraseStep', { ...which, now, after, most: CHANGED_PER_STEP });
      await this.#serveSoon(step.endpoints, now);
      erased += step.erased;
      after = step.next;
    }
    return erased;
  }

  async reschedule(endpoint: string, delays: readonly Milliseconds[], now: EpochMilliseconds): Promise<void> {
    for (let after: number | undefined = 0; after !== undefined; ) {
      const step: Results['rescheduleStep'] = await this.#store.call('rescheduleStep', { endpoint, delays, now, after });
      if (step.changed > 0) await this.#serveSoon([endpoint], now);
      after = step.next;
    }
  }

  async prune(settledBefore: EpochMilliseconds, deadBefore: EpochMilliseconds, most: number): Promise<number> {
    let removed = 0;
    for (let isDone = false; !isDone && removed < most; ) {
      const operation = { settledBefore, deadBefore, most: Math.min(most - removed, PRUNED_PER_STEP), after: this.#pruned };
      const step: Results['pruneStep'] = await this.#store.call('pruneStep', operation);
      ({ after: this.#pruned, isDone } = step);
      removed += step.removed;
    }
    return removed;
  }

  readonly stats = (now: EpochMilliseconds) => this.#store.call('stats', { now });
  readonly backlogs = (endpoints: readonly string[], now: EpochMilliseconds) => this.#store.call('backlogs', { endpoints, now });
  readonly inboxes = () => this.#store.call('inboxes', {});

  async laneStates(endpoints: readonly string[]) {
    // A message has null for undefined.
    return (await this.#store.call('laneStates', { endpoints })).map((state) => state ?? undefined);
  }

  async close(): Promise<void> {
    await this.#client?.close();
  }

  /** A page that is not complete counts as well: it is memory. */
  #findPage<T>(page: Page, { tenant }: EventFilter, findStep: (page: Page) => Promise<FoundStep<T>>): Promise<Found<T>> {
    return this.#searches.run(1, () => findPage(page, this.clock, findStep), tenant);
  }

  #append(events: readonly NewEvent[], append: JoinedStore, route?: (event: NewEvent) => readonly Target[]) {
    let isRouted = true;
    const run = (): ReturnType<JoinedStore> => {
      if (!isRouted) for (const event of events) event.targets = route?.(event) ?? [];
      const bodies = events.map(({ body }) => body);
      return append({ events: events.map(toMessage), now: this.clock.now() }, bodies);
    };
    return this.#budget.run(toCost(events), run, toTurn(events), () => {
      isRouted = route === undefined;
      if (!isRouted) for (const event of events) event.targets = [];
    });
  }

  async #changeEndpoints(change: Promise<boolean>): Promise<boolean> {
    const isChanged = await change;
    if (isChanged) this.#store.announce?.({ endpoints: true });
    return isChanged;
  }

  /** Returns the endpoints of the events. */
  #addDue(events: readonly NewEvent[]): ReadonlySet<string> {
    const now = this.clock.now();
    const targets = events.flatMap((event) => event.targets.filter(({ isSkipped }) => isSkipped !== true));
    const endpoints = new Set(targets.map(({ endpoint }) => endpoint));
    for (const endpoint of endpoints) this.#scheduler.addDue(endpoint, now);
    return endpoints;
  }

  /** On every replica, although the last run asked for a pause. */
  async #serveSoon(endpoints: readonly string[], now: EpochMilliseconds): Promise<void> {
    for (const endpoint of endpoints) {
      this.#scheduler.addDue(endpoint, now);
      await this.wake(endpoint);
    }
  }

  /** Deliveries that wait because a clock was ahead wait no longer than their delay. If the store fails, the next start repeats it. */
  async #hasten(): Promise<void> {
    try {
      for (let after: Position | undefined = { event: 0, lane: 0 }; after !== undefined; ) {
        const now = this.clock.now();
        const step: Results['hastenStep'] = await this.#store.call('hastenStep', { now, after });
        for (const endpoint of step.endpoints) this.#scheduler.addDue(endpoint, now);
        after = step.next;
      }
    } catch (error) {
      this.#hooks.onRunError('', error);
    }
  }

  async #count(action: RepairAction, filter: DeliveryFilter, now: EpochMilliseconds) {
    let total = 0;
    let position: RepairPosition | undefined;
    for (;;) {
      const until = this.clock.now() + MAX_CLOCK_SKEW_MS;
      const step: Results['countStep'] = await this.#store.call('countStep', { action, filter, now, until, position });
      total += step.count;
      position = step.position;
      if (step.isDone) return { total, end: position.end };
    }
  }

  async #run(entry: LaneEntry, run: RunLane, onClaimed: () => void): Promise<RunOutcome> {
    const { endpoint } = entry;
    const claimed = await this.#store.claim(endpoint);
    onClaimed();
    if (claimed === 'busy') {
      // The other replica serves it. If that ends, the store reports the lane again.
      entry.next = Number.POSITIVE_INFINITY;
      return { isActive: false, hasUnsettled: false };
    }
    const abort = new AbortController();
    if (this.#stopping !== undefined) abort.abort();
    this.#aborts.set(endpoint, abort);
    const { onNoMemory } = this.#hooks;
    const isStopping = () => this.#stopping !== undefined;
    const started = { entry, ...claimed, number: ++this.#runs, signal: abort.signal, isStopping, onNoMemory };
    const lane = new LaneRun(started, this.#store, this.clock, this.#budget);
    let isLeft = false;
    try {
      const result = await run(lane);
      isLeft = result.isLeft === true;
      return { notBefore: result.notBefore, ...lane.end() };
    } finally {
      lane.end();
      this.#aborts.delete(endpoint);
      await this.#store.release?.(endpoint, isLeft || this.#stopping !== undefined);
    }
  }

  #abortAll(): void {
    for (const abort of this.#aborts.values()) abort.abort();
  }
}

async function findPage<T>({ limit, after }: Page, clock: Clock, findStep: (page: Page) => Promise<FoundStep<T>>) {
  const found: FoundStep<T>['found'][number][] = [];
  let position = after;
  const until = clock.monotonic() + MAX_FIND_MS;
  for (let steps = 0; steps < MAX_FIND_STEPS && found.length <= limit && (steps === 0 || clock.monotonic() < until); steps++) {
    // One more than asked, to know whether there is a next page.
    const step = await findStep({ limit: limit + 1 - found.length, after: position });
    found.push(...step.found);
    position = step.next;
    if (position === undefined) break;
  }
  const next = found.length > limit ? found[limit - 1]?.position : position;
  return { found: found.slice(0, limit).map(({ record }) => record), next };
}

/** Tenants take turns, and each inbox has its own. */
function toTurn([event]: readonly NewEvent[]): string | undefined {
  const [target] = event?.targets ?? [];
  return target !== undefined && isInboxEndpoint(target.endpoint) ? target.endpoint : event?.tenant;
}

function toCost(events: readonly NewEvent[]): number {
  return events.reduce((cost, { body, metadata, targets }) => {
    return cost + EVENT_BYTES + body.length + metadata.length + DELIVERY_BYTES * targets.length;
  }, 0);
}

function toMessage({ id, type, tenant, createdAt, metadata, targets, body, comparedFrom }: NewEvent): EventMessage {
  return { id, type, tenant, createdAt, metadata, targets, bodyLength: body.length, comparedFrom };
}
