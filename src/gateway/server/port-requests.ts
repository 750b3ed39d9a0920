/** Receives the requests of a port from node:http. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Duplex } from 'node:stream';
import { onceEvent, onEvent } from '../../core/safe-events.ts';
import { Http1BodySource } from './body-source.ts';
import type { ClientErrors } from './client-errors.ts';
import type { TrackedRequest } from './connection-limiter.ts';
import type { BodyWatch } from './limits.ts';
import type { PortClients } from './port-clients.ts';
import { IncomingBody } from './request-body.ts';
import { closeAfterIgnoredUpgrade } from './strict-server.ts';
import type { SocketUpgrade } from './upgrade.ts';

/** A request that may be handled now. */
export interface PortRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: IncomingBody;
  readonly tracked: TrackedRequest;
  readonly upgrade: SocketUpgrade | undefined;
}

/** The dependencies of PortRequests. */
export interface PortRequestParts {
  readonly errors: ClientErrors;
  readonly clients: PortClients;
  readonly bodies: BodyWatch;
  readonly handle: (received: PortRequest) => unknown;
}

/** The requests of one port: each is tracked, and handled after the response to the one before it on its connection. */
export class PortRequests {
  readonly #parts: PortRequestParts;

  constructor(parts: PortRequestParts) {
    this.#parts = parts;
  }

  /** Call it before the server listens. */
  bind(server: Server | TlsServer): void {
    onEvent(server, 'request', (request, response) => this.receive(request, response, false));
    onEvent(server, 'checkContinue', (request, response) => this.receive(request, response, true));
    onEvent(server, 'clientError', (error: NodeJS.ErrnoException, socket: Duplex) => this.#parts.errors.handle(error, socket));
  }

  /** Returns the result of `handle` if it was called at once. */
  receive(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean, upgrade?: SocketUpgrade): unknown {
    const { socket } = request;
    // Pipelined behind a response that closes the connection: there can be no response, so the request must not be handled.
    if (!socket.writable) return undefined;
    closeAfterIgnoredUpgrade(request, response);
    const { before, body, tracked } = this.track(request, response, expectsContinue);
    const received = { request, response, body, tracked, upgrade };
    if (before === undefined) return this.#parts.handle(received);
    onceEvent(before, 'close', () => (socket.writable ? this.#parts.handle(received) : undefined));
    return undefined;
  }

  /** Tracks the request and creates its body. `before`: a pending response that must be sent first. */
  track(
    request: IncomingMessage,
    response: ServerResponse,
    expectsContinue: boolean,
  ): Pick<PortRequest, 'body' | 'tracked'> & { readonly before: ServerResponse | undefined } {
    const { errors, clients, bodies } = this.#parts;
    const source = new Http1BodySource(request, response, expectsContinue);
    const body = new IncomingBody(source, bodies);
    const before = errors.track(request.socket, { response, body });
    return { body, tracked: clients.track(request.socket, source, response, response), before };
  }
}
