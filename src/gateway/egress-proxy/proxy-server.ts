/**
 * The forward proxy's port: CONNECT and absolute-form requests, passed on as a ParsedHead with a destination. The proxy authorizes hosts and
 * ports, not paths: it forwards a path with dot segments, double slashes, backslashes or any percent-encoding as it is, and the origin
 * decides what it means.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { LimitsConfig } from '../../config/schema/config.ts';
import type { Clock } from '../../core/clock.ts';
import type { RequestTarget, TargetProblem } from '../../core/head.ts';
import { isLoopbackOnly, type ListenAddress } from '../../core/listen-address.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import type { ParsedHead, RequestInfo } from '../../core/request.ts';
import { guardDecision, onceEvent } from '../../core/safe-events.ts';
import { type Destination, parseDestination } from '../../http/dial/destination.ts';
import { createRequestInfo, toDirectClient } from '../../http/server/client-address.ts';
import { type ClientCertificates, watchCertificates } from '../../http/server/client-certificates.ts';
import type { TrackedRequest } from '../../http/server/connection-limiter.ts';
import type { ListenMemory, OnLimit } from '../../http/server/limits.ts';
import { type BoundAddress, Listener } from '../../http/server/listener.ts';
import { PortClients } from '../../http/server/port-clients.ts';
import { type PortRequest, PortRequests } from '../../http/server/port-requests.ts';
import type { ListenPhase } from '../../http/server/server.ts';
import {
  ClientErrors,
  createStrictServer,
  findUnsound,
  type IncomingHead,
  type OpenConnections,
  toIncomingHead,
  watchConnections,
} from '../../http/server/strict-server.ts';
import type { TlsContexts } from '../../http/server/tls.ts';

/** Handles the requests of the proxy. */
interface ProxyHandler {
  /** With `upgrade`, the request is a CONNECT and is granted as a tunnel. */
  handle(head: ParsedHead, response: ServerResponse): void;
  reject(info: RequestInfo, response: ServerResponse, refusal: Refusal): void;
  rejectSocket(info: RequestInfo, socket: Duplex, refusal: Refusal): void;
}

/** A destination, and the target that it gets. */
interface ProxyTarget {
  readonly destination: Destination;
  readonly target: RequestTarget;
}

