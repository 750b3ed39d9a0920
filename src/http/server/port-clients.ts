/** Admission to a port: limits connections, requests and upgraded connections per client, and ends responses that nobody reads. */
import type { Server } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { getHeapStatistics } from 'node:v8';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { KEPT_CLIENTS } from '../../core/collections.ts';
import { IpRanges, rememberClientNetworks, toPlainAddress } from '../../core/ip-address.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import { onEvent, runNextTurn } from '../../core/safe-events.ts';
import type { BodySource } from './body-source.ts';
import {
  type ClosingEmitter,
  type ConnectionLimiter,
  isUnread,
  KEPT_WHILE_TIGHT,
  limitConnections,
  type TrackedRequest,
  type TrackedResponse,
} from './connection-limiter.ts';
import {
  CONNECTION_BYTES,
  FIRST_REQUEST_BYTES,
  type ListenLimit,
  type OnLimit,
  type PortLimits,
  TLS_CONNECTION_BYTES,
  toMaxUpgraded,
} from './limits.ts';
import { toFreeBytes } from './memory.ts';
import type { MemoryPressure } from './memory-guard.ts';
import type { IncomingBody } from './request-body.ts';
import { interceptConnections } from './strict-server.ts';
import type { TlsContexts } from './tls.ts';

/** The limits of a port for each client, and for all. */
export type ClientLimits = Pick<
  PortLimits,
  | 'maxHeaderBytes'
  | 'maxConnections'
  | 'maxConnectionsPerClient'
  | 'maxRequestsPerClient'
  | 'maxUpgraded'
  | 'maxUpgradedPerClient'
  | 'sendTimeout'
>;

const SWEEP_INTERVAL_MS = 1_000;
/** The share of the memory that the TLS connections of each port may keep while memory is tight. */
const TLS_SHARE = 1 / 4;
const MIN_TLS_CONNECTIONS = 64;
/** A connection holds so many bytes with the largest chain of certificates that a client may present (tls-handshakes.ts). */
const CERTIFIED_CONNECTION_BYTES = 448 * 1024;
/**
 * So few TLS connections do not fill the memory, and closing them would free none: the allocator keeps what a flood of handshakes has used, and
 * uses it again. Without this exception, the port could reject everything permanently.
 */
const FEW_CONNECTIONS = 4;

/** The limits. */
interface ClientShareLimits {
  readonly maxRequestsPerClient: number;
  readonly maxUpgraded: number;
  readonly maxUpgradedPerClient: number;
}

interface Counts {
  requests: number;
  upgraded: number;
}

/** The share of the heap that the heads of all connections may fill together: Node builds all that arrive in a turn, and shows a head only once it is complete. */
const HEADS_SHARE = 1 / 4;
/** A head takes so many times its size, with a string for each name and value. */
const HEAD_COST = 2;
/** So many connections a port may have in any container. */
const MIN_CONNECTIONS = 64;

/**
 * The limits of a port, if a head may arrive on each connection of all ports at once. If there can be fewer connections, one client has at most half of them, also
 * with requests through a proxy, and upgraded ones are at most half. `heapLimit`: of this worker, in bytes.
 */
export function toFittingLimits(
  given: ClientLimits,
  { ports }: Pick<MemoryPressure, 'ports'>,
  heapLimit: number,
): ClientLimits & ClientShareLimits {
  const ofOne = given.maxUpgradedPerClient ?? Math.ceil(given.maxConnections / 4);
  const limits = { ...given, maxUpgraded: toMaxUpgraded(given), maxUpgradedPerClient: ofOne };
  const fitting = Math.floor((heapLimit * HEADS_SHARE) / (HEAD_COST * limits.maxHeaderBytes * ports));
  const maxConnections = Math.max(MIN_CONNECTIONS, fitting);
  if (maxConnections >= limits.maxConnections) return limits;
  // On the port for events, a client is an app, which may have all; on a proxy on loopback, it is the pod.
  const toPart = (limit: number): number => (limit < limits.maxConnections ? maxConnections / 2 : maxConnections);
  const ofClient = toPart(limits.maxConnectionsPerClient);
  return {
    ...limits,
    maxConnections,
    maxConnectionsPerClient: Math.min(limits.maxConnectionsPerClient, ofClient),
    maxRequestsPerClient: Math.min(limits.maxRequestsPerClient, ofClient),
    maxUpgraded: Math.min(limits.maxUpgraded, toPart(limits.maxUpgraded)),
    maxUpgradedPerClient: Math.min(limits.maxUpgradedPerClient, maxConnections / 4),
  };
}

