/** Shares a port's connections among client networks: when it is crowded, a newcomer replaces one of the network that has most. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { onceEvent, onEvent } from '../core/safe-events.ts';

/** Which limit a new connection ran into. */
export type ConnectionLimit = 'connections' | 'client_connections';

/** How a port's connections are shared. */
export interface CrowdOptions {
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
export interface FollowedResponse {
  readonly writableEnded: boolean;
  readonly socket?: Socket | null;
  on(event: 'close', listener: () => void): unknown;
  off(event: 'close', listener: () => void): unknown;
  destroy(): unknown;
}

/** A request under way on a connection. */
export interface Followed {
  readonly upload: Upload;
  readonly response: FollowedResponse;
  /** Runs once, when the response has left or the connection is gone. */
  onEnd: (() => void) | undefined;
}

interface Guest {
  readonly socket: Socket;
  readonly key: string;
  network: Network | undefined;
  readonly underWay: Set<Followed>;
}

interface Network {
  readonly client: string;
  /** The one that was busy last comes last. */
  readonly guests: Set<Guest>;
  /** Those without a request under way. */
  readonly idle: Set<Guest>;
}

const COMPLETE: Upload = { declaredLength: 0, isComplete: true };

/** The connections of one port. */
export class Crowd {
  readonly #options: CrowdOptions;
  readonly #guests = new Map<string, Guest>();
  readonly #networks = new Map<string, Network>();
  /** Under TLS a request's socket is another one than the connection's. */
  readonly #bySocket = new WeakMap<Socket, Guest>();

  constructor(options: CrowdOptions) {
    this.#options = options;
  }

  /** Takes a new connection; one that finds no place is destroyed. */
  enter(socket: Socket): void {
    const { maxConnections, toClient } = this.#options;
    const client = toClient(socket);
    const isWelcome =
      this.#makeRoomInNetwork(client) &&
      (this.#guests.size < maxConnections || this.#replace('connections', [...this.#networks.values()]));
    if (!isWelcome) {
      socket.destroy();
      return;
    }
    const guest: Guest = { socket, key: toKey(socket), network: undefined, underWay: new Set() };
    this.#guests.set(guest.key, guest);
    this.#bySocket.set(socket, guest);
    this.#join(guest, client);
    onceEvent(socket, 'close', () => this.#remove(guest));
  }

  /** Tells whose connection it is, where that becomes known later (PROXY protocol); false where it is destroyed, as the client has too many. */
  assign(socket: Socket, client: string | undefined): boolean {
    const guest = this.#find(socket);
    if (guest === undefined || client === undefined || guest.network !== undefined) return true;
    if (!this.#makeRoomInNetwork(client)) {
      socket.destroy();
      return false;
    }
    this.#join(guest, client);
    return true;
  }

  /** Marks the connection as busy until the response has left. */
  follow(socket: Socket, upload: Upload, response: FollowedResponse): Followed {
    const followed: Followed = { upload, response, onEnd: undefined };
    const guest = this.#find(socket);
    if (guest === undefined) {
      onceEvent(response, 'close', () => end(followed));
      return followed;
    }
    guest.underWay.add(followed);
    guest.network?.idle.delete(guest);
    // It comes once; to remove the listener as well would cost each request more.
    onEvent(response, 'close', () => {
      if (!guest.underWay.delete(followed)) return;
      end(followed);
      const { network } = guest;
      if (guest.underWay.size > 0 || network?.guests.delete(guest) !== true) return;
      network.guests.add(guest);
      network.idle.add(guest);
    });
    return followed;
  }

  /** Every request under way. */
  *underWay(): Generator<Followed> {
    for (const guest of this.#guests.values()) yield* guest.underWay;
  }

  #find(socket: Socket): Guest | undefined {
    const known = this.#bySocket.get(socket);
    if (known !== undefined) return known;
    const guest = this.#guests.get(toKey(socket));
    if (guest !== undefined) this.#bySocket.set(socket, guest);
    return guest;
  }

  #makeRoomInNetwork(client: string | undefined): boolean {
    const network = client === undefined ? undefined : this.#networks.get(client);
    if (network === undefined || network.guests.size < this.#options.maxPerClient) return true;
    return this.#replace('client_connections', [network]);
  }

  /** Ends the connection that can be spared best; false where there is none. */
  #replace(limit: ConnectionLimit, networks: readonly Network[]): boolean {
    this.#options.onLimit?.(limit);
    const [idle] = findLargest(networks, ({ idle }) => idle.size > 0)?.idle ?? [];
    const spared = idle ?? findUploading(networks);
    if (spared === undefined) return false;
    this.#remove(spared);
    spared.socket.destroy();
    return true;
  }

  #join(guest: Guest, client: string | undefined): void {
    if (client === undefined) return;
    const network = this.#networks.get(client) ?? { client, guests: new Set<Guest>(), idle: new Set<Guest>() };
    this.#networks.set(client, network);
    guest.network = network;
    network.guests.add(guest);
    if (guest.underWay.size === 0) network.idle.add(guest);
  }

  #remove(guest: Guest): void {
    if (this.#guests.get(guest.key) === guest) this.#guests.delete(guest.key);
    const { network } = guest;
    network?.guests.delete(guest);
    network?.idle.delete(guest);
    if (network?.guests.size === 0) this.#networks.delete(network.client);
    for (const followed of guest.underWay) end(followed);
    guest.underWay.clear();
  }
}

/** Shares the connections of a server; to be called before it listens. */
export function limitCrowd(server: Server | TlsServer, options: CrowdOptions): Crowd {
  const crowd = new Crowd(options);
  // What is destroyed counts as open for Node until the next turn.
  server.maxConnections = 2 * options.maxConnections;
  onEvent(server, 'connection', (socket: Socket) => crowd.enter(socket));
  onEvent(server, 'drop', () => options.onLimit?.('connections'));
  return crowd;
}

/** Follows each request of a server whose requests have no content that is waited for. */
export function followRequests(server: Server | TlsServer, crowd: Crowd): void {
  onEvent(server, 'request', (request: IncomingMessage, response: ServerResponse) => {
    crowd.follow(request.socket, COMPLETE, response);
  });
}

function end(followed: Followed): void {
  const { onEnd } = followed;
  followed.onEnd = undefined;
  onEnd?.();
}

function toKey({ localAddress, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${remoteAddress} ${remotePort}`;
}

function findLargest(networks: readonly Network[], isCandidate: (network: Network) => boolean): Network | undefined {
  let found: Network | undefined;
  for (const network of networks) if (network.guests.size > (found?.guests.size ?? 0) && isCandidate(network)) found = network;
  return found;
}

/** Of the network that has most: the connection whose content has been coming for longest. A request that is complete is never given up. */
function findUploading(networks: readonly Network[]): Guest | undefined {
  const network = findLargest(networks, ({ guests }) => [...guests].some(isUploading));
  return [...(network?.guests ?? [])].find(isUploading);
}

function isUploading({ underWay }: Guest): boolean {
  return underWay.size > 0 && [...underWay].every(({ upload }) => upload.declaredLength !== 0 && !upload.isComplete);
}
