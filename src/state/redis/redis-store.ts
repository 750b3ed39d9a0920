/** Seen IDs, newest versions and login attempts in Redis, shared by all replicas: one round trip per call, within a bounded time. */

import { randomUUID } from 'node:crypto';
import { type CancelTimer, type Clock, type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import { onEvent, runDetached } from '../../core/safe-events.ts';
import type { AttemptKeys, Attempts, AttemptsRule, LoginAttempt } from '../../users/attempts.ts';
import type { EnterRequest, EnterResult, LeaveRequest, NewestVersions } from '../newest-versions.ts';
import type { ClaimRequest, ClaimResult, Forgotten, SeenIds } from '../seen-ids.ts';
import type { SharedBatch, SharedStream, SharedStreams } from '../shared-streams.ts';
import {
  openRedis,
  type RedisClient,
  type RedisNode,
  type RedisStoreOptions,
  type RedisTopology,
  toReconnectDelay,
  updateRedis,
} from './client.ts';
import { type RedisReply, StoreOperations } from './operations.ts';

/** Callbacks for what the operator should know. Texts contain no credentials. */
export interface RedisStoreEvents {
  /** Redis executed every operation that a delivery needs. */
  onUp(): void;
  /** Again if Redis replies with another error meanwhile. */
  onDown(outage: StoreOutage): void;
  onWarning(message: string): void;
}

/** Connects in the background. While Redis is not connected, every call rejects at once. */
export function createRedisStore(options: RedisStoreOptions, events: RedisStoreEvents, clock: Clock): RedisStore {
  return new RedisStore(options, events, clock);
}

const NEW: ClaimResult = { state: 'new' };
/** Of at most 64 KiB each; the figures of a hundred replicas are newer than their interval. */
const MAX_BATCHES = { deliveries: 64, figures: 128 } as const;
/** After the last console was closed. */
const BATCHES_KEPT_MS: Milliseconds = 600_000;
/** While the store is down. */
const PROBE_INTERVAL_MS: Milliseconds = 1_000;
/** In every key of a probe, after the prefix; no route has a key of this form. */
const PROBE = 'probe:';
/** In a Cluster; with so many, hardly any primary of up to ten has none of them (0.1 %). */
const PROBED_KEYS = 64;
/** Of the different replies of one outage. */
const MAX_REPORTED = 8;
const PROBE_LEASE_MS: Milliseconds = 5_000;
/** After it, the pause is as long as any. */
const LATE_ATTEMPT = 10;

/** An error of the client. */
interface RedisError extends Error {
  /** To which Redis replied with it. */
  readonly command?: { readonly name: string };
}

class RedisStore implements SeenIds, NewestVersions, Attempts, SharedStreams {
  readonly #client: RedisClient;
  readonly #events: RedisStoreEvents;
  readonly #operations: StoreOperations;
  readonly #prefix: string;
  readonly #outage: OutageRecord;
  readonly #clock: Clock;
  #isUp: boolean | undefined;
  /** The replies of this outage that were reported: each operation can fail with another one, every second. */
  readonly #reported = new Set<string>();
  #cancelProbe: CancelTimer | undefined;
  #cancelReconnect: CancelTimer | undefined;
  /** Warnings are reported once. */
  #isClosing = false;

  constructor(options: RedisStoreOptions, events: RedisStoreEvents, clock: Clock) {
    this.#outage = new OutageRecord(options.topology, clock);
    this.#clock = clock;
    this.#events = events;
    this.#prefix = options.keyPrefix;
    this.#client = openRedis(options);
    this.#operations = new StoreOperations(this.#client, (error) => this.#markDown(error), clock, options.commandTimeout);
    onEvent(this.#client, 'ready', () => runDetached(this.#onReady()));
    onEvent(this.#client, 'error', (error: RedisError) => {
      this.#markDown(error);
      if (error.command?.name === 'select') this.#reconnectLater();
    });
    onEvent(this.#client, 'close', () => this.#markDown({ code: 'EPIPE' }));
  }

  claim({ key, token, fingerprint, leaseMs }: ClaimRequest): Promise<ClaimResult> {
    const operation = { name: 'claim', key: this.#prefix + key, args: [token, fingerprint, leaseMs] } as const;
    return this.#operations.run(operation, toClaimResult);
  }

  confirm(key: string, token: string, fingerprint: string, retentionMs: Milliseconds): Promise<boolean> {
    const operation = { name: 'confirm', key: this.#prefix + key, args: [token, fingerprint, retentionMs] } as const;
    return this.#operations.run(operation, isDone);
  }

  release(key: string, token: string): Promise<boolean> {
    return this.#operations.run({ name: 'release', key: this.#prefix + key, args: [token] }, isDone);
  }

  forget(key: string): Promise<Forgotten> {
    return this.#operations.run({ name: 'forget', key: this.#prefix + key, args: [] }, toForgotten);
  }

  enter({ key, version, token, leaseMs }: EnterRequest): Promise<EnterResult> {
    return this.#operations.run({ name: 'enter', key: this.#prefix + key, args: [version, token, leaseMs] }, toEnterResult);
  }

  leave({ key, token, handled }: LeaveRequest): Promise<boolean> {
    const args = handled === undefined ? [token] : [token, handled.version, handled.retentionMs];
    return this.#operations.run({ name: 'leave', key: this.#prefix + key, args }, isDone);
  }

  async take(keys: AttemptKeys, rule: AttemptsRule): Promise<LoginAttempt> {
    const reply = await this.#attempt('attempt', keys, [rule.failures, rule.per, rule.ban]);
    if (typeof reply === 'number') {
      const refund = async (): Promise<void> => {
        await this.#attempt('refund', keys, [rule.failures, rule.per]);
      };
      return { kind: 'taken', refund };
    }
    const [number, left] = reply;
    return { kind: 'banned', key: number === '2' ? (keys[1] ?? keys[0]) : keys[0], left };
  }

  findBan(key: string, { failures, ban }: AttemptsRule): Promise<Milliseconds> {
    return this.#operations.run({ name: 'ban', key: `${this.#prefix}a:${key}`, args: [failures, ban] }, Number);
  }

  lift(key: string): Promise<boolean> {
    return this.#operations.run({ name: 'lift', key: `${this.#prefix}a:${key}`, args: [] }, isDone);
  }

  async isWatched(): Promise<boolean> {
    return (await this.#client.exists(`${this.#prefix}console`)) === 1;
  }

  async watch(duration: Milliseconds): Promise<void> {
    await this.#client.set(`${this.#prefix}console`, '1', 'PX', duration);
  }

  async publish(stream: SharedStream, text: string): Promise<void> {
    const key = this.#prefix + stream;
    await this.#client.xadd(key, 'MAXLEN', MAX_BATCHES[stream], '*', stream, text);
    await this.#client.pexpire(key, BATCHES_KEPT_MS);
  }

  async read(stream: SharedStream, after: string): Promise<SharedBatch[]> {
    // Inclusive, as Redis 6.0 knows no exclusive ranges.
    const found = await this.#client.xrange(this.#prefix + stream, after, '+', 'COUNT', MAX_BATCHES[stream] + 1);
    return found.flatMap(([id, [, text = '']]) => (id === after ? [] : [{ id, text }]));
  }

  /** Later connections use these settings. */
  update(options: RedisStoreOptions): void {
    this.#outage.address = formatAddress(options.topology);
    updateRedis(this.#client, options);
  }

  isUp(): boolean {
    return this.#isUp === true;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    this.#cancelProbe?.();
    this.#cancelReconnect?.();
    this.#client.disconnect();
  }

  #attempt(name: 'attempt' | 'refund', [key, other]: AttemptKeys, args: readonly number[]): Promise<RedisReply> {
    const toName = (attemptKey: string): string => `${this.#prefix}a:${attemptKey}`;
    if (other === undefined) return this.#operations.run({ name, key: toName(key), args }, asReply);
    return this.#operations.run({ name: `${name}Both`, key: toName(key), otherKey: toName(other), args }, asReply);
  }

  async #onReady(): Promise<void> {
    await this.#probe();
    // At each connection: after a failover, it is another server.
    if (this.#isUp !== true) return;
    await this.#warnAboutEviction();
    await this.#warnAboutCommands();
  }

  /**
   * Runs every operation, on keys that only this probe has and that expire. A Redis that accepts connections may still refuse to write: a
   * replica, a server whose memory or disk is full, or one whose ACL lacks a command. In a Cluster one of many primaries may refuse.
   */
  async #probe(): Promise<void> {
    const keys = Array.from({ length: this.#client.isCluster ? PROBED_KEYS : 1 }, () => `${PROBE}${randomUUID()}`);
    try {
      await Promise.all(keys.flatMap((key) => this.#runAll(key)));
    } catch {
      // The failure is recorded, and the next probe is scheduled (#markDown).
      return;
    }
    this.#markUp();
  }

  /** Every operation, on one key. */
  #runAll(key: string): readonly Promise<unknown>[] {
    const lease = { token: 'probe', leaseMs: PROBE_LEASE_MS };
    const rule = { failures: 3, per: PROBE_LEASE_MS, ban: PROBE_LEASE_MS };
    return [
      this.claim({ key, fingerprint: '-', ...lease }),
      this.claim({ key, fingerprint: '-', ...lease, token: 'another' }),
      this.confirm(key, lease.token, '-', PROBE_LEASE_MS),
      this.forget(key),
      this.enter({ key: `${key}:order`, version: '1', ...lease }),
      this.leave({ key: `${key}:order`, token: lease.token }),
      this.#attempt('attempt', [key], [rule.failures, rule.per, rule.ban]),
      this.#attempt('attempt', [key], [rule.failures, rule.per, rule.ban]),
      this.#attempt('refund', [key], [rule.failures, rule.per]),
      this.lift(key),
    ];
  }

  #markUp(): void {
    this.#cancelProbe?.();
    this.#cancelProbe = undefined;
    if (this.#isUp === true || this.#isClosing) return;
    this.#isUp = true;
    this.#outage.end();
    this.#reported.clear();
    this.#events.onUp();
  }

  /** Otherwise the client goes on in database 0, which others may use. Its own pauses start short after each connection. */
  #reconnectLater(): void {
    this.#client.disconnect();
    if (this.#isClosing) return;
    this.#cancelReconnect ??= this.#clock.after(toReconnectDelay(LATE_ATTEMPT), () => {
      this.#cancelReconnect = undefined;
      // Its failure is an event, too.
      runDetached(this.#client.connect().catch(() => undefined));
    });
  }

  #markDown(error: StoreError): string {
    if (this.#isClosing) return 'the store is closed';
    const outage = this.#outage.fail(error);
    const { reply } = outage;
    const isNewReply = reply !== undefined && !this.#reported.has(reply) && this.#reported.size < MAX_REPORTED;
    const isNew = this.#isUp !== false || isNewReply;
    this.#isUp = false;
    this.#cancelProbe ??= this.#clock.after(PROBE_INTERVAL_MS, () => {
      this.#cancelProbe = undefined;
      runDetached(this.#probe());
    });
    if (isNew) {
      if (reply !== undefined) this.#reported.add(reply);
      this.#events.onDown(outage);
    }
    return outage.message;
  }

  async #warnAboutEviction(): Promise<void> {
    try {
      const found = toMap((await this.#client.config('GET', 'maxmemory*')) as unknown[]);
      const policy = found.get('maxmemory-policy') ?? 'noeviction';
      if (found.get('maxmemory') === '0' || policy === 'noeviction') return;
      this.#events.onWarning(
        `Redis can evict IDs before they expire (maxmemory-policy ${policy}), and deliveries with an evicted ID can be replayed; set maxmemory-policy noeviction`,
      );
    } catch {
      this.#events.onWarning(
        'Redis does not allow CONFIG GET, so sidegate cannot check whether it evicts IDs; make sure that maxmemory-policy is noeviction',
      );
    }
  }

  /** Of the console; deliveries do not need them. */
  async #warnAboutCommands(): Promise<void> {
    const key = `${this.#prefix}${PROBE}${randomUUID()}`;
    const calls = {
      XADD: this.#client.xadd(key, '*', 'a', '1'),
      XRANGE: this.#client.xrange(key, '-', '+'),
      EXISTS: this.#client.exists(key),
    };
    const end = this.#client.del(key);
    const results = await Promise.allSettled([...Object.values(calls), end]);
    const missing = Object.keys(calls).filter((_, index) => results[index]?.status === 'rejected');
    if (missing.length === 0) return;
    this.#events.onWarning(
      `Redis does not allow ${missing.join(', ')}, so the console shows only the requests of one replica; allow the user these commands`,
    );
  }
}

function toClaimResult(reply: RedisReply): ClaimResult {
  if (typeof reply === 'number') return expectOne(reply, NEW);
  const [value, remainingMs] = reply;
  const state = value.startsWith('h ') ? 'handled' : 'in-progress';
  return { state, remainingMs: Math.max(remainingMs, 0), fingerprint: toFingerprint(value) };
}

function toForgotten(reply: RedisReply): Forgotten {
  if (typeof reply === 'number') return { was: 'absent' };
  const [value] = reply;
  return { was: value.startsWith('h ') ? 'handled' : 'in-progress', fingerprint: toFingerprint(value) };
}

function toFingerprint(value: string): string {
  return value.slice(value.lastIndexOf(' ') + 1);
}

function toEnterResult(reply: RedisReply): EnterResult {
  if (typeof reply !== 'number') return { state: 'busy', remainingMs: reply[1] };
  return reply === 0 ? { state: 'stale' } : expectOne(reply, { state: 'entered' });
}

/** No other number may count as success: the claim would protect nothing. */
function expectOne<Result>(reply: number, result: Result): Result {
  if (reply !== 1) throw new Error(`unexpected ${reply}`);
  return result;
}

function isDone(reply: RedisReply): boolean {
  return reply === 1;
}

function asReply(reply: RedisReply): RedisReply {
  return reply;
}

/** Converts the flat list of names and values that CONFIG GET returns. */
function toMap(flat: readonly unknown[]): Map<string, string> {
  const map = new Map<string, string>();
  for (let i = 0; i + 1 < flat.length; i += 2) map.set(String(flat[i]), String(flat[i + 1]));
  return map;
}

// A failure of Redis, as the operator sees it: which store, at which address, since when and why.

/** A store that is down. */
export interface StoreOutage {
  /** One sentence with the address, the time and the cause; contains no credentials. */
  readonly message: string;
  readonly address: string;
  readonly since: EpochMilliseconds;
  /** The error that Redis replied, if there is a connection. */
  readonly reply: string | undefined;
  /** How to fix it. */
  readonly hint: string;
}

const NOT_CONNECTED = 'not connected';
const CLOSED = 'connection closed';
/** System errors, by code. */
const CODES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  EPIPE: CLOSED,
  ETIMEDOUT: 'connecting timed out',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no route to the network',
  ENOTFOUND: 'the host name does not resolve',
  EAI_AGAIN: 'the host name does not resolve at the moment',
};
/** Replacements for error messages of the client library, which mean nothing to an operator. */
const LIBRARY_TEXTS: readonly (readonly [RegExp, string])[] = [
  [/^Command timed out/, 'no reply in time'],
  [/sentinels? (?:is|are) unreachable/i, 'no Sentinel replies'],
  [/startup nodes|slots cache|ClusterAllFailed/i, 'no node of the Cluster replies'],
  [/too many cluster redirections/i, 'the Cluster redirects without end'],
];
/** Before what the last Sentinel replied. */
const LAST_ERROR = ' Last error: ';
/** An error reply of Redis: a code and a text (RESP). */
const REPLY = /^(?:-?ERR|[A-Z]{3,}) \S/;
const MAX_REPLY_LENGTH = 200;
const REPLIED = 'Redis replied: ';
const UNREACHABLE_HINT = 'start Redis, or correct its address, user, password or TLS';
/** How to fix what Redis replied. A script of Redis 6 puts its own text before the code. */
const HINTS: readonly (readonly [RegExp, string])[] = [
  [/\bREADONLY\b/, 'this server is a replica: use the address of the primary, or store.redis.sentinel or cluster, which find it'],
  [/\bNOPERM\b|can't run this command/, 'allow the user the commands and keys that docs/how-to/redis.md lists'],
  [/\bOOM\b/, 'raise maxmemory, or move other data to another server'],
  [/\bMISCONF\b/, 'Redis cannot save its data: free or enlarge its disk, and see its log'],
  [/\bNOREPLICAS\b/, 'too few replicas are connected: start them, or lower min-replicas-to-write'],
  [/\b(?:LOADING|MASTERDOWN|CLUSTERDOWN|BUSY|TRYAGAIN)\b/, 'wait until Redis is ready; if it does not become ready, see its log'],
];

/** An error of a connection or of a call. */
interface StoreError {
  readonly message?: string;
  readonly code?: unknown;
  /** In a Cluster: why the last node that was asked did not help. */
  readonly lastNodeError?: StoreError;
}

/** Why a call or a connection failed. */
export function toCause({ message = '', code, lastNodeError }: StoreError): string {
  const found = typeof code === 'string' ? code : /\b(E[A-Z]{4,}|EAI_AGAIN)\b/.exec(message)?.[1];
  if (found !== undefined && Object.hasOwn(CODES, found)) return CODES[found] ?? NOT_CONNECTED;
  const reply = [message, lastNodeError?.message, message.split(LAST_ERROR)[1]].find((text = '') => REPLY.test(text));
  if (reply !== undefined) return `${REPLIED}${reply.slice(0, MAX_REPLY_LENGTH)}`;
  const known = LIBRARY_TEXTS.find(([pattern]) => pattern.test(message));
  if (known !== undefined) return known[1];
  return found === undefined ? NOT_CONNECTED : `the connection failed (${found})`;
}

function toHint(cause: string): string {
  return HINTS.find(([pattern]) => pattern.test(cause))?.[1] ?? UNREACHABLE_HINT;
}

/** The address of Redis, without credentials. */
export function formatAddress(topology: RedisTopology): string {
  if (topology.kind === 'standalone') return formatNode(topology.node);
  const nodes = topology.nodes.map(formatNode).join(', ');
  return topology.kind === 'cluster' ? `${nodes} (Cluster)` : `${nodes} (Sentinel of ${topology.name})`;
}

function formatNode({ host, port }: RedisNode): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Records the current outage. */
export class OutageRecord {
  address: string;
  readonly #clock: Clock;
  #since: EpochMilliseconds | undefined;
  #cause = NOT_CONNECTED;

  constructor(topology: RedisTopology, clock: Clock) {
    this.address = formatAddress(topology);
    this.#clock = clock;
  }

  /**
   * Records a failure. A less specific cause does not replace a more specific one: a call without a connection, and the close after
   * each failed attempt to connect, must not hide why connecting fails.
   */
  fail(error: StoreError): StoreOutage {
    const cause = toCause(error);
    const isSpecific = cause !== NOT_CONNECTED && (cause !== CLOSED || this.#cause === NOT_CONNECTED);
    if (this.#since === undefined || isSpecific) this.#cause = cause;
    this.#since ??= this.#clock.now();
    const since = toInstant(this.#since);
    return {
      message: `Redis at ${this.address} is down since ${since}: ${this.#cause}`,
      address: this.address,
      since: this.#since,
      reply: this.#cause.startsWith(REPLIED) ? this.#cause.slice(REPLIED.length) : undefined,
      hint: toHint(this.#cause),
    };
  }

  end(): void {
    this.#since = undefined;
    this.#cause = NOT_CONNECTED;
  }
}
