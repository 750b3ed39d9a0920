/** Collects bytes in one growing buffer: an array of chunks costs about 400 bytes for each chunk, however small it is. */
import { freeChunk } from './chunk-memory.ts';

/** Capacity of the first buffer in bytes. */
const MIN_CAPACITY = 1_024;
const EMPTY = Buffer.alloc(0);

/** Bytes that arrive in chunks. Memory budgets count the capacity, not the length. */
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
