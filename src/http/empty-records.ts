/** Limits the TLS records without content that a peer sends, such as KeyUpdate (RFC 8446 §4.6.3). */
import type { TLSSocket } from 'node:tls';
import type { Clock, Milliseconds } from '../core/clock.ts';
import { onceEvent } from '../core/safe-events.ts';

const byClock = new WeakMap<Clock, EmptyRecords>();

/** Calls `onExceeded` with their bytes if a peer sends too many, from the end of the handshake on. */
export function limitEmptyRecords(socket: TLSSocket, clock: Clock, onExceeded: (bytes: number) => void): void {
  const records = byClock.get(clock) ?? new EmptyRecords(clock);
  byClock.set(clock, records);
  records.watch(socket, onExceeded);
}

const INTERVAL_MS: Milliseconds = 100;
/**
 * The bytes that records may have beyond their content, and once more as many as their content: 22 for each record of TLS 1.3. OpenSSL takes 8 µs for a
 * KeyUpdate of 27 bytes, and keeps a reply to each that the peer need not read.
 */
const BURST_BYTES = 64 * 1024;
const BYTES_PER_SECOND = 2 * 1024;

/** The counters of a connection. Node does not document them; without them, nothing is limited. */
interface TlsHandle {
  /** Bytes of content. */
  readonly bytesRead: number;
  /** The connection below, with all bytes. */
  readonly _parent?: { readonly bytesRead: number };
}

/** The connection below the TLS of `socket`, with all bytes; undefined: it is closed. */
export function findTransport(socket: TLSSocket): { readonly bytesRead: number } | undefined {
  return findHandle(socket)?._parent;
}

function findHandle(socket: TLSSocket): TlsHandle | null {
  return (socket as TLSSocket & { readonly _handle: TlsHandle | null })._handle;
}

interface WatchedConnection {
  readonly handle: TlsHandle;
  readonly below: NonNullable<TlsHandle['_parent']>;
  readonly onExceeded: (bytes: number) => void;
  all: number;
  content: number;
  left: number;
}

/** The connections that one timer watches. */
class EmptyRecords {
  readonly #clock: Clock;
  readonly #watched = new Set<WatchedConnection>();
  #lookedAt: Milliseconds = 0;
  #isLooking = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  watch(socket: TLSSocket, onExceeded: (bytes: number) => void): void {
    const handle = findHandle(socket);
    const below = handle?._parent;
    if (handle === null || below === undefined) return;
    const watched = { handle, below, onExceeded, all: below.bytesRead, content: handle.bytesRead, left: BURST_BYTES };
    this.#watched.add(watched);
    onceEvent(socket, 'close', () => this.#watched.delete(watched));
    if (!this.#isLooking) this.#lookSoon();
  }

  #lookSoon(): void {
    this.#lookedAt = this.#clock.monotonic();
    this.#isLooking = true;
    this.#clock.after(INTERVAL_MS, () => {
      this.#isLooking = false;
      const refill = ((this.#clock.monotonic() - this.#lookedAt) * BYTES_PER_SECOND) / 1_000;
      for (const each of this.#watched) this.#look(each, refill);
      if (this.#watched.size > 0) this.#lookSoon();
    });
  }

  #look(watched: WatchedConnection, refill: number): void {
    const { below, handle } = watched;
    const [all, content] = [below.bytesRead, handle.bytesRead];
    const empty = all - watched.all - 2 * (content - watched.content);
    watched.all = all;
    watched.content = content;
    watched.left = Math.min(BURST_BYTES, watched.left + refill - empty);
    if (watched.left >= 0) return;
    this.#watched.delete(watched);
    watched.onExceeded(BURST_BYTES - watched.left);
  }
}
