/**
 * Moves events from the outbox, a table that the app writes to in its own transactions, to the queue. A row is removed in the transaction
 * that locked it. If the queue is in the same database, this transaction also stores the event. Otherwise, the queue has stored it before: if
 * anything ends in between, the row is found again, and the queue knows its ID.
 */
import type pg from 'pg';
import { type Clock, type Milliseconds, within } from '../../core/clock.ts';
import { SidegateError, toErrorText } from '../../core/errors.ts';
import { isJsonObject } from '../../core/json-path.ts';
import { runDetached } from '../../core/safe-events.ts';
import { parseStrictJson } from '../../core/strict-json.ts';
import { JSON_BOUNDS } from '../../http-api/api-router.ts';
import { PostgresError, type PostgresTarget, toPostgresError } from '../../state/postgres.ts';
import type { RoutedEvent, Target } from '../endpoints/endpoint.ts';
import { joinBody } from '../events/event.ts';
import { eventSchema } from '../events/event-schema.ts';
import { type DeliveryQueue, type JoinedQueue, type NewEvent, QueueFullError } from '../queue/delivery-queue.ts';
import { isQueueBusy } from '../queue/store-client.ts';
import type { OutboxHooks } from '../telemetry/hooks.ts';
import {
  isTimeout,
  type OutboxKind,
  type OutboxRow,
  OutboxSession,
  type RejectedRow,
  readFigures,
  rejectRows,
  removeRows,
  takeRows,
} from './outbox-table.ts';

export interface OutboxParts {
  readonly clock: Clock;
  readonly schema: string;
  readonly maxEventSize: number;
  readonly route: (event: RoutedEvent) => readonly Target[];
  readonly pollInterval: Milliseconds;
  readonly queue: Pick<DeliveryQueue, 'append' | 'join'>;
  readonly hooks: OutboxHooks;
}

/** One transaction moves at most as much, as it is held in memory. */
const BATCH_BYTES = 1024 * 1024;
/** To copy a larger value to the rejected rows takes PostgreSQL too long: the row stays where it is. */
const MAX_REJECTED_BYTES = 32 * 1024 * 1024;
/** PostgreSQL reads as many to find out how many fit: twice as many as did the last time. */
const [MIN_BATCH_ROWS, FIRST_BATCH_ROWS, MAX_BATCH_ROWS] = [10, 100, 1_000];
/** In one transaction, as for the API. */
const MAX_DELIVERIES = 10_000;
/** A statement skips the rows of so many kinds. More are read, and skipped here. */
const MAX_HELD_KINDS = 10_000;
/** Errors of the queue that are those of single events. */
const REJECTIONS: ReadonlySet<string> = new Set(['queue_full', 'too_large', 'unstorable']);
/** The name of the whole queue in a QueueFullError. */
const QUEUE = 'queue';
const KEPT_HINT = 'drop the trigger or rule that prevents the removal: rows that stay are not sent';
const FIGURES_INTERVAL_MS: Milliseconds = 10_000;
const MIN_BACKOFF_MS: Milliseconds = 250;
const MAX_BACKOFF_MS: Milliseconds = 15_000;
/** After a removal that took too long, which held up all other rows. */
const MAX_SLOW_BACKOFF_MS: Milliseconds = 300_000;
/** One replica's part of the outbox, from `start` to `stop`. */
export class Outbox {
  readonly #parts: OutboxParts;
  #target: PostgresTarget;
  #session: OutboxSession | undefined;
  /** The queue, if it is in the database of the session: one transaction then moves an event. */
  #joined: JoinedQueue | undefined;
  #loop: Promise<void> = Promise.resolve();
  #isStopped = false;
  #isNotified = false;
  /** The target was replaced since the session was opened. */
  #isOutdated = false;
  #wake: () => void = () => undefined;
  /** The queue, endpoints and tenants that are full; the first kinds of rows that wait for them, by name; and when these are tried again. */
  readonly #full = new Set<string>();
  readonly #held = new Map<string, OutboxKind>();
  #heldUntil: Milliseconds = 0;
  #heldBackoff = MIN_BACKOFF_MS;
  #batchRows = FIRST_BATCH_ROWS;
  /** Fewer after a failure, and slowly more again: a statement may take too long for rows as large as these. */
  #mostRows = MAX_BATCH_ROWS;
  /** Rows that are too large to be moved, by `seq`. */
  readonly #stuck = new Set<string>();
  /** Rows that PostgreSQL did not let go, until they are tried again, like what is full; and why. A statement skips them one by one, so there must not be many. */
  readonly #kept = new Set<string>();
  /** Rows whose removal took too long: they are tried one by one, the next one at `slowAt`. */
  readonly #slow = new Set<string>();
  #slowAt: Milliseconds = 0;
  #slowBackoff = MAX_BACKOFF_MS;
  #failure: PostgresError | undefined;
  /** Why the queue rejected rows in a transaction of this session, by `seq`. */
  readonly #reasons = new Map<string, string>();
  #figuresAt = Number.NEGATIVE_INFINITY;
  /** The first row of the table, and since when it is the first. */
  #first: { readonly seq: string | null; readonly since: Milliseconds } | undefined;

