/** Counts the requests under way, and tells when there are none. */
import type { Answer } from '../../core/answer.ts';
import { offEvent, onEvent } from '../../core/safe-events.ts';

/** The requests of one pipeline that are not finished yet. */
export class UnderWay {
  #count = 0;
  #onIdle: (() => void)[] = [];

  /** How many there are. */
  get count(): number {
    return this.#count;
  }

  /** One comes in. */
  enter(): void {
    this.#count++;
  }

  /** One is answered. It is over once the answer is with the system: what is still held here would be lost with the connection. */
  leave(response: Answer): void {
    const { socket } = response.req;
    const isOut = !response.headersSent || (response.writableEnded && response.writableLength === 0);
    if (isOut || response.destroyed || socket?.destroyed === true) return this.#leave();
    let isUnderWay = true;
    const leave = (): void => {
      if (!isUnderWay) return;
      isUnderWay = false;
      if (socket !== undefined && onSocketClose !== undefined) offEvent(socket, 'close', onSocketClose);
      this.#leave();
    };
    // Answers that wait behind another on the same connection never hear of its end themselves.
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
