/**
 * Reads the certificate of a TLS client once for each connection, and closes the connection when the certificate becomes invalid.
 */
import type { Server } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { PeerCertificate, TLSSocket } from 'node:tls';
import type { CancelTimer, Clock, EpochMilliseconds } from '../../core/clock.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import type { CertificateEnd, Client, ClientResponse } from '../../core/request.ts';
import { onceEvent } from '../../core/safe-events.ts';
import { toConnectionKey } from './client-address.ts';
import { interceptConnections } from './strict-server.ts';
import type { TlsContexts } from './tls.ts';

/** One subject alternative name; Node quotes a name that contains a comma, a quote or a control (CVE-2021-44532). */
const ALTERNATIVE_NAME = /(?:^|, )([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^,"]*)(?=, |$)/g;

/** A valid certificate, or why it is no longer valid; neither if the client sent none that the CAs verify. */
type CertificateState = Pick<Client, 'certificate' | 'certificateEnd'>;

interface CertifiedConnection {
  readonly validFrom: EpochMilliseconds;
  readonly validTo: EpochMilliseconds;
  /** The connection carries another protocol than HTTP, or a tunnel. */
  isUpgraded: boolean;
  state: CertificateState;
}

const CHECK_INTERVAL_MS = 1_000;

/**
 * The certificates of the open connections. OpenSSL verifies a certificate only in the handshake, so this class closes a connection
 * when its certificate expires, and when the client CAs or their revocation lists change. The client may then connect again.
 */
export class ClientCertificates {
  /** Undefined if connections are simulated. */
  readonly #contexts: TlsContexts | undefined;
  readonly #clock: Clock;
  /** Accepts no more requests on the connection, and closes it after the pending responses. */
  readonly #endConnection: (socket: Socket) => void;
  readonly #stop: CancelTimer;
  readonly #connections = new Map<Socket, CertifiedConnection>();
  /** The version of the CAs at the start of each handshake, by connection key. */
  readonly #handshakes = new Map<string, number>();
  #version: number;

  constructor(contexts: TlsContexts | undefined, clock: Clock, endConnection: (socket: Socket) => void) {
    this.#contexts = contexts;
    this.#clock = clock;
    this.#endConnection = endConnection;
    this.#version = contexts?.trustVersion ?? 0;
    this.#stop = clock.every(CHECK_INTERVAL_MS, () => this.#endExpired());
  }

  /** The TLS handshake of a connection starts. */
  begin(socket: Socket): void {
    const key = toConnectionKey(socket);
    this.#handshakes.set(key, this.#version);
    onceEvent(socket, 'close', () => this.#handshakes.delete(key));
  }

  /**
   * The handshake is complete. Returns false if the CAs or their lists changed meanwhile, so that the verification is outdated.
   */
  finish(socket: TLSSocket): boolean {
    const key = toConnectionKey(socket);
    const version = this.#handshakes.get(key);
    this.#handshakes.delete(key);
    return this.#read(socket).state.certificate === undefined || version === this.#version;
  }

  /** Returns the state for a request that arrives now. */
  find(socket: Socket): CertificateState {
    const connection = this.#connections.get(socket) ?? this.#read(socket as TLSSocket);
    if (connection.state.certificate !== undefined && !isValid(connection, this.#clock.now()))
      this.#end(socket, connection, 'certificate_expired');
    return connection.state;
  }

  /**
   * Closes the connection after the response if its certificate is no longer valid. Returns a refusal if the port requires one.
   */
  refuse({ certificateEnd }: CertificateState, response: ClientResponse): Refusal | undefined {
    if (certificateEnd === undefined) return undefined;
    response.shouldKeepAlive = false;
    // A new connection would fail in its handshake.
    if (this.#contexts?.clientCertificate !== 'require') return undefined;
    return refuse('certificate_required', certificateEnd, { stage: 'login' });
  }

  /** From now on, the connection is closed immediately when its certificate becomes invalid. */
  upgrade(socket: Socket): void {
    const connection = this.#connections.get(socket);
    if (connection !== undefined) connection.isUpgraded = true;
  }

  /** Closes the connections whose certificates were verified with other CAs or revocation lists than the current ones. */
  refresh(): void {
    const version = this.#contexts?.trustVersion;
    if (version === undefined || version === this.#version) return;
    this.#version = version;
    for (const [socket, connection] of this.#connections) this.#end(socket, connection, 'client_trust_changed');
  }

  /** Stops checking for expired certificates. */
  close(): void {
    this.#stop();
  }

  #endExpired(): void {
    const now = this.#clock.now();
    for (const [socket, connection] of this.#connections)
      if (!isValid(connection, now)) this.#end(socket, connection, 'certificate_expired');
  }

  #end(socket: Socket, connection: CertifiedConnection, certificateEnd: CertificateEnd): void {
    if (connection.state.certificate === undefined) return;
    connection.state = { certificateEnd };
    if (connection.isUpgraded) socket.destroy();
    else this.#endConnection(socket);
  }

  #read(socket: TLSSocket): CertifiedConnection {
    const connection = readConnection(socket);
    if (socket.destroyed) return connection;
    this.#connections.set(socket, connection);
    onceEvent(socket, 'close', () => this.#connections.delete(socket));
    return connection;
  }
}

/**
 * Returns undefined for a port that requests no certificates. `mayBeSimulated`: connections may carry a certificate without TLS.
 */
export function createClientCertificates(
  mayBeSimulated: boolean,
  contexts: TlsContexts | undefined,
  clock: Clock,
  endConnection: (socket: Socket) => void,
): ClientCertificates | undefined {
  if (contexts?.clientCertificate === undefined && !mayBeSimulated) return undefined;
  return new ClientCertificates(contexts, clock, endConnection);
}

/** The certificates of a server's connections. Call it before other listeners are added. Undefined for a port that requests none. */
export function watchCertificates(
  server: Server | TlsServer,
  contexts: TlsContexts | undefined,
  clock: Clock,
  endConnection: (socket: Socket) => void,
): ClientCertificates | undefined {
  const certificates = createClientCertificates(false, contexts, clock, endConnection);
  if (certificates === undefined) return undefined;
  interceptConnections(server, 'connection', (socket, proceed) => {
    certificates.begin(socket);
    proceed();
  });
  interceptConnections<TLSSocket>(server, 'secureConnection', (socket, proceed) => {
    if (certificates.finish(socket)) proceed();
    else socket.destroy();
  });
  return certificates;
}

function readConnection(socket: TLSSocket): CertifiedConnection {
  const certificate = socket.authorized === true ? socket.getPeerCertificate() : undefined;
  if (certificate?.raw === undefined) return { validFrom: 0, validTo: 0, isUpgraded: false, state: {} };
  const { raw, valid_from: from, valid_to: to } = certificate;
  const state = { certificate: { names: toCertificateNames(certificate), raw } };
  return { validFrom: Date.parse(from), validTo: Date.parse(to), isUpgraded: false, state };
}

/** Returns false if a date is malformed. */
function isValid({ validFrom, validTo }: CertifiedConnection, now: EpochMilliseconds): boolean {
  return now >= validFrom && now <= validTo;
}

/** Returns each name with its kind as a prefix, so that a name of one kind is never mistaken for one of another. */
export function toCertificateNames({
  subject,
  subjectaltname = '',
}: Pick<PeerCertificate, 'subject' | 'subjectaltname'>): string[] {
  const names: string[] = [];
  for (const [, kind = '', value = ''] of subjectaltname.matchAll(ALTERNATIVE_NAME)) names.push(`${kind}:${unquote(value)}`);
  const { CN: commonName } = subject as { readonly CN?: string | readonly string[] };
  // Several common names are ambiguous: none is used.
  if (typeof commonName === 'string') names.push(`CN:${commonName}`);
  return names;
}

function unquote(value: string): string {
  return value.startsWith('"') ? (JSON.parse(value) as string) : value;
}
