/** Gathers bytes in one buffer that grows: an array of chunks costs some 400 bytes for each, however small it is. */
import { freeChunk } from './chunk-memory.ts';

/** Bytes of the first buffer. */
const MIN_CAPACITY = 1_024;
const EMPTY = Buffer.alloc(0);

/** Bytes that arrive in pieces. What counts for a memory budget is its capacity, not its length. */
export class GrowingBuffer {
  #buffer: Buffer = EMPTY;
  #length = 0;

  /** Bytes that it holds. */
  get length(): number {
    return this.#length;
  }

  /** Bytes that are allocated. */
  get capacity(): number {
    return this.#buffer.length;
  }

  /** The capacity that it has once a chunk is appended: doubled, but not beyond `max`, so that appending costs linear time. */
  toCapacity(chunk: Buffer, max: number): number {
    const length = this.#length + chunk.length;
    if (length <= this.#buffer.length) return this.#buffer.length;
    if (this.#canAdopt(chunk)) return length;
    return Math.max(length, Math.min(Math.max(this.#buffer.length * 2, MIN_CAPACITY), max));
  }

  /** Appends a chunk that belongs to nobody else, and frees it; the first one is kept as it is. `max`: the largest capacity to grow to. */
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

  /** Frees the memory now. Views become empty: call it only where nobody writes them to a socket. */
  free(): void {
    freeChunk(this.#buffer);
    this.#buffer = EMPTY;
    this.#length = 0;
  }

  /** A slice would keep all that it was cut from. */
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
