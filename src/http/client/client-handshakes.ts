/** Bounds what servers make OpenSSL hold by their TLS handshakes. */
import type { TLSSocket } from 'node:tls';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { onceEvent, onEvent, runNextTurn } from '../../core/safe-events.ts';
import { NO_MEMORY_CODE } from '../dial/dial.ts';
import { findTransport } from '../empty-records.ts';
import { toFreeBytes } from '../server/memory.ts';
import type { MemoryPressure } from '../server/memory-guard.ts';
import { CERTIFICATES_BYTES, MAX_HANDSHAKE_BYTES, toMaxHandshakes } from '../server/tls-handshakes.ts';

/** With a usual chain, which has up to 8 KiB: four certificates with RSA 4096. */
const USUAL_BYTES = 12 * 1024;
/** Of a session with its ticket, which may have 64 KiB. */
export const MAX_SESSION_BYTES = 8 * 1024;
/** OpenSSL holds so many times the size of small certificates while a connection is open. */
const HELD_PER_BYTE = 12;
/** The share of the memory that connections with unusual chains may hold. */
const LARGE_SHARE = 1 / 8;
/** The share of the handshakes of a port that are read at once: what OpenSSL frees, the allocator often keeps. */
const READ_SHARE = 1 / 4;
/** So long a handshake is read, if there are more than may be read at once. */
const TURN_MS: Milliseconds = 2;
/** A connection with TLS takes so much at most, with the largest usual chain, its exchange and what the kernel holds. */
const CONNECTION_BYTES = 256 * 1024;

interface AttemptLimits {
  readonly maxConnections: number;
  /** The part of them for endpoints that respond quickly. */
  readonly maxConcurrency: number;
}

/** The connections that the memory holds, if all servers send the largest usual chain. At least half of fewer ones are for slow endpoints. */
export function toAttemptLimits(
  { maxConnections, maxConcurrency }: AttemptLimits,
  { limit, workers }: Pick<MemoryPressure, 'limit' | 'workers'>,
): AttemptLimits {
  const fitting = limit === undefined ? maxConnections : Math.floor(toFreeBytes(limit, workers) / workers / CONNECTION_BYTES);
  if (fitting >= maxConnections) return { maxConnections, maxConcurrency };
  return {
    maxConnections: Math.min(maxConnections, Math.max(2, fitting)),
    maxConcurrency: Math.max(1, Math.min(maxConcurrency, Math.floor(fitting / 2))),
  };
}

class TlsLimitError extends Error {
  readonly code: string;

  constructor(code: 'ERR_TLS_HANDSHAKE_TOO_LARGE' | typeof NO_MEMORY_CODE) {
    super(code);
    this.code = code;
  }
}

interface Handshake {
  readonly socket: TLSSocket;
  readonly transport: { readonly bytesRead: number };
  /** Before the handshake. */
  readonly bytesBefore: number;
  bytes: number;
  isRead: boolean;
}

/**
 * The handshakes of outgoing connections. Before JavaScript can close a connection, OpenSSL may hold 1.2 MiB for it. So only as many are read
 * in a turn of the event loop as a part of the memory holds; the others take turns, so that servers that send nothing stop none.
 */
export class ClientHandshakes {
  readonly #clock: Clock;
  readonly #memory;
  readonly #max: number;
  /** The one that was not read for longest is first. */
  readonly #running = new Set<Handshake>();
  /** Connections whose servers sent more than is usual, or have large sessions; the oldest first. */
  readonly #large = new Set<Handshake>();
  /** The bytes that their servers may have sent together. */
  readonly #maxLargeBytes: number;
  #isWaiting = false;

  constructor(clock: Clock, memory: Pick<MemoryPressure, 'limit' | 'workers' | 'isTight' | 'onBytes'>) {
    this.#clock = clock;
    this.#memory = memory;
    this.#max = Math.ceil(toMaxHandshakes(memory, CERTIFICATES_BYTES) * READ_SHARE);
    const free = toFreeBytes(memory.limit ?? Number.POSITIVE_INFINITY, memory.workers) / memory.workers;
    this.#maxLargeBytes = (free * LARGE_SHARE) / HELD_PER_BYTE;
  }

  /** Before others listen to the socket: it may be destroyed when they learn that its handshake is complete. */
  watch(socket: TLSSocket): void {
    let handshake: Handshake | undefined;
    const begin = (): void => {
      handshake = this.#begin(socket);
    };
    onceEvent(socket, 'secureConnect', () => {
      if (handshake === undefined) return;
      this.#running.delete(handshake);
      this.#count(handshake);
      this.#closeLarge();
    });
    onEvent(socket, 'session', ({ length }) => {
      if (length > MAX_SESSION_BYTES && handshake !== undefined) this.#large.add(handshake);
    });
    onceEvent(socket, 'close', () => {
      if (handshake === undefined) return;
      this.#running.delete(handshake);
      this.#large.delete(handshake);
    });
    if (socket.connecting) onceEvent(socket, 'connect', begin);
    else begin();
  }

  #begin(socket: TLSSocket): Handshake | undefined {
    const transport = findTransport(socket);
    if (transport === undefined) return undefined;
    const handshake = { socket, transport, bytesBefore: transport.bytesRead, bytes: 0, isRead: true };
    this.#running.add(handshake);
    // Node begins to read it after this event.
    if (this.#running.size > this.#max) runNextTurn(() => this.#setRead(handshake, false));
    this.#waitTurn();
    return handshake;
  }

  #waitTurn(): void {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    this.#clock.after(TURN_MS, () => {
      this.#isWaiting = false;
      this.#takeTurn();
      if (this.#running.size > 0) this.#waitTurn();
    });
  }

  #takeTurn(): void {
    const running = [...this.#running];
    for (const handshake of running) {
      if (!handshake.isRead) continue;
      this.#count(handshake);
      if (running.length <= this.#max) continue;
      this.#setRead(handshake, false);
      this.#running.delete(handshake);
      this.#running.add(handshake);
    }
    this.#closeLarge();
    let left = this.#max;
    for (const handshake of this.#running) if (left-- > 0) this.#setRead(handshake, true);
  }

  #count(handshake: Handshake): void {
    const { socket, transport, bytesBefore, bytes } = handshake;
    handshake.bytes = transport.bytesRead - bytesBefore;
    this.#memory.onBytes((handshake.bytes - bytes) * HELD_PER_BYTE);
    if (handshake.bytes > MAX_HANDSHAKE_BYTES) socket.destroy(new TlsLimitError('ERR_TLS_HANDSHAKE_TOO_LARGE'));
    else if (handshake.bytes > USUAL_BYTES) this.#large.add(handshake);
  }

  /** The oldest ones: usual requests are short. */
  #closeLarge(): void {
    const most = this.#memory.isTight ? 0 : this.#maxLargeBytes;
    let bytes = 0;
    for (const large of this.#large) bytes += large.bytes;
    for (const large of this.#large) {
      if (bytes <= most) return;
      bytes -= large.bytes;
      this.#large.delete(large);
      large.socket.destroy(new TlsLimitError(NO_MEMORY_CODE));
    }
  }

  /** Node itself does not know that it is not read, so that it never begins again on its own. */
  #setRead(handshake: Handshake, isRead: boolean): void {
    const { _handle: handle } = handshake.socket as TLSSocket & { readonly _handle: TlsHandle | null };
    if (handshake.isRead === isRead || !this.#running.has(handshake)) return;
    handshake.isRead = isRead;
    if (isRead) handle?.readStart();
    else handle?.readStop();
  }
}

/** Node does not document it. */
interface TlsHandle {
  readStart(): void;
  readStop(): void;
}
