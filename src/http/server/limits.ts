/** The limits that all request bodies share: buffered bytes, and their rate. */
import type { Readable } from 'node:stream';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { type ListElement, UnorderedList } from '../../core/collections.ts';
import type { Pauses, ReadPause } from '../../core/reading.ts';
import type { Reason } from '../../core/refusal.ts';
import {
  BodyBudget,
  type BudgetedBody,
  type BudgetLimits,
  EVICTED_SHARE,
  findHeaviest,
  type Holder,
  type MemoryPressure,
  pickVictims,
  sumHeld,
} from './memory-guard.ts';

/** The limit that was reached; a closed set, used as a metric label. */
export type ListenLimit =
  | 'head_timeout'
  | 'body_idle'
  | 'body_rate'
  | 'body_total'
  | 'body_size'
  | 'header_bytes'
  | 'header_fields'
  | 'target'
  | 'connections'
  | 'client_connections'
  | 'handshakes'
  | 'handshake_bytes'
  | 'empty_records'
  | 'small_chunks'
  | 'client_requests'
  | 'rejected_streams'
  | 'pipelined'
  | 'upgrades'
  | 'client_upgrades'
  | 'send_stall'
  | 'buffer'
  | 'buffer_share'
  | 'heap'
  | 'memory';

/** The memory that a TLS connection holds until it is garbage collected, in bytes: a flood of handshakes allocates memory without sending a body. */
export const TLS_CONNECTION_BYTES = 64 * 1024;
/** Without TLS, with what the kernel holds for it. */
export const CONNECTION_BYTES = 16 * 1024;
/** A connection takes so much more from its first request on, with or without TLS: 28 KiB were measured. */
export const FIRST_REQUEST_BYTES = 32 * 1024;

/** The limits for bodies while they arrive. */
export interface BodyLimits extends BudgetLimits {
  readonly bodyIdleTimeout: Milliseconds;
  /** Bytes per second, enforced after `bodyIdleTimeout`, so that a slow start is allowed. */
  readonly bodyMinRate: number;
  readonly bodyTimeout: Milliseconds;
  /** Bytes per second of a streamed body, enforced after `bodyTimeout`. */
  readonly streamMinRate: number;
  /** The maximum duration of a streamed body. */
  readonly streamTimeout: Milliseconds;
}

/** A body in progress, as the sweep sees it. */
export interface BodyInProgress {
  readonly startedAt: Milliseconds;
  lastByteAt: Milliseconds;
  received: number;
  /** The body is buffered within `bodyTimeout`; otherwise it is streamed, for at most `streamTimeout`. */
  readonly isBuffered: boolean;
  /** The consumer asked for a pause, so the sender is not to blame for the delay. */
  readonly isPaused: boolean;
  /** Ends the read. */
  fail(reason: Reason): void;
}

/** A body that is read into memory. */
export interface BufferedBody extends BodyInProgress, BudgetedBody, ListElement {}

/** A large body that waits for a slot. */
interface QueuedBody {
  readonly body: BufferedBody;
  readonly bytes: number;
  readonly since: Milliseconds;
  readonly onGranted: () => void;
}

/** The memory limits that all ports of a process share. */
export interface ListenMemory {
  readonly bodies: BodyWatch;
  readonly guard: MemoryPressure;
}

/** The limits of a port with routes. */
export interface PortLimits extends Pick<BodyLimits, 'bodyTimeout' | 'streamTimeout'> {
  readonly headTimeout: Milliseconds;
  readonly keepAliveTimeout: Milliseconds;
  readonly sendTimeout: Milliseconds;
  readonly maxHeaderBytes: number;
  readonly maxHeaderFields: number;
  /** Bytes. */
  readonly maxTarget: number;
  readonly maxConnections: number;
  readonly maxConnectionsPerClient: number;
  readonly maxRequestsPerClient: number;
  /** Default: half of `maxConnections`. */
  readonly maxUpgraded?: number | undefined;
  /** Default: a quarter of `maxConnections`. */
  readonly maxUpgradedPerClient?: number | undefined;
}

/** Nothing replaces an upgraded connection, so others keep half of the connections, unless the config says otherwise. */
export function toMaxUpgraded({ maxConnections, maxUpgraded }: Pick<PortLimits, 'maxConnections' | 'maxUpgraded'>): number {
  return maxUpgraded ?? Math.ceil(maxConnections / 2);
}

/** Called for each limit that was reached. */
export type OnLimit = (limit: ListenLimit) => void;

const SWEEP_INTERVAL_MS = 1_000;
/** The minimum time before a large body can be evicted for another: enough for a common sender to finish. */
const MIN_LARGE_TIME_MS: Milliseconds = 2_000;
/** Large bodies that may wait for each slot. The kernel buffers some of what each of them sends. */
const QUEUED_PER_SLOT = 4;

