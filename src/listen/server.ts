/** The data port: node:http made strict, its limits set, every arrival handed to the gatehouse as an Exchange or a refusal. */
import { randomUUID } from 'node:crypto';
import { type IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { LimitsConfig, SocketListen } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { Arrival, Exchange } from '../core/exchange.ts';
import { HeaderFields } from '../core/headers.ts';
import { type Refusal, refuse } from '../core/refusal.ts';
import { type ClientResolver, createClientResolver } from './client-address.ts';
import { checkHead } from './head-check.ts';
import { BodyWatch, HeapGuard, type OnLimit } from './limits.ts';
import { IncomingBody } from './request-body.ts';
import { createStrictServer, endAfterUpgradeWish, isAnswered, startListening } from './strict-server.ts';
import type { TlsContexts } from './tls.ts';
import { isRelayedUpgrade, SocketUpgrade } from './upgrade.ts';

/** Where arrivals go; the gatehouse is one. */
export interface ArrivalHandler {
  handle(exchange: Exchange, response: ServerResponse): void;
  /** The head is refused: no route is looked at. */
  turnAway(arrival: Arrival, response: ServerResponse, refusal: Refusal): void;
  /** There is not even a request: the refusal goes straight to the socket. */
  turnAwaySocket(arrival: Arrival, socket: Duplex, refusal: Refusal): void;
}

/** What the server needs from its surroundings. */
export interface ListenParts {
  readonly listen: SocketListen;
  readonly tls: TlsContexts | undefined;
  readonly limits: LimitsConfig;
  readonly clock: Clock;
  readonly handler: ArrivalHandler;
  readonly onLimit: OnLimit;
  readonly onConnections: (delta: 1 | -1) => void;
}

/** How far shutting down has come: `closing` still serves but keeps no connection, `refusing` answers 503. */
export type ListenPhase = 'open' | 'closing' | 'refusing';

interface Latest {
  readonly response: ServerResponse;
  body?: IncomingBody;
}

/** The listening data port. */
export class ListenServer {
  readonly #parts: ListenParts;
  readonly #server: Server | TlsServer;
  readonly #resolveClient: ClientResolver;
  readonly #bodies: BodyWatch;
  readonly #heap: HeapGuard;
  /** What each connection was last asked: an error in its later bytes must not be answered into the middle of that answer, nor after the last one. */
  readonly #latest = new WeakMap<Duplex, Latest>();
  #phase: ListenPhase = 'open';

  constructor(parts: ListenParts) {
    const { limits, clock, tls } = parts;
    this.#parts = parts;
    this.#resolveClient = createClientResolver(parts.listen.trustedProxies);
    this.#bodies = new BodyWatch(limits, clock, parts.onLimit);
    this.#heap = new HeapGuard(limits.heapShed, clock);
    this.#server = createStrictServer(limits, tls, {
      // Behind a request still at work it is served in its turn, as if it had not been said: the connection is not free (RFC 9110 §7.8).
      shouldUpgradeCallback: ({ method, headers, socket }) =>
        isRelayedUpgrade(method, headers.upgrade) && !this.#isAtWork(socket),
    });
    this.#bind();
  }

  /** Starts to listen; rejects with the system's error (EADDRINUSE, EACCES). */
  listen(): Promise<AddressInfo> {
    return startListening(this.#server, this.#parts.listen.address);
  }

  /** Moves on in shutting down; `refusing` also stops to accept connections. */
  enter(phase: ListenPhase): void {
    this.#phase = phase;
    if (phase === 'refusing') this.#server.close();
    if (phase !== 'open') this.#server.closeIdleConnections();
  }

  /** Destroys whatever is left. */
  destroy(): void {
    this.#server.close();
    this.#server.closeAllConnections();
    this.#bodies.close();
    this.#heap.close();
  }

  /** New connections get what the contexts hold now. */
  refreshTls(): void {
    if (this.#parts.tls !== undefined) (this.#server as TlsServer).setSecureContext(this.#parts.tls.toServerOptions());
  }

  /** Bytes of request content held now. */
  get bufferedBytes(): number {
    return this.#bodies.buffered;
  }

  #bind(): void {
    const { onLimit, onConnections } = this.#parts;
    this.#server.on('request', (request, response) => this.#onRequest(request, response, false));
    this.#server.on('checkContinue', (request, response) => this.#onRequest(request, response, true));
    this.#server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
      this.#parts.handler.turnAway(this.#toArrival(request), response, refuse('expectation_failed', 'expectation_failed'));
    });
    this.#server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) =>
      this.#onUpgrade(request, socket, head),
    );
    this.#server.on('connect', (request: IncomingMessage, socket: Duplex) => {
      socket.on('error', () => socket.destroy());
      // An answer now would come before those that are due, and be taken for one of them.
      if (this.#isAtWork(socket)) socket.destroy();
      else
        this.#parts.handler.turnAwaySocket(this.#toArrival(request), socket, refuse('malformed_request', 'malformed', 'CONNECT'));
    });
    this.#server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => this.#onClientError(error, socket));
    this.#server.on('connection', (socket: Socket) => {
      onConnections(1);
      socket.once('close', () => onConnections(-1));
    });
    this.#server.on('drop', () => onLimit('connections'));
  }

  /** Node hands over the bare socket; what is not granted is answered on it like any request, and is the last thing on it. */
  #onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const response = new ServerResponse(request);
    response.assignSocket(socket as Socket);
    response.shouldKeepAlive = false;
    response.on('finish', () => socket.end());
    socket.on('error', () => socket.destroy());
    this.#onRequest(request, response, false, new SocketUpgrade(request.headers.upgrade ?? '', socket, response, head));
  }

  #onRequest(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean, upgrade?: SocketUpgrade): void {
    const { handler, limits, onLimit } = this.#parts;
    // Pipelined behind an answer that ends the connection: it could never be answered, so it must not be acted upon.
    if (!request.socket.writable) return;
    const latest: Latest = { response };
    this.#latest.set(request.socket, latest);
    endAfterUpgradeWish(request, response);
    const headers = new HeaderFields(request.rawHeaders);
    const arrival = this.#toArrival(request, headers);
    if (this.#phase !== 'open') {
      response.shouldKeepAlive = false;
      if (this.#phase === 'refusing') return handler.turnAway(arrival, response, refuse('draining', 'draining'));
    }
    const target = checkHead(request, headers, limits, onLimit);
    if ('code' in target) return handler.turnAway(arrival, response, target);
    if (this.#heap.isFull) {
      onLimit('heap');
      return handler.turnAway(arrival, response, refuse('overloaded', 'heap_full'));
    }
    const body = new IncomingBody(request, response, this.#bodies, expectsContinue);
    latest.body = body;
    // Content before the new protocol would be read as part of it.
    if (upgrade !== undefined && body.declaredLength !== 0)
      return handler.turnAway(arrival, response, refuse('malformed_request', 'framing', 'content with an upgrade'));
    const exchange = { ...arrival, target, headers, body, facts: {} };
    handler.handle(upgrade === undefined ? exchange : { ...exchange, upgrade }, response);
  }

  #isAtWork(socket: Duplex): boolean {
    const latest = this.#latest.get(socket);
    return latest !== undefined && !isAnswered(latest.response);
  }

  #toArrival(request: IncomingMessage, headers?: HeaderFields): Arrival {
    const { clock } = this.#parts;
    const { socket } = request;
    // The address is gone once the peer is.
    const peer = socket.remoteAddress ?? 'unknown';
    const client = this.#resolveClient(peer, 'encrypted' in socket, headers ?? new HeaderFields(request.rawHeaders));
    return {
      requestId: randomUUID(),
      method: request.method ?? '',
      client,
      receivedAt: clock.now(),
      startedAt: clock.monotonic(),
    };
  }

  #onClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
    const { clock, handler } = this.#parts;
    // A reset connection has nobody to answer.
    if (error.code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }
    const latest = this.#latest.get(socket);
    if (latest !== undefined && !(latest.response.writableFinished && latest.response.shouldKeepAlive))
      return endLatest(latest, socket, error);
    const peer = (socket as Socket).remoteAddress ?? 'unknown';
    const client = { address: peer, peer, viaTrustedProxy: false, scheme: 'http' } as const;
    const arrival = { requestId: randomUUID(), method: '', client, receivedAt: clock.now(), startedAt: clock.monotonic() };
    handler.turnAwaySocket(arrival, socket, this.#toRefusal(error));
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
}

/** Bad bytes behind a request that is still at work: its own answer comes first and whole, then the connection ends. */
function endLatest({ response, body }: Latest, socket: Duplex, error: NodeJS.ErrnoException): void {
  if (response.writableFinished) return;
  response.shouldKeepAlive = false;
  response.once('finish', () => socket.end());
  body?.fail(error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 'body_timeout' : 'framing');
}