/** The connections that each worker keeps on a port while memory is tight. All ports of all workers together keep as many as one would. */
export function toKeptConnections(
  isTls: boolean,
  { limit, workers, ports }: Pick<MemoryPressure, 'limit' | 'workers' | 'ports'>,
  hasCertificates = false,
): number {
  let kept = KEPT_WHILE_TIGHT;
  if (isTls && limit !== undefined) {
    const bytes = hasCertificates ? CERTIFIED_CONNECTION_BYTES : TLS_CONNECTION_BYTES;
    const fitting = Math.floor((toFreeBytes(limit, workers) * TLS_SHARE) / bytes);
    kept = Math.min(kept, Math.max(MIN_TLS_CONNECTIONS, fitting));
  }
  return Math.ceil(kept / (workers * ports));
}

/** The clients of one port. */
export class PortClients {
  readonly #isTls: boolean;
  readonly #shared: IpRanges;
  readonly #reportClients: boolean;
  readonly #toNetwork = rememberClientNetworks();
  readonly #shares: ClientShares;
  readonly #limiter: ConnectionLimiter;
  readonly #clock: Clock;
  readonly #sendTimeout: Milliseconds;
  readonly #onLimit: OnLimit;
  readonly #memory;
  /** When a response started to wait for its client to read the end of it. */
  readonly #unreadSince = new WeakMap<TrackedRequest, Milliseconds>();
  readonly #stop: CancelTimer;

  /** Call it before `server` listens. */
  constructor(
    server: Server | TlsServer,
    {
      limits: given,
      shared,
      reportClients = false,
      clock,
      onLimit,
      tls,
      memory,
    }: {
      readonly limits: ClientLimits;
      /** Addresses and ranges that represent many clients (proxies, balancers): their connections are not limited per client. */
      readonly shared: readonly string[];
      /** Each of their requests is of a client that they report. So a request counts for its client at any address, also at a shared one. */
      readonly reportClients?: boolean;
      readonly clock: Clock;
      readonly onLimit: OnLimit;
      readonly tls: Pick<TlsContexts, 'clientCertificate'> | undefined;
      readonly memory: Pick<
        MemoryPressure,
        'isTight' | 'isHeapTight' | 'limit' | 'workers' | 'ports' | 'onBytes' | 'onGarbage' | 'shortage'
      >;
    },
  ) {
    const isTls = tls !== undefined;
    const limits = toFittingLimits(given, memory, getHeapStatistics().heap_size_limit);
    this.#isTls = isTls;
    this.#shared = new IpRanges(shared);
    this.#reportClients = reportClients;
    this.#shares = new ClientShares(limits, onLimit);
    this.#clock = clock;
    this.#sendTimeout = limits.sendTimeout;
    this.#onLimit = onLimit;
    this.#memory = memory;
    const bytes = isTls ? TLS_CONNECTION_BYTES : CONNECTION_BYTES;
    interceptConnections(server, 'connection', (socket, proceed) => {
      memory.onBytes(bytes);
      // A handshake takes memory before a request could be rejected with 503.
      const shortage = this.#findShortage();
      if (!isTls || shortage === undefined) return proceed();
      onLimit(shortage);
      socket.destroy();
      this.#limiter.shed(0);
    });
    this.#limiter = limitConnections(server, {
      maxConnections: limits.maxConnections,
      maxPerClient: limits.maxConnectionsPerClient,
      toClient: ({ remoteAddress = '' }) => this.toClient(remoteAddress),
      onLimit,
      isTight: () => memory.isTight || memory.isHeapTight,
      keptWhileTight: toKeptConnections(isTls, memory, tls?.clientCertificate !== undefined),
      onFirstRequest: () => memory.onBytes(FIRST_REQUEST_BYTES),
      onClosed: () => memory.onGarbage(bytes),
    });
    // Many connections may have been accepted before the first handshake is complete, and takes memory. OpenSSL is still reading this one.
    if (isTls) onEvent(server, 'secureConnection', () => runNextTurn(() => this.#limiter.freeMemory()));
    this.#stop = clock.every(SWEEP_INTERVAL_MS, () => {
      // TLS connections may keep large certificates. Without TLS, one has little that could be freed.
      if (isTls && this.#findShortage() !== undefined) this.#limiter.shed(0);
      this.#endUnread();
    });
  }

  /** The balancer reported the client of the connection; returns false if it is closed because that client has too many. */
  assignClient(socket: Socket, address: string): boolean {
    return this.#limiter.assignClient(socket, this.toClient(address));
  }

  /** A request arrived on the connection. */
  track(socket: Socket, content: BodySource, response: TrackedResponse, emitter: ClosingEmitter): TrackedRequest {
    return this.#limiter.track(socket, content, response, emitter);
  }

  /** Counts a request that waits for the response before it. Returns how to end that; undefined if its peer has reached a limit. */
  enter(peer: string): (() => void) | undefined {
    return this.#shares.enter(this.toClient(peer), false);
  }

  /** Admits a request of its resolved client, or returns why not. */
  admit(tracked: TrackedRequest, address: string, isUpgrade: boolean): Refusal | undefined {
    tracked.client = this.toRequestClient(address);
    tracked.onEnd = this.#shares.enter(tracked.client, isUpgrade);
    if (tracked.onEnd === undefined) return refuse('overloaded', 'client_limit');
    const shortage = this.#findShortage();
    if (shortage === undefined) return undefined;
    this.#onLimit(shortage);
    return refuse('overloaded', `${shortage}_full`);
  }

  /** From now on, an admitted request counts until its exchange is over: while a gate works, it takes memory although its client may have left. */
  countUntilFreed(tracked: TrackedRequest, body: IncomingBody): void {
    tracked.body = body;
  }

  /** Closes connections, if memory is tight. */
  freeMemory(): void {
    this.#limiter.freeMemory();
  }

  close(): void {
    this.#stop();
  }

  #findShortage(): MemoryPressure['shortage'] {
    const { shortage } = this.#memory;
    return this.#isTls && shortage === 'memory' && this.#limiter.size <= FEW_CONNECTIONS ? undefined : shortage;
  }

  /** The network that a peer counts for; undefined if it represents many clients. */
  toClient(address: string): string | undefined {
    const plain = toPlainAddress(address);
    return this.#shared.has(plain) ? undefined : this.#toNetwork(plain);
  }

  /** The network that a request of the client at `address` counts for; undefined if that represents many clients. */
  toRequestClient(address: string): string | undefined {
    return this.#reportClients ? this.#toNetwork(toPlainAddress(address)) : this.toClient(address);
  }

  /**
   * A client that never reads holds the response, its connection and its stream: once everything is written, nothing else ends
   * it.
   */
  #endUnread(): void {
    const now = this.#clock.monotonic();
    for (const tracked of this.#limiter.inFlight()) {
      const { response } = tracked;
      if (!isUnread(response)) continue;
      const since = this.#unreadSince.get(tracked);
      if (since === undefined) this.#unreadSince.set(tracked, now);
      else if (now - since >= this.#sendTimeout) {
        this.#onLimit('send_stall');
        response.destroy();
      }
    }
  }
}

