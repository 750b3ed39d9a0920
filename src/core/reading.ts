/**
 * Reads bytes from outside: the buffers that take them, and pauses in reading a stream. Each pause has a deadline, so that a peer that reads nothing cannot keep a connection and its buffers. Each is for
 * a client, so that the buffers of all pauses together are limited, and divided fairly between clients.
 * Only this file pauses streams and waits for `drain`; scripts/lint-layers.ts checks it.
 */
import { type CancelTimer, type Clock, MAX_TIMER_MS, type Milliseconds } from './clock.ts';
import type { ListElement } from './collections.ts';
import { guardCallback, offEvent, onEvent } from './safe-events.ts';

// Buffers for bytes from outside: freed without waiting for the garbage collector, and without memory that belongs to other bytes.

/** Smaller chunks are cheaper to collect than to free. */
const MIN_FREED_BYTES = 16_384;

/**
 * Frees a chunk that was used; it is empty afterwards. Node allocates memory for each chunk of a request's body;
 * without this, allocation and collection take more than half of an upload's CPU (ADR 23).
 */
export function freeChunk(chunk: Buffer): void {
  const { buffer } = chunk;
  // A slice shares its memory with other buffers.
  if (chunk.length < MIN_FREED_BYTES || chunk.length !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return;
  buffer.transfer(0);
}

/** The part of the memory behind a view that may belong to others: copying a large body costs more than its metadata takes. */
const MAX_FOREIGN_SHARE = 1 / 8;

/**
 * Copies a view into separate memory, unless most of the memory is its own. A view keeps everything that it was received with, and `Buffer.from`
 * takes small copies from a slab of 64 KiB: each of many slow attempts with a small body would hold that much, while the limits count only the body.
 */
export function toOwnBytes(view: Buffer): Buffer {
  const { byteLength } = view.buffer;
  if (byteLength - view.length <= MAX_FOREIGN_SHARE * byteLength) return view;
  const own = Buffer.allocUnsafeSlow(view.length);
  own.set(view);
  return own;
}

/** Capacity of the first buffer in bytes. */
const MIN_CAPACITY = 1_024;
const EMPTY = Buffer.alloc(0);

/**
 * Bytes that arrive in chunks, gathered in one growing buffer: an array of chunks costs about 400 bytes for each chunk, however small it is.
 * Memory budgets count the capacity, not the length.
 */
export class GrowingBuffer {
  #buffer: Buffer = EMPTY;
  #length = 0;

  /** Bytes that were appended. */
  get length(): number {
    return this.#length;
  }

  /** Bytes that are allocated. */
  get capacity(): number {
    return this.#buffer.length;
  }

  /** The capacity after appending `chunk`. It doubles up to `max`, so that appending takes linear time. */
  toCapacity(chunk: Buffer, max: number): number {
    const length = this.#length + chunk.length;
    if (length <= this.#buffer.length) return this.#buffer.length;
    if (this.#canAdopt(chunk)) return length;
    return Math.max(length, Math.min(Math.max(this.#buffer.length * 2, MIN_CAPACITY), max));
  }

  /**
   * Appends a chunk that the caller owns, and frees it; the first chunk is adopted without a copy. `max`: the largest capacity.
   */
  append(chunk: Buffer, max: number): void {
    const length = this.#length + chunk.length;
    if (this.#canAdopt(chunk)) {
      this.#buffer = chunk;
      this.#length = length;
      return;
    }
    if (length > this.#buffer.length) this.#grow(this.toCapacity(chunk, max));
    chunk.copy(this.#buffer, this.#length);
    this.#length = length;
    freeChunk(chunk);
  }

  /** The bytes, without a copy; they share their memory with this buffer. */
  view(): Buffer {
    return this.#length === this.#buffer.length ? this.#buffer : this.#buffer.subarray(0, this.#length);
  }

  /** Frees the memory immediately. Views become empty, so call it only while no socket writes one. */
  free(): void {
    freeChunk(this.#buffer);
    this.#buffer = EMPTY;
    this.#length = 0;
  }

  /** A slice would keep its whole backing buffer in memory. */
  #canAdopt(chunk: Buffer): boolean {
    return this.#length === 0 && chunk.buffer.byteLength === chunk.length;
  }

  #grow(capacity: number): void {
    const larger = Buffer.allocUnsafeSlow(capacity);
    this.#buffer.copy(larger, 0, 0, this.#length);
    freeChunk(this.#buffer);
    this.#buffer = larger;
  }
}

/** A stream that can be paused. */
interface Pausable {
  pause(): unknown;
  resume(): unknown;
}

/** The client that a pause is for. */
export interface PauseOwner {
  /** The network of the client (core/ip-address.ts). */
  readonly network: string;
  readonly pauses: Pauses;
}

/** All pauses of a process. */
export interface Pauses {
  readonly clock: Clock;
  /** Counts a pause that begins. If pauses hold too much now, it ends some of them, perhaps this one. */
  add(pause: ReadPause): void;
  remove(pause: ReadPause): void;
  /** Counts bytes that are relayed: each chunk takes memory until it is garbage collected. */
  onBytes(bytes: number): void;
}

/** Ends what made a pause necessary. `isEvicted`: before its deadline, because pauses of this client hold too much memory. */
type EndPaused = (isEvicted: boolean) => void;

/** In bytes: what a paused stream still buffers, and what the kernel holds for it. */
const PAUSED_STREAM_BYTES = 128 * 1024;

/**
 * In bytes: what may wait in a connection that relays both ways without a pause, which would count it. Node's own limit is four times as much;
 * hundreds of tunnels that stay just below it would fill a small container.
 */
export const MAX_UNCOUNTED_BYTES = 16 * 1024;

/** The same in writes: each takes some 700 bytes of memory besides its content, which may be a single byte. */
const MAX_UNCOUNTED_WRITES = 16;

/** A stream, socket or response that takes no more for now. */
export interface BlockedWriter {
  /** The bytes that it has not passed on. */
  readonly writableLength: number;
  readonly destroyed: boolean;
  on(event: 'drain' | 'close', listener: () => void): unknown;
  off(event: 'drain' | 'close', listener: () => void): unknown;
  destroy(): unknown;
}

type OnWritten = (error?: Error | null) => void;

/** A writer that says when it has passed a chunk on. */
interface ChunkWriter extends BlockedWriter {
  write(chunk: Buffer, onWritten: OnWritten): boolean;
}

/** A pause, from when it begins until it is ended or overdue. */
export class ReadPause implements ListElement {
  readonly startedAt: Milliseconds;
  readonly network: string;
  /** The bytes that it counts for. */
  readonly held: number;
  listIndex: number | undefined;
  readonly #pauses: Pauses;
  readonly #streams = new Map<Pausable, () => void>();
  readonly #actions: (() => void)[] = [];
  readonly #onOverdue: EndPaused;
  readonly #cancel: CancelTimer;
  #isOver = false;

  /** `onOverdue` ends what made the pause necessary; the pause itself ends with it. `bytes`: what waits until the pause is over. */
  constructor({ network, pauses }: PauseOwner, bytes: number, atMost: Milliseconds, onOverdue: EndPaused) {
    const { clock } = pauses;
    this.startedAt = clock.monotonic();
    this.network = network;
    this.held = bytes + PAUSED_STREAM_BYTES;
    this.#pauses = pauses;
    this.#onOverdue = onOverdue;
    this.#cancel = clock.after(Math.min(atMost, MAX_TIMER_MS), () => this.#expire(false));
    pauses.add(this);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Stops reading `source` until the pause is over; `onOver` runs then, unless the source was released before. */
  hold(source: Pausable, onOver: () => void = () => undefined): void {
    if (this.#isOver || this.#streams.has(source)) return;
    this.#streams.set(source, onOver);
    source.pause();
  }

  /** Reads `source` again before the pause is over. */
  release(source: Pausable): void {
    if (this.#streams.delete(source)) source.resume();
  }

  /** Runs `action` once the pause is over, before its streams are read again. */
  onOver(action: () => void): void {
    if (this.#isOver) action();
    else this.#actions.push(action);
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancel();
    this.#pauses.remove(this);
    for (const action of this.#actions) action();
    for (const [source, onOver] of this.#streams) {
      onOver();
      source.resume();
    }
  }

  /** Ends it before its deadline, to free its memory. */
  evict(): void {
    if (!this.#isOver) this.#expire(true);
  }

  #expire(isEvicted: boolean): void {
    this.#onOverdue(isEvicted);
    this.end();
  }
}

/** The pauses that writers make necessary now. */
const pauses = new WeakMap<BlockedWriter, ReadPause>();

/** Until `writer` has drained or is closed; undefined if nothing waits for it. */
export function findPause(writer: BlockedWriter): ReadPause | undefined {
  return pauses.get(writer);
}

/**
 * Returns the pause that ends when `writer` has drained or is closed, and begins it if there is none: chunks that were already read still
 * arrive. If it is overdue, `writer` is destroyed, unless `onOverdue` says what else to do. Undefined if `writer` is destroyed: it keeps nothing.
 */
export function pauseUntilDrained(
  writer: BlockedWriter,
  owner: PauseOwner,
  atMost: Milliseconds,
  onOverdue: EndPaused = () => writer.destroy(),
): ReadPause | undefined {
  const current = pauses.get(writer);
  if (current !== undefined || writer.destroyed) return current;
  const pause = new ReadPause(owner, writer.writableLength, atMost, onOverdue);
  if (pause.isOver) return pause;
  pauses.set(writer, pause);
  const onDrain = onEvent(writer, 'drain', () => pause.end());
  const onClose = onEvent(writer, 'close', () => pause.end());
  pause.onOver(() => {
    pauses.delete(writer);
    offEvent(writer, 'drain', onDrain);
    offEvent(writer, 'close', onClose);
  });
  return pause;
}

/** The writes since nothing waited for a writer. */
const waitingWrites = new WeakMap<BlockedWriter, number>();

/** Writes a chunk; returns whether it needs no pause, because at most a little waits. A pause ends once nothing waits. */
export function writeCounted(writer: ChunkWriter, chunk: Buffer, onWritten?: OnWritten): boolean {
  const onTaken = guardCallback((error?: Error | null) => {
    onWritten?.(error);
    if (writer.writableLength > 0) return;
    waitingWrites.delete(writer);
    pauses.get(writer)?.end();
  });
  writer.write(chunk, onTaken);
  if (writer.writableLength === 0) return true;
  const writes = (waitingWrites.get(writer) ?? 0) + 1;
  waitingWrites.set(writer, writes);
  return writes <= MAX_UNCOUNTED_WRITES && writer.writableLength <= MAX_UNCOUNTED_BYTES;
}

/** Ends a response with its whole content, and counts what waits from the first byte on: a client that never reads it holds it in memory. */
export function endCounted(
  writer: BlockedWriter & { end(content: string | Buffer): unknown },
  content: string | Buffer,
  owner: PauseOwner,
  atMost: Milliseconds,
): void {
  writer.end(content);
  owner.pauses.onBytes(content.length);
  // Node emits no drain once a response has ended; it closes when everything is sent.
  if (writer.writableLength > 0) pauseUntilDrained(writer, owner, atMost);
}

/** Stops reading a socket for another reader, which begins within `takeOver` and has its own deadlines. */
export function handOver(socket: Pausable, takeOver: () => void): void {
  socket.pause();
  takeOver();
}
