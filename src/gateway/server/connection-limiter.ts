/** Shares a port's connections among client networks: when it is crowded, a newcomer replaces one of the network that has most. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { onceEvent, onEvent, shareListeners } from '../../core/safe-events.ts';

/** Which limit a new connection ran into. */
export type ConnectionLimit = 'connections' | 'client_connections';

/** How a port's connections are shared. */
export interface ConnectionLimiterOptions {
  readonly maxConnections: number;
  /** Of one client network. */
  readonly maxPerClient: number;
  /** The network that a new connection counts for; undefined for one that stands for many clients, such as a proxy's. */
  readonly toClient: (socket: Socket) => string | undefined;
  readonly onLimit?: (limit: ConnectionLimit) => void;
}

/** The content of a request under way. */
interface Upload {
  /** In bytes; 0 where there is none. */
  readonly declaredLength: number | undefined;
  readonly isComplete: boolean;
}

/** A response under way; HTTP/2 has them without a socket. */
export interface TrackedResponse {
  readonly writableEnded: boolean;
  readonly socket?: Socket | null;
  destroy(): unknown;
}

/** What emits `close` when a response is over: the response itself, or the HTTP/2 stream that it is written to. */
export interface ClosingEmitter {
  on(event: 'close', listener: () => void): unknown;
  off(event: 'close', listener: () => void): unknown;
}

/** A request under way on a connection. */
export interface TrackedRequest {
  /** The connection; undefined where it is not one of the port's, or is gone. */
  readonly connection: TrackedConnection | undefined;
  readonly upload: Upload;
  readonly response: TrackedResponse;
  /** Runs once, when the response has left or the connection is gone. */
  onEnd: (() => void) | undefined;
}

/** A connection. */
export interface TrackedConnection {
  readonly socket: Socket;
  readonly key: string;
  network: Network | undefined;
  /** Hardly ever more than one, but for HTTP/2. */
  readonly inFlight: TrackedRequest[];
  /** When its latest request began, or the last one ended: a number that grows with each. */
  changedAt: number;
}

interface Network {
  readonly client: string;
  readonly connections: Set<TrackedConnection>;
  /** How many of them have a request under way. */
  busy: number;
}

const COMPLETE: Upload = { declaredLength: 0, isComplete: true };

/** The connections of one port. */
export class ConnectionLimiter {
  readonly #options: ConnectionLimiterOptions;
  readonly #connections = new Map<string, TrackedConnection>();
  readonly #networks = new Map<string, Network>();
  /** Under TLS a request's socket is another one than the connection's. */
  readonly #bySocket = new WeakMap<Socket, TrackedConnection>();
  readonly #listenForClose = shareListeners<ClosingEmitter, TrackedRequest>({ close: (tracked) => this.#untrack(tracked) });
  #changes = 0;

  constructor(options: ConnectionLimiterOptions) {
    this.#options = options;
  }

  /** Takes a new connection; one that finds no place is destroyed. */
  add(socket: Socket): void {
    const { maxConnections, toClient } = this.#options;
    const client = toClient(socket);
    const isAccepted =
      this.#makeRoomInNetwork(client) &&
      (this.#connections.size < maxConnections || this.#replace('connections', [...this.#networks.values()]));
    if (!isAccepted) {
      socket.destroy();
      return;
    }
    const connection: TrackedConnection = {
      socket,
      key: toSocketKey(socket),
      network: undefined,
      inFlight: [],
      changedAt: this.#changes++,
    };
    this.#connections.set(connection.key, connection);
    this.#bySocket.set(socket, connection);
    this.#join(connection, client);
    onceEvent(socket, 'close', () => this.#remove(connection));
  }

  /** Tells whose connection it is, where that becomes known later (PROXY protocol); false where it is destroyed, as the client has too many. */
  assignClient(socket: Socket, client: string | undefined): boolean {
    const connection = this.#find(socket);
    if (connection === undefined || client === undefined || connection.network !== undefined) return true;
    if (!this.#makeRoomInNetwork(client)) {
      socket.destroy();
      return false;
    }
    this.#join(connection, client);
    return true;
  }

  /** Marks the connection as busy until the response has left. */
  track(socket: Socket, upload: Upload, response: TrackedResponse, emitter: ClosingEmitter): TrackedRequest {
    const connection = this.#find(socket);
    const tracked: TrackedRequest = { connection, upload, response, onEnd: undefined };
    this.#listenForClose(emitter, tracked);
    if (connection === undefined) return tracked;
    if (connection.inFlight.length === 0 && connection.network !== undefined) connection.network.busy++;
    connection.inFlight.push(tracked);
    connection.changedAt = this.#changes++;
    return tracked;
  }

  /** Every request under way. */
  *inFlight(): Generator<TrackedRequest> {
    for (const connection of this.#connections.values()) yield* connection.inFlight;
  }

  #untrack(tracked: TrackedRequest): void {
    const { connection } = tracked;
    const index = connection?.inFlight.indexOf(tracked) ?? -1;
    if (connection !== undefined && index !== -1) {
      connection.inFlight.splice(index, 1);
      connection.changedAt = this.#changes++;
      if (connection.inFlight.length === 0 && connection.network !== undefined) connection.network.busy--;
    }
    end(tracked);
  }

  #find(socket: Socket): TrackedConnection | undefined {
    const known = this.#bySocket.get(socket);
    if (known !== undefined) return known;
    const connection = this.#connections.get(toSocketKey(socket));
    if (connection !== undefined) this.#bySocket.set(socket, connection);
    return connection;
  }

  #makeRoomInNetwork(client: string | undefined): boolean {
    const network = client === undefined ? undefined : this.#networks.get(client);
    if (network === undefined || network.connections.size < this.#options.maxPerClient) return true;
    return this.#replace('client_connections', [network]);
  }

  /** Ends the connection that can be victim best; false where there is none. */
  #replace(limit: ConnectionLimit, networks: readonly Network[]): boolean {
    this.#options.onLimit?.(limit);
    const victim = findIdle(networks) ?? findUploading(networks);
    if (victim === undefined) return false;
    this.#remove(victim);
    victim.socket.destroy();
    return true;
  }

