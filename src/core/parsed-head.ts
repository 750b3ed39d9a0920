/** A request whose head is valid and whose body is not read yet: the input of the gates. Also the client that sent it. */
import type { BodyStream, RequestBody } from './body.ts';
import type { Clock, EpochMilliseconds, Milliseconds } from './clock.ts';
import type { HeaderFields, RawHeaders } from './headers.ts';
import type { BlockedWriter } from './read-pause.ts';
import type { Reason } from './refusal.ts';
import type { RequestTarget } from './target.ts';

/** A client certificate from the TLS handshake, issued by a CA that the port trusts. */
interface PresentedCertificate {
  /** The subject alternative names as `DNS:…`, `URI:…`, `email:…` and `IP Address:…`, and the common name as `CN:…`. */
  readonly names: readonly string[];
  /** DER. */
  readonly raw: Buffer;
}

/** Why a certificate no longer authenticates its connection: it expired, or the client CAs or revocation lists changed. */
export type CertificateEnd = Extract<Reason, 'certificate_expired' | 'client_trust_changed'>;

/** The client of a request, with trusted proxies taken into account. */
export interface Client {
  /** The address that limits and logs use. */
  readonly address: string;
  /** The remote address of the connection. */
  readonly peer: string;
  /** The peer is a proxy of `listen.trustedProxies`: its X-Forwarded-* fields are trusted. */
  readonly viaTrustedProxy: boolean;
  /** The peer is a proxy of `listen.trustedIdentityProxies`: it may assert the identity of the client. */
  readonly viaIdentityProxy: boolean;
  /** The protocol that the client used: of the connection, or as reported by a trusted proxy. */
  readonly scheme: 'http' | 'https';
  /** The certificate of the connection itself. */
  readonly certificate?: PresentedCertificate;
  /** Why the connection's certificate is no longer valid; `certificate` is then absent. */
  readonly certificateEnd?: CertificateEnd;
}

/** The data of any request, even of one whose head is rejected. */
export interface RequestInfo {
  /** Unique to this request; it links the response, the log line and the header that the app gets. */
  readonly requestId: string;
  readonly method: string;
  readonly client: Client;
  readonly receivedAt: EpochMilliseconds;
  /** Monotonic. */
  readonly startedAt: Milliseconds;
}

/** A request to change the connection's protocol (RFC 9110 §7.8), which the app may accept. */
export interface UpgradeRequest {
  /** As the client sent it, for example `websocket`. */
  readonly protocol: string;
  /** Accepts the upgrade with this status line and these fields. Returns the stream of what the client sends from then on. */
  grant(statusLine: string, fields: RawHeaders): BodyStream;
  /** Sends bytes in the new protocol. Returns false to ask the caller to wait until `writer` has drained; `onWritten` as in ClientResponse. */
  write(chunk: Buffer, onWritten?: (error?: Error | null) => void): boolean;
  readonly writer: BlockedWriter;
  /** Ends this direction; the client may still send. */
  end(): void;
  /** Closes the connection once the client has taken what was sent, or after `atMost`. */
  close(clock: Clock, atMost: Milliseconds): void;
  destroy(): void;
}

/** A request with a parsed head. */
export interface ParsedHead extends RequestInfo {
  readonly target: RequestTarget;
  readonly headers: HeaderFields;
  readonly body: RequestBody;
  readonly upgrade?: UpgradeRequest;
  /** The destination that a client of the forward proxy requests. */
  readonly destination?: { readonly host: string; readonly port: number };
}
