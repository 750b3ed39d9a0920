/** Opens connections: to hosts of the config, and to those that others choose, whose addresses are checked, directly or through a proxy. */
import { connect as connectTcp, isIP, type OnReadOpts, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls, type SecureContext, type TLSSocket } from 'node:tls';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';
import type { FindAddressProblem, OwnPorts } from '../dial/address-rules.ts';
import { DialFailure, dialInTurn, type Opening, whenReady } from '../dial/dial.ts';
import { lookUpForConnect, type Resolve, resolveChecked } from '../dial/resolve.ts';
import { limitEmptyRecords } from '../empty-records.ts';
import { NO_PRESSURE } from '../server/memory-guard.ts';
import { ClientHandshakes, MAX_SESSION_BYTES } from './client-handshakes.ts';
import { openTunnel, type TunnelProxy } from './proxy-tunnel.ts';

/** Opens a connection that is ready for a request; rejects with DialFailure. `reads` takes what the server sends. */
export type OpenSocket = (opening: Opening, reads: OnReadOpts) => Promise<Socket>;

/** Where a connection leads. */
export interface ConnectionTarget {
  readonly host: string;
  readonly port: number;
  /** Undefined: plain HTTP. */
  readonly context?: SecureContext | undefined;
  /** The name that the certificate must be valid for; undefined: the host. */
  readonly serverName?: string | undefined;
  /** Any certificate is accepted. */
  readonly isUnverified?: boolean | undefined;
}

/** The parts that opening needs. */
export interface OpenParts {
  readonly clock: Clock;
  readonly rules: { readonly findAddressProblem: FindAddressProblem };
  readonly resolve: Resolve;
  /** Never connected to, even if their addresses are allowed. */
  readonly ownPorts: Pick<OwnPorts, 'has'>;
  readonly proxy: TunnelProxy | undefined;
  readonly sessions: TlsSessions;
  readonly handshakes: ClientHandshakes;
  /** Redirects a connection to a checked address; for tests. */
  readonly detour?: ((address: string) => string) | undefined;
}

const ALPN = ['http/1.1'];

class EmptyRecordsError extends Error {
  readonly code = 'ERR_TLS_EMPTY_RECORDS';
}

/** Connects to a host that the config names; its addresses are not checked. */
export async function openConfigured(
  target: ConnectionTarget,
  opening: Opening,
  onread: OnReadOpts,
  clock: Clock,
): Promise<Socket> {
  const { host, port, context } = target;
  const transport = { host, port, lookup: lookUpForConnect, noDelay: true, keepAlive: true, onread };
  opening.phase = 'connect';
  const socket = context === undefined ? connectTcp(transport) : startTls(transport, target, { clock });
  return whenReady(socket, opening, clock);
}

/** Connects to a host that others chose, if all of its addresses are allowed. */
export async function openChecked(
  target: ConnectionTarget,
  opening: Opening,
  reads: OnReadOpts,
  parts: OpenParts,
): Promise<Socket> {
  const { host, port, context } = target;
  if (parts.proxy !== undefined) {
    // The proxy resolves names, so that only the proxy can check their addresses.
    if (isIP(host) !== 0) await findAddresses(target, parts);
    const tunnel = await openTunnel(parts.proxy, { host, port }, opening, parts.handshakes);
    const socket = context === undefined ? tunnel : await secureTunnel(tunnel, target, opening, parts);
    // Node ignores `onread` for a socket that it did not open itself.
    onEvent(socket, 'data', (bytes: Buffer) => reads.callback(bytes.length, bytes));
    socket.resume();
    return socket;
  }
  const connectTo = (address: string): Socket => {
    const direct = { host: parts.detour?.(address) ?? address, port, onread: reads };
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

function secureTunnel(tunnel: Socket, target: ConnectionTarget, opening: Opening, parts: OpenParts): Promise<Socket> {
  opening.phase = 'tls';
  return whenReady(startTls({ socket: tunnel, host: target.host }, target, parts), opening, parts.clock);
}

/** The certificate must be valid for the host name, or for the address if the URL has one. */
function startTls(
  transport: ConnectionOptions & { readonly onread?: OnReadOpts },
  target: ConnectionTarget,
  { clock, sessions, handshakes = toHandshakes(clock) }: Pick<OpenParts, 'clock'> & Partial<OpenParts>,
): TLSSocket {
  const { host, context, serverName = host, isUnverified = false } = target;
  const socket = connectTls({
    ...transport,
    ...(isIP(serverName) === 0 && { servername: serverName }),
    secureContext: context,
    session: sessions?.find(target),
    rejectUnauthorized: !isUnverified,
    ALPNProtocols: ALPN,
  });
  handshakes.watch(socket);
  onEvent(socket, 'session', (session) => sessions?.keep(target, session));
  onceEvent(socket, 'secureConnect', () => limitEmptyRecords(socket, clock, () => socket.destroy(new EmptyRecordsError())));
  return socket;
}

const byClock = new WeakMap<Clock, ClientHandshakes>();

/** Those with hosts of the config. */
function toHandshakes(clock: Clock): ClientHandshakes {
  const handshakes = byClock.get(clock) ?? new ClientHandshakes(clock, NO_PRESSURE);
  byClock.set(clock, handshakes);
  return handshakes;
}

interface KeptSession {
  readonly session: Buffer;
  readonly at: Milliseconds;
}

/** A session has a few kilobytes, and at most `MAX_SESSION_BYTES`. */
const MAX_SESSIONS = 1_000;
/** A resumed session is not checked again, so that a certificate that expired would stay valid. */
const MAX_AGE_MS: Milliseconds = 3_600_000;

/**
 * TLS sessions for resumption, which saves the handshake's certificates and signatures. Keeps the newest of each target; the least recently
 * renewed ones are dropped.
 */
export class TlsSessions {
  readonly #clock: Clock;
  readonly #sessions = new Map<object, KeptSession>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  find(target: object): Buffer | undefined {
    const kept = this.#sessions.get(target);
    if (kept === undefined) return undefined;
    if (this.#clock.monotonic() - kept.at < MAX_AGE_MS) return kept.session;
    this.#sessions.delete(target);
    return undefined;
  }

  /** A session that resumes an older one keeps that one's age: only a full handshake checks the certificate. */
  keep(target: object, session: Buffer): void {
    if (session.length > MAX_SESSION_BYTES) return;
    const at = this.#sessions.get(target)?.at ?? this.#clock.monotonic();
    this.#sessions.delete(target);
    this.#sessions.set(target, { session, at });
    if (this.#sessions.size <= MAX_SESSIONS) return;
    const [oldest] = this.#sessions.keys();
    if (oldest !== undefined) this.#sessions.delete(oldest);
  }

  forget(target: object): void {
    this.#sessions.delete(target);
  }
}