  #join(connection: TrackedConnection, client: string | undefined): void {
    if (client === undefined) return;
    const network = this.#networks.get(client) ?? { client, connections: new Set<TrackedConnection>(), busy: 0 };
    this.#networks.set(client, network);
    connection.network = network;
    network.connections.add(connection);
    if (connection.inFlight.length > 0) network.busy++;
  }

  #remove(connection: TrackedConnection): void {
    if (this.#connections.get(connection.key) === connection) this.#connections.delete(connection.key);
    const { network } = connection;
    const tracked = connection.inFlight.splice(0);
    if (network?.connections.delete(connection) === true) {
      if (tracked.length > 0) network.busy--;
      if (network.connections.size === 0) this.#networks.delete(network.client);
    }
    for (const each of tracked) end(each);
  }
}

/** Shares the connections of a server; to be called before it listens. */
export function limitConnections(server: Server | TlsServer, options: ConnectionLimiterOptions): ConnectionLimiter {
  const limiter = new ConnectionLimiter(options);
  // What is destroyed counts as open for Node until the next turn.
  server.maxConnections = 2 * options.maxConnections;
  onEvent(server, 'connection', (socket: Socket) => limiter.add(socket));
  onEvent(server, 'drop', () => options.onLimit?.('connections'));
  return limiter;
}

/** Follows each request of a server whose requests have no content that is waited for. */
export function trackRequests(server: Server | TlsServer, limiter: ConnectionLimiter): void {
  onEvent(server, 'request', (request: IncomingMessage, response: ServerResponse) => {
    limiter.track(request.socket, COMPLETE, response, response);
  });
}

function end(tracked: TrackedRequest): void {
  const { onEnd } = tracked;
  tracked.onEnd = undefined;
  onEnd?.();
}

function toSocketKey({ localAddress, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${remoteAddress} ${remotePort}`;
}

function findLargest(networks: readonly Network[], isCandidate: (network: Network) => boolean): Network | undefined {
  let found: Network | undefined;
  for (const network of networks)
    if (network.connections.size > (found?.connections.size ?? 0) && isCandidate(network)) found = network;
  return found;
}

/** Of the network that has most: the connection that has been idle for longest. */
function findIdle(networks: readonly Network[]): TrackedConnection | undefined {
  const network = findLargest(networks, ({ connections, busy }) => connections.size > busy);
  return findEarliest(network, ({ inFlight }) => inFlight.length === 0);
}

/** The same for the one whose content has been coming for longest. A request that is complete is never given up. */
function findUploading(networks: readonly Network[]): TrackedConnection | undefined {
  const network = findLargest(networks, ({ connections }) => [...connections].some(isUploading));
  return findEarliest(network, isUploading);
}

function findEarliest(
  network: Network | undefined,
  isCandidate: (connection: TrackedConnection) => boolean,
): TrackedConnection | undefined {
  let found: TrackedConnection | undefined;
  for (const connection of network?.connections ?? [])
    if (isCandidate(connection) && (found === undefined || connection.changedAt < found.changedAt)) found = connection;
  return found;
}

function isUploading({ inFlight }: TrackedConnection): boolean {
  return inFlight.length > 0 && inFlight.every(({ upload }) => upload.declaredLength !== 0 && !upload.isComplete);
}
