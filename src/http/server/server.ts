/** The data port: strict node:http with limits. It passes each request to the pipeline as a ParsedHead or a refusal. */
import type { IncomingMessage, Server } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { IpRanges } from '../../core/ip-address.ts';
import type { ListenAddress } from '../../core/listen-address.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import type { ClientResponse, ParsedHead, RequestInfo } from '../../core/request.ts';
import { guardDecision, requestStarts, runNextTurn } from '../../core/safe-events.ts';
import { type ClientResolver, createClientResolver, createRequestInfo, ProxyProtocolPeers } from './client-address.ts';
import { type ClientCertificates, createClientCertificates } from './client-certificates.ts';
import { type Http2Request, Http2Sessions, Http2Streams } from './http2.ts';
import { Http2Response } from './http2-response.ts';
import type { BodyWatch, ListenMemory, OnLimit, PortLimits } from './limits.ts';
import { type BoundAddress, Listener } from './listener.ts';
import { toFreeBytes } from './memory.ts';
import { type MemoryPressure, SMALL_BODY } from './memory-guard.ts';
import { PortClients } from './port-clients.ts';
import { type PortRequest, PortRequests } from './port-requests.ts';
import { IncomingBody } from './request-body.ts';
import {
  asksForUpgrades,
  ClientErrors,
  checkHead,
  createStrictServer,
  type IncomingHead,
  interceptConnections,
  type OpenConnections,
  toIncomingHead,
  watchConnections,
} from './strict-server.ts';
import type { TlsContexts } from './tls.ts';
import { isRelayedUpgrade } from './upgrade.ts';

/** Handles requests; the request pipeline implements it. */
export interface RequestHandler {
  handle(head: ParsedHead, response: ClientResponse): void;
  /** The head is invalid, and rejected before routing. */
  reject(info: RequestInfo, response: ClientResponse, refusal: Refusal): void;
  /** The bytes are not a request: the refusal is written directly to the socket. */
  rejectSocket(info: RequestInfo, socket: Duplex, refusal: Refusal): void;
}

/** The settings of a port. */
interface ListenSettings {
  readonly address: ListenAddress;
  /** Addresses whose X-Forwarded-* fields count. */
  readonly trustedProxies: readonly string[];
  /** Addresses whose fields with a client certificate count. */
  readonly trustedIdentityProxies: readonly string[];
  readonly proxyProtocol?: { readonly from: readonly string[] } | undefined;
  readonly hsts?: { readonly maxAge: Milliseconds; readonly includeSubDomains: boolean; readonly preload: boolean } | undefined;
  readonly tls?: { readonly clientCaFile?: string | undefined } | undefined;
}

/**
 * Peers that represent many clients, and report the client of each request. The limits count that one: the connections of such a peer have none for
 * each client, so a port cannot have such peers without it.
 */
interface Callers {
  readonly addresses: readonly string[];
  readonly resolveClient: ClientResolver;
}

/** The parts of a request other than its head. */
interface Incoming extends Omit<PortRequest, 'request' | 'response'> {
  readonly response: ClientResponse;
}

const STREAMS_PER_CONNECTION = 2;
const MIN_STREAMS = 1_024;

/** The most unfinished HTTP/2 streams of a port in one worker; half of them are more than the limits on requests allow one client. */
function toMaxStreams({ maxConnections }: PortLimits, workers: number): number {
  return Math.max(Math.ceil(MIN_STREAMS / workers), STREAMS_PER_CONNECTION * maxConnections);
}

/** In bytes: what the streams of a session of a proxy take whose responses it does not read, also if each was reset. */
const PROXY_SESSION_BYTES = 2 * 1_024 * 1_024;
/** The share of the free memory for these sessions; others have fewer streams. */
const PROXY_SESSIONS_SHARE = 1 / 8;

function toMaxProxySessions({
  limit = Number.POSITIVE_INFINITY,
  workers,
  ports,
}: Pick<MemoryPressure, 'limit' | 'workers' | 'ports'>): number {
  const share = (toFreeBytes(limit, workers) * PROXY_SESSIONS_SHARE) / (workers * ports);
  return Math.max(1, Math.floor(share / PROXY_SESSION_BYTES));
}

