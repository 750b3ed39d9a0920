/** Finds the address of the client: the peer of the socket, or what trusted proxies report in header fields or by the PROXY protocol. */
import { randomUUID } from 'node:crypto';
import { isIP, isIPv4, isIPv6, type Socket } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { HeaderFields } from '../../core/head.ts';
import { IpRanges, toPlainAddress } from '../../core/ip-address.ts';
import { handOver } from '../../core/reading.ts';
import type { Client, RequestInfo } from '../../core/request.ts';
import { offEvent, onceEvent, onEvent } from '../../core/safe-events.ts';

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
 * Creates the resolver for callers that ask about the requests of their clients, and report each in X-Forwarded-For. `viaTrustedProxy`: it does so;
 * otherwise the client is the caller. `proxies`: further hops to skip.
 */
export function createCallerResolver(callers: readonly string[], proxies: readonly string[]): ClientResolver {
  const trusted = new IpRanges(callers);
  const skipped = new IpRanges(proxies);
  return (rawPeer, isEncrypted, headers) => {
    const caller = toDirectClient(toPlainAddress(rawPeer), isEncrypted);
    if (!trusted.has(caller.peer)) return caller;
    const address = findClientAddress(headers.all('x-forwarded-for'), undefined, skipped);
    return address === undefined ? caller : { ...caller, address, viaTrustedProxy: true };
  };
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

// The PROXY protocol, versions 1 and 2.

/** The callbacks for a connection. */
interface ProxyHeaderHandler {
  /** The remaining bytes are HTTP or TLS. */
  onReady(): void;
  /** The header is invalid, so nothing on the connection can be trusted. */
  onInvalid(detail: string): void;
}

const EMPTY = Buffer.alloc(0);

/** The clients of connections that come from balancers, whose header it removes before HTTP or TLS reads a byte. */
export class ProxyProtocolPeers {
  readonly #from: IpRanges;
  readonly #isTls: boolean;
  readonly #timeout: Milliseconds;
  readonly #clock: Clock;
  readonly #bySocket = new WeakMap<Socket, string>();
  /** By connection key while the connection is open: TLS wraps the socket, and the wrapper has the same key. */
  readonly #byKey = new Map<string, string>();

  constructor({
    from,
    isTls,
    timeout,
    clock,
  }: {
    /** The balancers whose connections start with the header; all other connections are direct. */
    readonly from: IpRanges;
    /** TLS follows the header. */
    readonly isTls: boolean;
    /** The time limit for the whole header. */
    readonly timeout: Milliseconds;
    readonly clock: Clock;
  }) {
    this.#from = from;
    this.#isTls = isTls;
    this.#timeout = timeout;
    this.#clock = clock;
  }

  /** Reads the header of a connection, if its peer must send one. */
  take(socket: Socket, handler: ProxyHeaderHandler): void {
    if (!this.#from.has(toPlainAddress(socket.remoteAddress ?? ''))) return handler.onReady();
    // For as long as the socket exists: after an invalid header, neither node:http nor TLS ever listens for its errors.
    destroyOnError(socket);
    let bytes: Buffer = EMPTY;
    const finish = (next: () => void): void => {
      cancel();
      offEvent(socket, 'data', onData);
      offEvent(socket, 'end', onEnd);
      handOver(socket, next);
    };
    const fail = (detail: string): void => finish(() => handler.onInvalid(detail));
    const onData = onEvent(socket, 'data', (chunk: Buffer) => {
      bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
      const result = parseProxyHeader(bytes);
      if (result.kind === 'incomplete') return;
      if (result.kind === 'invalid') return fail(result.detail);
      finish(() => {
        this.#remember(socket, result);
        if (bytes.length > result.length) socket.unshift(bytes.subarray(result.length));
        handler.onReady();
        // TLS reads the remaining bytes itself; a flowing socket would take them away.
        if (!this.#isTls) socket.resume();
      });
    });
    const onEnd = onEvent(socket, 'end', () => fail('the connection ended within the header'));
    const cancel = this.#clock.after(this.#timeout, () => fail('the header took too long'));
    onceEvent(socket, 'close', cancel);
  }

  /** Assigns the client of a connection to the TLS socket that wraps it. Returns false if the client is unknown. */
  adopt(wrapped: Socket): boolean {
    const client = this.#byKey.get(toConnectionKey(wrapped));
    if (client !== undefined) this.#bySocket.set(wrapped, client);
    return client !== undefined || !this.#from.has(toPlainAddress(wrapped.remoteAddress ?? ''));
  }

  /** Returns the address of the client; undefined if the peer of the socket is the client. */
  find(socket: Socket): string | undefined {
    return this.#bySocket.get(socket);
  }

  #remember(socket: Socket, { source }: Extract<ProxyHeaderResult, { kind: 'parsed' }>): void {
    const client = source ?? socket.remoteAddress ?? 'unknown';
    const key = toConnectionKey(socket);
    this.#bySocket.set(socket, client);
    this.#byKey.set(key, client);
    onceEvent(socket, 'close', () => this.#byKey.delete(key));
  }
}

/** Identifies a connection by both ends: the same remote end may connect to another local address. */
export function toConnectionKey({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

/** The listener keeps nothing else alive. */
function destroyOnError(socket: Socket): void {
  onEvent(socket, 'error', () => socket.destroy());
}

/** The result for the bytes so far. */
type ProxyHeaderResult =
  | { readonly kind: 'incomplete' }
  | { readonly kind: 'invalid'; readonly detail: string }
  /** `source`: the address of the client; undefined if the balancer speaks for itself (health checks). */
  | { readonly kind: 'parsed'; readonly source: string | undefined; readonly length: number };

const V1_START = Buffer.from('PROXY ');
const MAX_V1_BYTES = 107;
const V1_LINE = /^PROXY (?:(TCP4|TCP6) (\S+) (\S+) (\d{1,5}) (\d{1,5})|UNKNOWN(?: .*)?)$/;
const MAX_PORT = 65_535;
const V2_START = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
const V2_HEAD_BYTES = 16;
/** Addresses and the TLVs that balancers add: far below the maximum of the length field. */
const MAX_V2_BYTES = 4_096;
const COMMAND = { local: 0x20, proxy: 0x21 } as const;
const FAMILY = { unspecified: 0x00, tcp4: 0x11, tcp6: 0x21 } as const;

const INCOMPLETE = { kind: 'incomplete' } as const;

/** Parses the first bytes of a connection. */
export function parseProxyHeader(bytes: Buffer): ProxyHeaderResult {
  if (startsLike(bytes, V2_START)) return bytes.length < V2_HEAD_BYTES ? INCOMPLETE : parseV2(bytes);
  if (startsLike(bytes, V1_START)) return parseV1(bytes);
  return invalid('the connection does not begin with its header');
}

function startsLike(bytes: Buffer, start: Buffer): boolean {
  const length = Math.min(bytes.length, start.length);
  return bytes.subarray(0, length).equals(start.subarray(0, length));
}

function parseV1(bytes: Buffer): ProxyHeaderResult {
  const end = bytes.subarray(0, MAX_V1_BYTES).indexOf('\r\n');
  if (end === -1) return bytes.length < MAX_V1_BYTES ? INCOMPLETE : invalid('the header line is too long');
  const match = V1_LINE.exec(bytes.toString('latin1', 0, end));
  if (match === null) return invalid('the header line is malformed');
  const length = end + 2;
  const [, family, source = '', destination = '', ...ports] = match;
  if (family === undefined) return { kind: 'parsed', source: undefined, length };
  const isAddress = family === 'TCP4' ? isIPv4 : isIPv6;
  if (!isAddress(source) || !isAddress(destination)) return invalid(`an address is not a ${family} address`);
  if (ports.some((port) => Number(port) > MAX_PORT)) return invalid(`a port is above ${MAX_PORT}`);
  return { kind: 'parsed', source, length };
}

function parseV2(bytes: Buffer): ProxyHeaderResult {
  const command = bytes.readUInt8(12);
  const family = bytes.readUInt8(13);
  const rest = bytes.readUInt16BE(14);
  const length = V2_HEAD_BYTES + rest;
  if (length > MAX_V2_BYTES) return invalid(`the header has ${length} bytes`);
  if (command !== COMMAND.local && command !== COMMAND.proxy) return invalid('the version or command is unknown');
  if (bytes.length < length) return INCOMPLETE;
  if (command === COMMAND.local || family === FAMILY.unspecified) return { kind: 'parsed', source: undefined, length };
  const addressBytes = { [FAMILY.tcp4]: 4, [FAMILY.tcp6]: 16 }[family];
  if (addressBytes === undefined) return invalid('the protocol is not TCP over IPv4 or IPv6');
  if (rest < 2 * addressBytes + 4) return invalid('the header is too short for its addresses');
  return { kind: 'parsed', source: toAddress(bytes.subarray(V2_HEAD_BYTES, V2_HEAD_BYTES + addressBytes)), length };
}

function toAddress(bytes: Buffer): string {
  if (bytes.length === 4) return bytes.join('.');
  const groups = Array.from({ length: 8 }, (_, index) => bytes.readUInt16BE(index * 2).toString(16));
  return groups.join(':');
}

function invalid(detail: string): ProxyHeaderResult {
  return { kind: 'invalid', detail };
}
