/** Shares the webhook port between client networks, so that one pod cannot keep the API server out: not by many connections, nor by slow ones. */
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { toClientNetwork } from '../../core/client-network.ts';
import type { Clock } from '../../core/clock.ts';
import { onceEvent } from '../../core/safe-events.ts';
import { TokenBucket } from '../../core/token-bucket.ts';
import { divert } from '../../gateway/server/strict-server.ts';
import type { ConnectionLimit } from './injector-metrics.ts';

/** What one client network may use at once, unless its certificate was verified. */
export interface PeerLimits {
  /** Of the server's connections. */
  readonly maxConnections: number;
  readonly connectionsPerSecond: number;
  readonly requestsPerSecond: number;
  /** Requests whose body has not arrived in full. */
  readonly maxUploads: number;
  /** Bytes of request bodies, by their Content-Length, from the head of a request to its response. */
  readonly maxBytes: number;
}

/** Everything that it needs. */
export interface PeerParts {
  readonly limits: PeerLimits;
  /** Of the whole server. */
  readonly maxConnections: number;
  readonly clock: Clock;
  readonly onClosed: (limit: ConnectionLimit) => void;
}

interface Connection {
  readonly socket: Socket;
  readonly network: Network;
  /**
   * The body has arrived and the response is not written yet. Anything else can be cut off: a handshake, a head or a body on its way,
   * a response that is not read, an idle connection.
   */
  isReviewing: boolean;
  isVerified: boolean;
}

interface Network {
  /** In the order of their last use. */
  readonly connections: Set<Connection>;
  readonly connects: TokenBucket;
  readonly requests: TokenBucket;
  /** How many of the connections showed a certificate. */
  verified: number;
  uploads: number;
  bytes: number;
}

/** Budgets are kept for a while after the last connection; with more networks than this, the oldest start anew. */
const MAX_NETWORKS = 4_096;
/** Seconds of its rate that a network may use at once. */
const BURST_S = 2;

/** A request on its way, within the budgets of its network. */
export interface AdmittedRequest {
  /** The body has arrived. */
  startReview(): void;
  /** The response is written. To be called once, whatever became of the request. */
  end(): void;
}

/** The connections of one server. */
export class AdmissionPeers {
  readonly #parts: PeerParts;
  readonly #networks = new Map<string, Network>();
  readonly #connections = new Map<string, Connection>();

  /** To be built before `server` listens. */
  constructor(server: TlsServer, parts: PeerParts) {
    this.#parts = parts;
    // A destroyed connection counts as open for Node until the next turn of the loop.
    server.maxConnections = 2 * parts.maxConnections;
    divert<Socket>(server, 'connection', (socket, proceed) => {
      if (this.#track(socket)) proceed();
    });
  }

  /**
   * Undefined if the network of this request has used up its budget. A verified caller has none: the API server must not be slowed down
   * by what others do from its address.
   */
  admit(socket: Socket, bytes: number, isVerified: boolean): AdmittedRequest | undefined {
    const connection = this.#connections.get(toKey(socket));
    if (connection === undefined) return UNTRACKED;
    const { network } = connection;
    const { maxUploads, maxBytes } = this.#parts.limits;
    this.#verify(connection, isVerified);
    touch(connection);
    if (isVerified) return this.#toRequest(connection, 0);
    if (network.uploads >= maxUploads || network.bytes + bytes > maxBytes || !network.requests.take()) return undefined;
    return this.#toRequest(connection, bytes);
  }

  #toRequest(connection: Connection, bytes: number): AdmittedRequest {
    const { network } = connection;
    let isUploading = true;
    network.uploads++;
    network.bytes += bytes;
    const endUpload = (): void => {
      if (isUploading) network.uploads--;
      isUploading = false;
    };
    return {
      startReview() {
        endUpload();
        connection.isReviewing = true;
      },
      end() {
        endUpload();
        network.bytes -= bytes;
        connection.isReviewing = false;
        touch(connection);
      },
    };
  }

  /** False if the connection was closed instead. */
  #track(socket: Socket): boolean {
    const network = this.#findNetwork(toClientNetwork(socket.remoteAddress ?? ''));
    const limit = this.#makeRoom(network);
    if (limit !== undefined) {
      this.#parts.onClosed(limit);
      socket.destroy();
      return false;
    }
    const key = toKey(socket);
    const connection: Connection = { socket, network, isReviewing: false, isVerified: false };
    network.connections.add(connection);
    this.#connections.set(key, connection);
    onceEvent(socket, 'close', () => this.#forget(key, connection));
    return true;
  }

  /** Undefined if the network may open one more connection, after another was closed for it where that is needed. */
  #makeRoom(network: Network): ConnectionLimit | undefined {
    const { limits, maxConnections } = this.#parts;
    if (!network.connects.take()) return 'rate';
    if (network.connections.size >= limits.maxConnections) return this.#closeOne(network, 'client') ? undefined : 'client';
    if (this.#connections.size < maxConnections) return undefined;
    // The network that holds the most gives one up: then none can displace one that holds fewer.
    return this.#closeOne(this.#findLargest(network), 'total') ? undefined : 'total';
  }

  /** Closes the connection that was used least recently, a verified one only if there is no other. */
  #closeOne(network: Network, limit: ConnectionLimit): boolean {
    let found: Connection | undefined;
    for (const connection of network.connections) {
      if (connection.isReviewing || (found !== undefined && connection.isVerified)) continue;
      found = connection;
      if (!connection.isVerified) break;
    }
    if (found === undefined) return false;
    this.#parts.onClosed(limit);
    this.#forget(toKey(found.socket), found);
    found.socket.destroy();
    return true;
  }

  /** By connections without a certificate, as long as any network has one. */
  #findLargest(newcomer: Network): Network {
    const toSize = ({ connections, verified }: Network): number =>
      (connections.size - verified) * MAX_NETWORKS + connections.size;
    let largest = newcomer;
    for (const network of this.#networks.values()) if (toSize(network) > toSize(largest)) largest = network;
    return largest;
  }

  #verify(connection: Connection, isVerified: boolean): void {
    if (connection.isVerified === isVerified) return;
    connection.isVerified = isVerified;
    connection.network.verified += isVerified ? 1 : -1;
  }

  #findNetwork(name: string): Network {
    const { limits, clock } = this.#parts;
    const { connectionsPerSecond, requestsPerSecond } = limits;
    const known = this.#networks.get(name);
    const network = known ?? {
      connections: new Set(),
      connects: new TokenBucket(connectionsPerSecond, connectionsPerSecond * BURST_S, clock),
      requests: new TokenBucket(requestsPerSecond, requestsPerSecond * BURST_S, clock),
      verified: 0,
      uploads: 0,
      bytes: 0,
    };
    this.#networks.delete(name);
    this.#networks.set(name, network);
    if (this.#networks.size > MAX_NETWORKS) this.#dropOldest();
    return network;
  }

  #dropOldest(): void {
    for (const [name, { connections }] of this.#networks)
      if (connections.size === 0) {
        this.#networks.delete(name);
        return;
      }
  }

  #forget(key: string, connection: Connection): void {
    if (connection.network.connections.delete(connection) && connection.isVerified) connection.network.verified--;
    if (this.#connections.get(key) === connection) this.#connections.delete(key);
  }
}

const UNTRACKED: AdmittedRequest = { startReview: () => undefined, end: () => undefined };

function touch(connection: Connection): void {
  const { connections } = connection.network;
  if (connections.delete(connection)) connections.add(connection);
}

/** Under TLS the request has another socket, of the same addresses. */
function toKey({ localAddress, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${remoteAddress} ${remotePort}`;
}
