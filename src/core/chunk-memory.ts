/** Frees the memory of chunks that were passed on, without waiting for the garbage collector, and keeps no more of others than is needed. */

/** Smaller chunks are cheaper to collect than to free. */
const MIN_FREED_BYTES = 16_384;

/**
 * Frees a chunk that is no longer needed; it is empty afterwards. Node allocates memory for each chunk of a request's body;
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
