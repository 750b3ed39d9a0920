/** node:http made strict, the same for every port that strangers reach. */
import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { LimitsConfig } from '../../config/schema/config.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';
import type { TlsContexts } from './tls.ts';

const UPGRADE_OPTION = /(?:^|,)[\t ]*upgrade[\t ]*(?:,|$)/i;
const CHECK_INTERVAL_MS = 1_000;

/** What the server itself holds; the rest is up to who answers. */
export type StrictLimits = Pick<LimitsConfig, 'maxHeaderBytes' | 'headTimeout' | 'bodyTimeout' | 'keepAliveTimeout'>;

/** Builds it, not listening yet. */
export function createStrictServer(limits: StrictLimits, tls: TlsContexts | undefined, more: ServerOptions): Server | TlsServer {
  const options: ServerOptions = {
    maxHeaderSize: limits.maxHeaderBytes,
    headersTimeout: limits.headTimeout,
    requestTimeout: limits.headTimeout + limits.bodyTimeout,
    keepAliveTimeout: limits.keepAliveTimeout,
    connectionsCheckingInterval: CHECK_INTERVAL_MS,
    insecureHTTPParser: false,
    // Missing Host is refused by our own check, in our own words.
    requireHostHeader: false,
    noDelay: true,
    keepAlive: true,
    ...more,
  };
  const server =
    tls === undefined
      ? createServer(options)
      : createTlsServer({ ...options, ...tls.toServerOptions(), handshakeTimeout: limits.headTimeout });
  // 0 is "no limit": a positive one makes Node drop the fields beyond it silently, a signature's among them. We count and refuse.
  server.maxHeadersCount = 0;
  return server;
}

/**
 * Puts `take` before what Node itself does with a new connection; whoever is not called on by `proceed` never reaches the
 * parser. To be called before listeners of our own are added: those hear of every connection, as before.
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

/** Tells of each connection that opens or closes. */
export function watchConnections(server: Server | TlsServer, onConnections: (delta: 1 | -1) => void): void {
  onEvent(server, 'connection', (socket: Socket) => {
    onConnections(1);
    onceEvent(socket, 'close', () => onConnections(-1));
  });
}

/**
 * Ends the connection with this answer if another protocol was asked for: node:http drops what it read behind a wish that it does
 * not grant, so what comes next may be the middle of a request that nobody saw.
 */
export function closeAfterIgnoredUpgrade({ headers }: IncomingMessage, response: ServerResponse): void {
  if (headers.upgrade !== undefined && UPGRADE_OPTION.test(headers.connection ?? '')) response.shouldKeepAlive = false;
}

/** Has it left, and its connection to the next one? Finished alone is too early: the connection is let go a turn later. */
export function isResponseSent(response: ServerResponse): boolean {
  return response.writableFinished && response.socket === null;
}
