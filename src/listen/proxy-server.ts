/** The forward proxy's port: CONNECT and absolute-form requests, handed on as Exchanges with a destination. */
import { randomUUID } from 'node:crypto';
import { type IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { LimitsConfig } from '../config/config.ts';
import type { SocketAddress } from '../config/scalars.ts';
import type { Clock } from '../core/clock.ts';
import type { Arrival, Exchange } from '../core/exchange.ts';
import { HeaderFields } from '../core/headers.ts';
import { type Refusal, refuse } from '../core/refusal.ts';
import { parseTarget, type RequestTarget } from '../core/target.ts';
import { type Destination, parseDestination } from '../tunnel/destination.ts';
import { findFramingProblem } from './head-check.ts';
import { BodyWatch, type OnLimit } from './limits.ts';
import { IncomingBody } from './request-body.ts';
import { createStrictServer, endAfterUpgradeWish, isAnswered, startListening } from './strict-server.ts';
import type { TlsContexts } from './tls.ts';
import { SocketUpgrade } from './upgrade.ts';

/** Where the proxy's requests go. */
export interface ProxyHandler {
  /** With `upgrade`, a CONNECT: it is granted as a tunnel. */
  handle(exchange: Exchange, response: ServerResponse): void;
  turnAway(arrival: Arrival, response: ServerResponse, refusal: Refusal): void;
  turnAwaySocket(arrival: Arrival, socket: Duplex, refusal: Refusal): void;
}

/** What the port needs. */
export interface ProxyServerParts {
  readonly address: SocketAddress;
  readonly limits: LimitsConfig;
  readonly tls: TlsContexts | undefined;
  readonly clock: Clock;
  readonly handler: ProxyHandler;
  readonly onLimit: OnLimit;
  readonly onConnections: (delta: 1 | -1) => void;
}

interface Aim {
  readonly destination: Destination;
  readonly target: RequestTarget;
}

const HTTP_PORT = 80;
const ABSOLUTE = /^http:\/\/([^/?#]*)(.*)$/i;

/** The listening proxy port. */
export class ProxyServer {
  readonly #parts: ProxyServerParts;
  readonly #server: Server | TlsServer;
  readonly #bodies: BodyWatch;
  /** What each connection was last asked. */
  readonly #latest = new WeakMap<Duplex, ServerResponse>();

  constructor(parts: ProxyServerParts) {
    const { limits, tls, clock, onLimit, onConnections } = parts;
    this.#parts = parts;
    this.#bodies = new BodyWatch(limits, clock, onLimit);
    // An upgrade through the proxy goes by CONNECT; in absolute form it is served as if it had not been asked for.
    this.#server = createStrictServer(limits, tls, { shouldUpgradeCallback: () => false });
    this.#server.on('request', (request, response) => this.#onRequest(request, response, false));
    this.#server.on('checkContinue', (request, response) => this.#onRequest(request, response, true));
    this.#server.on('connect', (request: IncomingMessage, socket: Duplex, head: Buffer) =>
      this.#onConnect(request, socket, head),
    );
    this.#server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => this.#onClientError(error, socket));
    this.#server.on('connection', (socket: Socket) => {
      onConnections(1);
      socket.once('close', () => onConnections(-1));
    });
    this.#server.on('drop', () => onLimit('connections'));
  }

  /** Starts to listen; rejects with the system's error. */
  listen(): Promise<AddressInfo> {
    return startListening(this.#server, this.#parts.address);
  }

  /** New connections get what the contexts hold now. */
  refreshTls(): void {
    if (this.#parts.tls !== undefined) (this.#server as TlsServer).setSecureContext(this.#parts.tls.toServerOptions());
  }

  /** Takes no more connections; those that are open go on. */
  close(): void {
    this.#server.close();
    this.#server.closeIdleConnections();
  }

  /** Destroys what node:http knows of; tunnels end with their other side. */
  destroy(): void {
    this.close();
    this.#server.closeAllConnections();
    this.#bodies.close();
  }

  #onRequest(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void {
    const { handler } = this.#parts;
    this.#latest.set(request.socket, response);
    endAfterUpgradeWish(request, response);
    const headers = new HeaderFields(request.rawHeaders);
    const arrival = this.#toArrival(request);
    const aim = this.#checkHead(request, headers, toAbsoluteAim);
    if ('code' in aim) return handler.turnAway(arrival, response, aim);
    const body = new IncomingBody(request, response, this.#bodies, expectsContinue);
    handler.handle({ ...arrival, ...aim, headers, body, facts: {} }, response);
  }

  #onConnect(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { handler } = this.#parts;
    socket.on('error', () => socket.destroy());
    const latest = this.#latest.get(socket);
    // The answers that are due would come out of the tunnel.
    if (latest !== undefined && !isAnswered(latest)) return void socket.destroy();
    const response = new ServerResponse(request);
    response.assignSocket(socket as Socket);
    response.shouldKeepAlive = false;
    response.on('finish', () => socket.end());
    const headers = new HeaderFields(request.rawHeaders);
    const arrival = this.#toArrival(request);
    const aim = this.#checkHead(request, headers, toConnectAim);
    if ('code' in aim) return handler.turnAway(arrival, response, aim);
    const body = new IncomingBody(request, response, this.#bodies, false);
    // Bytes of it would be taken for the tunnel's.
    if (body.declaredLength !== 0)
      return handler.turnAway(arrival, response, refuse('malformed_request', 'framing', 'content with CONNECT'));
    const upgrade = new SocketUpgrade('', socket, response, head);
    handler.handle({ ...arrival, ...aim, headers, body, upgrade, facts: {} }, response);
  }

  #checkHead(request: IncomingMessage, headers: HeaderFields, toAim: (url: string) => Aim | undefined): Aim | Refusal {
    const { limits, onLimit } = this.#parts;
    const url = request.url ?? '';
    if (headers.size > limits.maxHeaderFields) {
      onLimit('header_fields');
      return refuse('header_too_large', 'header_too_large', `${headers.size} header fields`);
    }
    if (url.length > limits.maxTarget) {
      onLimit('target');
      return refuse('target_too_long', 'target_too_long', `${url.length} bytes`);
    }
    const framing = findFramingProblem(request, headers);
    if (framing !== undefined) return refuse('malformed_request', 'framing', framing);
    return toAim(url) ?? refuse('malformed_request', 'malformed', 'neither http://host/path nor CONNECT host:port');
  }

  #toArrival(request: IncomingMessage): Arrival {
    const { clock } = this.#parts;
    const { socket } = request;
    const peer = socket.remoteAddress ?? 'unknown';
    return {
      requestId: randomUUID(),
      method: request.method ?? '',
      // Nobody stands before a forward proxy whose word would count.
      client: { address: peer, peer, viaTrustedProxy: false, scheme: 'encrypted' in socket ? 'https' : 'http' },
      receivedAt: clock.now(),
      startedAt: clock.monotonic(),
    };
  }

  #onClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
    if (error.code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }
    const { clock, handler } = this.#parts;
    const peer = (socket as Socket).remoteAddress ?? 'unknown';
    const client = { address: peer, peer, viaTrustedProxy: false, scheme: 'http' } as const;
    const arrival = { requestId: randomUUID(), method: '', client, receivedAt: clock.now(), startedAt: clock.monotonic() };
    handler.turnAwaySocket(arrival, socket, refuse('malformed_request', 'framing', error.code ?? 'unreadable'));
  }
}

/** RFC 9110 §9.3.6: a host and a port, which must be there. */
function toConnectAim(url: string): Aim | undefined {
  const destination = parseDestination(url);
  return destination === undefined
    ? undefined
    : { destination, target: { raw: url, path: url, query: undefined, ambiguities: [] } };
}

/** RFC 9112 §3.2.2; https would be read in clear text here, and goes by CONNECT. */
function toAbsoluteAim(url: string): Aim | undefined {
  const [, authority = '', rest = ''] = ABSOLUTE.exec(url) ?? [];
  const destination = parseDestination(authority, HTTP_PORT);
  const target = parseTarget(rest.startsWith('/') ? rest : `/${rest}`);
  return destination === undefined || 'problem' in target ? undefined : { destination, target };
}
