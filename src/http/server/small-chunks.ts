/** Joins small chunks of a request body: Node allocates a Buffer for each, which costs about 400 bytes even for a single byte. */
import type { Readable } from 'node:stream';
import { GrowingBuffer } from '../../core/growing-buffer.ts';
import { runNextTurn } from '../../core/safe-events.ts';

/** In bytes; larger chunks are passed on unchanged. */
export const MIN_PIECE = 1_024;
/** The maximum number of bytes that are joined. */
const MAX_JOINED = 16 * 1_024;

/**
 * Makes a stream buffer a few large chunks instead of many small ones while nobody reads it: a chunked body or HTTP/2 frames of one
 * byte each would otherwise take 28 MiB for the 64 KiB that Node buffers. Chunks of one turn of the event loop are joined.
 */
export function joinSmallChunks(stream: Readable): void {
  const push = stream.push.bind(stream);
  let joined = new GrowingBuffer();
  let isScheduled = false;
  const flush = (): boolean => {
    if (joined.length === 0) return true;
    const bytes = joined.view();
    joined = new GrowingBuffer();
    return push(bytes);
  };
  const flushLater = (): void => {
    if (isScheduled) return;
    isScheduled = true;
    runNextTurn(() => {
      isScheduled = false;
      if (!stream.destroyed && !stream.readableEnded) flush();
    });
  };
  stream.push = (chunk: Buffer | null): boolean => {
    if (chunk === null || chunk.length >= MIN_PIECE) {
      flush();
      return push(chunk);
    }
    joined.append(chunk, MAX_JOINED);
    if (joined.length > MAX_JOINED - MIN_PIECE) return flush();
    flushLater();
    return stream.readableLength < stream.readableHighWaterMark;
  };
}
