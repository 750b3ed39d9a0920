/** Reads the certificate that a TLS client showed, once for each connection, and ends the connection with it. */
import type { Socket } from 'node:net';
import type { PeerCertificate, TLSSocket } from 'node:tls';
import type { CertificateEnd, Client } from '../../core/client.ts';
import type { ClientResponse } from '../../core/client-response.ts';
import type { CancelTimer, Clock, EpochMilliseconds } from '../../core/clock.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import { onceEvent } from '../../core/safe-events.ts';
import { toConnectionKey } from './proxy-protocol-peers.ts';
import type { TlsContexts } from './tls.ts';

/** One alternative name; Node quotes it where it holds a comma, a quote or a control (CVE-2021-44532). */
const ALTERNATIVE_NAME = /(?:^|, )([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^,"]*)(?=, |$)/g;

/** What ends a connection whose certificate no longer authenticates it. */
export interface ClientCertificateParts {
  /** Undefined where connections are simulated. */
  readonly contexts: TlsContexts | undefined;
  readonly clock: Clock;
  /** Takes no more requests on the connection, and closes it behind the responses that are due. */
  readonly endConnection: (socket: Socket) => void;
}

/** A certificate that counts, or why it no longer does; neither where the client showed none that the CAs vouch for. */
type CertificateState = Pick<Client, 'certificate' | 'certificateEnd'>;

interface Connection {
  readonly validFrom: EpochMilliseconds;
  readonly validTo: EpochMilliseconds;
  /** Carries another protocol than HTTP, or a tunnel. */
  isUpgraded: boolean;
  state: CertificateState;
}

const CHECK_INTERVAL_MS = 1_000;

/**
 * The certificates of the open connections. OpenSSL verifies a certificate in the handshake only, so two things end what it
 * authenticates: its own time, and a change of the client CAs or their revocation lists. The client may then connect again.
 */
export class ClientCertificates {
  readonly #parts: ClientCertificateParts;
  readonly #stop: CancelTimer;
  readonly #connections = new Map<Socket, Connection>();
  /** By the connection's ends: the version of the CAs that its handshake began with. */
  readonly #handshakes = new Map<string, number>();
  #version: number;

  constructor(parts: ClientCertificateParts) {
    this.#parts = parts;
    this.#version = parts.contexts?.trustVersion ?? 0;
    this.#stop = parts.clock.every(CHECK_INTERVAL_MS, () => this.#endExpired());
  }

  /** TLS begins on a connection. */
  begin(socket: Socket): void {
    const ends = toConnectionKey(socket);
    this.#handshakes.set(ends, this.#version);
    onceEvent(socket, 'close', () => this.#handshakes.delete(ends));
  }

  /** The handshake is over. False where the CAs or their lists changed meanwhile: what it verified is outdated. */
  finish(socket: TLSSocket): boolean {
    const ends = toConnectionKey(socket);
    const version = this.#handshakes.get(ends);
    this.#handshakes.delete(ends);
    return this.#read(socket).state.certificate === undefined || version === this.#version;
  }

  /** What holds for a request that arrives now. */
  find(socket: Socket): CertificateState {
    const connection = this.#connections.get(socket) ?? this.#read(socket as TLSSocket);
    if (connection.state.certificate !== undefined && !isValid(connection, this.#parts.clock.now()))
      this.#end(socket, connection, 'certificate_expired');
    return connection.state;
  }

  /** Closes the connection behind the response where its certificate no longer counts. A refusal where the port requires one. */
  refuse({ certificateEnd }: CertificateState, response: ClientResponse): Refusal | undefined {
    if (certificateEnd === undefined) return undefined;
    response.shouldKeepAlive = false;
    // A new connection would fail in its handshake.
    if (this.#parts.contexts?.clientCertificate !== 'require') return undefined;
    return refuse('certificate_required', certificateEnd);
  }

  /** From now on the connection ends at once when its certificate does. */
  upgrade(socket: Socket): void {
    const connection = this.#connections.get(socket);
    if (connection !== undefined) connection.isUpgraded = true;
  }

  /** Ends the connections whose certificates were verified by other CAs or revocation lists than those of now. */
  refresh(): void {
    const version = this.#parts.contexts?.trustVersion;
    if (version === undefined || version === this.#version) return;
    this.#version = version;
    for (const [socket, connection] of this.#connections) this.#end(socket, connection, 'client_trust_changed');
  }

  /** Stops to watch the time. */
  close(): void {
    this.#stop();
  }

  #endExpired(): void {
    const now = this.#parts.clock.now();
    for (const [socket, connection] of this.#connections)
      if (!isValid(connection, now)) this.#end(socket, connection, 'certificate_expired');
  }

  #end(socket: Socket, connection: Connection, certificateEnd: CertificateEnd): void {
    if (connection.state.certificate === undefined) return;
    connection.state = { certificateEnd };
    if (connection.isUpgraded) socket.destroy();
    else this.#parts.endConnection(socket);
  }

  #read(socket: TLSSocket): Connection {
    const connection = readConnection(socket);
    if (socket.destroyed) return connection;
    this.#connections.set(socket, connection);
    onceEvent(socket, 'close', () => this.#connections.delete(socket));
    return connection;
  }
}

/** Undefined for a port that asks for no certificates. `mayBeSimulated`: a connection may bring one without TLS. */
export function createClientCertificates(
  mayBeSimulated: boolean,
  contexts: TlsContexts | undefined,
  clock: Clock,
  endConnection: (socket: Socket) => void,
): ClientCertificates | undefined {
  if (contexts?.clientCertificate === undefined && !mayBeSimulated) return undefined;
  return new ClientCertificates({ contexts, clock, endConnection });
}

function readConnection(socket: TLSSocket): Connection {
  const certificate = socket.authorized === true ? socket.getPeerCertificate() : undefined;
  if (certificate?.raw === undefined) return { validFrom: 0, validTo: 0, isUpgraded: false, state: {} };
  const { raw, valid_from: from, valid_to: to } = certificate;
  const state = { certificate: { names: toCertificateNames(certificate), raw } };
  return { validFrom: Date.parse(from), validTo: Date.parse(to), isUpgraded: false, state };
}

/** False, too, where a time cannot be read. */
function isValid({ validFrom, validTo }: Connection, now: EpochMilliseconds): boolean {
  return now >= validFrom && now <= validTo;
}

/** Each name with its kind before it, so that a name of one kind is never taken for one of another. */
export function toCertificateNames({
  subject,
  subjectaltname = '',
}: Pick<PeerCertificate, 'subject' | 'subjectaltname'>): string[] {
  const names: string[] = [];
  for (const [, kind = '', value = ''] of subjectaltname.matchAll(ALTERNATIVE_NAME)) names.push(`${kind}:${unquote(value)}`);
  const { CN: commonName } = subject as { readonly CN?: string | readonly string[] };
  // Several are several answers to one question: none of them counts.
  if (typeof commonName === 'string') names.push(`CN:${commonName}`);
  return names;
}

function unquote(value: string): string {
  return value.startsWith('"') ? (JSON.parse(value) as string) : value;
}