/** The limits for the clients of one port. */
export class ClientShares {
  readonly #limits: ClientShareLimits;
  readonly #onLimit: OnLimit;
  readonly #clients = new Map<string, Counts>();
  #upgraded = 0;

  constructor(limits: ClientShareLimits, onLimit: OnLimit) {
    this.#limits = limits;
    this.#onLimit = onLimit;
  }

  /**
   * Counts a request of a client network; undefined: of a peer that represents many, which has no share. Returns a function that ends it; undefined
   * if a limit is reached.
   */
  enter(client: string | undefined, isUpgrade: boolean): (() => void) | undefined {
    const known = client === undefined ? undefined : this.#clients.get(client);
    const counts = known ?? { requests: 0, upgraded: 0 };
    const limit = this.#findLimit(counts, isUpgrade);
    if (limit !== undefined) {
      this.#onLimit(limit);
      return undefined;
    }
    if (client !== undefined && counts.requests === 0) this.#clients.set(client, counts);
    const upgraded = isUpgrade ? 1 : 0;
    counts.requests++;
    counts.upgraded += upgraded;
    this.#upgraded += upgraded;
    return () => {
      counts.requests--;
      counts.upgraded -= upgraded;
      this.#upgraded -= upgraded;
      if (client !== undefined && counts.requests === 0 && this.#clients.size > KEPT_CLIENTS) this.#clients.delete(client);
    };
  }

  #findLimit({ requests, upgraded }: Counts, isUpgrade: boolean): ListenLimit | undefined {
    const { maxRequestsPerClient, maxUpgraded, maxUpgradedPerClient } = this.#limits;
    if (isUpgrade && this.#upgraded >= maxUpgraded) return 'upgrades';
    if (requests >= maxRequestsPerClient) return 'client_requests';
    // A client that has more slots than are free gets no further one, so that a few clients cannot take them all.
    const hasShare = upgraded >= maxUpgradedPerClient || upgraded > maxUpgraded - this.#upgraded;
    return isUpgrade && hasShare ? 'client_upgrades' : undefined;
  }
}
