/** The queue's store in PostgreSQL, which several replicas share: batches of writes, leases of lanes, and news of other replicas. */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type pg from 'pg';
import * as z from 'zod';
import type { CancelTimer, Clock, EpochMilliseconds, Milliseconds } from '../../../core/clock.ts';
import { SidegateError } from '../../../core/errors.ts';
import { parseJson } from '../../../core/json-path.ts';
import { toOwnBytes } from '../../../core/reading.ts';
import { onEvent, runDetached, runNextTurn } from '../../../core/safe-events.ts';
import { createPostgresClient } from '../../../state/postgres.ts';
import type { QueueBounds } from '../delivery-queue.ts';
import type { LaneRow, Sql } from '../sql/database.ts';
import { parseState, readLanes } from '../sql/lanes.ts';
import { type OperationKind, type Operations, type Reply, type Results, Store, type Task } from '../sql/store.ts';
import {
  type Announcement,
  type Claimed,
  type JoinedStore,
  type OpenStore,
  type StoreClient,
  type StoreEvents,
  toReplyError,
  watchAvailability,
} from '../store-client.ts';
import { PostgresDatabase, type PostgresSettings } from './postgres-database.ts';

/** Another replica takes a lane over so long after its owner was last heard of. */
const LEASE_MS: Milliseconds = 30_000;
const RENEW_MS: Milliseconds = 10_000;
/** An owner that could not renew its lease stops so long before it ends. */
const LEASE_MARGIN_MS: Milliseconds = 5_000;
/** Finds due deliveries that no news reported: behind a pooler in transaction mode, there are none. `RENEW_MS` applies to endpoints. */
const POLL_MS: Milliseconds = 1_000;
/** Of the time: with very many lanes, polls are rarer. */
const MAX_POLL_SHARE = 0.05;
const MAX_POLL_PAUSE_MS: Milliseconds = 10_000;
const LISTEN_AGAIN_MS: Milliseconds = 5_000;
/** News are collected for so long. */
const NEWS_MS: Milliseconds = 20;
/** News make a replica search the tables at most so often. */
const LOOK_MS: Milliseconds = 50;
/** PostgreSQL sends at most 8000 bytes. */
const MAX_NEWS_BYTES = 7_000;
/** Of one transaction, besides all that accept events, which wait for the one before. */
const MAX_OTHERS = 64;
const NOW = '(extract(epoch FROM clock_timestamp()) * 1000)::bigint';

interface Call extends Task {
  readonly resolve: (result: never) => void;
  readonly reject: (error: Error) => void;
}

type Claim = PromiseWithResolvers<Claimed> & { readonly endpoint: string };

/** A message of one replica to the others. */
const News = z.object({
  from: z.string(),
  /** Endpoints with new deliveries; null: too many to name. */
  due: z.array(z.string()).nullable(),
  wake: z.array(z.string()),
  endpoints: z.boolean(),
});
type News = z.infer<typeof News>;

export function openPostgresStore(settings: PostgresSettings, bounds: QueueBounds, clock: Clock): OpenStore {
  return async (events) => {
    const database = await PostgresDatabase.open(settings, clock);
    const client = new PostgresClient(database, new Store(database, bounds), { settings, clock, events });
    try {
      await client.start();
    } catch (thrown) {
      await client.close();
      throw database.explain(thrown).error;
    }
    return { client, warnings: [] };
  };
}

class PostgresClient implements StoreClient {
  clockOffset: Milliseconds = 0;
  readonly #database: PostgresDatabase;
  readonly #store: Store;
  readonly #parts;
  readonly #noteAvailability: ReturnType<typeof watchAvailability>;
  readonly #owner = `${hostname()}/${randomUUID()}`;
  /** `until`: when its lease ends unless it is renewed. */
  readonly #owned = new Map<string, { usedAt: Milliseconds; until: Milliseconds }>();
  /** From their claims to the ends of their runs, also if the lease is lost meanwhile: nothing gives them back. */
  readonly #busy = new Set<string>();
  readonly #claims: Claim[] = [];
  #claimed = Promise.resolve();
  /** The latest renewal; it never rejects. */
  #renewing: Promise<void> = Promise.resolve();
  /** They go before other writes. */
  readonly #appends: Call[] = [];
  readonly #others: Call[] = [];
  #isScheduled = false;
  #isWriting = false;
  #isClosing = false;
  #onIdle: (() => void) | undefined;
  readonly #reads = new Set<Promise<unknown>>();
  #timers: CancelTimer[] = [];
  #listener: pg.Client | undefined;
  #cancelListening: CancelTimer | undefined;
  #isPolling = false;
  #pollFrom: Milliseconds = 0;
  /** Differs after each change of an endpoint. */
  #endpoints: string | undefined;
  #news = { due: new Set<string>(), wake: new Set<string>(), endpoints: false };
  #cancelNews: CancelTimer | undefined;
  #cancelLook: CancelTimer | undefined;

