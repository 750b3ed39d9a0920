/** Receives the requests of a port from node:http: one after the other on each connection, and only a few of them may wait. */

import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { getHeapStatistics } from 'node:v8';
import { toClientNetwork } from '../../core/ip-address.ts';
import { freeChunk, GrowingBuffer, ReadPause } from '../../core/reading.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import {
  type AddedListener,
  offEvent,
  onceEvent,
  onEvent,
  requestStarts,
  SumOfTurn,
  takeListeners,
} from '../../core/safe-events.ts';
import { Http1BodySource } from './body-source.ts';
import type { TrackedRequest } from './connection-limiter.ts';
import type { BodyWatch, OnLimit, WaitingConnection } from './limits.ts';
import { discardInput, lingerOnClose, MAX_DISCARDED } from './linger.ts';
import { SMALL_BODY } from './memory-guard.ts';
import type { PortClients } from './port-clients.ts';
import { IncomingBody } from './request-body.ts';
import { asksForUpgrades, type ClientErrors, closeAfterIgnoredUpgrade, stopParsing } from './strict-server.ts';
import { ReleasedConnection } from './upgrade.ts';

/** A request that may be handled now. */
export interface PortRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: IncomingBody;
  readonly tracked: TrackedRequest;
  readonly upgrade?: ReleasedConnection | undefined;
  /** Why the request must be rejected. */
  readonly refusal?: Refusal | undefined;
}

/** The parts of a request besides its message. */
interface Arrival {
  readonly expectsContinue?: boolean;
  readonly upgrade?: ReleasedConnection;
  readonly refusal?: Refusal;
}

interface WaitingRequest {
  readonly received: PortRequest;
  /** Ends what it counts for while it waits. */
  readonly release: () => void;
}

/** The requests and bytes that wait on one connection. */
interface RequestQueue extends WaitingConnection {
  /** In the order of their arrival. */
  readonly requests: WaitingRequest[];
  /** The bytes behind them; undefined while the parser reads the connection. */
  bytes: HeldBytes | undefined;
  /** How much of the bodies of waiting requests can have been read with their heads. */
  arriving: number;
  /** Requests of the connection so far. */
  count: number;
  /** Node has given up the head whose beginning it has read, because the rest is held. */
  late: NodeJS.ErrnoException | undefined;
}

/** The most requests that may wait on one connection. Few clients pipeline: apt sends ten at once, and some libraries fifty. */
const MAX_WAITING = 64;
/** The memory of a request while it waits, besides its fields and its body, in bytes. */
const WAITING_BYTES = 4 * 1024;
/** For each name and each value, besides its characters. */
const FIELD_BYTES = 64;

/** In bytes with `FIELD_BYTES`: few requests have more. */
const SMALL_HEAD = 8 * 1024;
/** The share of the heap that larger heads may take which arrive in one turn of the event loop: each takes as much again for its request and response. */
const TURN_SHARE = 1 / 16;
/** On all ports. */
const largeHeads = new SumOfTurn();

/**
 * The requests of one port. RFC 9112 §9.3.2 lets a server handle pipelined requests in parallel only if all their methods are safe, so each
 * waits for the response before it. Node would build a message for every request that it reads. So the parser gets nothing more of a
 * connection while a request waits. If more wait than may, the connection ends with the response to the last of them.
 */
export class PortRequests {
  readonly #parts;
  /** In bytes. */
  readonly #maxLargeHeads = getHeapStatistics().heap_size_limit * TURN_SHARE;
  /** Only of open connections on which a request has ever waited. */
  readonly #queues = new Map<Socket, RequestQueue>();
  readonly #released = new Set<Socket>();

  constructor(parts: {
    readonly errors: ClientErrors;
    readonly clients: Pick<PortClients, 'track' | 'enter' | 'toClient'>;
    readonly bodies: BodyWatch;
    readonly onLimit: OnLimit;
    readonly maxHeaderFields: number;
    /** Handles a request; it is admitted by `PortClients.admit` or the port's own limits first. */
    readonly handle: (received: PortRequest) => unknown;
  }) {
    this.#parts = parts;
  }