function toSharedPeers({ trustedProxies, proxyProtocol }: ListenSettings): string[] {
  return [...trustedProxies, ...(proxyProtocol?.from ?? [])];
}

/**
 * The phase of the shutdown: `leaving` closes each HTTP/1 connection after its next response; `ending` also ends those of HTTP/2 (GOAWAY); `refusing`
 * closes idle ones, accepts no others, and rejects requests with 503.
 */
export type ListenPhase = 'open' | 'leaving' | 'ending' | 'refusing';

/** The listening data port. */
export class ListenServer {
  readonly #parts;
  readonly #server: Server | TlsServer;
  readonly #listener: Listener;
  readonly #resolveClient: ClientResolver;
  readonly #bodies: BodyWatch;
  readonly #certificates: ClientCertificates | undefined;
  readonly #http2: Http2Sessions;
  readonly #streams: Http2Streams;
  readonly #proxyPeers: ProxyProtocolPeers;
  readonly #clients: PortClients;
  readonly #clientErrors: ClientErrors;
  readonly #requests: PortRequests;
  readonly #hsts: string | undefined;
  #phase: ListenPhase = 'open';

  constructor(parts: {
    readonly listen: ListenSettings;
    readonly tls: TlsContexts | undefined;
    readonly limits: PortLimits;
    readonly clock: Clock;
    readonly memory: ListenMemory;
    readonly handler: RequestHandler;
    readonly onLimit: OnLimit;
    readonly connections: OpenConnections;
    /** Default: `listen` has the peers that may report clients. */
    readonly callers?: Callers;
  }) {
    const { limits, clock, tls, onLimit } = parts;
    const { guard } = parts.memory;
    this.#parts = parts;
    this.#resolveClient =
      parts.callers?.resolveClient ??
      createClientResolver({ address: parts.listen.trustedProxies, identity: parts.listen.trustedIdentityProxies });
    this.#hsts = toHsts(parts.listen.hsts);
    this.#certificates = createClientCertificates(parts.listen.tls?.clientCaFile !== undefined, tls, clock, (socket) => {
      if (!this.#http2.closeOn(socket) && !this.#clientErrors.endConnection(socket)) socket.destroy();
    });
    const toPeer = (socket: Socket): string => this.#toPeer(socket);
    this.#clientErrors = new ClientErrors({
      clock,
      onLimit,
      toPeer,
      rejectSocket: (info, socket, refusal) => parts.handler.rejectSocket(info, socket, refusal),
    });
    this.#bodies = parts.memory.bodies;
    const isShared = (socket: Socket): boolean => this.#clients.toClient(toPeer(socket)) === undefined;
    const tlsPort = tls && { contexts: tls, clock, memory: guard, onLimit, toPeer, isShared };
    this.#server = createStrictServer(limits, tlsPort, {
      // RFC 9110 §7.8: not for HTTP/1.0. Behind another pending request, it is served as if it did not ask for an upgrade.
      shouldUpgradeCallback: guardDecision(
        ({ method, headers, httpVersionMinor, socket }: IncomingMessage) =>
          httpVersionMinor !== 0 &&
          isRelayedUpgrade(method, headers.upgrade) &&
          this.#clientErrors.findPending(socket) === undefined,
        false,
      ),
    });
    this.#listener = new Listener(this.#server, parts.listen.address);
    this.#proxyPeers = new ProxyProtocolPeers({
      from: new IpRanges(parts.listen.proxyProtocol?.from ?? []),
      isTls: tls !== undefined,
      timeout: limits.headTimeout,
      clock,
    });
    this.#streams = new Http2Streams(toMaxStreams(limits, guard.workers), guard, onLimit);
    this.#http2 = this.#createHttp2();
    interceptConnections<TLSSocket>(this.#server, 'secureConnection', (socket, proceed) => {
      if (!this.#proxyPeers.adopt(socket) || this.#certificates?.finish(socket) === false) socket.destroy();
      else if (socket.alpnProtocol === 'h2') this.#http2.open(socket, this.#clients.toClient(this.#toPeer(socket)));
      else proceed();
    });
    interceptConnections(this.#server, 'connection', (socket, proceed) => {
      const onInvalid = (detail: string): void => {
        this.#clientErrors.reject(socket, refuse('malformed_request', 'malformed', `PROXY protocol: ${detail}`));
      };
      const onReady = (): void => {
        this.#certificates?.begin(socket);
        const client = this.#proxyPeers.find(socket);
        if (client === undefined || this.#clients.assignClient(socket, client)) proceed();
      };
      this.#proxyPeers.take(socket, { onReady, onInvalid });
    });
    const shared = parts.callers?.addresses ?? toSharedPeers(parts.listen);
    const reportClients = parts.callers !== undefined;
    this.#clients = new PortClients(this.#server, { limits, shared, reportClients, clock, onLimit, tls, memory: guard });
    this.#requests = new PortRequests({
      errors: this.#clientErrors,
      clients: this.#clients,
      bodies: this.#bodies,
      onLimit,
      maxHeaderFields: limits.maxHeaderFields,
      handle: (received) => this.#accept(toIncomingHead(received.request), received),
    });
    this.#bind();
  }

  /** Starts to listen; rejects with the system's error (EADDRINUSE, EACCES). */
  listen(): Promise<BoundAddress> {
    return this.#listener.open();
  }

  /** Accepts a simulated connection, as if it came from a port. */
  receive(connection: Duplex): void {
    this.#server.emit('connection', connection);
  }

  /** Whether WebSockets pass; otherwise their requests are served as usual ones. */
  get relaysUpgrades(): boolean {
    return asksForUpgrades(this.#server);
  }

  /** Enters the next phase of the shutdown; `refusing` also stops accepting connections. */
  enter(phase: ListenPhase): void {
    // The grace period may begin after the pause of the app has almost ended.
    if (phase === 'leaving' && this.#phase === 'ending') return;
    this.#phase = phase;
    if (phase === 'open') return;
    this.#clientErrors.endConnections();
    // A client may be sending right now: on an idle connection, or a request that GOAWAY crosses. In the grace period it can learn of another endpoint.
    if (phase === 'leaving') return;
    this.#http2.close();
    if (phase === 'ending') return;
    this.#listener.close();
    this.#server.closeIdleConnections();
  }

  /** Destroys all remaining connections. */
  destroy(): void {
    this.#listener.close();
    this.#server.closeAllConnections();
    this.#requests.destroyReleased();
    this.#http2.destroy();
    this.#clients.close();
    this.#certificates?.close();
  }

  /** Uses the current TLS contexts for new connections. */
  refreshTls(): void {
    if (this.#parts.tls !== undefined) (this.#server as TlsServer).setSecureContext(this.#parts.tls.toServerOptions());
    this.#certificates?.refresh();
  }

  #createHttp2(): Http2Sessions {
    return new Http2Sessions({
      ...this.#parts,
      streams: this.#streams,
      onRequest: (request) => this.#onHttp2Request(request),
      freeMemory: () => this.#clients.freeMemory(),
      maxProxySessions: toMaxProxySessions(this.#parts.memory.guard),
    });
  }

  #bind(): void {
    const { connections } = this.#parts;
    this.#requests.bind(this.#server, ['upgrade', 'connect']);
    watchConnections(this.#server, connections);
  }

  #onHttp2Request({ head, headBytes, fieldLines, source, stream, counted }: Http2Request): void {
    const { handler, limits, onLimit, clock } = this.#parts;
    const response = new Http2Response(stream, head.headers, counted, clock);
    const body = new IncomingBody(source, this.#bodies);
    body.client = this.#resolveClient(this.#toPeer(head.socket), true, head.headers).address;
    const isShared = this.#clients.toRequestClient(body.client) === undefined;
    const parts = { stream, source, body, isShared, response, headBytes, fieldLines };
    if (!this.#streams.add(parts, clock.monotonic())) return response.refuseStream(this.#streams.isSpent(parts));
    const tracked = this.#clients.track(head.socket, source, response, stream);
    if (headBytes > limits.maxHeaderBytes) {
      onLimit('header_bytes');
      return handler.reject(this.#createInfo(head), response, refuse('header_too_large', 'header_too_large'));
    }
    const isUnexpected = head.headers.get('expect') !== undefined && !source.expectsContinue;
    const refusal = isUnexpected ? refuse('expectation_failed', 'expectation_failed') : undefined;
    const accept = (): void => {
      if (response.destroyed) return;
      this.#accept(head, { body, response, tracked, refusal });
      body.holdUnread(response);
    };
    const hold = () => this.#bodies.takeForTurn(headBytes + Math.min(body.declaredLength ?? SMALL_BODY, SMALL_BODY));
    requestStarts.start(head.socket, stream, hold, accept);
  }

  /** Handles one request, in any version of HTTP. */
  #accept(head: IncomingHead, { body, response, tracked, upgrade, refusal }: Incoming): void {
    const { handler, limits, onLimit } = this.#parts;
    const info = this.#createInfo(head);
    body.client = info.client.address;
    // Never over plain HTTP, where anybody could have injected it (RFC 6797 §7.2).
    if (this.#hsts !== undefined && info.client.scheme === 'https') response.setHeader('Strict-Transport-Security', this.#hsts);
    if (this.#phase !== 'open') this.#leave(head.socket, response);
    if (this.#phase === 'refusing') return handler.reject(info, response, refuse('draining', 'draining'));
    const unverified = this.#certificates?.refuse(info.client, response);
    if (unverified !== undefined) return handler.reject(info, response, unverified);
    if (head.method === 'CONNECT') return handler.reject(info, response, refuse('malformed_request', 'malformed', 'CONNECT'));
    const rejected = this.#clients.admit(tracked, info.client.address, upgrade !== undefined) ?? refusal;
    if (rejected !== undefined) return handler.reject(info, response, rejected);
    const target = checkHead(head, limits, onLimit);
    if (target instanceof Refusal) return handler.reject(info, response, target);
    // A body before the new protocol would be read as part of it.
    if (upgrade !== undefined && body.declaredLength !== 0)
      return handler.reject(info, response, refuse('malformed_request', 'framing', 'a body with an upgrade request'));
    if (upgrade !== undefined) this.#certificates?.upgrade(head.socket);
    this.#clients.countUntilFreed(tracked, body);
    const parsed = { ...info, target, headers: head.headers, body };
    handler.handle(upgrade === undefined ? parsed : { ...parsed, upgrade: upgrade.hold(body) }, response);
  }

  /** The connection ends with this response. */
  #leave(socket: Socket, response: ClientResponse): void {
    response.shouldKeepAlive = false;
    // In the next turn: Node would refuse the streams that it has read with this one.
    if (this.#phase !== 'leaving') runNextTurn(() => this.#http2.closeOn(socket));
  }

  #toPeer(socket: Socket): string {
    // The address is undefined once the peer has disconnected.
    return this.#proxyPeers.find(socket) ?? socket.remoteAddress ?? 'unknown';
  }

  #createInfo({ method, headers, socket }: IncomingHead): RequestInfo {
    const client = this.#resolveClient(this.#toPeer(socket), 'encrypted' in socket, headers);
    const state = this.#certificates?.find(socket);
    return createRequestInfo(method, state === undefined ? client : { ...client, ...state }, this.#parts.clock);
  }
}

/** The value of Strict-Transport-Security (RFC 6797 §6.1); undefined if it is not sent. */
function toHsts(hsts: ListenSettings['hsts']): string | undefined {
  if (hsts === undefined) return undefined;
  const { maxAge, includeSubDomains, preload } = hsts;
  const directives = [`max-age=${Math.floor(maxAge / 1_000)}`];
  if (includeSubDomains) directives.push('includeSubDomains');
  if (preload) directives.push('preload');
  return directives.join('; ');
}
