/** Resolves the names of endpoints without threads: a name server that never responds must not block other work of the process. */
import { Resolver } from 'node:dns/promises';
import type { Milliseconds } from '../../core/clock.ts';
import { type Resolve, systemResolve } from '../../gateway/egress-proxy/dial.ts';

/** Options of the resolver. */
export interface ResolveOptions {
  /**
   * Also asks the system, which knows /etc/hosts and search domains. These lead to private addresses, so it is of use only where such
   * addresses are allowed.
   */
  readonly asksSystem: boolean;
  /** `address:port` of name servers; undefined: those of the system. */
  readonly servers?: readonly string[] | undefined;
}

const QUERY_TIMEOUT_MS: Milliseconds = 2_000;
const TRIES = 2;
/** `getaddrinfo` occupies a thread of Node's pool of four, for 30 s if no name server responds. Hashes and files need the others. */
const MAX_SYSTEM_LOOKUPS = 2;

/** Creates the resolver. IPv4 addresses come first, as IPv6 is often configured without a route to the internet. */
export function createResolve({ asksSystem, servers }: ResolveOptions): Resolve {
  const resolver = new Resolver({ timeout: QUERY_TIMEOUT_MS, tries: TRIES });
  if (servers !== undefined) resolver.setServers(servers);
  const lookUpBySystem = limit(systemResolve, MAX_SYSTEM_LOOKUPS);

  return share(async (host) => {
    const results = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    const addresses = results.flatMap((result) => (result.status === 'fulfilled' ? result.value : []));
    if (addresses.length > 0) return addresses;
    if (asksSystem) return lookUpBySystem(host);
    throw results.find((result) => result.status === 'rejected')?.reason ?? new Error('no address');
  });
}

/** Attempts that need the same name at the same time share one lookup. */
function share(resolve: Resolve): Resolve {
  const running = new Map<string, Promise<readonly string[]>>();
  return async (host) => {
    const shared = running.get(host);
    if (shared !== undefined) return shared;
    const lookUp = resolve(host);
    running.set(host, lookUp);
    try {
      return await lookUp;
    } finally {
      running.delete(host);
    }
  };
}

/** Runs at most `most` calls at once; further ones wait in order. */
function limit(resolve: Resolve, most: number): Resolve {
  const waiting: (() => void)[] = [];
  let running = 0;
  return async (host) => {
    if (running >= most) await new Promise<void>((go) => waiting.push(go));
    else running++;
    try {
      return await resolve(host);
    } finally {
      // The slot passes to the next one, so `running` stays.
      const next = waiting.shift();
      if (next === undefined) running--;
      else next();
    }
  };
}
