/**
 * Divides the connections of a port between client networks: if all are in use, a new connection replaces one of the network that
 * has most.
 */
import type { Server } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { onceEvent, onEvent } from '../../core/safe-events.ts';

/** The limit that a new connection reached. */
export type ConnectionLimit = 'connections' | 'client_connections' | 'memory';

/**
 * So many fit into the smallest container, which is the default of `maxConnections`. If memory is tight for another reason, fewer would
 * not help, and senders could lose connections that are new.
 */
export const KEPT_WHILE_TIGHT = 1_024;
/** Closed for each new connection, while memory is tight or exhausted: enough to have memory again soon, and few enough to find them quickly. */
const CLOSED_AT_ONCE = 16;

/** The limits for the connections of a port. */
export interface ConnectionLimiterOptions {
  readonly maxConnections: number;
  /** The maximum for one client network. */
  readonly maxPerClient: number;
  /**
   * Returns the network that a connection counts for; undefined for an address that represents many clients, such as a proxy. Such
   * connections have no maximum for one network, and are replaced only if no other is idle.
   */
  readonly toClient: (socket: Socket) => string | undefined;
  readonly onLimit: (limit: ConnectionLimit) => void;
  /** Whether memory is short: then a new connection replaces others that have no request, or whose request waits for the client. */
  readonly isTight: () => boolean;
  /** So many connections are not replaced for that reason. */
  readonly keptWhileTight: number;
  /** Called for the first request of each connection. */
  readonly onFirstRequest: () => void;
  /** Called for each connection that is closed because of a limit: its memory is free only after a collection. */
  readonly onClosed: () => void;
}

/** The body of a request in flight. */
export interface Upload {
  /** In bytes; 0 without a body. */
  readonly declaredLength: number | undefined;
  readonly isComplete: boolean;
}

/** A response in flight; in HTTP/2 it has no socket. */
export interface TrackedResponse {
  readonly writableEnded: boolean;
  readonly socket?: Socket | null;
  destroy(): unknown;
}

/** Emits `close` when a response is over: the response itself, or the HTTP/2 stream that it is written to. */
export interface ClosingEmitter {
  on(event: 'close', listener: () => void): unknown;
  off(event: 'close', listener: () => void): unknown;
}

/** A request in flight on a connection. */
export interface TrackedRequest {
  /** The connection; undefined if it does not belong to the port, or is closed. */
  readonly connection: TrackedConnection | undefined;
  readonly upload: Upload;
  readonly response: TrackedResponse;
  /** The network that it counts for; undefined until it is admitted. */
  client: string | undefined;
  /** Runs once, when the response was sent or the connection is closed, and `body` was freed. */
  onEnd: (() => void) | undefined;
  /** Set once the request counts until its exchange is over. */
  body: { afterFree(callback: () => void): void } | undefined;
}

/** A connection of the port. */
interface TrackedConnection {
  readonly socket: Socket;
  readonly key: string;
  network: Network;
  /** Rarely more than one, except in HTTP/2. */
  readonly inFlight: TrackedRequest[];
  /** Its first request has arrived. */
  hasRequested: boolean;
  /** When its latest request started, or the last one ended: a counter. */
  changedAt: number;
}

interface Network {
  /** Undefined for the connections of peers that represent many clients. */
  readonly client: string | undefined;
  readonly connections: Set<TrackedConnection>;
  /** The number of connections with a request in flight. */
  busy: number;
}

/** The connections of one port. */
export class ConnectionLimiter {
  readonly #options: ConnectionLimiterOptions;
  readonly #connections = new Map<string, TrackedConnection>();
  readonly #networks = new Map<string, Network>();
  /** The connections of peers that represent many clients. */
  readonly #shared: Network = { client: undefined, connections: new Set(), busy: 0 };
  /** In TLS, the socket of a request is not the socket of the connection. */
  readonly #bySocket = new WeakMap<Socket, TrackedConnection>();
  #changes = 0;

  constructor(options: ConnectionLimiterOptions) {
    this.#options = options;
  }