  /** Call it before the server listens. `released`: after such requests, Node passes the raw connection on; it must pass them. */
  bind(server: Server | TlsServer, released: readonly ('upgrade' | 'connect')[] = []): void {
    for (const event of ['connection', 'drop'] as const) onEvent(server, event, () => requestStarts.onArrival());
    const unexpected = refuse('expectation_failed', 'expectation_failed');
    onEvent(server, 'request', (request, response) => this.receive(request, response));
    onEvent(server, 'checkContinue', (request, response) => this.receive(request, response, { expectsContinue: true }));
    onEvent(server, 'checkExpectation', (request, response) => this.receive(request, response, { refusal: unexpected }));
    onEvent(server, 'clientError', (error: NodeJS.ErrnoException, socket: Duplex) => this.#onClientError(error, socket));
    for (const event of released.filter((each) => each !== 'upgrade' || asksForUpgrades(server)))
      onEvent(server, event, (request: IncomingMessage, socket: Duplex, early: Buffer) =>
        this.#onReleased(request, socket as Socket, early),
      );
  }

  /** Destroys the connections that node:http released: it no longer knows them. */
  destroyReleased(): void {
    for (const socket of this.#released) socket.destroy();
  }

  #onReleased(request: IncomingMessage, socket: Socket, early: Buffer): void {
    const { errors, bodies } = this.#parts;
    const { length } = early;
    bodies.onBytes(length);
    this.#released.add(socket);
    onceEvent(socket, 'close', () => {
      this.#released.delete(socket);
      bodies.onGarbage(length);
    });
    onEvent(socket, 'error', () => socket.destroy());
    // A response now would precede the pending ones, and be taken for one of them; or be sent into the tunnel.
    if (errors.findPending(socket) !== undefined) socket.destroy();
    else {
      const upgrade = new ReleasedConnection(request, socket, early, bodies);
      this.receive(request, upgrade.response, { upgrade });
    }
  }

  /** Returns the result of `handle` if it was called at once. */
  receive(request: IncomingMessage, response: ServerResponse, arrival: Arrival = {}): unknown {
    const { errors, bodies } = this.#parts;
    const { socket } = request;
    // Behind a response that closes the connection: there can be no response, so the request must not be handled.
    if (!socket.writable) return stopParsing(request);
    closeAfterIgnoredUpgrade(request, response);
    const headBytes = toHeadBytes(request.rawHeaders) + (request.url?.length ?? 0);
    if (headBytes > SMALL_HEAD && largeHeads.add(headBytes) > this.#maxLargeHeads) return this.#drop(request);
    // As allocated memory, which makes the process measure itself. If the request waits, they also count as memory that it holds.
    bodies.onBytes(headBytes);
    const known = this.#queues.get(socket);
    if (known !== undefined) known.count++;
    const before = errors.findPending(socket);
    if (before === undefined) return this.#start(this.#track(request, response, arrival), headBytes);
    const queue = known ?? this.#addQueue(socket);
    const release = this.#admitWaiting(request, queue, headBytes);
    if (release === undefined) {
      stopParsing(request);
      return this.#endConnection(socket, queue);
    }
    queue.requests.push({ received: this.#track(request, response, arrival), release });
    queue.bytes ??= this.#hold(socket, queue);
    onceEvent(before, 'close', () => this.#handleNext(socket, queue));
    return undefined;
  }

  /** Handles a request that waits for no other, in this turn of the event loop, or in a later one. */
  #start(received: PortRequest, headBytes: number): unknown {
    const { request, upgrade } = received;
    if (upgrade !== undefined) return this.#handle(received);
    const hold = () =>
      this.#parts.bodies.takeForTurn(WAITING_BYTES + headBytes + Math.min(toDeclaredLength(request), SMALL_BODY));
    return requestStarts.start(request.socket, request.socket, hold, () => request.socket.writable && this.#handle(received));
  }

  /** Frees the head at once: otherwise it would be kept until the end of the turn. A response that is pending is still sent. */
  #drop(request: IncomingMessage): void {
    const { socket } = request;
    stopParsing(request);
    request.rawHeaders.length = 0;
    request.headers = {};
    request.url = '';
    const { errors, onLimit } = this.#parts;
    if (errors.findPending(socket) !== undefined)
      return this.#endConnection(socket, this.#queues.get(socket) ?? this.#addQueue(socket), 'client_requests');
    onLimit('client_requests');
    socket.destroy();
  }

  /** Tracks the request and creates its body. */
  #track(
    request: IncomingMessage,
    response: ServerResponse,
    { expectsContinue = false, upgrade, refusal }: Arrival = {},
  ): PortRequest {
    const { errors, clients, bodies, onLimit } = this.#parts;
    const onExceeded = (reason: 'small_chunks' | 'chunks_full'): void => {
      onLimit('small_chunks');
      stopParsing(request);
      errors.failBody(request.socket, reason);
    };
    const source = new Http1BodySource(request, response, expectsContinue, {
      clock: bodies.clock,
      owner: request.socket,
      toGroup: () => clients.toClient(errors.toPeer(request.socket)) ?? request.socket,
      onExceeded,
    });
    const body = new IncomingBody(source, bodies);
    errors.track(request.socket, { response, body });
    const tracked = clients.track(request.socket, source, response, response);
    return { request, response, body, tracked, upgrade, refusal: refusal ?? this.#checkFields(request) };
  }

  #checkFields({ rawHeaders }: IncomingMessage): Refusal | undefined {
    const { maxHeaderFields, onLimit } = this.#parts;
    if (rawHeaders.length <= 2 * maxHeaderFields) return undefined;
    onLimit('header_fields');
    return refuse('header_too_large', 'header_too_large', `more than ${maxHeaderFields} header fields`);
  }

  #addQueue(socket: Socket): RequestQueue {
    const { errors, bodies, onLimit } = this.#parts;
    const free = (): void => {
      queue.bytes?.free();
      for (const { release } of queue.requests.splice(0)) release();
    };
    const queue: RequestQueue = {
      network: toClientNetwork(errors.toPeer(socket)),
      startedAt: bodies.now(),
      held: 0,
      evict: () => {
        onLimit('pipelined');
        socket.destroy();
        free();
      },
      requests: [],
      bytes: undefined,
      arriving: 0,
      count: 0,
      late: undefined,
    };
    this.#queues.set(socket, queue);
    onceEvent(socket, 'close', () => {
      this.#queues.delete(socket);
      free();
    });
    return queue;
  }

  /** Counts the request for its connection, its client and the memory for bodies. Returns how to end that; undefined if there is a limit. */
  #admitWaiting(request: IncomingMessage, queue: RequestQueue, headBytes: number): (() => void) | undefined {
    const { clients, bodies, errors, maxHeaderFields } = this.#parts;
    const { socket, rawHeaders } = request;
    if (queue.requests.length >= MAX_WAITING || rawHeaders.length > 2 * maxHeaderFields) return undefined;
    const leave = clients.enter(errors.toPeer(socket));
    if (leave === undefined) return undefined;
    const arriving = Math.min(toDeclaredLength(request), SMALL_BODY - queue.arriving);
    const free = bodies.takeForWaiting(queue, WAITING_BYTES + headBytes + arriving);
    if (free === undefined) {
      leave();
      return undefined;
    }
    queue.arriving += arriving;
    return () => {
      leave();
      free();
      queue.arriving -= arriving;
    };
  }

  #hold(socket: Socket, queue: RequestQueue): HeldBytes {
    return new HeldBytes(socket, queue, this.#parts.bodies, () => this.#endConnection(socket, queue));
  }

  /** Ends the connection after the responses that are pending, or wait. */
  #endConnection(socket: Socket, queue: RequestQueue, limit: 'pipelined' | 'client_requests' = 'pipelined'): void {
    const { onLimit, errors, bodies } = this.#parts;
    onLimit(limit);
    queue.bytes ??= this.#hold(socket, queue);
    queue.bytes.discard();
    lingerOnClose(socket, bodies.clock);
    errors.endConnection(socket);
  }

