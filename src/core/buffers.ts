/** Buffers for bytes from outside: freed without waiting for the garbage collector, and without memory that belongs to other bytes. */

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
