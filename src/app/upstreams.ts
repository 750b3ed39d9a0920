/** Keeps one connection pool for each app, across reloads, and closes those that are no longer used. */
import type { RouteConfig } from '../config/schema/config.ts';
import type { Clock } from '../core/clock.ts';
import { HttpClient } from '../http/client/pool.ts';
import type { Upstream, UpstreamOptions } from '../http/client/upstream.ts';

/** Below the 5 s after which Node's own servers, and many others, close an idle connection: a request must not race that close. */
const IDLE_TIMEOUT_MS = 4_000;
const MAX_HEAD_BYTES = 64 * 1024;

/** Creates a pool; it does not connect yet. */
export type CreateUpstream = (options: UpstreamOptions, clock: Clock) => Upstream;

/** The pools in use. */
export class Upstreams {
  readonly #clock: Clock;
  readonly #maxConnections: number;
  readonly #create: CreateUpstream;
  #pools = new Map<string, Upstream>();

  constructor(clock: Clock, maxConnections: number, create?: CreateUpstream) {
    const client = new HttpClient(clock);
    this.#create = create ?? ((options) => client.createUpstream(options));
    this.#clock = clock;
    this.#maxConnections = maxConnections;
  }

  /** A pool for each route, in order; existing pools are reused. Call `retire` once the routes are swapped. */
  provide(routes: readonly RouteConfig[]): { pools: readonly Upstream[]; retire: () => void } {
    const next = new Map<string, Upstream>();
    const pools = routes.map((route) => {
      const options = this.#toOptions(route);
      const key = JSON.stringify(options);
      const pool = next.get(key) ?? this.#pools.get(key) ?? this.#create(options, this.#clock);
      next.set(key, pool);
      return pool;
    });
    const retire = (): void => {
      for (const [key, pool] of this.#pools) if (!next.has(key)) pool.close();
      this.#pools = next;
    };
    return { pools, retire };
  }

  /** Closes all connections now. */
  destroy(): void {
    for (const pool of this.#pools.values()) pool.destroy();
  }

  #toOptions(route: RouteConfig): UpstreamOptions {
    return {
      ...route.upstream,
      connectTimeout: route.connectTimeout,
      responseTimeout: route.timeout,
      idleResponseTimeout: route.webhook === undefined ? route.idleTimeout : route.timeout,
      idleTimeout: IDLE_TIMEOUT_MS,
      maxConnections: this.#maxConnections,
      maxHeadBytes: MAX_HEAD_BYTES,
    };
  }
}