  #handleNext(socket: Socket, queue: RequestQueue): unknown {
    const next = queue.requests.shift();
    if (next === undefined) return undefined;
    next.release();
    if (!socket.writable) return undefined;
    if (queue.requests.length === 0 && queue.bytes?.isEnding !== true) this.#release(socket, queue);
    return this.#handle(next.received);
  }

  #handle(received: PortRequest): unknown {
    const result = this.#parts.handle(received);
    received.body.holdUnread(received.response);
    return result;
  }

  /** The parser continues with the bytes that were held, in which requests may wait again. */
  #release(socket: Socket, queue: RequestQueue): void {
    const { bytes, late, count } = queue;
    const { errors, bodies } = this.#parts;
    queue.bytes = undefined;
    queue.late = undefined;
    bytes?.release();
    if (late === undefined) return;
    bodies.clock.after(bodies.limits.bodyIdleTimeout, () => {
      if (queue.count === count) errors.handle(late, socket);
    });
  }

  #onClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
    const queue = this.#queues.get(socket as Socket);
    // The rest of the request has not reached the parser, so its time has not begun.
    if (queue?.bytes !== undefined && error.code === 'ERR_HTTP_REQUEST_TIMEOUT') {
      queue.late = error;
      return;
    }
    this.#parts.errors.handle(error, socket);
    queue?.bytes?.discard();
  }
}

