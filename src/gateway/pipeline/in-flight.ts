/** Counts the requests in flight, and reports when there are none. */
import type { ClientResponse } from '../../core/client-response.ts';
import { offEvent, onEvent } from '../../core/safe-events.ts';

/** The requests of one pipeline that are not finished yet. */
export class InFlight {
  #count = 0;
  #onIdle: (() => void)[] = [];

  /** How many there are. */
  get count(): number {
    return this.#count;
  }

  /** One begins. */
  enter(): void {
    this.#count++;
  }

  /** One is answered. It is finished once the response is with the system: what this process still holds would be lost with the connection. */
  leave(response: ClientResponse): void {
    const { socket } = response.req;
    const isOut = !response.headersSent || (response.writableEnded && response.writableLength === 0);
    if (isOut || response.destroyed || socket?.destroyed === true) return this.#leave();
    let isInFlight = true;
    const leave = (): void => {
      if (!isInFlight) return;
      isInFlight = false;
      if (socket !== undefined && onSocketClose !== undefined) offEvent(socket, 'close', onSocketClose);
      this.#leave();
    };
    // Responses that wait behind another on the same connection get no event of its end themselves.
    const onSocketClose = socket && onEvent(socket, 'close', leave);
    onEvent(response, 'finish', leave);
    onEvent(response, 'close', leave);
  }

  /** Resolves when there are none. */
  idle(): Promise<void> {
    if (this.#count === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle.push(resolve);
    });
  }

  #leave(): void {
    this.#count--;
    if (this.#count === 0) for (const tell of this.#onIdle.splice(0)) tell();
  }
}