  constructor(target: PostgresTarget, parts: OutboxParts) {
    this.#target = target;
    this.#parts = parts;
  }

  start(): void {
    this.#loop = this.#run();
    runDetached(this.#loop);
  }

  /** Connects again with another password or address. */
  replace(target: PostgresTarget): void {
    this.#target = target;
    this.#isOutdated = true;
    this.#wake();
  }

  /** Moves no further rows, and ends the connection at the latest after `atMost`. */
  async stop(atMost: Milliseconds): Promise<void> {
    this.#isStopped = true;
    this.#wake();
    if (!(await within(this.#parts.clock, atMost, this.#loop))) this.#session?.end();
  }

  async #run(): Promise<void> {
    let backoff = MIN_BACKOFF_MS;
    while (!this.#isStopped) {
      let isConnected = false;
      try {
        const session = await this.#connect();
        isConnected = true;
        const isBusy = await this.#drain(session);
        backoff = MIN_BACKOFF_MS;
        if (this.#failure === undefined) this.#parts.hooks.onUp();
        else this.#parts.hooks.onDown(this.#failure);
        await this.#sleep(isBusy ? MIN_BACKOFF_MS : this.#untilNext());
      } catch (thrown) {
        this.#session?.end();
        this.#session = undefined;
        if (this.#isStopped) break;
        if (isConnected) this.#mostRows = Math.max(1, Math.floor(this.#batchRows / 2));
        this.#batchRows = Math.min(this.#batchRows, this.#mostRows);
        this.#parts.hooks.onDown(thrown);
        await this.#sleep(backoff);
        backoff = Math.min(2 * backoff, MAX_BACKOFF_MS);
      }
    }
    this.#session?.end();
  }

  async #connect(): Promise<OutboxSession> {
    if (this.#session?.isOpen === true && !this.#isOutdated) return this.#session;
    this.#session?.end();
    this.#isOutdated = false;
    const onNotified = (): void => {
      this.#isNotified = true;
      this.#wake();
    };
    this.#session = new OutboxSession(this.#target, this.#parts.schema, onNotified, () => this.#wake());
    await this.#session.open();
    this.#reasons.clear();
    this.#joined = await this.#session.transaction((client) => this.#parts.queue.join(client));
    return this.#session;
  }

  /** While rows are moved, the first one is another each time: a large backlog is old, and moves. */
  async #readFigures(session: OutboxSession): Promise<void> {
    const now = this.#parts.clock.monotonic();
    if (now - this.#figuresAt < FIGURES_INTERVAL_MS) return;
    this.#figuresAt = now;
    const { waiting, seq, ageSeconds } = await session.transaction((client) => readFigures(client, [...this.#stuck]));
    if (seq !== this.#first?.seq) this.#first = { seq, since: this.#first === undefined ? Number.NEGATIVE_INFINITY : now };
    this.#parts.hooks.onFigures(waiting, Math.min(ageSeconds, (now - (this.#first?.since ?? now)) / 1_000));
  }

  #untilNext(): Milliseconds {
    if (this.#isNotified) return 0;
    const { clock, pollInterval } = this.#parts;
    const untilHeld = this.#full.size === 0 ? pollInterval : this.#heldUntil - clock.monotonic();
    return Math.max(0, Math.min(pollInterval, untilHeld));
  }

  async #sleep(duration: Milliseconds): Promise<void> {
    if (this.#isStopped) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    const cancel = this.#parts.clock.after(duration, resolve);
    await promise;
    cancel();
  }

  /** Moves rows until none is left that may be moved now. Returns whether the queue was busy, or a removal took too long. */
  async #drain(session: OutboxSession): Promise<boolean> {
    if (this.#parts.clock.monotonic() >= this.#heldUntil) {
      this.#full.clear();
      this.#held.clear();
      this.#kept.clear();
    }
    this.#isNotified = false;
    const wasHeld = this.#full.size > 0;
    let isBusy = false;
    while (!this.#isStopped && !this.#full.has(QUEUE) && !isBusy && this.#kept.size < MAX_BATCH_ROWS) {
      const alone = this.#nextSlow();
      const batch = await session.transaction((client) => this.#moveBatch(client, alone));
      this.#report(batch);
      await this.#readFigures(session);
      isBusy = batch.isBusy;
      this.#resize(batch.taken);
      if (alone !== undefined && !this.#slow.has(alone)) this.#slowAt = 0;
      else if (batch.taken === 0) break;
    }
    if (this.#slow.size === 0) this.#slowBackoff = MAX_BACKOFF_MS;
    if (this.#kept.size + this.#slow.size === 0) this.#failure = undefined;
    if (this.#full.size === 0) this.#heldBackoff = MIN_BACKOFF_MS;
    else if (!wasHeld) {
      this.#heldUntil = this.#parts.clock.monotonic() + this.#heldBackoff;
      this.#heldBackoff = Math.min(2 * this.#heldBackoff, MAX_BACKOFF_MS);
    }
    return isBusy;
  }

  #resize(taken: number): void {
    this.#mostRows = taken === 0 && this.#kept.size === 0 ? MAX_BATCH_ROWS : Math.min(MAX_BATCH_ROWS, this.#mostRows + 1);
    const rows = taken === 0 ? FIRST_BATCH_ROWS : Math.max(MIN_BATCH_ROWS, 2 * taken);
    this.#batchRows = Math.max(1, Math.min(this.#mostRows, rows));
  }

  /** The pause is for all rows, as each of them holds up all others while it is tried. */
  #nextSlow(): string | undefined {
    const now = this.#parts.clock.monotonic();
    const [alone] = now < this.#slowAt ? [] : this.#slow;
    if (alone === undefined) return undefined;
    this.#slow.delete(alone);
    this.#slowBackoff = Math.min(2 * this.#slowBackoff, MAX_SLOW_BACKOFF_MS);
    this.#slowAt = now + this.#slowBackoff;
    return alone;
  }

  async #moveBatch(client: pg.Client, alone: string | undefined): Promise<Batch> {
    const { maxEventSize, route } = this.#parts;
    const isHeld = ({ type, tenant }: OutboxKind): boolean => {
      const event = { type, tenant: tenant ?? undefined, data: {} };
      return this.#isFull({ ...event, targets: route(event) });
    };
    const held = {
      kinds: [...this.#held.values()],
      isHeld: this.#held.size < MAX_HELD_KINDS ? undefined : isHeld,
      stuck: [...this.#stuck, ...this.#kept, ...this.#slow],
      alone,
    };
    const rows = await takeRows(client, held, { rows: this.#batchRows, maxBytes: maxEventSize, totalBytes: BATCH_BYTES });
    const batch: Batch = { taken: 0, isBusy: false, moved: 0, stored: new Set(), rejected: [] };
    const items: Item[] = [];
    let deliveries = 0;
    for (const row of rows) {
      const event = this.#read(row);
      if ('reason' in event) batch.rejected.push({ row, reason: event.reason });
      else {
        deliveries += event.targets.length;
        // This row and those behind it are taken again.
        if (deliveries > MAX_DELIVERIES && items.length > 0) break;
        items.push({ row, event });
      }
      batch.taken++;
    }
    const copied = batch.rejected.filter(({ row }) => !isStuck(row));
    const failure = await rejectRows(client, copied);
    this.#keep(failure === undefined ? [] : copied, failure);
    batch.isBusy = isTimeout(failure);
    await this.#append(client, items, batch);
    return failure === undefined ? batch : { ...batch, rejected: batch.rejected.filter(({ row }) => isStuck(row)) };
  }

  /** The event of a row, or why it can never be one, or why the queue rejected it. */
  #read(row: OutboxRow): NewEvent | { readonly reason: string } {
    const reason = this.#reasons.get(row.seq);
    this.#reasons.delete(row.seq);
    return reason === undefined ? toEvent(row, this.#parts) : { reason };
  }

  /** Leaves rows in the table for a while. */
  #keep(items: readonly Pick<Item, 'row'>[], cause?: Error): void {
    const [first] = items;
    if (first === undefined) return;
    const text = `PostgreSQL keeps rows of sidegate_outbox that sidegate removes, such as the one with seq ${first.row.seq}`;
    this.#failure ??= toPostgresError(cause ?? new PostgresError(text, KEPT_HINT), this.#target);
    this.#full.add('rows');
    const isSlow = isTimeout(cause);
    if (isSlow && this.#slow.size === 0) this.#slowAt = this.#parts.clock.monotonic() + this.#slowBackoff;
    if (isSlow) this.#mostRows = Math.max(this.#mostRows, MIN_BATCH_ROWS);
    for (const { row } of items) (isSlow ? this.#slow : this.#kept).add(row.seq);
  }

  /** After the commit. */
  #report({ moved, stored, rejected }: Batch): void {
    const { hooks } = this.#parts;
    this.#joined?.serve([...stored]);
    if (moved > 0) hooks.onAccepted([...stored], moved - stored.size);
    for (const { row } of rejected) if (isStuck(row)) this.#stuck.add(row.seq);
    const [first] = rejected;
    if (first !== undefined) hooks.onRejected(rejected.length, first);
  }

  /** Moves events in order. If the queue rejects them or PostgreSQL keeps their rows, each half is tried, so that only those are held back or rejected that are the cause. */
  async #append(client: pg.Client, all: readonly Item[], batch: Batch): Promise<void> {
    const items = all.filter(({ row, event }) => {
      const isFull = this.#isFull(event);
      if (isFull) this.#hold(row);
      return !isFull && !this.#reasons.has(row.seq);
    });
    const [first] = items;
    if (first === undefined || batch.isBusy) return;
    const { distinct, repeated } = separateRepeated(items);
    await client.query('SAVEPOINT moving');
    const moved = await this.#move(client, distinct, batch);
    if (moved === true) return this.#append(client, repeated, batch);
    await client.query('ROLLBACK TO moving; RELEASE moving');
    if (moved === false) return this.#append(client, items, batch);
    // The others are taken again, in order.
    batch.isBusy = isQueueBusy(moved) || isTimeout(moved);
    if (items.length > 1) {
      // Halves would each wait as long: these rows are taken one by one.
      if (isTimeout(moved)) this.#mostRows = -items.length;
      if (batch.isBusy) return;
      const middle = Math.ceil(items.length / 2);
      await this.#append(client, items.slice(0, middle), batch);
      await this.#append(client, items.slice(middle), batch);
    } else if (!(moved instanceof SidegateError)) this.#keep(items, moved);
    else if (moved.code === 'queue_full') this.#noteFull(first, moved);
    else if (!batch.isBusy) this.#reasons.set(first.row.seq, moved.message);
  }

  #noteFull({ row, event }: Item, error: SidegateError): void {
    if (this.#full.size === 0 && this.#heldBackoff === MIN_BACKOFF_MS) this.#parts.hooks.onHeld(toErrorText(error));
    this.#full.add(error instanceof QueueFullError ? error.full : toKindName(event));
    this.#hold(row);
  }

  #hold(kind: OutboxKind): void {
    if (this.#held.size < MAX_HELD_KINDS) this.#held.set(toKindName(kind), { type: kind.type, tenant: kind.tenant });
  }

  /** Later events for what is full wait as well, so that they are not delivered before those that the queue rejected. */
  #isFull(event: Pick<NewEvent, 'type' | 'tenant' | 'targets'>): boolean {
    if (this.#full.size === 0) return false;
    const endpoints = event.targets.flatMap(({ endpoint, isSkipped }) => (isSkipped === true ? [] : [`endpoint ${endpoint}`]));
    const names = endpoints.length === 0 ? [] : [...endpoints, `tenant ${event.tenant ?? ''}`, QUEUE];
    return [...names, toKindName(event)].some((name) => this.#full.has(name));
  }

  /**
   * Removes rows, and only then stores their events: nothing that takes PostgreSQL long may follow the locks of the queue, and an event that another
   * database has accepted cannot be taken back. Returns whether none conflicts with another event, or the error of one of them.
   */
  async #move(client: pg.Client, items: readonly Item[], batch: Batch): Promise<boolean | Error> {
    const kept = await removeRows(client, items);
    if (kept instanceof Error) return kept;
    this.#keep(kept);
    const removed = items.filter((item) => !kept.includes(item));
    if (removed.length === 0) return true;
    const results = await (this.#joined ?? this.#parts.queue).append(removed.map(({ event }) => event)).catch(toRejection);
    if (results instanceof Error) return results;
    const conflicts = removed.filter((_, i) => results[i] === 'conflict');
    // They are rejected in the next transaction, which does not hold these locks.
    for (const { row } of conflicts) this.#reasons.set(row.seq, 'another event was accepted with the same ID');
    const areMoved = conflicts.length === 0;
    if (areMoved || this.#joined === undefined)
      for (const [i, { event }] of removed.entries()) if (results[i] === 'stored') batch.stored.add(event);
    if (areMoved) batch.moved += removed.length;
    return areMoved;
  }
}

/** Throws all others than errors of single events, and back pressure. */
function toRejection(thrown: unknown): SidegateError {
  if (thrown instanceof SidegateError && (isQueueBusy(thrown) || REJECTIONS.has(thrown.code))) return thrown;
  throw thrown;
}

interface Batch {
  taken: number;
  /** Too many operations wait for the store of the queue: back pressure, no outage. Or a removal took too long. */
  isBusy: boolean;
  moved: number;
  readonly stored: Set<NewEvent>;
  readonly rejected: RejectedRow[];
}

interface Item {
  readonly row: OutboxRow;
  readonly event: NewEvent;
}

function toKindName({ type, tenant }: Pick<NewEvent, 'type' | 'tenant'> | OutboxKind): string {
  return `kind ${type} ${tenant ?? ''}`;
}

/** The IDs of one call must differ. */
function separateRepeated(items: readonly Item[]) {
  const firsts = new Set(new Map(items.toReversed().map((item) => [item.event.id, item])).values());
  return { distinct: items.filter((item) => firsts.has(item)), repeated: items.filter((item) => !firsts.has(item)) };
}

/** The event of a row, or why it can never be one. `data` is sent byte for byte as it was inserted. */
function toEvent(row: OutboxRow, { clock, route, maxEventSize }: OutboxParts): NewEvent | { readonly reason: string } {
  const { id, type, tenant, data, bytes } = row;
  if (data === null) return { reason: `${toTooLarge(`at least ${bytes}`, maxEventSize)}${isStuck(row) ? STUCK : ''}` };
  const { error } = eventSchema.safeParse({ id, type, tenant: tenant ?? undefined, created: row.created });
  if (error?.issues[0] !== undefined) return { reason: error.issues[0].message };
  const text = Buffer.from(data);
  const parsed = parseStrictJson(text, JSON_BOUNDS);
  if (parsed.kind === 'problem') return { reason: `data: ${parsed.problem}` };
  if (!isJsonObject(parsed.value)) return { reason: 'data is not a JSON object' };
  const body = joinBody({ type, id, created: Math.floor(row.created) }, text);
  if (body.length > maxEventSize) return { reason: toTooLarge(body.length, maxEventSize) };
  const routed = { type, tenant: tenant ?? undefined, data: parsed.value };
  const common = { id, type, tenant: routed.tenant, createdAt: clock.now(), body, metadata: '{}', targets: route(routed) };
  // An event that is inserted again differs in the time that was filled in.
  return row.undated ? { ...common, comparedFrom: body.length - text.length - 1 } : common;
}

const STUCK = '; it is too large to be moved to the rejected rows: delete it from sidegate_outbox';

function isStuck({ data, bytes }: OutboxRow): boolean {
  return data === null && bytes > MAX_REJECTED_BYTES;
}

function toTooLarge(bytes: number | string, maxEventSize: number): string {
  return `the event has ${bytes} bytes; provider.maxEventSize is ${maxEventSize}`;
}
