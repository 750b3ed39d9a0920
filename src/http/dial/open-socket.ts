/** Opens connections: resolves the name, checks every address, connects to a checked one, directly or through a proxy, and starts TLS. */
import { connect as connectTcp, isIP, type OnReadOpts, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls, type SecureContext, type TLSSocket } from 'node:tls';
import type { Clock } from '../../core/clock.ts';
import { limitEmptyRecords } from '../../core/empty-records.ts';
import { guardDecision, onceEvent, onEvent } from '../../core/safe-events.ts';
import type { FindAddressProblem } from './address-rules.ts';
import { DialFailure, dialInTurn, type Opening, whenReady } from './dial.ts';
import type { OwnPorts } from './own-ports.ts';
import { type EgressProxy, openTunnel } from './proxy-tunnel.ts';
import { type Resolve, resolveChecked } from './resolve.ts';
import type { TlsSessions } from './tls-sessions.ts';

/** Where a connection leads. */
export interface ConnectionTarget {
  readonly host: string;
  readonly port: number;
  /** Undefined: plain HTTP. */
  readonly context: SecureContext | undefined;
}

/** The parts that opening needs. */
export interface OpenParts {
  readonly clock: Clock;
  readonly rules: { readonly findAddressProblem: FindAddressProblem };
  readonly resolve: Resolve;
  /** Never connected to, even if their addresses are allowed. */
  readonly ownPorts: Pick<OwnPorts, 'has'>;
  readonly proxy: EgressProxy | undefined;
  readonly sessions: TlsSessions;
  /** Redirects a connection to a checked address; for tests. */
  readonly detour?: ((address: string) => string) | undefined;
}

/** Takes what the peer sends. */
export interface SocketReads {
  /** Shared by all connections: bytes are taken before the next read. */
  readonly buffer: Buffer;
  readonly onBytes: (bytes: Buffer) => void;
}

const ALPN = ['http/1.1'];

class EmptyRecordsError extends Error {
  readonly code = 'ERR_TLS_EMPTY_RECORDS';
}

/** Opens a connection that is ready for a request; rejects with DialFailure. */
export async function openSocket(
  target: ConnectionTarget,
  opening: Opening,
  reads: SocketReads,
  parts: OpenParts,
): Promise<Socket> {
  const { host, port, context } = target;
  if (parts.proxy !== undefined) {
    // The proxy resolves names, so that only the proxy can check their addresses.
    if (isIP(host) !== 0) await findAddresses(target, parts);
    const tunnel = await openTunnel(parts.proxy, { host, port }, opening);
    const socket = context === undefined ? tunnel : await secureTunnel(tunnel, target, opening, parts);
    // Node ignores `onread` for a socket that it did not open itself.
    onEvent(socket, 'data', reads.onBytes);
    socket.resume();
    return socket;
  }
  const connectTo = (address: string): Socket => {
    const direct = { host: parts.detour?.(address) ?? address, port, onread: toOnRead(reads, opening) };
    return context === undefined ? connectTcp({ ...direct, noDelay: true }) : startTls(direct, target, parts);
  };
  return dialInTurn(await findAddresses(target, parts), opening, connectTo, parts.clock);
}

/** The addresses of the target that may be connected to. */
async function findAddresses({ host, port }: ConnectionTarget, parts: OpenParts): Promise<readonly string[]> {
  const { resolve, rules, ownPorts } = parts;
  const findOwn = (address: string): string | undefined =>
    ownPorts.has(address, port) ? `is this machine, and port ${port} belongs to sidegate` : undefined;
  const found = await resolveChecked(host, resolve, (address) => rules.findAddressProblem(address) ?? findOwn(address));
  if ('addresses' in found) return found.addresses;
  throw new DialFailure(found.problem === 'not_found' ? 'dns' : 'blocked', found.detail);
}

/** A shared buffer: allocating 64 KiB for each read took a tenth of the CPU of an exchange (bench/forward-micro.ts). */
function toOnRead({ buffer, onBytes }: SocketReads, opening: Opening): OnReadOpts {
  const take = (length: number): boolean => {
    onBytes(buffer.subarray(0, length));
    return true;
  };
  return { buffer, callback: guardDecision(take, false, () => opening.socket?.destroy()) };
}

function secureTunnel(tunnel: Socket, target: ConnectionTarget, opening: Opening, parts: OpenParts): Promise<Socket> {
  opening.phase = 'tls';
  return whenReady(startTls({ socket: tunnel, host: target.host }, target, parts), opening, parts.clock);
}

/** The certificate must be valid for the host name, or for the address if the URL has one. */
function startTls(
  transport: ConnectionOptions & { readonly onread?: OnReadOpts },
  target: ConnectionTarget,
  { sessions, clock }: OpenParts,
): TLSSocket {
  const { host, context } = target;
  const socket = connectTls({
    ...transport,
    ...(isIP(host) === 0 && { servername: host }),
    secureContext: context,
    session: sessions.find(target),
    rejectUnauthorized: true,
    ALPNProtocols: ALPN,
  });
  onEvent(socket, 'session', (session) => sessions.keep(target, session));
  onceEvent(socket, 'secureConnect', () => limitEmptyRecords(socket, clock, () => socket.destroy(new EmptyRecordsError())));
  return socket;
}
