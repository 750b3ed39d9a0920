/** Opens connections: resolves the name, checks every address, connects to a checked one, directly or through a proxy, and starts TLS. */
import { connect as connectTcp, isIP, type OnReadOpts, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls, type SecureContext } from 'node:tls';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { limitEmptyRecords } from '../../core/empty-records.ts';
import { guardDecision, onceEvent, onEvent } from '../../core/safe-events.ts';
import type { FindAddressProblem } from './address-rules.ts';
import { OpenFailure, type Opening, toCode } from './opening.ts';
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

/** Every address of a name is checked, but only these are tried. */
const MAX_TRIED_ADDRESSES = 4;
const ALPN = ['http/1.1'];

class EmptyRecordsError extends Error {
  readonly code = 'ERR_TLS_EMPTY_RECORDS';
}

/** Opens a connection that is ready for a request; rejects with OpenFailure. */
export async function openSocket(target: ConnectionTarget, opening: Opening, parts: OpenParts): Promise<Socket> {
  const { host, port } = target;
  if (parts.proxy !== undefined) {
    // The proxy resolves names, so that only the proxy can check their addresses.
    if (isIP(host) !== 0) await findAddresses(target, parts);
    opening.phase = 'connect';
    const tunnel = await openTunnel(parts.proxy, { host, port }, opening);
    const socket = target.context === undefined ? tunnel : await secure({ socket: tunnel, host }, target, opening, parts);
    // Node ignores `onread` for a socket that it did not open itself.
    onEvent(socket, 'data', opening.onBytes);
    socket.resume();
    return socket;
  }
  const addresses = await findAddresses(target, parts);
  if (opening.isCanceled) throw new OpenFailure('aborted', 'the attempt has ended');
  opening.phase = 'connect';
  return connectInTurn(addresses.slice(0, MAX_TRIED_ADDRESSES), target, opening, parts);
}

/** The addresses of the target that may be connected to. */
async function findAddresses({ host, port }: ConnectionTarget, parts: OpenParts): Promise<readonly string[]> {
  const { resolve, rules, ownPorts } = parts;
  const findOwn = (address: string): string | undefined =>
    ownPorts.has(address, port) ? `is this machine, and port ${port} belongs to sidegate` : undefined;
  const found = await resolveChecked(host, resolve, (address) => rules.findAddressProblem(address) ?? findOwn(address));
  if ('addresses' in found) return found.addresses;
  throw new OpenFailure(found.problem === 'not_found' ? 'dns' : 'blocked', found.detail);
}

/** Each address but the last gets its share of the time, so that a dead one does not use it up. */
async function connectInTurn(
  addresses: readonly string[],
  target: ConnectionTarget,
  opening: Opening,
  parts: OpenParts,
): Promise<Socket> {
  const share = opening.timeout / addresses.length;
  for (const address of addresses.slice(0, -1)) {
    try {
      return await connectTo(address, target, opening, { ...parts, atMost: share });
    } catch (thrown) {
      // After the TCP connection, another address would fail in the same way.
      if (opening.phase !== 'connect' || opening.isCanceled) throw thrown;
    }
  }
  return connectTo(addresses.at(-1) as string, target, opening, parts);
}

type ConnectParts = OpenParts & { readonly atMost?: Milliseconds };

function connectTo(address: string, target: ConnectionTarget, opening: Opening, parts: ConnectParts): Promise<Socket> {
  const host = parts.detour?.(address) ?? address;
  const direct = { host, port: target.port, onread: toOnRead(opening) };
  if (target.context !== undefined) return secure(direct, target, opening, parts);
  return whenReady(connectTcp({ ...direct, noDelay: true }), 'connect', opening, parts);
}

/** A shared buffer: allocating 64 KiB for each read took a tenth of the CPU of an exchange (bench/forward-micro.ts). */
function toOnRead(opening: Opening): OnReadOpts {
  const { readBuffer, onBytes } = opening;
  const take = (length: number): boolean => {
    onBytes(readBuffer.subarray(0, length));
    return true;
  };
  return { buffer: readBuffer, callback: guardDecision(take, false, () => opening.socket?.destroy()) };
}

/** Starts TLS. The certificate must be valid for the host name, or for the address if the URL has one. */
function secure(
  transport: ConnectionOptions & { readonly onread?: OnReadOpts },
  target: ConnectionTarget,
  opening: Opening,
  parts: ConnectParts,
): Promise<Socket> {
  const { host, context } = target;
  if (transport.socket !== undefined) opening.phase = 'tls';
  const socket = connectTls({
    ...transport,
    ...(isIP(host) === 0 && { servername: host }),
    secureContext: context,
    session: parts.sessions.find(target),
    rejectUnauthorized: true,
    ALPNProtocols: ALPN,
  });
  onEvent(socket, 'session', (session) => parts.sessions.keep(target, session));
  onceEvent(socket, 'secureConnect', () => limitEmptyRecords(socket, () => socket.destroy(new EmptyRecordsError())));
  return whenReady(socket, 'secureConnect', opening, parts);
}

function whenReady(
  socket: Socket,
  event: 'connect' | 'secureConnect',
  opening: Opening,
  { clock, atMost }: Pick<ConnectParts, 'clock' | 'atMost'>,
): Promise<Socket> {
  opening.socket = socket;
  return new Promise((resolve, reject) => {
    const fail = (reason: string): void => {
      cancel?.();
      socket.destroy();
      reject(new OpenFailure(opening.phase, toFailureText(opening.phase, reason)));
    };
    const cancel = atMost === undefined ? undefined : clock.after(atMost, () => fail('ETIMEDOUT'));
    if (event === 'secureConnect')
      onceEvent(socket, 'connect', () => {
        cancel?.();
        opening.phase = 'tls';
        socket.setNoDelay(true);
      });
    onceEvent(socket, event, () => {
      cancel?.();
      resolve(socket);
    });
    onEvent(socket, 'error', (error) => fail(toCode(error)));
    onceEvent(socket, 'close', () => fail('ECONNRESET'));
  });
}

function toFailureText(phase: Opening['phase'], reason: string): string {
  return phase === 'tls' ? `the TLS handshake failed (${reason})` : `the connection failed (${reason})`;
}
