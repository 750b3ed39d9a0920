/** The kept-alive connections to servers. Servers never share one, so that none can answer the requests to another. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { toAddressText } from '../../core/listen-address.ts';
import { type MemoryPressure, NO_PRESSURE } from '../server/memory-guard.ts';
import { Connection, type ConnectionOwner, type Job } from './connection.ts';
import { type OpenSocket, openConfigured } from './open-socket.ts';
import { type HeadParser, parseResponseHead, ReadBuffers, ResponseHeads } from './response-parser.ts';
import type {
  Upstream,
  UpstreamExchange,
  UpstreamLimits,
  UpstreamListener,
  UpstreamOptions,
  UpstreamRequest,
} from './upstream.ts';

/** The precision of timeouts and aborts: one timer for all connections, none for each request. */
const CHECK_INTERVAL_MS: Milliseconds = 50;
/** A check that comes this long after the one before: the process was busy, or its CPU was throttled. */
const LATE_CHECK_MS: Milliseconds = 250;
/**
 * A server that keeps connections has not closed one so long after its first response. Some close each without `Connection: close`, as uWSGI does: a
 * request on such a connection would be lost. Doubles each time that it was too short, up to half of the idle timeout.
 */
const PROOF_MS: Milliseconds = 200;
/** A server that closes a connection so soon after its first response keeps none. */
const LEFT_MS: Milliseconds = 1_000;
/** An idle TLS connection holds about 40 KiB, and up to 150 KiB more for unusual certificates. */
const MAX_IDLE_CONNECTIONS = 1_024;

/** The pools of one part of the process share its read buffers, its timer, and its limit on idle connections. */
export class HttpClient {
  readonly clock: Clock;
  readonly buffers = new ReadBuffers();
  readonly #memory: Pick<MemoryPressure, 'isTight'>;
  /** Those with a connection. */
  readonly #pools = new Set<Pool>();
  /** The one that became idle first is first. */
  readonly #idle = new Set<Connection>();
  #stopChecks: CancelTimer | undefined;
  #checkedAt: Milliseconds = 0;
  #wasLate = false;

  /** `memory`: while it is tight, no connection is kept idle. */
  constructor(clock: Clock, memory: Pick<MemoryPressure, 'isTight'> = NO_PRESSURE) {
    this.clock = clock;
    this.#memory = memory;
  }

  /** Connections to an app. */
  createUpstream(options: UpstreamOptions): Upstream {
    const open: OpenSocket = (opening, reads) => openConfigured(options, opening, reads, this.clock);
    return new Pool(this, { ...options, remembersHeads: true }, open, toAddressText(options.host, options.port));
  }

