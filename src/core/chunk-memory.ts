/** Frees the memory of content that was passed on, without waiting for the garbage collector. */

/** Less than this is cheaper to collect than to free. */
const MIN_FREED_BYTES = 16_384;

/**
 * Frees a chunk that nobody needs any more; it is empty afterwards. Node takes new memory for every piece of a request's content;
 * left to the collector, taking and collecting it costs more than half of an upload's CPU (bench/RESULTS-basic.md).
 */
export function freeChunk(chunk: Buffer): void {
  const { buffer } = chunk;
  // What is but a part of its memory shares it with others.
  if (chunk.length < MIN_FREED_BYTES || chunk.length !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return;
  buffer.transfer(0);
}
