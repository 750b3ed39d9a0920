/** Shares the webhook port between client networks, so that one pod cannot block the API server with many or slow connections. */
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Clock } from '../../core/clock.ts';
import { toClientNetwork } from '../../core/ip-address.ts';
import { onceEvent } from '../../core/safe-events.ts';
import { TokenBucket } from '../../core/throttle.ts';
import type { TrackedRequest, TrackedResponse, Upload } from '../../http/server/connection-limiter.ts';
import { interceptConnections } from '../../http/server/strict-server.ts';
import type { AdmissionConnectionLimit } from './injector-metrics.ts';

/** Limits of one client network without a verified certificate. */
export interface PeerLimits {
  /** Maximum share of the server's connections. */
  readonly maxConnections: number;
  readonly connectionsPerSecond: number;
  readonly requestsPerSecond: number;
  /** Maximum number of requests whose body has not been received completely. */
  readonly maxUploads: number;
  /** Bytes of request bodies, by their Content-Length, and of their responses, until a response is sent. */
  readonly maxBytes: number;
}

interface PeerConnection {
  readonly socket: Socket;
  readonly network: PeerNetwork;
  /**
   * The body was received and the response is not written yet. In any other state the connection may be closed: during a handshake, while
   * a head or a body is received, while a response is not read, or when idle.
   */
  isReviewing: boolean;
  isVerified: boolean;
}

interface PeerNetwork {
  /** Least recently used first. */
  readonly connections: Set<PeerConnection>;
  readonly connects: TokenBucket;
  readonly requests: TokenBucket;
  /** Number of connections with a verified certificate. */
  verified: number;
  uploads: number;
  bytes: number;
}

/** Budgets are kept after the last connection was closed; with more networks than this, the oldest unused budgets are dropped. */
const MAX_NETWORKS = 4_096;
/** Size of a burst, in seconds of the rate. */
const BURST_S = 2;

/** A request in progress, within the budgets of its network. */
export interface AdmittedRequest {
  /** Call when the body was received. */
  startReview(): void;
  /** Call before the response is written. False if the network has no budget for so many bytes: it does not read its responses. */
  startResponse(bytes: number): boolean;
  /** Call once when the response is sent or its connection closed, for any outcome. */
  end(): void;
}

/** The connections of one server. */
export class AdmissionPeers {
  readonly #parts;
  readonly #networks = new Map<string, PeerNetwork>();
  readonly #connections = new Map<string, PeerConnection>();

  /** Must be created before `server` listens. */
  constructor(
    server: TlsServer,
    parts: {
      readonly limits: PeerLimits;
      /** Maximum number of connections of the server. */
      readonly maxConnections: number;
      readonly clock: Clock;
      readonly onClosed: (limit: AdmissionConnectionLimit) => void;
    },
  ) {
    this.#parts = parts;
    // A destroyed connection counts as open for Node until the next turn of the loop.
    server.maxConnections = 2 * parts.maxConnections;
    interceptConnections<Socket>(server, 'connection', (socket, proceed) => {
      if (this.#track(socket)) proceed();
    });
  }

  /** The network that a peer counts for. */
  toClient(address: string): string {
    return toClientNetwork(address);
  }

  /** Counts a request that waits for the response before it. Returns how to end that; undefined if its network has too many. */
  enter(address: string): (() => void) | undefined {
    const network = this.#networks.get(toClientNetwork(address));
    if (network === undefined || network.uploads >= this.#parts.limits.maxUploads) return undefined;
    network.uploads++;
    return () => network.uploads--;
  }

  /** Connections are counted by `admit`. */
  track(_socket: Socket, upload: Upload, response: TrackedResponse): TrackedRequest {
    return { connection: undefined, upload, response, client: undefined, onEnd: undefined, body: undefined };
  }

  /**
   * Undefined if the network of this request has exhausted its budget. Verified callers have no budget: clients that share the API
   * server's address must not slow it down.
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

  #toRequest(connection: PeerConnection, bytes: number): AdmittedRequest {
    const { network } = connection;
    const { maxBytes } = this.#parts.limits;
    let held = bytes;
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
      startResponse(more) {
        endUpload();
        connection.isReviewing = false;
        touch(connection);
        if (connection.isVerified) return true;
        if (network.bytes + more > maxBytes) return false;
        held += more;
        network.bytes += more;
        return true;
      },
      end() {
        endUpload();
        network.bytes -= held;
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
    const connection: PeerConnection = { socket, network, isReviewing: false, isVerified: false };
    network.connections.add(connection);
    this.#connections.set(key, connection);
    onceEvent(socket, 'close', () => this.#forget(key, connection));
    return true;
  }

  /** Undefined if the network may open one more connection; closes another one first if necessary. */
  #makeRoom(network: PeerNetwork): AdmissionConnectionLimit | undefined {
    const { limits, maxConnections } = this.#parts;
    if (!network.connects.take()) return 'rate';
    if (network.connections.size >= limits.maxConnections) return this.#closeOne(network, 'client') ? undefined : 'client';
    if (this.#connections.size < maxConnections) return undefined;
    // Closes a connection of the network with the most: so no network can displace one with fewer.
    return this.#closeOne(this.#findLargest(network), 'total') ? undefined : 'total';
  }

  /** Closes the connection that was used least recently, a verified one only if there is no other. */
  #closeOne(network: PeerNetwork, limit: AdmissionConnectionLimit): boolean {
    let found: PeerConnection | undefined;
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

  /** Compares connections without a verified certificate first. */
  #findLargest(newcomer: PeerNetwork): PeerNetwork {
    const toSize = ({ connections, verified }: PeerNetwork): number =>
      (connections.size - verified) * MAX_NETWORKS + connections.size;
    let largest = newcomer;
    for (const network of this.#networks.values()) if (toSize(network) > toSize(largest)) largest = network;
    return largest;
  }

  #verify(connection: PeerConnection, isVerified: boolean): void {
    if (connection.isVerified === isVerified) return;
    connection.isVerified = isVerified;
    connection.network.verified += isVerified ? 1 : -1;
  }

  #findNetwork(name: string): PeerNetwork {
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

  #forget(key: string, connection: PeerConnection): void {
    if (connection.network.connections.delete(connection) && connection.isVerified) connection.network.verified--;
    if (this.#connections.get(key) === connection) this.#connections.delete(key);
  }
}

const UNTRACKED: AdmittedRequest = { startReview: () => undefined, startResponse: () => true, end: () => undefined };

function touch(connection: PeerConnection): void {
  const { connections } = connection.network;
  if (connections.delete(connection)) connections.add(connection);
}

/** With TLS the request has another socket object, with the same addresses. */
function toKey({ localAddress, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${remoteAddress} ${remotePort}`;
}
