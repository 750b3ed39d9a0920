/** Fair use of a port: connections, requests and upgraded connections per client, and an end to responses that nobody reads. */
import type { Server } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { LimitsConfig } from '../../config/schema/config.ts';
import { toClientNetwork } from '../../core/client-network.ts';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { IpRanges, toPlainAddress } from '../../core/ip-address.ts';
import { ClientShares } from './client-shares.ts';
import type { ContentOrigin } from './content-origin.ts';
import { type ClosingEmitter, type Crowd, type Followed, type FollowedResponse, limitCrowd } from './crowd.ts';
import type { OnLimit } from './limits.ts';

/** What holds for the port. */
export interface PortClientsParts {
  readonly limits: Pick<
    LimitsConfig,
    'maxConnections' | 'maxConnectionsPerClient' | 'maxRequestsPerClient' | 'maxUpgraded' | 'maxUpgradedPerClient' | 'sendTimeout'
  >;
  /** Addresses and ranges that stand for many clients (proxies, balancers): their connections are not limited per client. */
  readonly shared: readonly string[];
  readonly clock: Clock;
  readonly onLimit: OnLimit;
}

const SWEEP_INTERVAL_MS = 1_000;

/** The clients of one port. */
export class PortClients {
  readonly #shared: IpRanges;
  readonly #shares: ClientShares;
  readonly #crowd: Crowd;
  readonly #clock: Clock;
  readonly #sendTimeout: Milliseconds;
  readonly #onLimit: OnLimit;
  /** Since when a response has waited for its client to read the end of it. */
  readonly #unreadSince = new WeakMap<Followed, Milliseconds>();
  readonly #stop: CancelTimer;

  /** To be called before `server` listens. */
  constructor(server: Server | TlsServer, { limits, shared, clock, onLimit }: PortClientsParts) {
    this.#shared = new IpRanges(shared);
    this.#shares = new ClientShares(limits, this.#shared, onLimit);
    this.#clock = clock;
    this.#sendTimeout = limits.sendTimeout;
    this.#onLimit = onLimit;
    this.#crowd = limitCrowd(server, {
      maxConnections: limits.maxConnections,
      maxPerClient: limits.maxConnectionsPerClient,
      toClient: ({ remoteAddress = '' }) => this.#toClient(remoteAddress),
      onLimit,
    });
    this.#stop = clock.every(SWEEP_INTERVAL_MS, () => this.#endUnread());
  }

  /** The balancer said whose connection it is; false where it is closed, as that client has too many. */
  announce(socket: Socket, address: string): boolean {
    return this.#crowd.assign(socket, this.#toClient(address));
  }

  /** A request came in on the connection. */
  follow(socket: Socket, content: ContentOrigin, response: FollowedResponse, emitter: ClosingEmitter): Followed {
    return this.#crowd.follow(socket, content, response, emitter);
  }

  /** Counts the request for the client it was resolved to; false where that client has its share. */
  admit(followed: Followed, address: string, isUpgrade: boolean): boolean {
    followed.onEnd = this.#shares.enter(address, isUpgrade);
    return followed.onEnd !== undefined;
  }

  close(): void {
    this.#stop();
  }

  #toClient(address: string): string | undefined {
    const plain = toPlainAddress(address);
    return this.#shared.has(plain) ? undefined : toClientNetwork(plain);
  }

  /** A client that never reads holds the response, its connection and its stream: once all is written, nothing else ends it. */
  #endUnread(): void {
    const now = this.#clock.monotonic();
    for (const followed of this.#crowd.underWay()) {
      const { response } = followed;
      // Pipelined behind another response, it waits for the app, not for the client.
      if (!response.writableEnded || response.socket === null) continue;
      const since = this.#unreadSince.get(followed);
      if (since === undefined) this.#unreadSince.set(followed, now);
      else if (now - since >= this.#sendTimeout) {
        this.#onLimit('send_stall');
        response.destroy();
      }
    }
  }
}
