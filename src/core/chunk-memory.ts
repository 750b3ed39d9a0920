/** Frees the memory of chunks that were passed on, without waiting for the garbage collector. */

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
