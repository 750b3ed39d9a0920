/**
 * Lets an early response arrive: closing a connection while the sender still writes would reset it, and the response would be
 * lost.
 */
import type { Socket } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { freeChunk } from '../../core/reading.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';

/** In bytes; enough for what a well-behaved client has sent before it learns that its connection ends. */
export const MAX_DISCARDED = 1024 * 1024;
/** How long the rest of the request is read and discarded. */
const LINGER_MS: Milliseconds = 1_000;

/**
 * Half-closes the connection first when it is closed after the response, and waits a limited time for the sender to finish (RFC
 * 9112 §9.6). HTTP/2 ends streams instead of connections.
 */
export function lingerOnClose(socket: Socket | undefined, clock: Clock): void {
  if (socket === undefined) return;
  const destroyAfterLinger = (): void => {
    socket.end();
    destroySoon(socket, clock);
    onceEvent(socket, 'end', () => socket.destroy());
    discardInput(socket);
    socket.resume();
  };
  socket.destroySoon = destroyAfterLinger;
}

/**
 * Discards what arrives on a connection that ends with a pending response; a client that sends more than `atMost` bytes is disconnected.
 * Otherwise Node would build a message for each request in these bytes, and keep it until the connection is closed, or copy each read for the
 * error that it reports again. The listener also takes the connection from the parser.
 */
export function discardInput(socket: Socket, atMost = Number.MAX_SAFE_INTEGER): void {
  let discarded = 0;
  socket.removeAllListeners('data');
  onEvent(socket, 'data', (chunk: Buffer) => {
    discarded += chunk.length;
    freeChunk(chunk);
    if (discarded > atMost) socket.destroy();
  });
}

/** Destroys a connection that the client does not close, although its last response was sent. */
export function destroySoon(socket: Socket, clock: Clock, atMost: Milliseconds = LINGER_MS): void {
  const cancel = clock.after(atMost, () => socket.destroy());
  onceEvent(socket, 'close', cancel);
}

/** Closes a connection after the last response, even if the client never closes its side. */
export function closeAfterResponse(socket: Socket, clock: Clock): void {
  lingerOnClose(socket, clock);
  socket.destroySoon();
}
