/** Receives the requests of a port from node:http: one after the other on each connection, and only a few of them may wait. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { ReadPause } from '../../core/read-pause.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import { onceEvent, onEvent, runSoon } from '../../core/safe-events.ts';
import { SMALL_BODY } from './body-budget.ts';
import { Http1BodySource } from './body-source.ts';
import type { ClientErrors } from './client-errors.ts';
import type { TrackedRequest } from './connection-limiter.ts';
import type { BodyWatch, OnLimit } from './limits.ts';
import type { PortClients } from './port-clients.ts';
import { IncomingBody } from './request-body.ts';
import { closeAfterIgnoredUpgrade, stopParsing } from './strict-server.ts';
import type { SocketUpgrade } from './upgrade.ts';

/** A request that may be handled now. */
export interface PortRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: IncomingBody;
  readonly tracked: TrackedRequest;
  readonly upgrade?: SocketUpgrade | undefined;
  /** Why the request must be rejected. */
  readonly refusal?: Refusal | undefined;
}

/** The dependencies of PortRequests. */
export interface PortRequestParts {
  readonly errors: ClientErrors;
  readonly clients: Pick<PortClients, 'track' | 'enter'>;
  readonly bodies: BodyWatch;
  readonly onLimit: OnLimit;
  /** Handles a request; it is admitted by `PortClients.admit` or the port's own limits first. */
  readonly handle: (received: PortRequest) => unknown;
}

/** The parts of a request besides its message. */
interface Arrival {
  readonly expectsContinue?: boolean;
  readonly upgrade?: SocketUpgrade;
  readonly refusal?: Refusal;
}

interface WaitingRequest {
  readonly received: PortRequest;
  /** Ends what it counts for while it waits. */
  readonly release: () => void;
}

/** The most requests that may wait on one connection; apt, which pipelines most of the known clients, sends ten. */
const MAX_WAITING = 16;
/** The memory of a request while it waits, besides its body, in bytes. */
const WAITING_BYTES = 4 * 1024;

/**
 * The requests of one port. RFC 9112 §9.3.2 lets a server handle pipelined requests in parallel only if all their methods are safe, so each
 * waits for the response before it. Node builds a message for each request in the 64 KiB that it reads at once, and goes on reading. So a
 * connection is paused while a request waits, and destroyed if more of them wait than its client may have.
 */
export class PortRequests {
  readonly #parts: PortRequestParts;
  /** In the order of their arrival; only of open connections on which a request has ever waited. */
  readonly #waiting = new Map<Socket, WaitingRequest[]>();
  /** Of connections that are not read while a request waits. */
  readonly #pauses = new Map<Socket, ReadPause>();

  constructor(parts: PortRequestParts) {
    this.#parts = parts;
  }

  /** Call it before the server listens. */
  bind(server: Server | TlsServer): void {
    const unexpected = refuse('expectation_failed', 'expectation_failed');
    onEvent(server, 'request', (request, response) => this.receive(request, response));
    onEvent(server, 'checkContinue', (request, response) => this.receive(request, response, { expectsContinue: true }));
    onEvent(server, 'checkExpectation', (request, response) => this.receive(request, response, { refusal: unexpected }));
    onEvent(server, 'clientError', (error: NodeJS.ErrnoException, socket: Duplex) => this.#parts.errors.handle(error, socket));
  }

  /** Returns the result of `handle` if it was called at once. */
  receive(request: IncomingMessage, response: ServerResponse, arrival: Arrival = {}): unknown {
    const { errors, handle } = this.#parts;
    const { socket } = request;
    // Behind a response that closes the connection: there can be no response, so the request must not be handled.
    if (!socket.writable) return stopParsing(socket);
    closeAfterIgnoredUpgrade(request, response);
    const before = errors.findPending(socket);
    if (before === undefined) return handle(this.track(request, response, arrival));
    const release = this.#admitWaiting(request);
    if (release === undefined) {
      this.#parts.onLimit('pipelined');
      socket.destroy();
      return stopParsing(socket);
    }
    this.#wait(socket, { received: this.track(request, response, arrival), release });
    onceEvent(before, 'close', () => this.#handleNext(socket));
    return undefined;
  }

  /** Tracks the request and creates its body. */
  track(
    request: IncomingMessage,
    response: ServerResponse,
    { expectsContinue = false, upgrade, refusal }: Arrival = {},
  ): PortRequest {
    const { errors, clients, bodies } = this.#parts;
    const source = new Http1BodySource(request, response, expectsContinue);
    const body = new IncomingBody(source, bodies);
    errors.track(request.socket, { response, body });
    return { request, response, body, tracked: clients.track(request.socket, source, response, response), upgrade, refusal };
  }

  /** Counts the request for its connection, its client and the memory for bodies. Returns how to end that; undefined if there is a limit. */
  #admitWaiting({ socket, headers }: IncomingMessage): (() => void) | undefined {
    const { clients, bodies } = this.#parts;
    if ((this.#waiting.get(socket)?.length ?? 0) >= MAX_WAITING) return undefined;
    const leave = clients.enter(socket);
    if (leave === undefined) return undefined;
    const free = bodies.takeForWaiting(WAITING_BYTES + toArrivingBytes(headers));
    if (free === undefined) leave();
    return (
      free &&
      (() => {
        leave();
        free();
      })
    );
  }

  #wait(socket: Socket, waiting: WaitingRequest): void {
    const requests = this.#waiting.get(socket) ?? [];
    if (!this.#waiting.has(socket)) {
      this.#waiting.set(socket, requests);
      onceEvent(socket, 'close', () => this.#releaseAll(socket));
    }
    requests.push(waiting);
    // The end of each message makes Node read on, so pausing within what it has read would have no effect.
    if (requests.length === 1)
      runSoon(() => {
        if (requests.length > 0) this.#pause(socket);
      });
  }

  /** Ends with the response before, which has separate deadlines, but may be a stream that goes on for hours. */
  #pause(socket: Socket): void {
    if (this.#pauses.has(socket)) return;
    const { clock, limits } = this.#parts.bodies;
    const pause = new ReadPause(clock, limits.streamTimeout, () => {
      this.#parts.onLimit('pipelined');
      socket.destroy();
    });
    pause.hold(socket);
    pause.onOver(() => this.#pauses.delete(socket));
    this.#pauses.set(socket, pause);
  }

  #handleNext(socket: Socket): unknown {
    const requests = this.#waiting.get(socket);
    const next = requests?.shift();
    if (requests === undefined || next === undefined) return undefined;
    next.release();
    if (!socket.writable) return this.#releaseAll(socket);
    if (requests.length === 0) this.#pauses.get(socket)?.end();
    return this.#parts.handle(next.received);
  }

  #releaseAll(socket: Socket): void {
    for (const { release } of this.#waiting.get(socket)?.splice(0) ?? []) release();
    this.#waiting.delete(socket);
    this.#pauses.get(socket)?.end();
  }
}

/** How much of a body can have been read before the connection is paused. */
function toArrivingBytes(headers: IncomingMessage['headers']): number {
  if (headers['transfer-encoding'] !== undefined) return SMALL_BODY;
  return Math.min(Number(headers['content-length'] ?? 0), SMALL_BODY);
}
