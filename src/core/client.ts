/** The client that sent a request: its network address, and the certificate of its connection. */
import type { Reason } from './refusal.ts';

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
