/** Lets an early answer arrive: a connection closed while the sender still writes would be reset, and the answer lost with it. */
import type { Socket } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { onceEvent } from '../../core/safe-events.ts';

/** How long the rest of the content is read and thrown away. */
const LINGER_MS: Milliseconds = 1_000;

/** Makes the close that follows the answer half-close first, and wait for the sender to finish, but not for long (RFC 9112 §9.6). HTTP/2 ends streams, not connections. */
export function lingerOnClose(socket: Socket | undefined, clock: Clock): void {
  if (socket === undefined) return;
  socket.destroySoon = () => {
    socket.end();
    const cancel = clock.after(LINGER_MS, () => socket.destroy());
    onceEvent(socket, 'close', cancel);
    onceEvent(socket, 'end', () => socket.destroy());
    socket.resume();
  };
}

/** Closes a connection behind the last answer on it, whose client may never close its side. */
export function closeAfterResponse(socket: Socket, clock: Clock): void {
  lingerOnClose(socket, clock);
  socket.destroySoon();
}
