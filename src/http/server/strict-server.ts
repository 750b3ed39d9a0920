/** A strict configuration of node:http, the same for every port that untrusted clients reach, and its checks of each request head. */
import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { isProtectedField } from '../../core/field-policy.ts';
import { HeaderFields, isPlainOption, parseTarget, type RequestTarget, toFoldedName } from '../../core/head.ts';
import { type Reason, type Refusal, refuse } from '../../core/refusal.ts';
import { MAX_METHOD_LENGTH, type RequestInfo } from '../../core/request.ts';
import { guardDecision, onceEvent, onEvent } from '../../core/safe-events.ts';
import { createRequestInfo, toDirectClient } from './client-address.ts';
import type { OnLimit, PortLimits } from './limits.ts';
import { closeAfterResponse, discardInput, MAX_DISCARDED } from './linger.ts';
import { TlsHandshakes, type TlsPort } from './tls-handshakes.ts';

const UPGRADE_OPTION = /(?:^|,)[\t ]*upgrade[\t ]*(?:,|$)/i;
const CHECK_INTERVAL_MS = 1_000;

/** The limits that the server itself enforces; its caller enforces the others. */
export type StrictLimits = Pick<
  PortLimits,
  'maxHeaderBytes' | 'maxHeaderFields' | 'headTimeout' | 'bodyTimeout' | 'streamTimeout' | 'keepAliveTimeout'
>;

/**
 * Whether Node asks before it releases the connection of a request that offers an upgrade. Before 22.21 and 24.9 it does not, and releases it for
 * any protocol: the requests of HTTP/2 would then reach the app unchecked. Without a listener, every version serves such a request as a usual one.
 */
export function asksForUpgrades(server: Server | TlsServer): boolean {
  return 'shouldUpgradeCallback' in server;
}

/** Creates a server that does not listen yet. */
export function createStrictServer(limits: StrictLimits, tls: TlsPort | undefined, more: ServerOptions): Server | TlsServer {
  const options: ServerOptions = {
    maxHeaderSize: limits.maxHeaderBytes,
    headersTimeout: limits.headTimeout,
    // It does not know which bodies are streamed; BodyWatch ends those that are not after `bodyTimeout`.
    requestTimeout: limits.headTimeout + Math.max(limits.bodyTimeout, limits.streamTimeout),
    keepAliveTimeout: limits.keepAliveTimeout,
    connectionsCheckingInterval: CHECK_INTERVAL_MS,
    insecureHTTPParser: false,
    // Our own head check rejects a missing Host, with our own response.
    requireHostHeader: false,
    noDelay: true,
    keepAlive: true,
    ...more,
  };
  const server = tls === undefined ? createServer(options) : createTls(options, tls, limits.headTimeout);
  // Beyond this limit, Node 22 silently drops fields, even those of a signature, and later versions reject the head. So a head that could reach
  // it must be rejected (PortRequests). Without a limit, each head of 16 KiB could take 200 KB of the heap.
  server.maxHeadersCount = 2 * limits.maxHeaderFields;
  return server;
}

function createTls(options: ServerOptions, tls: TlsPort, headTimeout: Milliseconds): TlsServer {
  const server = createTlsServer({ ...options, ...tls.contexts.toServerOptions(), handshakeTimeout: headTimeout });
  // Node would report it as an error of HTTP. A response to it would be in plain text, and the end of the handshake would still open a session.
  server.removeAllListeners('tlsClientError');
  onEvent(server, 'tlsClientError', ({ code }: NodeJS.ErrnoException, socket: TLSSocket) => {
    if (code === 'ERR_TLS_HANDSHAKE_TIMEOUT') tls.onLimit('head_timeout');
    socket.destroy();
  });
  const handshakes = new TlsHandshakes(tls, headTimeout);
  interceptConnections(server, 'connection', (socket, proceed) => handshakes.take(socket, proceed));
  // Before all listeners that are added until then: one of them may not proceed.
  onceEvent(server, 'listening', () =>
    interceptConnections<TLSSocket>(server, 'secureConnection', (socket, proceed) => {
      if (handshakes.finish(socket)) proceed();
    }),
  );
  return server;
}