const LOOPBACK = ['127.0.0.0/8', '::1'];
const HTTP_PORT = 80;
const ABSOLUTE = /^([a-z][a-z0-9+.-]*):\/\/([^/?#\\]*)(.*)$/is;
const VISIBLE = /^[\x21-\x7e]*$/;
const EXAMPLE = 'write http://host/path, or CONNECT host:port';

/** The listening proxy port. */
export class ProxyServer {
  readonly #parts;
  readonly #server: Server | TlsServer;
  readonly #listener: Listener;
  readonly #clientErrors: ClientErrors;
  readonly #clients: PortClients;
  readonly #requests: PortRequests;
  readonly #certificates: ClientCertificates | undefined;
  /** The last response of each open connection. */
  readonly #responses = new Map<Socket, ServerResponse>();
  #phase: ListenPhase = 'open';

  constructor(parts: {
    readonly address: ListenAddress;
    readonly limits: LimitsConfig;
    readonly tls: TlsContexts | undefined;
    readonly clock: Clock;
    readonly memory: ListenMemory;
    readonly handler: ProxyHandler;
    readonly onLimit: OnLimit;
    readonly connections: OpenConnections;
  }) {
    const { limits, tls, clock, handler, onLimit, connections } = parts;
    this.#parts = parts;
    this.#clientErrors = new ClientErrors({
      clock,
      onLimit,
      toPeer: ({ remoteAddress = 'unknown' }) => remoteAddress,
      rejectSocket: (info, socket, refusal) => handler.rejectSocket(info, socket, refusal),
    });
    // Clients upgrade through the proxy by CONNECT; in absolute-form requests an Upgrade field is ignored.
    this.#server = createStrictServer(limits, tls && { contexts: tls, clock, memory: parts.memory.guard, onLimit }, {
      shouldUpgradeCallback: guardDecision(() => false, false),
    });
    this.#listener = new Listener(this.#server, parts.address);
    this.#certificates = watchCertificates(this.#server, tls, clock, (socket) => {
      if (!this.#clientErrors.endConnection(socket)) socket.destroy();
    });
    watchConnections(this.#server, connections);
    // On loopback, the only client is the pod itself.
    const hasOneClient = isLoopbackOnly(parts.address);
    this.#clients = new PortClients(this.#server, {
      limits: hasOneClient ? { ...limits, maxUpgraded: limits.maxConnections } : limits,
      shared: hasOneClient ? LOOPBACK : [],
      clock,
      onLimit,
      tls,
      memory: parts.memory.guard,
    });
    this.#requests = new PortRequests({
      errors: this.#clientErrors,
      clients: this.#clients,
      bodies: parts.memory.bodies,
      onLimit,
      maxHeaderFields: limits.maxHeaderFields,
      handle: (received) => this.#accept(received),
    });
    this.#requests.bind(this.#server, ['connect']);
  }

  /** Starts to listen; rejects with the system's error. */
  listen(): Promise<BoundAddress> {
    return this.#listener.open();
  }

  /** Applies the current TLS contexts to new connections. */
  refreshTls(): void {
    if (this.#parts.tls !== undefined) (this.#server as TlsServer).setSecureContext(this.#parts.tls.toServerOptions());
    this.#certificates?.refresh();
  }

  /** Enters a phase of the shutdown; responses in progress are finished, and their connections are closed afterwards. */
  enter(phase: ListenPhase): void {
    this.#phase = phase;
    if (phase === 'open') return;
    for (const response of this.#responses.values()) response.shouldKeepAlive = false;
    if (phase !== 'refusing') return;
    this.#listener.close();
    this.#server.closeIdleConnections();
  }

  /** Destroys all connections, also those of tunnels. */
  destroy(): void {
    this.#listener.close();
    this.#server.closeAllConnections();
    this.#requests.destroyReleased();
    this.#clients.close();
    this.#certificates?.close();
  }

  #accept({ request, response, body, tracked, upgrade, refusal: unexpected }: PortRequest): void {
    const { handler } = this.#parts;
    const head = toIncomingHead(request);
    const info = this.#createInfo(request);
    this.#watchEnd(response, request.socket);
    const refusal =
      this.#checkLimits(tracked, info, upgrade !== undefined) ?? this.#findCertificateEnd(request.socket, response) ?? unexpected;
    if (refusal !== undefined) return handler.reject(info, response, refusal);
    const target = this.#checkHead(head, upgrade === undefined ? parseAbsoluteTarget : parseConnectTarget);
    if (target instanceof Refusal) return handler.reject(info, response, target);
    const parsed = { ...info, ...target, headers: head.headers, body };
    // Its bytes would be treated as tunnel data.
    if (upgrade !== undefined && body.declaredLength !== 0)
      return handler.reject(info, response, refuse('malformed_request', 'framing', 'content with CONNECT'));
    this.#clients.countUntilFreed(tracked, body);
    if (upgrade === undefined) return handler.handle(parsed, response);
    this.#certificates?.upgrade(request.socket);
    handler.handle({ ...parsed, upgrade: upgrade.hold(body) }, response);
  }

  /** Closes the connection after a response whose head promised keep-alive before the gate began to shut down. */
  #watchEnd(response: ServerResponse, socket: Socket): void {
    if (this.#phase !== 'open') response.shouldKeepAlive = false;
    if (!this.#responses.has(socket)) onceEvent(socket, 'close', () => this.#responses.delete(socket));
    this.#responses.set(socket, response);
    onceEvent(response, 'finish', () => {
      if (this.#phase !== 'open' && this.#responses.get(socket) === response) socket.end();
    });
  }

  /** Rejects the request if the gate is shutting down, or a limit on clients or memory is reached. */
  #checkLimits(tracked: TrackedRequest, { client }: RequestInfo, isTunnel: boolean): Refusal | undefined {
    if (this.#phase === 'refusing') return refuse('draining', 'draining');
    return this.#clients.admit(tracked, client.address, isTunnel);
  }

  #findCertificateEnd(socket: Socket, response: ServerResponse): Refusal | undefined {
    return this.#certificates?.refuse(this.#certificates.find(socket), response);
  }

  #checkHead(head: IncomingHead, parse: typeof parseAbsoluteTarget): ProxyTarget | Refusal {
    const { limits, onLimit } = this.#parts;
    const refusal = findUnsound(head, limits, onLimit);
    if (refusal !== undefined) return refusal;
    const parsed = parse(head.url, head.method);
    return 'problem' in parsed ? refuse('malformed_request', 'malformed', parsed.problem) : parsed;
  }

  #createInfo({ method = '', socket }: IncomingMessage): RequestInfo {
    return createRequestInfo(method, toDirectClient(socket.remoteAddress ?? 'unknown', 'encrypted' in socket), this.#parts.clock);
  }
}