  constructor(
    database: PostgresDatabase,
    store: Store,
    parts: { readonly settings: PostgresSettings; readonly clock: Clock; readonly events: StoreEvents },
  ) {
    this.#database = database;
    this.#store = store;
    this.#parts = parts;
    this.#noteAvailability = watchAvailability(parts.events);
  }

  async start(): Promise<void> {
    const { clock } = this.#parts;
    await this.#readClock();
    runDetached(this.#renew());
    this.#timers = [
      clock.every(POLL_MS, () => runDetached(this.#poll())),
      clock.every(RENEW_MS, () => {
        runDetached(this.#renew());
        runDetached(this.#checkEndpoints());
      }),
    ];
    await this.#listen();
    await this.#checkEndpoints();
  }

  call<K extends OperationKind>(kind: K, operation: Operations[K], bodies: readonly Buffer[] = []): Promise<Results[K]> {
    const task = { operation: { kind, ...operation } as Task['operation'], bodies };
    if (!this.#store.isWrite({ kind })) return this.#read(task.operation, []) as Promise<Results[K]>;
    return new Promise((resolve, reject) => {
      if (this.#isClosing) return reject(new SidegateError('system', 'queue_unavailable', 'the queue is closed'));
      (kind === 'append' ? this.#appends : this.#others).push({ ...task, resolve, reject });
      this.#schedule();
    });
  }

  async read<K extends 'take' | 'readPayload'>(kind: K, operation: Operations[K]) {
    const bodies: Uint8Array[] = [];
    const result = (await this.#read({ kind, ...operation } as Task['operation'], bodies)) as Results[K];
    return { result, bodies: bodies.map((body) => toOwnBytes(Buffer.from(body.buffer, body.byteOffset, body.byteLength))) };
  }

  /** A lane stays with this replica until it was not served for a while. Claims that come while others are under way share the next statement. */
  claim(endpoint: string): Promise<Claimed> {
    const claim: Claim = { endpoint, ...Promise.withResolvers<Claimed>() };
    this.#busy.add(endpoint);
    // A lane that it has waits for no lock.
    if (this.#owned.has(endpoint)) runDetached(this.#claimAll([claim], ''));
    else if (this.#claims.push(claim) === 1)
      this.#claimed = this.#claimed.then(() => this.#claimAll(this.#claims.splice(0), ' SKIP LOCKED'));
    return claim.promise;
  }

  /** Never rejects. A lane that another transaction has locked is waited for by itself. */
  async #claimAll(claims: readonly Claim[], onLock: ' SKIP LOCKED' | ''): Promise<void> {
    const usedAt = this.#parts.clock.monotonic();
    const names = claims.map(({ endpoint }) => endpoint);
    this.#endLeases(names);
    const reject = (claim: Claim, thrown: unknown): void => {
      this.#noteEnd(claim.endpoint);
      claim.reject(thrown);
    };
    const unowned = names.filter((name) => !this.#owned.has(name));
    try {
      const taken = unowned.length === 0 ? [] : await this.#take(unowned, onLock);
      for (const { name } of taken) this.#owned.set(name, { usedAt, until: usedAt + LEASE_MS - LEASE_MARGIN_MS });
      const lanes = await readLanes(this.#database, names);
      for (const claim of claims)
        try {
          this.#answerClaim(claim, lanes.get(claim.endpoint), onLock);
        } catch (thrown) {
          reject(claim, thrown);
        }
    } catch (thrown) {
      for (const claim of claims) reject(claim, thrown);
    }
  }

  #answerClaim(claim: Claim, lane: LaneRow | undefined, onLock: ' SKIP LOCKED' | ''): void {
    const { endpoint, resolve } = claim;
    if (this.#owned.has(endpoint)) return resolve({ state: parseState(lane?.state), holder: this.#owner });
    const isLocked = lane !== undefined && (lane.owner === null || lane.owner === this.#owner);
    if (isLocked && onLock !== '') runDetached(this.#claimAll([claim], ''));
    else {
      this.#busy.delete(endpoint);
      resolve('busy');
    }
  }

  /** Takes those of the lanes that no other replica has. */
  async #take(names: readonly string[], onLock: string): Promise<readonly { readonly name: string }[]> {
    // A renewal that began before gives back all lanes that it does not know.
    await this.#renewing;
    const statement = `WITH free AS MATERIALIZED (SELECT num FROM lane WHERE name IN ${this.#database.dialect.list('text')}
        AND (owner IS NULL OR owner = ? OR lease < ${NOW}) FOR UPDATE${onLock})
      UPDATE lane SET owner = ?, lease = ${NOW} + ${LEASE_MS} FROM free WHERE lane.num = free.num RETURNING lane.name`;
    return this.#database.transaction((sql) => sql.all(statement, [JSON.stringify(names), this.#owner, this.#owner]));
  }

  async release(endpoint: string | undefined, isLeft: boolean): Promise<void> {
    if (endpoint === undefined) return this.#renew(Number.POSITIVE_INFINITY);
    this.#noteEnd(endpoint);
    if (!isLeft || !this.#owned.delete(endpoint)) return;
    // If this fails, the lease ends by itself.
    await this.#database
      .run('UPDATE lane SET owner = NULL WHERE name = ? AND owner = ?', [endpoint, this.#owner])
      .catch(() => undefined);
  }

  #noteEnd(endpoint: string): void {
    this.#busy.delete(endpoint);
    const owned = this.#owned.get(endpoint);
    if (owned !== undefined) owned.usedAt = this.#parts.clock.monotonic();
  }

  async join(client: pg.ClientBase): Promise<JoinedStore | undefined> {
    if (!(await this.#database.isDatabaseOf(client))) return undefined;
    return (operation, bodies) => this.#database.join(client, (sql) => this.#store.appendIn(sql, operation, bodies));
  }

  announce(news: Announcement): void {
    for (const endpoint of news.due ?? []) this.#news.due.add(endpoint);
    if (news.wake !== undefined) this.#news.wake.add(news.wake);
    if (news.endpoints === true) this.#news.endpoints = true;
    this.#announceSoon();
  }

  async close(): Promise<void> {
    if (this.#isClosing) return;
    for (const cancel of [...this.#timers, this.#cancelNews, this.#cancelLook, this.#cancelListening]) cancel?.();
    if (this.#isWriting || this.#isWaiting)
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    this.#isClosing = true;
    await Promise.allSettled(this.#reads);
    await this.#listener?.end().catch(() => undefined);
    // If this fails, the leases end by themselves.
    const own = 'SELECT num FROM lane WHERE owner = ? ORDER BY num FOR UPDATE';
    await this.#database.run(`UPDATE lane SET owner = NULL WHERE num IN (${own})`, [this.#owner]).catch(() => undefined);
    await this.#database.close();
  }

  async #read(operation: Task['operation'], bodies: Uint8Array[]): Promise<unknown> {
    if (this.#isClosing) throw new SidegateError('system', 'queue_unavailable', 'the queue is closed');
    const reading = this.#store.read(operation, bodies);
    this.#reads.add(reading);
    const reply = await reading.finally(() => this.#reads.delete(reading));
    if (!reply.isDone) throw toReplyError(reply);
    return reply.result;
  }

  /** One transaction at a time: what is asked while it commits shares the next one. */
  #schedule(): void {
    if (this.#isScheduled || this.#isWriting || !this.#isWaiting) return;
    this.#isScheduled = true;
    runNextTurn(() => runDetached(this.#write()));
  }

  get #isWaiting(): boolean {
    return this.#appends.length + this.#others.length > 0;
  }

  async #write(): Promise<void> {
    this.#isScheduled = false;
    this.#isWriting = true;
    const calls = [...this.#appends.splice(0), ...this.#others.splice(0, MAX_OTHERS)];
    try {
      const replies = await this.#store.write(calls);
      for (const [i, call] of calls.entries()) this.#answer(call, replies[i] as Reply);
      this.#noteAvailability(replies, true);
    } finally {
      this.#isWriting = false;
      this.#schedule();
      if (!this.#isWaiting) this.#onIdle?.();
    }
  }

  #answer({ operation, resolve, reject }: Call, reply: Reply): void {
    if (!reply.isDone) return reject(toReplyError(reply));
    if (operation.kind === 'append')
      for (const { targets } of operation.events) for (const { endpoint } of targets) this.#news.due.add(endpoint);
    if (operation.kind === 'addDelivery' || operation.kind === 'rescheduleStep') this.#news.due.add(operation.endpoint);
    if (operation.kind === 'settle' && (reply.result as Results['settle']).isLost) this.#loseLeases([operation.endpoint]);
    if (operation.kind === 'repairStep' || operation.kind === 'eraseStep')
      for (const each of (reply.result as Results['repairStep' | 'eraseStep']).endpoints) this.#news.due.add(each);
    this.#announceSoon();
    resolve(reply.result as never);
  }

  async #poll(): Promise<void> {
    this.#endLeases(this.#owned.keys());
    if (this.#isPolling) return;
    const { clock, events } = this.#parts;
    const begin = clock.monotonic();
    if (begin < this.#pollFrom) return;
    this.#isPolling = true;
    try {
      const now = await this.#readClock();
      for (const { endpoint, next } of await this.call('dueLanes', { owner: this.#owner, now })) {
        const owned = this.#owned.get(endpoint);
        // A run that ended meanwhile knows better.
        if (owned === undefined || (!this.#busy.has(endpoint) && owned.usedAt < begin)) events.onDue(endpoint, next);
      }
      const took = clock.monotonic() - begin;
      this.#pollFrom = begin + Math.min(took / MAX_POLL_SHARE, MAX_POLL_PAUSE_MS);
    } catch {
      // The next poll repeats it; that the server is not there is reported by what needs it.
    } finally {
      this.#isPolling = false;
    }
  }

  /** Compares the stored endpoints with those of the last time. A change by this replica counts as well. */
  async #checkEndpoints(): Promise<void> {
    const before = this.#endpoints;
    try {
      const [row] = await this.#database.all<{ state: string }>(
        // Each change of a row gives it another version.
        "SELECT coalesce(sum(hashtextextended(id || '/' || version, 0)), 0)::text AS state FROM endpoint",
      );
      this.#endpoints = row?.state;
    } catch {
      // The next time compares with the same state.
    }
    if (before !== undefined && this.#endpoints !== before) this.#parts.events.onEndpoints();
  }

  async #readClock(): Promise<EpochMilliseconds> {
    const { clock } = this.#parts;
    const before = clock.now();
    const [row] = await this.#database.all<{ now: number }>(`SELECT ${NOW} AS now`);
    const after = clock.now();
    const now = row?.now ?? after;
    // The server read its clock at some time in between. An offset that fits stays: times must not jump with the duration of each request.
    if (this.clockOffset < now - after - 1 || this.clockOffset > now - before + 1)
      this.clockOffset = Math.round(now - (before + after) / 2);
    return now;
  }

  /** Renewals are one after the other, as each gives back lanes that it does not know. Of those of the timer that wait, only the last one runs. */
  #renew(since?: Milliseconds): Promise<void> {
    const renewing: Promise<void> = this.#renewing.then(() =>
      since === undefined && renewing !== this.#renewing ? undefined : this.#renewLanes(since),
    );
    this.#renewing = renewing;
    return renewing;
  }

  /** Renews the leases of lanes that are busy or were served since then, and gives the others back. */
  async #renewLanes(since: Milliseconds | undefined): Promise<void> {
    const begin = this.#parts.clock.monotonic();
    for (const [endpoint, { usedAt }] of this.#owned)
      if (!this.#busy.has(endpoint) && usedAt < (since ?? begin - RENEW_MS)) this.#owned.delete(endpoint);
    const kept = [...this.#owned.keys(), ...this.#busy];
    const renew = (sql: Sql, onLock: ' SKIP LOCKED' | '') =>
      sql.all<{ name: string }>(
        `WITH own AS MATERIALIZED (SELECT num FROM lane WHERE owner = ? ORDER BY num FOR UPDATE${onLock})
         UPDATE lane SET owner = CASE WHEN name IN ${sql.dialect.list('text')} THEN owner END, lease = ${NOW} + ${LEASE_MS}
         FROM own WHERE lane.num = own.num RETURNING lane.name`,
        [this.#owner, JSON.stringify(kept)],
      );
    try {
      // Only a clock that was ahead sets such a lease. An owner that runs renews it, and another replica takes over from one that does not.
      const late = `SELECT num FROM lane WHERE owner IS NOT NULL AND lease > ${NOW} + ${LEASE_MS} FOR UPDATE SKIP LOCKED`;
      await this.#database.run(`UPDATE lane SET lease = ${NOW} + ${LEASE_MS} WHERE num IN (${late})`).catch(() => undefined);
      const renewed = await this.#database
        .transaction((sql) => renew(sql, ''), true)
        .catch(() => renew(this.#database, ' SKIP LOCKED'));
      const names = new Set(renewed.map(({ name }) => name));
      const until = begin + LEASE_MS - LEASE_MARGIN_MS;
      for (const [name, owned] of this.#owned) if (names.has(name)) owned.until = until;
      // Another transaction locks the others, or another replica has them.
      const others = [...this.#owned.keys()].filter((name) => !names.has(name));
      const lanes = await readLanes(this.#database, others);
      this.#loseLeases(others.filter((name) => lanes.get(name)?.owner !== this.#owner));
    } catch {
      // The next time is before the leases end.
    }
  }

  /** Stops those of the lanes that could not be renewed for so long that others may have them: after a pause, or while the server does not answer. */
  #endLeases(names: Iterable<string>): void {
    const now = this.#parts.clock.monotonic();
    for (const name of names) if (now > (this.#owned.get(name)?.until ?? now)) this.#loseLeases([name]);
  }

  #loseLeases(endpoints: readonly string[]): void {
    for (const endpoint of endpoints) {
      this.#owned.delete(endpoint);
      this.#parts.events.onLeaseLost(endpoint);
    }
  }

  get #channel(): string {
    return `sidegate_${this.#parts.settings.schema}`;
  }

  /** Gets the news of other replicas on a dedicated connection; without one, polls find everything a little later. */
  async #listen(): Promise<void> {
    if (this.#isClosing) return;
    const { clock, settings } = this.#parts;
    const listener = createPostgresClient(settings.target);
    this.#listener = listener;
    let isOver = false;
    const again = (): void => {
      if (isOver) return;
      isOver = true;
      listener.end().catch(() => undefined);
      if (!this.#isClosing) this.#cancelListening = clock.after(LISTEN_AGAIN_MS, () => runDetached(this.#listen()));
    };
    onEvent(listener, 'error', again);
    onEvent(listener, 'end', again);
    onEvent(listener, 'notification', ({ payload = '' }) => this.#hear(payload));
    try {
      await listener.connect();
      await listener.query(`LISTEN "${this.#channel}"`);
    } catch {
      again();
    }
  }

  /** Any role that can connect can send news, so they keep nothing in memory, and only make this replica look earlier. */
  #hear(payload: string): void {
    const news = parseJson(payload, News);
    if (news === undefined || news.from === this.#owner) return;
    const { events } = this.#parts;
    const unknown = news.due?.filter((endpoint) => !events.onNews(endpoint));
    for (const endpoint of news.wake) events.onWake(endpoint);
    if (unknown?.length !== 0 || news.endpoints) this.#lookSoon();
  }

  #lookSoon(): void {
    const { clock } = this.#parts;
    this.#cancelLook ??= clock.after(LOOK_MS, () => {
      this.#cancelLook = undefined;
      // The search under way may have begun before the change, or the last one took long.
      if (this.#isPolling || clock.monotonic() < this.#pollFrom) return this.#lookSoon();
      runDetached(this.#poll());
      runDetached(this.#checkEndpoints());
    });
  }

  #announceSoon(): void {
    this.#cancelNews ??= this.#parts.clock.after(NEWS_MS, () => {
      this.#cancelNews = undefined;
      runDetached(this.#tell());
    });
  }

  async #tell(): Promise<void> {
    const { due, wake, endpoints } = this.#news;
    this.#news = { due: new Set(), wake: new Set(), endpoints: false };
    if (due.size === 0 && wake.size === 0 && !endpoints) return;
    const first: News = { from: this.#owner, due: toParts(due).length > 1 ? null : [...due], wake: [], endpoints };
    const all = [first, ...toParts(wake).map((part): News => ({ ...first, due: [], wake: part, endpoints: false }))];
    await this.#database
      .all('SELECT pg_notify(?, value) FROM json_array_elements_text(?::json)', [
        this.#channel,
        JSON.stringify(all.map((news) => JSON.stringify(news))),
      ])
      .catch(() => undefined);
  }
}

/** Names in parts that fit into a message. */
function toParts(names: ReadonlySet<string>): readonly string[][] {
  const parts: string[][] = [];
  let bytes = MAX_NEWS_BYTES;
  for (const name of names) {
    bytes += Buffer.byteLength(JSON.stringify(name)) + 1;
    if (bytes > MAX_NEWS_BYTES) {
      parts.push([]);
      bytes = Buffer.byteLength(JSON.stringify(name)) + 1;
    }
    parts.at(-1)?.push(name);
  }
  return parts;
}