/**
 * Runs `take` before Node's own handling of a new connection; a connection reaches the parser only if `proceed` is called.
 * Call it before other listeners are added: those still get every connection.
 */
export function interceptConnections<S extends Socket>(
  server: Server | TlsServer,
  event: 'connection' | 'secureConnection',
  take: (socket: S, proceed: () => void) => void,
): void {
  const own = server.listeners(event);
  server.removeAllListeners(event);
  onEvent(server, event, (socket: Socket) => {
    take(socket as S, () => {
      for (const listener of own) Reflect.apply(listener, server, [socket]);
    });
  });
}

/** Counts open connections. */
export interface OpenConnections {
  add(change: 1 | -1): void;
}

/** Counts each connection until it closes. */
export function watchConnections(server: Server | TlsServer, connections: OpenConnections): void {
  onEvent(server, 'connection', (socket: Socket) => {
    connections.add(1);
    onceEvent(socket, 'close', () => connections.add(-1));
  });
}

/**
 * Closes the connection after this response if the client asked for an upgrade: node:http drops the bytes after an upgrade request
 * that it ignores, so the next bytes may be the middle of a request.
 */
export function closeAfterIgnoredUpgrade({ headers }: IncomingMessage, response: ServerResponse): void {
  if (headers.upgrade !== undefined && UPGRADE_OPTION.test(headers.connection ?? '')) response.shouldKeepAlive = false;
}

/** Returned for a head, it ends Node's parser, as for an accepted upgrade. */
const STOP_PARSING = 2;
/** Node's parser calls what it has here with each chunk of a body (`HTTPParser.kOnBody`). */
const ON_BODY = 3;

/** The parts of Node's parser by which parsing stops. Parsers are used again, for other connections. */
interface NodeParser {
  onIncoming: unknown;
  /** The request that it reads. */
  readonly incoming: object | null;
  readonly [ON_BODY]?: unknown;
}

/** Requests whose bodies Node skips. Their parsers must not keep them: Node keeps a thousand parsers. */
const stopped = new WeakSet<object>();

/**
 * Makes Node skip the rest of what it has read from a connection that is about to end, and the body of `request`, the last one that Node has
 * begun. In 64 KiB there can be 2,300 requests, and Node would build the message and the response of each, even of a
 * destroyed connection: 29 ms instead of less than one. A body of one-byte chunks would be 10,900 buffers, 4 MB, and take seven times as long. Node has no public
 * way to skip requests; if a later version takes no notice, the cost is back, and nothing else changes.
 */
export function stopParsing(request: IncomingMessage): void {
  const { parser } = request.socket as Socket & { readonly parser?: NodeParser | null };
  if (parser === undefined || parser === null) return;
  parser.onIncoming = guardDecision(() => STOP_PARSING, STOP_PARSING);
  stopped.add(request);
  const { get } = Object.getOwnPropertyDescriptor(parser, ON_BODY) ?? {};
  const onBody = parser[ON_BODY];
  if (get !== undefined || typeof onBody !== 'function') return;
  Object.defineProperty(parser, ON_BODY, {
    configurable: true,
    get: () => (parser.incoming !== null && stopped.has(parser.incoming) ? undefined : onBody),
    set(value: unknown) {
      Object.defineProperty(parser, ON_BODY, { configurable: true, writable: true, value });
    },
  });
}

/**
 * Whether the response was sent and its connection released. `writableFinished` is not enough: the release follows a turn later.
 */
function isResponseSent(response: ServerResponse): boolean {
  return response.writableFinished && response.socket === null;
}

