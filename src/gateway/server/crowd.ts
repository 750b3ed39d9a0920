/** Shares a port's connections among client networks: when it is crowded, a newcomer replaces one of the network that has most. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { onceEvent, onEvent, shareListeners } from '../../core/safe-events.ts';

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
  destroy(): unknown;
}

/** What emits `close` when a response is over: the response itself, or the HTTP/2 stream that it is written to. */
export interface ClosingEmitter {
  on(event: 'close', listener: () => void): unknown;
  off(event: 'close', listener: () => void): unknown;
}

/** A request under way on a connection. */
export interface Followed {
  /** The connection; undefined where it is not one of the port's, or is gone. */
  readonly guest: Guest | undefined;
  readonly upload: Upload;
  readonly response: FollowedResponse;
  /** Runs once, when the response has left or the connection is gone. */
  onEnd: (() => void) | undefined;
}

/** A connection. */
export interface Guest {
  readonly socket: Socket;
  readonly key: string;
  network: Network | undefined;
  /** Hardly ever more than one, but for HTTP/2. */
  readonly underWay: Followed[];
  /** When its latest request began, or the last one ended: a number that grows with each. */
  changedAt: number;
}

interface Network {
  readonly client: string;
  readonly guests: Set<Guest>;
  /** How many of them have a request under way. */
  busy: number;
}

const COMPLETE: Upload = { declaredLength: 0, isComplete: true };

/** The connections of one port. */
export class Crowd {
  readonly #options: CrowdOptions;
  readonly #guests = new Map<string, Guest>();
  readonly #networks = new Map<string, Network>();
  /** Under TLS a request's socket is another one than the connection's. */
  readonly #bySocket = new WeakMap<Socket, Guest>();
  readonly #listenForClose = shareListeners<ClosingEmitter, Followed>({ close: (followed) => this.#unfollow(followed) });
  #changes = 0;

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
    const guest: Guest = { socket, key: toKey(socket), network: undefined, underWay: [], changedAt: this.#changes++ };
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
  follow(socket: Socket, upload: Upload, response: FollowedResponse, emitter: ClosingEmitter): Followed {
    const guest = this.#find(socket);
    const followed: Followed = { guest, upload, response, onEnd: undefined };
    this.#listenForClose(emitter, followed);
    if (guest === undefined) return followed;
    if (guest.underWay.length === 0 && guest.network !== undefined) guest.network.busy++;
    guest.underWay.push(followed);
    guest.changedAt = this.#changes++;
    return followed;
  }

  /** Every request under way. */
  *underWay(): Generator<Followed> {
    for (const guest of this.#guests.values()) yield* guest.underWay;
  }

  #unfollow(followed: Followed): void {
    const { guest } = followed;
    const index = guest?.underWay.indexOf(followed) ?? -1;
    if (guest !== undefined && index !== -1) {
      guest.underWay.splice(index, 1);
      guest.changedAt = this.#changes++;
      if (guest.underWay.length === 0 && guest.network !== undefined) guest.network.busy--;
    }
    end(followed);
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
    const spared = findIdle(networks) ?? findUploading(networks);
    if (spared === undefined) return false;
    this.#remove(spared);
    spared.socket.destroy();
    return true;
  }

  #join(guest: Guest, client: string | undefined): void {
    if (client === undefined) return;
    const network = this.#networks.get(client) ?? { client, guests: new Set<Guest>(), busy: 0 };
    this.#networks.set(client, network);
    guest.network = network;
    network.guests.add(guest);
    if (guest.underWay.length > 0) network.busy++;
  }

  #remove(guest: Guest): void {
    if (this.#guests.get(guest.key) === guest) this.#guests.delete(guest.key);
    const { network } = guest;
    const followed = guest.underWay.splice(0);
    if (network?.guests.delete(guest) === true) {
      if (followed.length > 0) network.busy--;
      if (network.guests.size === 0) this.#networks.delete(network.client);
    }
    for (const each of followed) end(each);
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
    crowd.follow(request.socket, COMPLETE, response, response);
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

/** Of the network that has most: the connection that has been idle for longest. */
function findIdle(networks: readonly Network[]): Guest | undefined {
  const network = findLargest(networks, ({ guests, busy }) => guests.size > busy);
  return findEarliest(network, ({ underWay }) => underWay.length === 0);
}

/** The same for the one whose content has been coming for longest. A request that is complete is never given up. */
function findUploading(networks: readonly Network[]): Guest | undefined {
  const network = findLargest(networks, ({ guests }) => [...guests].some(isUploading));
  return findEarliest(network, isUploading);
}

function findEarliest(network: Network | undefined, isCandidate: (guest: Guest) => boolean): Guest | undefined {
  let found: Guest | undefined;
  for (const guest of network?.guests ?? [])
    if (isCandidate(guest) && (found === undefined || guest.changedAt < found.changedAt)) found = guest;
  return found;
}

function isUploading({ underWay }: Guest): boolean {
  return underWay.length > 0 && underWay.every(({ upload }) => upload.declaredLength !== 0 && !upload.isComplete);
}
