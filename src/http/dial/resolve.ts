/** Resolves names: once for each connection, so that a second DNS answer cannot differ from the one that was checked. */
import { lookup, Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';
import { type Clock, type Milliseconds, within } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import type { FindAddressProblem } from './address-rules.ts';

/** Resolves a name to its addresses. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** Addresses that may be dialled, or why there are none. */
export type Resolution =
  | { readonly addresses: readonly string[] }
  | { readonly problem: 'not_found' | 'forbidden'; readonly detail: string };

/** Thousands fit into a response, and checking them all would take milliseconds of each connection. */
const MAX_ADDRESSES = 64;

/** The addresses of a host. One forbidden address rejects the whole answer: it is a sign of DNS rebinding. */
export async function resolveChecked(host: string, resolve: Resolve, findProblem: FindAddressProblem): Promise<Resolution> {
  let addresses: readonly string[];
  let reason = 'no address';
  try {
    addresses = isIP(host) === 0 ? await resolve(host) : [host];
  } catch (thrown) {
    addresses = [];
    reason = (thrown as NodeJS.ErrnoException | undefined)?.code ?? toErrorText(thrown);
  }
  if (addresses.length === 0) return { problem: 'not_found', detail: `${host} cannot be resolved (${reason})` };
  if (addresses.length > MAX_ADDRESSES)
    return { problem: 'not_found', detail: `${host} has ${addresses.length} addresses; at most ${MAX_ADDRESSES} are accepted` };
  for (const address of addresses) {
    const problem = findProblem(address);
    if (problem !== undefined)
      return { problem: 'forbidden', detail: `${address === host ? host : `${host}: its address ${address}`} ${problem}` };
  }
  return { addresses };
}

/** The system's resolver: uses /etc/hosts and the cluster's DNS. */
export const systemResolve: Resolve = async (host) => (await lookup(host, { all: true })).map(({ address }) => address);

/** Limits how long a name may take: the system's resolver may ask several slow servers, several times each. */
export function resolveWithin(resolve: Resolve, atMost: Milliseconds, clock: Clock): Resolve {
  return async (host) => {
    const addresses = resolve(host);
    if (!(await within(clock, atMost, addresses))) throw new Error(`no answer within ${atMost} ms`);
    return addresses;
  };
}

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

/** A resolver without threads: a name server that never responds must not block other work of the process. IPv4 addresses come first, as IPv6 is often configured without a route to the internet. */
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