/** RFC 9110 §9.3.6: a host and a port, both required. */
export function parseConnectTarget(url: string): ProxyTarget | TargetProblem {
  const destination = parseDestination(url);
  if (destination !== undefined) return { destination, target: toTarget(url) };
  return { problem: `the target of CONNECT is not host:port: ${findHostProblem(url) ?? 'it needs a port'}` };
}

/** RFC 9112 §3.2.2. https would be unencrypted here; clients use CONNECT for it. */
export function parseAbsoluteTarget(url: string, method: string): ProxyTarget | TargetProblem {
  // It would end the request line, or change in the charset of another parser (RFC 3986 §2).
  if (!VISIBLE.test(url)) return { problem: 'the target has a control, space or non-ASCII byte, which must be percent-encoded' };
  const [whole, scheme = '', authority = '', rest = ''] = ABSOLUTE.exec(url) ?? [];
  if (whole === undefined) return { problem: `the target is not an absolute URL, and this port is a forward proxy; ${EXAMPLE}` };
  if (scheme.toLowerCase() !== 'http') return { problem: `the proxy forwards only http URLs; for others, use CONNECT host:port` };
  if (authority.includes('@'))
    return { problem: 'the URL has a user or a password (RFC 9110 §4.2.4); send them in the Authorization field' };
  if (rest.includes('#')) return { problem: 'the URL has a fragment, which is not sent to servers (RFC 9112 §3.2)' };
  const destination = parseDestination(authority, HTTP_PORT);
  if (destination === undefined) return { problem: `the host of the URL is malformed: ${findHostProblem(authority) ?? EXAMPLE}` };
  // After the host only: a backslash there is the end of the host for some parsers.
  if (rest.startsWith('\\')) return { problem: 'the host of the URL is followed by a backslash' };
  // RFC 9112 §3.2.4: the last proxy sends OPTIONS without a path for the server as a whole.
  if (rest === '' && method === 'OPTIONS') return { destination, target: toTarget('*') };
  return { destination, target: toTarget(rest.startsWith('/') ? rest : `/${rest}`) };
}

function toTarget(raw: string): RequestTarget {
  const mark = raw.indexOf('?');
  const query = mark === -1 ? undefined : raw.slice(mark + 1);
  return { raw, path: mark === -1 ? raw : raw.slice(0, mark), query, ambiguities: [] };
}

function findHostProblem(authority: string): string | undefined {
  const [, host = authority, port] = /^(\[[^\]]*\]|[^:]*):([^:]*)$/.exec(authority) ?? [];
  if (host === '') return 'it is empty';
  if (port !== undefined && (!/^[0-9]{1,5}$/.test(port) || Number(port) < 1 || Number(port) > 65_535))
    return 'the port is not a number between 1 and 65535';
  if (host.startsWith('[')) return 'the text between brackets is not an IPv6 address';
  if (host.includes(':')) return 'an IPv6 address must be in brackets';
  if (/(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$/i.test(host)) return 'a name must not end in a number, and an IPv4 address has four';
  return /^[a-z0-9._-]+$/i.test(host) ? undefined : 'it has characters that no host name has';
}
