/** Limits the requests and upgraded connections that one client has in flight, over all its connections. */
import { KEPT_CLIENTS, rememberClientNetworks } from '../../core/client-network.ts';
import type { IpRanges } from '../../core/ip-address.ts';
import type { ListenLimit, OnLimit } from './limits.ts';

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

/** The limits for the clients of one port. */
export class ClientShares {
  readonly #limits: ClientShareLimits;
  readonly #shared: IpRanges;
  readonly #onLimit: OnLimit;
  readonly #toNetwork = rememberClientNetworks();
  readonly #clients = new Map<string, Counts>();
  #upgraded = 0;

  /** `shared`: addresses that represent many clients, and therefore are not limited. */
  constructor(limits: ClientShareLimits, shared: IpRanges, onLimit: OnLimit) {
    this.#limits = limits;
    this.#shared = shared;
    this.#onLimit = onLimit;
  }

  /**
   * Counts a request of the client at `address`. Returns a function that ends it; undefined if the client has reached a limit.
   */
  enter(address: string, isUpgrade: boolean): (() => void) | undefined {
    const network = this.#toNetwork(address);
    const counts = this.#clients.get(network) ?? { requests: 0, upgraded: 0 };
    const limit = this.#findLimit(counts, isUpgrade, address);
    if (limit !== undefined) {
      this.#onLimit(limit);
      return undefined;
    }
    if (counts.requests === 0) this.#clients.set(network, counts);
    const upgraded = isUpgrade ? 1 : 0;
    counts.requests++;
    counts.upgraded += upgraded;
    this.#upgraded += upgraded;
    return () => {
      counts.requests--;
      counts.upgraded -= upgraded;
      this.#upgraded -= upgraded;
      if (counts.requests === 0 && this.#clients.size > KEPT_CLIENTS) this.#clients.delete(network);
    };
  }

  #findLimit({ requests, upgraded }: Counts, isUpgrade: boolean, address: string): ListenLimit | undefined {
    const { maxRequestsPerClient, maxUpgraded, maxUpgradedPerClient } = this.#limits;
    if (isUpgrade && this.#upgraded >= maxUpgraded) return 'upgrades';
    // A client that has more slots than are free gets no further one, so that a few clients cannot take them all.
    const hasShare = upgraded >= maxUpgradedPerClient || upgraded > maxUpgraded - this.#upgraded;
    const limit = requests >= maxRequestsPerClient ? 'client_requests' : isUpgrade && hasShare ? 'client_upgrades' : undefined;
    // Checked last, because it is the most expensive check and rarely needed.
    return limit !== undefined && this.#shared.has(address) ? undefined : limit;
  }
}