// Responds to bytes that node:http cannot parse as a request, but never in the middle of another response.

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
    if (!this.#latest.has(socket)) {
      onceEvent(socket, 'close', () => this.#latest.delete(socket));
      lingerWhileSending(socket, this.#parts.clock, () => this.#latest.get(socket)?.response.req.complete === false);
    }
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
    // Node also reports each error of the connection here: nobody receives a response on one that was reset, or whose TLS failed.
    if (!IS_OF_PARSER.test(error.code ?? '') || !socket.writable) {
      socket.destroy();
      return;
    }
    const latest = this.#latest.get(socket);
    if (latest !== undefined && !(latest.response.writableFinished && latest.response.shouldKeepAlive))
      return this.#endLatest(latest, socket, error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 'body_timeout' : 'framing');
    this.reject(socket as Socket, this.#toRefusal(error));
  }

  /** Fails the body of the latest request, which is still arriving; the connection ends with its response. */
  failBody(socket: Duplex, reason: Reason): void {
    const latest = this.#latest.get(socket);
    if (latest === undefined || latest.response.writableFinished) socket.destroy();
    else if (!this.#ending.has(socket)) this.#endLatest(latest, socket, reason);
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
   * Malformed bytes in or after a request that is still in progress: its response is completed first, then the connection is closed.
   */
  #endLatest({ response, body }: LatestExchange, socket: Duplex, reason: Reason): void {
    if (response.writableFinished) return;
    this.#ending.add(socket);
    discardInput(socket as Socket, MAX_DISCARDED);
    response.shouldKeepAlive = false;
    onceEvent(response, 'finish', () => closeAfterResponse(socket as Socket, this.#parts.clock));
    // A request that is complete is not to blame for the bytes behind it.
    if (!response.req.complete) body.fail(reason);
  }
}

// Validates a request head before routing: framing, Host, size and target. A head that fails here is rejected on every route.

/** A head of 16 KiB could have 8,000, which take milliseconds; clients send one or two, and name a few fields. */
const MAX_CONNECTION_OPTIONS = 64;
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** A request head, in any version of HTTP. */
export interface IncomingHead {
  readonly method: string;
  readonly url: string;
  readonly headers: HeaderFields;
  /** False for the versions that node:http accepts although HTTP/1 does not have them. */
  readonly hasValidVersion: boolean;
  /** HTTP/1.0. */
  readonly isOld: boolean;
  readonly socket: Socket;
}

/** The head of an HTTP/1 request. */
export function toIncomingHead(request: IncomingMessage): IncomingHead {
  return {
    method: request.method ?? '',
    url: request.url ?? '',
    headers: new HeaderFields(request.rawHeaders),
    hasValidVersion: request.httpVersion === '1.1' || request.httpVersion === '1.0',
    isOld: request.httpVersionMinor === 0,
    socket: request.socket,
  };
}

/** The limits of a head. */
interface HeadLimits {
  readonly maxHeaderFields: number;
  /** Bytes. */
  readonly maxTarget: number;
}

/** The codes of errors after which the connection can still send a response. */
const IS_OF_PARSER = /^(?:HPE|ERR_HTTP)_/;

/** Registered names and addresses with an optional port; no user part (RFC 9110 §4.2.4, RFC 9112 §3.2). */
const HOST = /^(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{0,5})?$/;

/** Parses the target, or returns why the request is rejected before routing. */
export function checkHead(head: IncomingHead, limits: HeadLimits, onLimit: OnLimit): RequestTarget | Refusal {
  const unsound = findUnsound(head, limits, onLimit);
  if (unsound !== undefined) return unsound;
  const target = parseTarget(head.url);
  return 'problem' in target ? refuse('malformed_request', 'path_ambiguous', { detail: target.problem, stage: 'route' }) : target;
}

/** Returns why the head is invalid, regardless of its target. */
export function findUnsound(head: IncomingHead, limits: HeadLimits, onLimit: OnLimit): Refusal | undefined {
  const { headers, url, method } = head;
  if (method.length > MAX_METHOD_LENGTH) return refuse('malformed_request', 'malformed', `a method of ${method.length} bytes`);
  if (headers.size > limits.maxHeaderFields) {
    onLimit('header_fields');
    return refuse('header_too_large', 'header_too_large', `${headers.size} header fields`);
  }
  if (url.length > limits.maxTarget) {
    onLimit('target');
    return refuse('target_too_long', 'target_too_long', `${url.length} bytes`);
  }
  // For HTTP/0.9, the request ends with its first line: a hop in front may take the rest for another request, or not pass it on.
  const framing = head.hasValidVersion ? findFramingProblem(head) : 'the version is not HTTP/1.0 or HTTP/1.1';
  return framing === undefined ? undefined : refuse('malformed_request', 'framing', framing);
}

/** Whether the text is a host with an optional port, and nothing else. */
export function isAuthority(text: string): boolean {
  return HOST.test(text);
}

/** Finds a field that makes the end or the recipient of the request uncertain. */
function findFramingProblem({ headers, isOld }: IncomingHead): string | undefined {
  // Node only ensures that HTTP/1.1 has some Host; RFC 9112 §3.2 requires exactly one valid Host.
  const hosts = headers.count('host');
  if (hosts > 1) return 'repeated Host';
  if (hosts === 0 && !isOld) return 'no Host';
  if (hosts === 1 && !isAuthority(headers.get('host') as string)) return 'Host is malformed';
  const codings = headers.count('transfer-encoding');
  if (codings > 0) {
    // RFC 9112 §6.1: invalid framing; an HTTP/1.0 hop in front may have parsed another request from the same bytes.
    if (isOld) return 'Transfer-Encoding on HTTP/1.0';
    if (codings > 1 || (headers.get('transfer-encoding') as string).toLowerCase() !== 'chunked')
      return 'Transfer-Encoding is not just chunked';
    if (headers.count('content-length') > 0) return 'both Content-Length and Transfer-Encoding';
  }
  if (headers.count('content-length') > 1) return 'repeated Content-Length';
  const token = findForbiddenConnectionToken(headers);
  return token === undefined ? undefined : `Connection names ${token}`;
}

/**
 * Finds a `Connection` option that is not allowed or malformed. A client that names a field there on which sidegate or
 * the app rely wants it removed after the check (CVE-2022-31813, CVE-2024-45410).
 */
export function findForbiddenConnectionToken(headers: HeaderFields): string | undefined {
  if (headers.get('connection') === undefined) return undefined;
  let left = MAX_CONNECTION_OPTIONS;
  for (const line of headers.all('connection')) {
    if (isPlainOption(line)) continue;
    for (const part of line.split(',', left + 1)) {
      if (left-- === 0) return `more than ${MAX_CONNECTION_OPTIONS} options`;
      const problem = findOptionProblem(part.trim());
      if (problem !== undefined) return problem;
    }
  }
  return undefined;
}

function findOptionProblem(token: string): string | undefined {
  if (token === '') return undefined;
  if (!TOKEN.test(token)) return 'an invalid token';
  const name = toFoldedName(token);
  return isProtectedField(name) ? name : undefined;
}

/**
 * Like `lingerOnClose`, for each close after which `isSending` says that the client has not sent its request to the end. Call it once for a
 * connection.
 */
function lingerWhileSending(socket: Duplex, clock: Clock, isSending: () => boolean): void {
  // Simulated connections end by themselves.
  if (!isSocket(socket)) return;
  const close = socket.destroySoon;
  const closeOrLinger = (): void => {
    if (isSending()) closeAfterResponse(socket, clock);
    else Reflect.apply(close, socket, []);
  };
  socket.destroySoon = closeOrLinger;
}

function isSocket(socket: Duplex): socket is Socket {
  return 'destroySoon' in socket;
}
