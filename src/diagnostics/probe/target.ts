/** Decides whether an endpoint may be probed, and resolves its addresses before anything is sent. */
import { isIP } from 'node:net';
import { IpRanges } from '../../core/ip-address.ts';
import type { Resolve } from '../../http/dial/resolve.ts';

/** An endpoint, and the only addresses to connect to. */
export interface ProbeTarget {
  readonly url: URL;
  readonly addresses: readonly string[];
  /** All addresses are loopback or private. */
  readonly isPrivate: boolean;
}

/** Loopback, RFC 1918, shared address space (RFC 6598), unique local (RFC 4193). Not link-local: cloud metadata services return credentials there. */
const PRIVATE_IPV4 = ['127.0.0.0/8', '10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10'];
const PRIVATE_IPV6 = ['::1/128', 'fc00::/7'];

const privateRanges = new IpRanges([...PRIVATE_IPV4, ...PRIVATE_IPV6]);

/** Returns the target, or why it may not be probed. `ownedHost`: the host that the user declares as their own. */
export async function findTarget(
  text: string,
  { ownedHost, resolve }: { readonly ownedHost: string | undefined; readonly resolve: Resolve },
): Promise<ProbeTarget | { readonly problem: string }> {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol)) return { problem: `${text} is not an http or https URL` };
  if (url.username !== '' || url.password !== '') {
    return {
      problem: 'the URL contains a password, which every user of this machine could read; use --header-env Authorization=NAME',
    };
  }
  const host = toPlainHost(url.hostname);
  const isOwned = ownedHost !== undefined && toPlainHost(ownedHost.toLowerCase()) === host;
  // A literal address needs no DNS lookup.
  const addresses = isIP(host) === 0 ? await resolveOrNothing(host, resolve) : [host];
  if (addresses.length === 0) return { problem: `cannot resolve ${host}` };
  const outside = addresses.find((each) => !privateRanges.has(each));
  if (outside !== undefined && !isOwned) return { problem: toNotOwned(host, outside, ownedHost) };
  return { url, addresses, isPrivate: outside === undefined };
}

function toNotOwned(host: string, outside: string, ownedHost: string | undefined): string {
  const place = outside === host ? host : `${host} (${outside})`;
  const named = ownedHost === undefined ? '' : `, not ${ownedHost}`;
  return `${place} is neither a loopback nor a private address, and a probe sends forged events; if the host is yours, add --yes-i-own-this ${host}${named}`;
}

async function resolveOrNothing(host: string, resolve: Resolve): Promise<readonly string[]> {
  try {
    return await resolve(host);
  } catch {
    return [];
  }
}

function toPlainHost(host: string): string {
  return host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : host;
}
