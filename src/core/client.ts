/** Who sent a request: the network address, and the certificate of the connection. */
import type { Reason } from './refusal.ts';

/** A certificate that a client presented in its TLS handshake; an authority that the port trusts issued it. */
export interface ClientCertificate {
  /** `DNS:…`, `URI:…`, `email:…`, `IP Address:…` of its alternative names, and `CN:…` of its subject. */
  readonly names: readonly string[];
  /** DER. */
  readonly raw: Buffer;
}

/** Why a certificate no longer authenticates its connection: its own time, or a change of the client CAs or revocation lists. */
export type CertificateEnd = Extract<Reason, 'certificate_expired' | 'client_trust_changed'>;

/** Who sent the request, after the trusted proxies were taken into account. */
export interface Client {
  /** The address that limits and logs use. */
  readonly address: string;
  /** The other end of the connection. */
  readonly peer: string;
  /** The peer is a proxy of `listen.trustedProxies`: its X-Forwarded-* may be believed. */
  readonly viaTrustedProxy: boolean;
  /** The peer is a proxy of `listen.trustedIdentityProxies`: it may say who the client is. */
  readonly viaIdentityProxy: boolean;
  /** The client's own protocol, as far as it can be believed. */
  readonly scheme: 'http' | 'https';
  /** Of the connection itself. */
  readonly certificate?: ClientCertificate;
  /** Why the certificate of the connection no longer counts; there is no `certificate` then. */
  readonly certificateEnd?: CertificateEnd;
}