  /** Adds a new connection, or destroys it if there is no room. */
  add(socket: Socket): void {
    const { maxConnections, toClient } = this.#options;
    const client = toClient(socket);
    const isAccepted =
      this.#makeRoomInNetwork(client) &&
      (this.#connections.size < maxConnections || this.#close(this.#findReplaceable(), 'connections'));
    if (isAccepted) this.freeMemory();
    if (!isAccepted) {
      socket.destroy();
      return;
    }
    const connection: TrackedConnection = {
      socket,
      key: toSocketKey(socket),
      network: this.#shared,
      inFlight: [],
      hasRequested: false,
      changedAt: this.#changes++,
    };
    this.#connections.set(connection.key, connection);
    this.#bySocket.set(socket, connection);
    this.#join(connection, client);
    onceEvent(socket, 'close', () => this.#remove(connection));
  }

  /**
   * Assigns a client that becomes known later (PROXY protocol). Destroys the connection and returns false if the client has too
   * many.
   */
  assignClient(socket: Socket, client: string | undefined): boolean {
    const connection = this.#find(socket);
    if (connection === undefined || client === undefined || connection.network !== this.#shared) return true;
    if (!this.#makeRoomInNetwork(client)) {
      socket.destroy();
      return false;
    }
    this.#join(connection, client);
    return true;
  }

  /** Marks the connection as busy until the response was sent. */
  track(socket: Socket, upload: Upload, response: TrackedResponse, emitter: ClosingEmitter): TrackedRequest {
    const connection = this.#find(socket);
    const tracked: TrackedRequest = { connection, upload, response, client: undefined, onEnd: undefined, body: undefined };
    onEvent(emitter, 'close', () => this.#untrack(tracked));
    if (connection === undefined) return tracked;
    if (connection.inFlight.length === 0) connection.network.busy++;
    connection.inFlight.push(tracked);
    connection.changedAt = this.#changes++;
    if (!connection.hasRequested) this.#begin(connection);
    return tracked;
  }

  /** The number of open connections. */
  get size(): number {
    return this.#connections.size;
  }

  /** All requests in flight. */
  *inFlight(): Generator<TrackedRequest> {
    for (const connection of this.#connections.values()) yield* connection.inFlight;
  }

  /**
   * Closes connections without a request, but keeps `kept` connections. At most one that waits for its client is closed instead, if that client has
   * more connections than those whose connections have not had a request yet.
   */
  shed(kept: number): void {
    for (let i = 0; i < CLOSED_AT_ONCE && this.#connections.size > kept; i++) {
      if (this.#findOfLargest(findIdle) === undefined && findIdle(this.#shared) === undefined) return;
      const victim = this.#findReplaceable();
      const isUnfinished = victim?.inFlight.length !== 0;
      this.#close(victim, 'memory');
      if (isUnfinished) return;
    }
  }

  #untrack(tracked: TrackedRequest): void {
    const { connection } = tracked;
    const index = connection?.inFlight.indexOf(tracked) ?? -1;
    if (connection !== undefined && index !== -1) {
      connection.inFlight.splice(index, 1);
      connection.changedAt = this.#changes++;
      if (connection.inFlight.length === 0) connection.network.busy--;
    }
    end(tracked);
  }

  /** All connections may have sent their first request at once. Those whose request was not read yet are idle. */
  #begin(connection: TrackedConnection): void {
    const { isTight, keptWhileTight, onFirstRequest } = this.#options;
    connection.hasRequested = true;
    onFirstRequest();
    if (isTight()) this.shed(keptWhileTight);
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
    return this.#close(findAny(network), 'client_connections');
  }

  /** Each connection takes kilobytes: hundreds of them would fill a small container, with or without requests. */
  freeMemory(): void {
    const { isTight, keptWhileTight } = this.#options;
    for (let i = 0; i < CLOSED_AT_ONCE && this.#connections.size >= keptWhileTight && isTight(); i++)
      if (!this.#close(this.#findReplaceable(), 'memory')) return;
  }

  /**
   * Finds the connection to close for another one. It belongs to the client that has most, or to one that has half as many: the idle connections and
   * unfinished uploads of one client must not cost others theirs. Among those clients, a connection between two requests goes first, as its client can
   * open the next. Peers that represent many clients lose such ones, and the uploads of a client that has most through them, before a client that has
   * fewer connections loses one.
   */
  #findReplaceable(): TrackedConnection | undefined {
    const largest = this.#findOfLargest(findAny)?.network.connections.size ?? 0;
    const own = this.#findOfLargest(findKept, largest / 2) ?? this.#findOfLargest(findAny, largest / 2);
    if (own !== undefined && (isKept(own) || largest >= this.#shared.connections.size)) return own;
    return findKept(this.#shared) ?? findProxied(this.#shared, largest) ?? own ?? findIdle(this.#shared);
  }

  /** Finds one in the network that has most, of those that have `least`; among equal ones, the one that has waited longest. */
  #findOfLargest(find: (network: Network) => TrackedConnection | undefined, least = 0): TrackedConnection | undefined {
    let found: TrackedConnection | undefined;
    for (const network of this.#networks.values()) {
      const more = network.connections.size - (found?.network.connections.size ?? 0);
      const candidate = more < 0 || network.connections.size < least ? undefined : find(network);
      if (candidate !== undefined && (found === undefined || more > 0 || candidate.changedAt < found.changedAt))
        found = candidate;
    }
    return found;
  }

  /** Closes a connection because of a limit; returns false if there is none to close. */
  #close(victim: TrackedConnection | undefined, limit: ConnectionLimit): boolean {
    this.#options.onLimit(limit);
    if (victim === undefined) return false;
    this.#remove(victim);
    victim.socket.destroy();
    this.#options.onClosed();
    return true;
  }

  #join(connection: TrackedConnection, client: string | undefined): void {
    this.#leave(connection);
    const network = this.#toNetwork(client);
    connection.network = network;
    network.connections.add(connection);
    if (connection.inFlight.length > 0) network.busy++;
  }

  #leave(connection: TrackedConnection): void {
    const { network, inFlight } = connection;
    if (!network.connections.delete(connection)) return;
    if (inFlight.length > 0) network.busy--;
    if (network.connections.size === 0 && network.client !== undefined) this.#networks.delete(network.client);
  }

  #toNetwork(client: string | undefined): Network {
    if (client === undefined) return this.#shared;
    const network = this.#networks.get(client) ?? { client, connections: new Set<TrackedConnection>(), busy: 0 };
    this.#networks.set(client, network);
    return network;
  }

  #remove(connection: TrackedConnection): void {
    if (this.#connections.get(connection.key) === connection) this.#connections.delete(connection.key);
    this.#leave(connection);
    for (const each of connection.inFlight.splice(0)) end(each);
  }
}

/** Limits the connections of a server. Call it before the server listens. */
export function limitConnections(server: Server | TlsServer, options: ConnectionLimiterOptions): ConnectionLimiter {
  const limiter = new ConnectionLimiter(options);
  // Node counts a destroyed connection as open until the next turn of the event loop.
  server.maxConnections = 2 * options.maxConnections;
  onEvent(server, 'connection', (socket: Socket) => limiter.add(socket));
  onEvent(server, 'drop', () => options.onLimit('connections'));
  return limiter;
}

function end(tracked: TrackedRequest): void {
  const { onEnd, body } = tracked;
  tracked.onEnd = undefined;
  if (onEnd === undefined) return;
  if (body === undefined) onEnd();
  else body.afterFree(onEnd);
}

function toSocketKey({ localAddress, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${remoteAddress} ${remotePort}`;
}

/** Finds the connection that has been idle longest. */
function findIdle(network: Network): TrackedConnection | undefined {
  return network.connections.size > network.busy ? findEarliest(network, isIdle) : undefined;
}

/** Finds the connection that has been idle longest since its last request. */
function findKept(network: Network): TrackedConnection | undefined {
  return network.connections.size > network.busy ? findEarliest(network, isKept) : undefined;
}

function findAny(network: Network): TrackedConnection | undefined {
  return findIdle(network) ?? findWaiting(network);
}

/** Finds the connection of a proxy that has waited longest for the client which most of them wait for, if these are more than `others`, and than one. */
function findProxied({ connections }: Network, others: number): TrackedConnection | undefined {
  const waiting = [...connections].filter((each) => isWaiting(each) && toClient(each) !== undefined);
  const [most] = [...Map.groupBy(waiting, toClient).values()].sort((a, b) => b.length - a.length);
  if (most === undefined || most.length <= Math.max(1, others)) return undefined;
  return most.reduce((earliest, each) => (each.changedAt < earliest.changedAt ? each : earliest));
}

/** The client of all requests on a connection of a proxy; undefined if they are of several. */
function toClient({ inFlight: [first, ...others] }: TrackedConnection): string | undefined {
  return others.every(({ client }) => client === first?.client) ? first?.client : undefined;
}

/** Finds the connection that has waited longest for its client. A complete request is never evicted before its response. */
function findWaiting(network: Network): TrackedConnection | undefined {
  return findEarliest(network, isWaiting);
}

function findEarliest(network: Network, isCandidate: (connection: TrackedConnection) => boolean): TrackedConnection | undefined {
  let found: TrackedConnection | undefined;
  for (const connection of network.connections)
    if (isCandidate(connection) && (found === undefined || connection.changedAt < found.changedAt)) found = connection;
  return found;
}

function isKept(connection: TrackedConnection): boolean {
  return connection.hasRequested && isIdle(connection);
}

function isIdle({ inFlight }: TrackedConnection): boolean {
  return inFlight.length === 0;
}

/** Whether all its requests wait for the client: to send the rest of the body, or to take the end of the response. */
function isWaiting({ inFlight }: TrackedConnection): boolean {
  return inFlight.length > 0 && inFlight.every(({ upload, response }) => isUnread(response) || isIncomplete(upload));
}

function isIncomplete({ declaredLength, isComplete }: Upload): boolean {
  return declaredLength !== 0 && !isComplete;
}

/** A pipelined response behind another one has no socket: it waits for the app, not for the client. */
export function isUnread({ writableEnded, socket }: TrackedResponse): boolean {
  return writableEnded && socket !== null;
}
