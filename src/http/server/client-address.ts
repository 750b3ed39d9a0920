/** Finds the address of the client, the peer of the socket or what trusted proxies report, and gives each request its ID and times. */
import { randomUUID } from 'node:crypto';
import { isIP, isIPv4 } from 'node:net';
import type { Clock } from '../../core/clock.ts';
import type { HeaderFields } from '../../core/headers.ts';
import { IpRanges, toPlainAddress } from '../../core/ip-address.ts';
import type { Client, RequestInfo } from '../../core/request.ts';

const PORT = /^\d{1,5}$/;

/** Finds the client of a request from its peer address and header. */
export type ClientResolver = (peer: string, isEncrypted: boolean, headers: HeaderFields) => Client;

/** Creates the resolver. Without trusted proxies, the peer is the client. */
export function createClientResolver(proxies: {
  /** Trusted to report the address of the client. */
  readonly address: readonly string[];
  /** Trusted to assert the identity of the client. */
  readonly identity: readonly string[];
}): ClientResolver {
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

/**
 * Creates a function that finds the client in X-Forwarded-For; it returns undefined if the lines do not contain a valid address.
 */
export function createForwardedForReader(trustedProxies: readonly string[]): (lines: readonly string[]) => string | undefined {
  const trusted = new IpRanges(trustedProxies);
  return (lines) => findClientAddress(lines, undefined, trusted);
}

/**
 * Walks from the nearest hop outwards: the first address that is not a trusted proxy is the client. Addresses beyond it are not
 * trusted.
 */
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

/** The last list member counts: the nearest proxy added it. */
function toScheme(lines: readonly string[]): 'http' | 'https' | undefined {
  const last = lines.at(-1)?.split(',').at(-1)?.trim().toLowerCase();
  return last === 'http' || last === 'https' ? last : undefined;
}

/** Assigns a new request ID. `method`: empty if the bytes are not a request. */
export function createRequestInfo(method: string, client: Client, clock: Clock): RequestInfo {
  return { requestId: randomUUID(), method, client, receivedAt: clock.now(), startedAt: clock.monotonic() };
}

/** A client that connects directly, without a trusted proxy. */
export function toDirectClient(peer: string, isEncrypted: boolean): Client {
  return { address: peer, peer, viaTrustedProxy: false, viaIdentityProxy: false, scheme: isEncrypted ? 'https' : 'http' };
}
