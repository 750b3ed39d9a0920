/** A strict configuration of node:http, the same for every port that untrusted clients reach. */
import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { Milliseconds } from '../../core/clock.ts';
import { guardDecision, onceEvent, onEvent } from '../../core/safe-events.ts';
import type { PortLimits } from './limits.ts';
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

/** Reports each connection that opens or closes. */
export function watchConnections(server: Server | TlsServer, onConnections: (delta: 1 | -1) => void): void {
  onEvent(server, 'connection', (socket: Socket) => {
    onConnections(1);
    onceEvent(socket, 'close', () => onConnections(-1));
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
const pushNothing = (): boolean => true;

/**
 * Makes Node skip the rest of what it has read from a connection that is about to end, and the body of `request`, the last one that Node has
 * begun and nobody reads. In 64 KiB there can be 2,300 requests, and Node would build the message and the response of each, even of a
 * destroyed connection: 29 ms instead of less than one. A body of one-byte chunks would be kept in 10,900 buffers, 4 MB. Node has no public
 * way to skip requests; if a later version takes no notice, the cost is back, and nothing else changes.
 */
export function stopParsing(request: IncomingMessage): void {
  request.push = pushNothing;
  const { parser } = request.socket as Socket & { readonly parser?: { onIncoming: unknown } | null };
  if (parser !== undefined && parser !== null) parser.onIncoming = guardDecision(() => STOP_PARSING, STOP_PARSING);
}

/**
 * Whether the response was sent and its connection released. `writableFinished` is not enough: the release follows a turn later.
 */
export function isResponseSent(response: ServerResponse): boolean {
  return response.writableFinished && response.socket === null;
}