/** A connection on which something waits behind a response. */
export interface WaitingConnection extends Holder {
  held: number;
  /** Ends it, and frees what it holds. */
  evict(): void;
}

/** The memory for requests that wait for a turn of the event loop, as a share of that for bodies, which has it in addition. */
const TURN_SHARE = 1 / 8;

/** Checks all bodies in progress once a second: one timer for all, so that a request needs none. */
export class BodyWatch {
  readonly limits: BodyLimits;
  readonly clock: Clock;
  /** They may hold as much as bodies. */
  readonly pauses: PausedMemory;
  readonly #onLimit: OnLimit;
  readonly #pressure: MemoryPressure;
  readonly #budget: BodyBudget;
  #turnBytes = 0;
  /** Bodies that are streamed. */
  readonly #bodies = new Set<BodyInProgress>();
  /** Bodies that are read into memory. */
  readonly #buffered = new UnorderedList<BufferedBody>();
  /** Nothing else may hold what is left of a rejected request. */
  readonly #drained = new Set<{ readonly stream: WeakRef<Readable>; readonly endAt: Milliseconds }>();
  readonly #waiting = new Set<QueuedBody>();
  /** Those on which a request or bytes wait behind a response. */
  readonly #connections = new Set<WaitingConnection>();
  readonly #stop: CancelTimer;
  #isEvicting = false;

  constructor(limits: BodyLimits, clock: Clock, onLimit: OnLimit, pressure: MemoryPressure) {
    this.limits = limits;
    this.clock = clock;
    this.#onLimit = onLimit;
    this.#pressure = pressure;
    this.#budget = new BodyBudget(limits);
    this.pauses = new PausedMemory(limits.maxBufferedBytes, clock, onLimit, pressure);
    this.#stop = clock.every(SWEEP_INTERVAL_MS, () => this.#sweep());
  }

  add(body: BodyInProgress): void {
    this.#bodies.add(body);
  }

  /** The rest of a body that nobody reads any more: its connection ends if that has not arrived within `bodyTimeout`. */
  endDrained(stream: Readable): void {
    if (!stream.destroyed)
      this.#drained.add({ stream: new WeakRef(stream), endAt: this.clock.monotonic() + this.limits.bodyTimeout });
  }

  /** Adds a body that is read into memory. */
  addBuffered(body: BufferedBody): void {
    this.#buffered.add(body);
  }

  remove(body: BodyInProgress): void {
    this.#bodies.delete(body);
  }

  /** Call it for each chunk, even if the chunk is discarded: each takes memory until it is garbage collected. */
  onBytes(bytes: number): void {
    this.#pressure.onBytes(bytes);
  }

  /** Call it once bytes are given up that only a collection frees. */
  onGarbage(bytes: number): void {
    this.#pressure.onGarbage(bytes);
  }

