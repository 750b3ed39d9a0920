/** Answers bytes that node:http cannot read as a request, and never into the middle of an answer that is under way. */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../core/clock.ts';
import type { Arrival } from '../../core/parsed-head.ts';
import { type Reason, type Refusal, refuse } from '../../core/refusal.ts';
import { onceEvent } from '../../core/safe-events.ts';
import { toArrival, toDirectClient } from './arrival.ts';
import type { OnLimit } from './limits.ts';
import { closeAfterResponse } from './linger.ts';
import { isResponseSent } from './strict-server.ts';

/** What a connection was last asked. */
export interface LatestExchange {
  readonly response: ServerResponse;
  readonly body: { fail(reason: Reason): void };
}

/** What it needs of its port. */
export interface ClientErrorParts {
  readonly clock: Clock;
  readonly onLimit: OnLimit;
  /** Who stands at the connection's other end. */
  toPeer(socket: Socket): string;
  rejectSocket(arrival: Arrival, socket: Duplex, refusal: Refusal): void;
}

/** The errors of one port's connections. */
export class ClientErrors {
  readonly #parts: ClientErrorParts;
  /** An error in later bytes must not be answered into the middle of that answer, nor after the last one. */
  readonly #latest = new Map<Duplex, LatestExchange>();
  /** Their last answer is on its way; whatever still comes on them is thrown away. */
  readonly #ending = new WeakSet<Duplex>();

  constructor(parts: ClientErrorParts) {
    this.#parts = parts;
  }

  /** Remembers what the connection is asked now. */
  track(socket: Duplex, latest: LatestExchange): void {
    if (!this.#latest.has(socket)) onceEvent(socket, 'close', () => this.#latest.delete(socket));
    this.#latest.set(socket, latest);
  }

  /** An answer is still due on it. */
  hasPendingResponse(socket: Duplex): boolean {
    const latest = this.#latest.get(socket);
    return latest !== undefined && !isResponseSent(latest.response);
  }

  /** Makes each answer that is due the last on its connection: its head says so, or, where that has left already, the end behind it. */
  endConnections(): void {
    for (const socket of this.#latest.keys()) this.endConnection(socket);
  }

  /** The same for one connection; false where no answer is due on it. */
  endConnection(socket: Duplex): boolean {
    const latest = this.#latest.get(socket);
    if (latest === undefined || isResponseSent(latest.response)) return false;
    const { response } = latest;
    response.shouldKeepAlive = false;
    if (response.headersSent) onceEvent(response, 'finish', () => closeAfterResponse(socket as Socket, this.#parts.clock));
    return true;
  }

  /** Deals with node:http's `clientError`. */
  handle(error: NodeJS.ErrnoException, socket: Duplex): void {
    if (this.#ending.has(socket)) return;
    // A reset connection has nobody to answer.
    if (error.code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }
    const latest = this.#latest.get(socket);
    if (latest !== undefined && !(latest.response.writableFinished && latest.response.shouldKeepAlive))
      return this.#endLatest(latest, socket, error);
    this.reject(socket as Socket, this.#toRefusal(error));
  }

  /** Answers a connection whose bytes are not what it should carry; nothing more is read of it. */
  reject(socket: Socket, refusal: Refusal): void {
    this.#ending.add(socket);
    const { clock, toPeer, rejectSocket } = this.#parts;
    rejectSocket(toArrival('', toDirectClient(toPeer(socket), 'encrypted' in socket), clock), socket, refusal);
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

  /** Bad bytes behind a request that is still at work: its own answer comes first and whole, then the connection ends. */
  #endLatest({ response, body }: LatestExchange, socket: Duplex, error: NodeJS.ErrnoException): void {
    if (response.writableFinished) return;
    this.#ending.add(socket);
    response.shouldKeepAlive = false;
    onceEvent(response, 'finish', () => closeAfterResponse(socket as Socket, this.#parts.clock));
    body.fail(error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 'body_timeout' : 'framing');
  }
}
