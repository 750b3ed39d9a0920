/** Counts the requests in flight, and reports when there are none. */
import type { ClientResponse } from '../../core/client-response.ts';
import { offEvent, onEvent } from '../../core/safe-events.ts';

/** The requests of one pipeline that are not finished yet. */
export class InFlight {
  #count = 0;
  #onIdle: (() => void)[] = [];

  /** The number of requests in flight. */
  get count(): number {
    return this.#count;
  }

  /** Counts a new request. */
  enter(): void {
    this.#count++;
  }

  /** Ends a request once its response is flushed to the operating system: bytes buffered here would be lost with the connection. */
  leave(response: ClientResponse): void {
    const { socket } = response.req;
    const isFlushed = !response.headersSent || (response.writableEnded && response.writableLength === 0);
    if (isFlushed || response.destroyed || socket?.destroyed === true) return this.#leave();
    let isInFlight = true;
    const leave = (): void => {
      if (!isInFlight) return;
      isInFlight = false;
      if (socket !== undefined && onSocketClose !== undefined) offEvent(socket, 'close', onSocketClose);
      this.#leave();
    };
    // A response that waits behind another one on the same connection gets no event when the connection closes.
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
    if (this.#count === 0) for (const resolve of this.#onIdle.splice(0)) resolve();
  }
}
