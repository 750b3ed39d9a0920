/** Who the client is: the socket's peer, or what trusted proxies say about who stood before them. */
import { isIP, isIPv4 } from 'node:net';
import type { Client } from '../../core/client.ts';
import type { HeaderFields } from '../../core/headers.ts';
import { IpRanges, toPlainAddress } from '../../core/ip-address.ts';

const PORT = /^\d{1,5}$/;

/** Finds the client of a request from its peer address and header. */
export type ClientResolver = (peer: string, isEncrypted: boolean, headers: HeaderFields) => Client;

/** Which proxies are trusted, as CIDR ranges and single addresses; no proxy by default. */
export interface TrustedProxies {
  /** Trusted for the client's address. */
  readonly address: readonly string[];
  /** Trusted for the client's identity. */
  readonly identity: readonly string[];
}

/** Builds the resolver; without trusted proxies the peer is the client. */
export function createClientResolver(proxies: TrustedProxies): ClientResolver {
  const trusted = new IpRanges(proxies.address);
  const identity = new IpRanges(proxies.identity);
  return (rawPeer, isEncrypted, headers) => {
    const peer = toPlainAddress(rawPeer);
    const scheme = isEncrypted ? 'https' : 'http';
    const viaIdentityProxy = identity.has(peer);
    if (!trusted.has(peer)) return { address: peer, peer, viaTrustedProxy: false, viaIdentityProxy, scheme };
    return {
      address: findClientAddress(headers.all('x-forwarded-for'), peer, trusted),
      peer,
      viaTrustedProxy: true,
      viaIdentityProxy,
      scheme: toScheme(headers.all('x-forwarded-proto')) ?? scheme,
    };
  };
}

/** Finds the client in a caller's X-Forwarded-For, or gives undefined where the caller says nothing that can be read. */
export function createForwardedForReader(trustedProxies: readonly string[]): (lines: readonly string[]) => string | undefined {
  const trusted = new IpRanges(trustedProxies);
  return (lines) => findClientAddress(lines, undefined, trusted);
}

/** Walks from the nearest hop outwards: the first address that is no trusted proxy is the client; what stands before it is hearsay. */
function findClientAddress<Peer>(lines: readonly string[], peer: Peer, trusted: IpRanges): string | Peer {
  let client: string | Peer = peer;
  for (let line = lines.length - 1; line >= 0; line--) {
    const hops = (lines[line] as string).split(',');
    for (let hop = hops.length - 1; hop >= 0; hop--) {
      const address = toPlainAddress(withoutPort((hops[hop] as string).trim()));
      if (isIP(address) === 0) return client;
      client = address;
      if (!trusted.has(address)) return client;
    }
  }
  return client;
}

/** Some proxies write `1.2.3.4:5678` or `[2001:db8::1]:5678` (Azure Application Gateway). */
function withoutPort(hop: string): string {
  const colon = hop.lastIndexOf(':');
  const address = hop.slice(0, colon);
  const hasPort = colon !== -1 && PORT.test(hop.slice(colon + 1)) && (isIPv4(address) || address.endsWith(']'));
  return hasPort ? address : hop;
}

/** The nearest proxy's word counts: the last of the list. */
function toScheme(lines: readonly string[]): 'http' | 'https' | undefined {
  const last = lines.at(-1)?.split(',').at(-1)?.trim().toLowerCase();
  return last === 'http' || last === 'https' ? last : undefined;
}