function toDeclaredLength({ headers }: IncomingMessage): number {
  return headers['transfer-encoding'] === undefined ? Number(headers['content-length'] ?? 0) : SMALL_BODY;
}

function toHeadBytes(rawHeaders: readonly string[]): number {
  return rawHeaders.reduce((bytes, text) => bytes + FIELD_BYTES + text.length, 0);
}

/** In bytes; what a connection has sent beyond it stays in the kernel. */
const MAX_HELD = 64 * 1024;
/** The most bytes of one read more. */
const MAX_CAPACITY = 2 * MAX_HELD;

/**
 * Keeps the bytes that arrive on a connection while a request waits on it. Node's parser would build a message for each request in them, and a
 * connection that is not read shows neither its end nor a reset.
 */
class HeldBytes {
  readonly #socket: Socket;
  readonly #connection: WaitingConnection;
  readonly #bodies: BodyWatch;
  readonly #onLimit: () => void;
  readonly #bytes = new GrowingBuffer();
  readonly #releases: (() => void)[] = [];
  readonly #toParser: (bytes: Buffer) => void;
  readonly #listener: AddedListener;
  #pause: ReadPause | undefined;
  #isEnding = false;

  /** Takes the connection from Node's parser. `onLimit`: the memory for bytes is used up. */
  constructor(socket: Socket, connection: WaitingConnection, bodies: BodyWatch, onLimit: () => void) {
    this.#socket = socket;
    this.#connection = connection;
    this.#bodies = bodies;
    this.#onLimit = onLimit;
    this.#toParser = takeListeners(socket, 'data');
    this.#listener = onEvent(socket, 'data', (chunk: Buffer) => this.#onData(chunk));
  }

  /** The connection ends with a response that is pending. */
  get isEnding(): boolean {
    return this.#isEnding;
  }

  /** Gives the connection back to the parser, with the bytes. */
  release(): void {
    offEvent(this.#socket, 'data', this.#listener);
    this.#pause?.end();
    this.#toParser(this.#bytes.view());
    this.free();
  }

  /** Keeps nothing, from now on. */
  discard(): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    this.free();
    discardInput(this.#socket, MAX_DISCARDED);
  }

  /** Frees the memory of the bytes. */
  free(): void {
    this.#pause?.end();
    this.#bytes.free();
    for (const release of this.#releases.splice(0)) release();
  }

  #onData(chunk: Buffer): void {
    this.#bodies.onBytes(chunk.length);
    const release = this.#bodies.takeForWaiting(this.#connection, chunk.length);
    if (release === undefined) {
      freeChunk(chunk);
      return this.#onLimit();
    }
    this.#releases.push(release);
    this.#bytes.append(chunk, MAX_CAPACITY);
    if (this.#bytes.length >= MAX_HELD) this.#stopReading();
  }

  /** Until the request is handled that waits. The response before it has separate deadlines, but may be a stream that goes on for hours. */
  #stopReading(): void {
    if (this.#pause !== undefined) return;
    const { pauses, limits } = this.#bodies;
    const owner = { network: this.#connection.network, pauses };
    // The bytes themselves are counted already.
    this.#pause = new ReadPause(owner, 0, limits.streamTimeout, () => this.#socket.destroy());
    this.#pause.hold(this.#socket);
  }
}
