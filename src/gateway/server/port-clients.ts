/** Admission to a port: limits connections, requests and upgraded connections per client, and ends responses that nobody reads. */
import type { Server } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { LimitsConfig } from '../../config/schema/config.ts';
import { toClientNetwork } from '../../core/client-network.ts';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { IpRanges, toPlainAddress } from '../../core/ip-address.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import type { BodySource } from './body-source.ts';
import { ClientShares } from './client-shares.ts';
import {
  type ClosingEmitter,
  type ConnectionLimiter,
  limitConnections,
  type TrackedRequest,
  type TrackedResponse,
} from './connection-limiter.ts';
import type { OnLimit } from './limits.ts';
import type { MemoryPressure } from './memory-guard.ts';

/** The dependencies of PortClients. */
export interface PortClientsParts {
  readonly limits: Pick<
    LimitsConfig,
    'maxConnections' | 'maxConnectionsPerClient' | 'maxRequestsPerClient' | 'maxUpgraded' | 'maxUpgradedPerClient' | 'sendTimeout'
  >;
  /** Addresses and ranges that represent many clients (proxies, balancers): their connections are not limited per client. */
  readonly shared: readonly string[];
  readonly clock: Clock;
  readonly onLimit: OnLimit;
  readonly memory: Pick<MemoryPressure, 'isTight' | 'shortage'>;
}

const SWEEP_INTERVAL_MS = 1_000;

/** The clients of one port. */
export class PortClients {
  readonly #shared: IpRanges;
  readonly #shares: ClientShares;
  readonly #limiter: ConnectionLimiter;
  readonly #clock: Clock;
  readonly #sendTimeout: Milliseconds;
  readonly #onLimit: OnLimit;
  readonly #memory: PortClientsParts['memory'];
  /** When a response started to wait for its client to read the end of it. */
  readonly #unreadSince = new WeakMap<TrackedRequest, Milliseconds>();
  readonly #stop: CancelTimer;

  /** Call it before `server` listens. */
  constructor(server: Server | TlsServer, { limits, shared, clock, onLimit, memory }: PortClientsParts) {
    this.#shared = new IpRanges(shared);
    this.#shares = new ClientShares(limits, this.#shared, onLimit);
    this.#clock = clock;
    this.#sendTimeout = limits.sendTimeout;
    this.#onLimit = onLimit;
    this.#memory = memory;
    this.#limiter = limitConnections(server, {
      maxConnections: limits.maxConnections,
      maxPerClient: limits.maxConnectionsPerClient,
      toClient: ({ remoteAddress = '' }) => this.#toClient(remoteAddress),
      onLimit,
      isTight: () => memory.isTight,
    });
    this.#stop = clock.every(SWEEP_INTERVAL_MS, () => this.#endUnread());
  }

  /** The balancer reported the client of the connection; returns false if it is closed because that client has too many. */
  assignClient(socket: Socket, address: string): boolean {
    return this.#limiter.assignClient(socket, this.#toClient(address));
  }

  /** A request arrived on the connection. */
  track(socket: Socket, content: BodySource, response: TrackedResponse, emitter: ClosingEmitter): TrackedRequest {
    return this.#limiter.track(socket, content, response, emitter);
  }

  /** Counts a request that waits for the response before it. Returns how to end that; undefined if its client has reached a limit. */
  enter(_socket: Socket, address: string): (() => void) | undefined {
    return this.#shares.enter(address, false);
  }

  /** Admits a request of its resolved client, or returns why not. */
  admit(tracked: TrackedRequest, address: string, isUpgrade: boolean): Refusal | undefined {
    tracked.onEnd = this.#shares.enter(address, isUpgrade);
    if (tracked.onEnd === undefined) return refuse('overloaded', 'client_limit');
    const { shortage } = this.#memory;
    if (shortage === undefined) return undefined;
    this.#onLimit(shortage);
    return refuse('overloaded', `${shortage}_full`);
  }

  close(): void {
    this.#stop();
  }

  #toClient(address: string): string | undefined {
    const plain = toPlainAddress(address);
    return this.#shared.has(plain) ? undefined : toClientNetwork(plain);
  }

  /**
   * A client that never reads holds the response, its connection and its stream: once everything is written, nothing else ends
   * it.
   */
  #endUnread(): void {
    const now = this.#clock.monotonic();
    for (const tracked of this.#limiter.inFlight()) {
      const { response } = tracked;
      // A pipelined response behind another one waits for the app, not for the client.
      if (!response.writableEnded || response.socket === null) continue;
      const since = this.#unreadSince.get(tracked);
      if (since === undefined) this.#unreadSince.set(tracked, now);
      else if (now - since >= this.#sendTimeout) {
        this.#onLimit('send_stall');
        response.destroy();
      }
    }
  }
}
