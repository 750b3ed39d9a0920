/**
 * Looks up names by the system. `getaddrinfo` occupies one of two threads of the process, for 30 s if no name server responds, and nothing
 * cancels it: if untrusted names could cause it, one client could stop the lookups of all upstreams. So only configured names may come here
 * (scripts/lint-layers.ts), and each name occupies at most one thread. Names that others choose are resolved by http/dial/resolve.ts.
 */
import type { LookupAddress } from 'node:dns';
import { lookup } from 'node:dns/promises';
import { readFile, stat } from 'node:fs/promises';
import { isIP, type LookupFunction } from 'node:net';

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
export const HOSTS_FILE = new HostsFile('/etc/hosts');

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
