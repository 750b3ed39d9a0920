/** Responds to bytes that node:http cannot parse as a request, but never in the middle of another response. */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../core/clock.ts';
import { type Reason, type Refusal, refuse } from '../../core/refusal.ts';
import type { RequestInfo } from '../../core/request.ts';
import { onceEvent } from '../../core/safe-events.ts';
import { createRequestInfo, toDirectClient } from './client-address.ts';
import type { OnLimit } from './limits.ts';
import { closeAfterResponse, discardInput, MAX_DISCARDED } from './linger.ts';
import { isResponseSent } from './strict-server.ts';

/** The latest request on a connection. */
interface LatestExchange {
  readonly response: ServerResponse;
  readonly body: { fail(reason: Reason): void };
}

/** Handles the errors on the connections of one port. */
export class ClientErrors {
  readonly #parts;
  /** An error response must neither be sent in the middle of the latest response, nor after the final one. */
  readonly #latest = new Map<Duplex, LatestExchange>();
  /** Their final response is being sent; further bytes on them are discarded. */
  readonly #ending = new WeakSet<Duplex>();

  constructor(parts: {
    readonly clock: Clock;
    readonly onLimit: OnLimit;
    /** Returns the remote address of the connection. */
    toPeer(socket: Socket): string;
    rejectSocket(info: RequestInfo, socket: Duplex, refusal: Refusal): void;
  }) {
    this.#parts = parts;
  }

  /** Returns the remote address of the connection. */
  toPeer(socket: Socket): string {
    return this.#parts.toPeer(socket);
  }

  /** Records the latest request on the connection. */
  track(socket: Duplex, latest: LatestExchange): void {
    if (!this.#latest.has(socket)) onceEvent(socket, 'close', () => this.#latest.delete(socket));
    this.#latest.set(socket, latest);
  }

  /** The latest response on the connection, if it is still pending. */
  findPending(socket: Duplex): ServerResponse | undefined {
    const response = this.#latest.get(socket)?.response;
    return response === undefined || isResponseSent(response) ? undefined : response;
  }

  /**
   * Makes each pending response the last on its connection: by its head or, if that was already sent, by closing the connection
   * after it.
   */
  endConnections(): void {
    for (const socket of this.#latest.keys()) this.endConnection(socket);
  }

  /** Like `endConnections`, for one connection; returns false if no response is pending on it. */
  endConnection(socket: Duplex): boolean {
    const response = this.findPending(socket);
    if (response === undefined) return false;
    response.shouldKeepAlive = false;
    if (response.headersSent) onceEvent(response, 'finish', () => closeAfterResponse(socket as Socket, this.#parts.clock));
    return true;
  }

  /** Handles node:http's `clientError` event. */
  handle(error: NodeJS.ErrnoException, socket: Duplex): void {
    if (this.#ending.has(socket)) return;
    // Nobody receives a response on a connection that was reset.
    if (error.code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }
    const latest = this.#latest.get(socket);
    if (latest !== undefined && !(latest.response.writableFinished && latest.response.shouldKeepAlive))
      return this.#endLatest(latest, socket, error);
    this.reject(socket as Socket, this.#toRefusal(error));
  }

  /** Rejects a connection whose bytes are not what it should carry; nothing more is read from it. */
  reject(socket: Socket, refusal: Refusal): void {
    this.#ending.add(socket);
    const { clock, toPeer, rejectSocket } = this.#parts;
    rejectSocket(createRequestInfo('', toDirectClient(toPeer(socket), 'encrypted' in socket), clock), socket, refusal);
  }

  #toRefusal(error: NodeJS.ErrnoException): Refusal {
    const { onLimit } = this.#parts;
    switch (error.code) {
      case 'HPE_HEADER_OVERFLOW':
        onLimit('header_bytes');
        return refuse('header_too_large', 'header_too_large');
      case 'ERR_HTTP_REQUEST_TIMEOUT':
        onLimit('head_timeout');
        return refuse('request_timeout', 'head_timeout');
      default:
        return refuse('malformed_request', 'framing', error.code ?? 'unreadable');
    }
  }

  /**
   * Malformed bytes after a request that is still in progress: its response is completed first, then the connection is closed.
   */
  #endLatest({ response, body }: LatestExchange, socket: Duplex, error: NodeJS.ErrnoException): void {
    if (response.writableFinished) return;
    this.#ending.add(socket);
    discardInput(socket as Socket, MAX_DISCARDED);
    response.shouldKeepAlive = false;
    onceEvent(response, 'finish', () => closeAfterResponse(socket as Socket, this.#parts.clock));
    // A request that is complete is not to blame for the bytes behind it.
    if (!response.req.complete) body.fail(error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 'body_timeout' : 'framing');
  }
}