  /** Increases the share of a small body to `bytes`. If the budget is exhausted, evicts other unfinished bodies; returns false if there are none. */
  take(body: BufferedBody, bytes: number): boolean {
    if (this.#budget.take(body, bytes)) return true;
    this.#evictFor(body, bytes, 0);
    const isTaken = this.#budget.take(body, bytes);
    this.#grantSlots();
    return isTaken || this.#reject();
  }

  /** Like `take`, for a body above SMALL_BODY. */
  takeLarge(body: BufferedBody, bytes: number): boolean {
    if (this.#pressure.isTight) return this.#reject();
    if (this.#budget.takeLarge(body, bytes)) return true;
    this.#evictFor(body, bytes, MIN_LARGE_TIME_MS);
    const isTaken = this.#budget.takeLarge(body, bytes);
    this.#grantSlots();
    return isTaken || this.#reject();
  }

  /** Grants a slot to a large body now or later, by `onGranted`; returns false if it cannot wait. If it fails meanwhile, call `finish`. */
  takeOrWait(body: BufferedBody, bytes: number, onGranted: () => void): boolean {
    if (this.#pressure.isTight || !this.#budget.canHold(bytes) || !this.#canWait(body)) return this.#reject();
    this.#waiting.add({ body, bytes, since: this.now(), onGranted });
    this.#grantSlots();
    return true;
  }

  /**
   * Takes memory for a request that waits for the response before it, and for what has arrived of its body. If such requests have used up their
   * share, connections of the client network that holds most of it end. Returns how to release it; undefined if that is this client's.
   */
  takeForWaiting(connection: WaitingConnection, bytes: number): (() => void) | undefined {
    if (this.#pressure.shortage !== undefined) return undefined;
    if (!this.#budget.takeForWaiting(bytes)) {
      this.#evictWaiting(connection, bytes);
      const isTaken = this.#budget.takeForWaiting(bytes);
      this.#grantSlots();
      if (!isTaken) return undefined;
    }
    connection.held += bytes;
    this.#connections.add(connection);
    return () => {
      connection.held -= bytes;
      if (connection.held === 0) this.#connections.delete(connection);
      this.#budget.releaseWaiting(bytes);
      this.#grantSlots();
    };
  }

  /** Takes memory for a request that starts in a later turn of the event loop. Nobody else has less for it. Returns how to release it. */
  takeForTurn(bytes: number): (() => void) | undefined {
    if (this.#pressure.shortage !== undefined || this.#turnBytes + bytes > this.limits.maxBufferedBytes * TURN_SHARE)
      return undefined;
    this.#turnBytes += bytes;
    return () => {
      this.#turnBytes -= bytes;
    };
  }

  /** The body is complete or was cut off; it counts for `bytes` from now on. */
  finish(body: BufferedBody, bytes: number): void {
    this.#buffered.remove(body);
    if (body.isPaused) for (const waiting of this.#waiting) if (waiting.body === body) this.#waiting.delete(waiting);
    this.#budget.finish(body, bytes);
    this.#grantSlots();
  }

  /** Releases all bytes that a body holds. */
  release(body: BufferedBody): void {
    if (body.held === 0) return;
    this.#budget.release(body);
    this.#grantSlots();
  }

  /** The bytes that all bodies hold now. */
  get buffered(): number {
    return this.#budget.held;
  }

  /** Memory is short: evicts unfinished large bodies, first those of the client that holds most. */
  shed(): void {
    this.#evict(0, 0, (body) => body.state === 'large');
  }

  now(): Milliseconds {
    return this.clock.monotonic();
  }

  close(): void {
    this.#stop();
  }

  /** Counts a body that does not fit. */
  #reject(): false {
    this.#onLimit('buffer');
    return false;
  }

  /** If its own route has used up its share, the bodies of other routes stay; unless another client holds most of all, and for other routes. */
  #evictFor(body: BufferedBody, bytes: number, minAge: Milliseconds): void {
    const isOwn = this.#budget.isOverShare(body, bytes) && this.#isHeaviest(body);
    const missing = this.#budget.findMissing(body, bytes);
    this.#evict(bytes, minAge, isOwn ? ({ route }) => route === body.route : undefined, missing);
  }

  /** Whether the client that holds most is that of this body, or holds most of it for the same route. */
  #isHeaviest({ network, route }: BufferedBody): boolean {
    const sums = sumHeld(this.#buffered);
    const heaviest = findHeaviest(sums);
    if (heaviest === undefined || heaviest === network) return true;
    let onRoute = 0;
    for (const each of this.#buffered) if (each.network === heaviest && each.route === route) onRoute += each.held;
    return onRoute > (sums.get(heaviest) ?? 0) / 2;
  }

  #evictWaiting({ network }: WaitingConnection, bytes: number): void {
    this.#isEvicting = true;
    for (const victim of this.#budget.pickWaitingVictims([...this.#connections], bytes, this.now()))
      if (victim.network !== network) victim.evict();
    this.#isEvicting = false;
  }

  /** Frees memory for the caller first; waiting bodies come afterwards. */
  #evict(bytes: number, minAge: Milliseconds, isCandidate: (body: BufferedBody) => boolean = () => true, missing = 0): void {
    this.#isEvicting = true;
    const bodies = [...this.#buffered].filter(isCandidate);
    for (const body of this.#budget.pickVictims(bodies, bytes, this.now() - minAge, missing)) {
      this.#onLimit('buffer_share');
      body.fail('buffer_full');
    }
    this.#isEvicting = false;
  }

  /** Neither one client nor one route can use the whole queue: if it is full, the one with the most entries loses its latest one. */
  #canWait(body: BufferedBody): boolean {
    if (this.#waiting.size < this.limits.maxLargeBodies * QUEUED_PER_SLOT) return true;
    const latest = this.#findLatest(body, ({ network }) => network) ?? this.#findLatest(body, ({ route }) => route);
    if (latest === undefined) return false;
    this.#onLimit('buffer_share');
    latest.fail('buffer_full');
    return true;
  }

  /** The latest waiting body of the client, or the route, that has the most, and more than that of `body`. */
  #findLatest(body: BufferedBody, toKey: (of: BufferedBody) => string | undefined): BufferedBody | undefined {
    const own = toKey(body);
    if (own === undefined) return undefined;
    const counts = new Map<string | undefined, number>();
    for (const { body: each } of this.#waiting) counts.set(toKey(each), (counts.get(toKey(each)) ?? 0) + 1);
    const [heaviest] = [...counts].sort(([, a], [, b]) => b - a);
    if (heaviest === undefined || heaviest[1] <= (counts.get(own) ?? 0) + 1) return undefined;
    return [...this.#waiting].findLast(({ body: each }) => toKey(each) === heaviest[0])?.body;
  }

  /** The client that holds least is first; its large body waits until it fits, and smaller ones do not pass it, unless its route is over its share. */
  #grantSlots(): void {
    if (this.#isEvicting) return;
    while (this.#waiting.size > 0 && this.#budget.hasFreeSlot) {
      const next = this.#findNext();
      if (next === undefined || !this.#budget.takeLarge(next.body, next.bytes)) return;
      this.#waiting.delete(next);
      next.onGranted();
    }
  }

  #findNext(): QueuedBody | undefined {
    const sums = sumHeld(this.#buffered);
    const toHeld = ({ body }: QueuedBody): number => sums.get(body.network) ?? 0;
    let best: QueuedBody | undefined;
    for (const waiting of this.#waiting) {
      if (this.#budget.isOverShare(waiting.body, waiting.bytes)) continue;
      if (best === undefined || toHeld(waiting) < toHeld(best)) best = waiting;
    }
    return best;
  }

  /** A body that waits too long is rejected, so that its sender retries; slow uploads are evicted before that. */
  #sweepWaiting(now: Milliseconds): void {
    for (const { body, bytes, since } of this.#waiting) {
      if (now - since > this.limits.bodyIdleTimeout) {
        this.#onLimit('buffer');
        body.fail('buffer_full');
      } else if (now - since >= MIN_LARGE_TIME_MS) {
        this.#evictFor(body, bytes, MIN_LARGE_TIME_MS);
        this.#grantSlots();
      }
    }
    this.#grantSlots();
  }

  #sweep(): void {
    const now = this.clock.monotonic();
    this.#sweepWaiting(now);
    this.#sweepDrained(now);
    for (const body of [...this.#bodies, ...this.#buffered]) {
      const limit = this.#findExceeded(body, now);
      if (limit === undefined) continue;
      this.#bodies.delete(body);
      this.#onLimit(limit);
      body.fail('body_timeout');
    }
  }

  #sweepDrained(now: Milliseconds): void {
    for (const drained of this.#drained) {
      const stream = drained.stream.deref();
      const isLate = stream !== undefined && now >= drained.endAt;
      if (isLate || stream === undefined || stream.destroyed || stream.readableEnded) this.#drained.delete(drained);
      if (isLate) stream.destroy();
    }
  }

  #findExceeded(body: BodyInProgress, now: Milliseconds): ListenLimit | undefined {
    if (body.isPaused) return undefined;
    const age = now - body.startedAt;
    if (now - body.lastByteAt > this.limits.bodyIdleTimeout) return 'body_idle';
    const { bodyTimeout, streamTimeout, bodyIdleTimeout, bodyMinRate, streamMinRate } = this.limits;
    if (age > (body.isBuffered ? bodyTimeout : streamTimeout)) return 'body_total';
    const minRate = age > bodyTimeout ? streamMinRate : bodyMinRate;
    if (age > bodyIdleTimeout && body.received < (age / 1000) * minRate) return 'body_rate';
    return undefined;
  }
}

/** Limits the memory that pauses hold together: for peers that do not read, sidegate keeps what was sent to them. */
export class PausedMemory implements Pauses {
  readonly clock: Clock;
  readonly #maxBytes: number;
  readonly #onLimit: (limit: 'buffer_share') => void;
  readonly #pressure: MemoryPressure;
  readonly #pauses = new UnorderedList<ReadPause>();
  #held = 0;

  constructor(maxBytes: number, clock: Clock, onLimit: (limit: 'buffer_share') => void, pressure: MemoryPressure) {
    this.#maxBytes = maxBytes;
    this.clock = clock;
    this.#onLimit = onLimit;
    this.#pressure = pressure;
  }

  /** The bytes that all pauses hold now. */
  get held(): number {
    return this.#held;
  }

  add(pause: ReadPause): void {
    this.#pauses.add(pause);
    this.#held += pause.held;
    while (this.#held > this.#maxBytes) this.#evict();
  }

  remove(pause: ReadPause): void {
    if (pause.listIndex === undefined) return;
    this.#pauses.remove(pause);
    this.#held -= pause.held;
  }

  onBytes(bytes: number): void {
    this.#pressure.onBytes(bytes);
  }

  /** The memory of a connection that is destroyed is free only after the next garbage collection. */
  #evict(): void {
    const bytes = Math.max(this.#held - this.#maxBytes, this.#maxBytes * EVICTED_SHARE);
    for (const pause of pickVictims([...this.#pauses], bytes, this.clock.monotonic())) {
      this.#onLimit('buffer_share');
      this.remove(pause);
      pause.evict();
      this.#pressure.onGarbage(pause.held);
    }
  }
}
