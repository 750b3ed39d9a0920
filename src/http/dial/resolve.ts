/** Resolves names: once for each connection, so that a second DNS answer cannot differ from the one that was checked. */
import type { LookupAddress } from 'node:dns';
import { lookup, Resolver } from 'node:dns/promises';
import { readFile, stat } from 'node:fs/promises';
import { isIP, type LookupFunction } from 'node:net';
import { type Clock, type Milliseconds, within } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import type { FindAddressProblem } from './address-rules.ts';

/** Resolves a name to its addresses. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** Addresses that may be dialled, or why there are none. */
type Resolution =
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

/** Limits how long a name may take: the resolver may ask several slow servers, several times each. */
export function resolveWithin(resolve: Resolve, atMost: Milliseconds, clock: Clock): Resolve {
  return async (host) => {
    const addresses = resolve(host);
    if (!(await within(clock, atMost, addresses))) throw new Error(`no answer within ${atMost} ms`);
    return addresses;
  };
}

// The system's resolver. `getaddrinfo` occupies one of two threads of the process, for 30 s if no name server responds, and nothing cancels it: if
// untrusted names could cause it, one client could stop the lookups of all upstreams. So only configured names may come here
// (scripts/lint-layers.ts), and each name occupies at most one thread.

/** The lookups that are under way. */
const running = new Map<string, Promise<LookupAddress[]>>();

/** Looks up a configured name. Names of the hosts file need no thread, so that `localhost` is found even if no name server responds. */
export async function lookUp(host: string): Promise<LookupAddress[]> {
  const local = await HOSTS_FILE.find(host);
  if (local.length > 0) return local.map((address) => ({ address, family: isIP(address) }));
  const started = running.get(host) ?? lookup(host, { all: true }).finally(() => running.delete(host));
  running.set(host, started);
  return started;
}

/** The option `lookup` of connections to a configured host. Node does not call it for an address. */
export const lookUpForConnect: LookupFunction = (host, { all }, callback) => {
  lookUp(host).then(
    (found) => {
      const [first] = found;
      if (all === true || first === undefined) callback(null, found);
      else callback(null, first.address, first.family);
    },
    (error: NodeJS.ErrnoException) => callback(error, []),
  );
};

/** The system's resolver, only for names of the config and of the command line. */
export const systemResolve: Resolve = async (host) => (await lookUp(host)).map(({ address }) => address);

/** The names of a hosts file, which is read again after it has changed. */
export class HostsFile {
  readonly #path: string;
  #version = '';
  #addresses: ReadonlyMap<string, readonly string[]> = new Map();

  constructor(path: string) {
    this.#path = path;
  }

  /** The addresses of the name; empty if the file does not have it. */
  async find(host: string): Promise<readonly string[]> {
    try {
      const { mtimeMs, size } = await stat(this.#path);
      const version = `${mtimeMs} ${size}`;
      if (version !== this.#version) {
        this.#addresses = parseHosts(await readFile(this.#path, 'utf8'));
        this.#version = version;
      }
    } catch {
      // An image may have none; the name servers may still know the name.
      return [];
    }
    return this.#addresses.get(host.toLowerCase()) ?? [];
  }
}

function parseHosts(text: string): Map<string, readonly string[]> {
  const addresses = new Map<string, readonly string[]>();
  for (const line of text.split('\n')) {
    const [address = '', ...names] = (line.split('#', 1)[0] ?? '').trim().split(/\s+/);
    if (isIP(address) === 0) continue;
    for (const name of names.map((each) => each.toLowerCase())) {
      const known = addresses.get(name) ?? [];
      if (!known.includes(address)) addresses.set(name, [...known, address]);
    }
  }
  return addresses;
}

/** The hosts file of the system. */
const HOSTS_FILE = new HostsFile('/etc/hosts');

/** Where the names of a machine and its network are. */
export interface LocalNames {
  readonly hosts: HostsFile;
  /** The path of a file like /etc/resolv.conf, which lists search domains. */
  readonly searchFile: string;
}

/** Those of the system. They lead to private addresses, so they are of use only where such addresses are allowed. */
export const LOCAL_NAMES: LocalNames = { hosts: HOSTS_FILE, searchFile: '/etc/resolv.conf' };

const QUERY_TIMEOUT_MS: Milliseconds = 2_000;
const TRIES = 2;
/** As in glibc before it had no limit. Each costs two more queries for a name that does not exist. */
const MAX_SEARCH_DOMAINS = 6;
/** With another domain, the servers would not respond either. */
const UNREACHABLE: ReadonlySet<unknown> = new Set(['ETIMEOUT', 'ECONNREFUSED']);

/**
 * A resolver for names that others choose. It needs no thread: a name whose server never responds must not block other work of the process
 * (`lookUp`). IPv4 addresses come first, as IPv6 is often configured without a route to the internet.
 */
export function createResolve({
  local,
  servers,
}: {
  /** Also resolves names that only this machine or its network knows. */
  readonly local?: LocalNames | undefined;
  /** `address:port` of name servers; undefined: those of the system. */
  readonly servers?: readonly string[] | undefined;
}): Resolve {
  const resolver = new Resolver({ timeout: QUERY_TIMEOUT_MS, tries: TRIES });
  if (servers !== undefined) resolver.setServers(servers);

  const ask = async (host: string): Promise<{ addresses: readonly string[]; error: unknown }> => {
    const results = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    const addresses = results.flatMap((result) => (result.status === 'fulfilled' ? result.value : []));
    const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as NodeJS.ErrnoException] : []));
    return { addresses, error: errors.find(({ code }) => UNREACHABLE.has(code)) ?? errors[0] ?? new Error('no address') };
  };

  const askWithDomains = async (host: string, searchFile: string | undefined): Promise<readonly string[]> => {
    const names = searchFile === undefined || host.endsWith('.') ? [host] : toNames(host, await readSearch(searchFile));
    let first: unknown;
    for (const name of names) {
      const { addresses, error } = await ask(name);
      if (addresses.length > 0) return addresses;
      if (isUnreachable(error)) throw error;
      if (name === host) first = error;
    }
    throw first;
  };

  return share(async (host) => {
    const known = (await local?.hosts.find(host)) ?? [];
    return known.length > 0 ? known : askWithDomains(host, local?.searchFile);
  });
}

function isUnreachable(error: unknown): boolean {
  return UNREACHABLE.has((error as NodeJS.ErrnoException).code);
}

interface Search {
  readonly domains: readonly string[];
  /** A name with fewer dots is looked for in the domains first. */
  readonly dots: number;
}

function toNames(host: string, { domains, dots }: Search): string[] {
  const names = domains.map((domain) => `${host}.${domain}`);
  return host.split('.').length - 1 < dots ? [...names, host] : [host, ...names];
}

/** The last line `search` or `domain` counts (resolv.conf(5)). */
async function readSearch(path: string): Promise<Search> {
  const text = await readFile(path, 'utf8').catch(() => '');
  const lines = text.split('\n').map((line) => line.trim().split(/\s+/));
  const [, ...domains] = lines.findLast(([key]) => key === 'search' || key === 'domain') ?? [];
  const dots = lines
    .flatMap(([key, ...options]) => (key === 'options' ? options : []))
    .flatMap((each) => /^ndots:(\d+)$/.exec(each)?.[1] ?? []);
  return { domains: domains.filter((domain) => domain !== '.').slice(0, MAX_SEARCH_DOMAINS), dots: Number(dots.at(-1) ?? 1) };
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