  onUsed(pool: Pool): void {
    this.#pools.add(pool);
    if (this.#stopChecks !== undefined) return;
    this.#checkedAt = this.clock.monotonic();
    this.#stopChecks = this.clock.every(CHECK_INTERVAL_MS, () => this.#check());
  }

  onUnused(pool: Pool): void {
    this.#pools.delete(pool);
    if (this.#pools.size > 0) return;
    this.#stopChecks?.();
    this.#stopChecks = undefined;
  }

  onIdle(connection: Connection): void {
    this.#idle.add(connection);
    this.#closeIdle();
  }

  /** Returns whether it was idle. */
  onBusy(connection: Connection): boolean {
    return this.#idle.delete(connection);
  }

  #closeIdle(): void {
    const most = this.#memory.isTight ? 0 : MAX_IDLE_CONNECTIONS;
    for (const oldest of this.#idle)
      if (this.#idle.size > most) oldest.destroy();
      else break;
  }

  #check(): void {
    this.#closeIdle();
    const now = this.clock.monotonic();
    const isLate = now - this.#checkedAt > LATE_CHECK_MS;
    this.#checkedAt = now;
    // Responses may have arrived in time and wait to be read, which happens before the next check.
    this.#wasLate = isLate && !this.#wasLate;
    if (!this.#wasLate) for (const pool of this.#pools) pool.check(now);
  }
}

/** The connections to one server. */
export class Pool implements Upstream, ConnectionOwner {
  readonly limits: UpstreamLimits;
  readonly open: OpenSocket;
  readonly name: string;
  readonly buffers: ReadBuffers;
  heads: HeadParser;
  readonly clock: Clock;
  readonly #client: HttpClient;
  readonly #connections = new Set<Connection>();
  /** How many of them are upgraded. Only the number of clients limits these: they do not count towards `maxConnections`. */
  #upgraded = 0;
  /** The most recently used connection is last: the server is least likely to close it. */
  readonly #free: Connection[] = [];
  readonly #waiting = new Set<PooledJob>();
  /** Until the server announces it, or a connection proves it, none is used again. */
  #keepsAlive = false;
  #proofTime: Milliseconds;
  /** A connection was used again since the last proof, which was right. */
  #isConfirmed = false;
  /** It had stayed open for long enough at the last check. Between two checks, Node reads what had arrived: also that the server closed it. */
  #proof: Connection | undefined;
  #isClosed = false;

  /** `name`: of the server, in failures before its response; empty: not named. */
  constructor(client: HttpClient, limits: UpstreamLimits, open: OpenSocket, name = '') {
    this.name = name;
    this.#client = client;
    this.buffers = client.buffers;
    this.clock = client.clock;
    this.limits = limits;
    this.#proofTime = this.#toProofTime(PROOF_MS);
    this.open = open;
    this.heads = toHeads(limits);
  }

  send(request: UpstreamRequest, listener: UpstreamListener): UpstreamExchange {
    const job = new PooledJob(this, request, listener);
    const now = this.clock.monotonic();
    const connection = request.isUpgrade === true ? undefined : this.#takeFree(now);
    if (connection !== undefined) connection.send(job);
    else if (this.#hasRoom() || this.#makeRoom()) this.#start(job);
    else this.#wait(job, now);
    return job;
  }

  close(): void {
    this.#isClosed = true;
    for (const connection of [...this.#free]) connection.destroy();
  }

  destroy(): void {
    this.#isClosed = true;
    this.#waiting.clear();
    for (const connection of this.#connections) connection.destroy();
  }

  onFree(connection: Connection): void {
    this.#isConfirmed ||= connection.isReused;
    const next = this.#keepsAlive ? this.#takeWaiting() : undefined;
    if (next !== undefined) return connection.send(next);
    // Until there is a proof, one of the free connections is enough for it, and the others would only occupy places.
    if (this.#isClosed || (this.#waiting.size > 0 && this.#free.length > 0)) return connection.destroy();
    this.#free.push(connection);
    this.#client.onIdle(connection);
  }

  onKept(): void {
    this.#keepsAlive = true;
  }

  onLeft(after: Milliseconds): void {
    if (after >= LEFT_MS || !this.#keepsAlive) return;
    this.#keepsAlive = false;
    // After connections were used again, the app ended one for another reason, such as a restart.
    this.#proofTime = this.#toProofTime(this.#isConfirmed ? PROOF_MS : 2 * this.#proofTime);
    this.#isConfirmed = false;
  }

  onUpgraded(): void {
    this.#upgraded++;
    this.#openWaiting();
  }

  onClosed(connection: Connection, isUpgraded: boolean): void {
    this.#connections.delete(connection);
    if (isUpgraded) this.#upgraded--;
    if (this.#client.onBusy(connection)) this.#free.splice(this.#free.indexOf(connection), 1);
    this.#openWaiting();
    if (this.#connections.size > 0) return;
    // They hold what the server sent.
    this.heads = toHeads(this.limits);
    this.#client.onUnused(this);
  }

  onDeadOnReuse(job: Job): void {
    // Never on another reused connection, which may be dead, too.
    this.#start(job);
  }

  /** The job was canceled before it got a connection. */
  cancel(job: PooledJob): void {
    this.#waiting.delete(job);
  }

  /** Ends what has timed out or was aborted. */
  check(now: Milliseconds): void {
    for (const connection of this.#connections) connection.check(now);
    if (!this.#keepsAlive) this.#lookForProof(now);
    if (this.#keepsAlive) this.#useFree(now);
    for (const job of this.#waiting) {
      const isAborted = job.request.signal?.aborted === true;
      if (!isAborted && now < job.waitsUntil) continue;
      this.#waiting.delete(job);
      const kind = isAborted ? 'aborted' : 'timeout';
      const detail = isAborted ? 'the request was canceled' : `no connection was free within ${this.limits.responseTimeout} ms`;
      job.listener.onFailure({ kind, nothingSent: true, detail });
    }
  }

  /** No connection is kept for longer than the idle timeout. */
  #toProofTime(time: Milliseconds): Milliseconds {
    return Math.min(time, this.limits.idleTimeout / 2);
  }

  /** Closes a free connection that may not be used, except the oldest, which can be the proof. Returns whether there is a place then. */
  #makeRoom(): boolean {
    if (!this.#keepsAlive && this.#free.length > 1) this.#free.at(-1)?.destroy();
    return this.#hasRoom();
  }

  #lookForProof(now: Milliseconds): void {
    const isProven = this.#proof !== undefined && this.#free.includes(this.#proof);
    this.#proof = isProven ? undefined : this.#free.find(({ freeSince }) => now - freeSince >= this.#proofTime);
    this.#keepsAlive = isProven;
  }

  /** Uses the free connections for what waits: none of them is overdue. */
  #useFree(now: Milliseconds): void {
    while (this.#waiting.size > 0) {
      const connection = this.#takeFree(now);
      const next = connection && this.#takeWaiting();
      if (next === undefined) return;
      connection?.send(next);
    }
  }

  /** The check may be late if the process was busy: an overdue connection counts as closed by the server. */
  #takeFree(now: Milliseconds): Connection | undefined {
    if (!this.#keepsAlive) return undefined;
    for (let connection = this.#free.pop(); connection !== undefined; connection = this.#free.pop()) {
      this.#client.onBusy(connection);
      if (!connection.isOverdue(now)) return connection;
      connection.destroy();
    }
    return undefined;
  }

  #hasRoom(): boolean {
    return this.#connections.size - this.#upgraded < this.limits.maxConnections;
  }

  #wait(job: PooledJob, now: Milliseconds): void {
    const end = now + this.limits.responseTimeout;
    job.waitsUntil = Math.min(end, job.request.endsAt ?? end);
    this.#waiting.add(job);
  }

  #takeWaiting(): Job | undefined {
    const [next] = this.#waiting;
    if (next !== undefined) this.#waiting.delete(next);
    return next;
  }

  #openWaiting(): void {
    if (!this.#hasRoom()) return;
    const next = this.#takeWaiting();
    if (next !== undefined) this.#start(next);
  }

  #start(job: Job): void {
    this.#connections.add(new Connection(this, job));
    this.#client.onUsed(this);
  }
}

function toHeads({ remembersHeads }: UpstreamLimits): HeadParser {
  return remembersHeads === true ? new ResponseHeads() : { parse: parseResponseHead };
}

/** A request in the pool, from `send` to the end of the exchange. */
class PooledJob implements Job, UpstreamExchange {
  readonly request: UpstreamRequest;
  readonly listener: UpstreamListener;
  connection: Connection | undefined = undefined;
  isSent = false;
  waitsUntil: Milliseconds = 0;
  readonly #pool: Pool;

  constructor(pool: Pool, request: UpstreamRequest, listener: UpstreamListener) {
    this.#pool = pool;
    this.request = request;
    this.listener = listener;
  }

  abort(): void {
    if (this.connection === undefined) this.#pool.cancel(this);
    else this.connection.destroy();
  }
}
