/** The parts of a description that say how a sender's keys are found and used: certificates, JSON Web Tokens, and changes of a secret's text. */
import type { Milliseconds } from '../../core/clock.ts';

/** The sender's public keys. PEM is always accepted as well. */
export interface PublicKeyDescription {
  readonly encoding: 'hex' | 'base64';
  /** The key's raw bytes (Ed25519), or SubjectPublicKeyInfo in DER (RFC 5280 §4.1). */
  readonly format: 'raw' | 'spki';
  /** Distinguishes a public key from a secret if a scheme has both. */
  readonly prefix?: string;
  /** Prefix of private keys, which only sign. */
  readonly privatePrefix?: string;
}

/** Certificates of the sender at URLs that a header of each delivery names; used if a route has no keys. */
export interface CertificateDescription {
  /** The header with the URL. */
  readonly header: string;
  /** The hosts that URLs may have; anyone can write a URL into a request. */
  readonly hosts: readonly string[];
  /** The start of the path that URLs must have. */
  readonly path: string;
  /** The certificate must have one of these names, as common name or as DNS name. */
  readonly names: readonly string[];
}

/** A claim with the digest of the body. */
export interface BodyHashDescription {
  readonly claim: string;
  readonly digest: 'sha256' | 'sha512';
  readonly encoding: 'hex' | 'base64' | 'base64url';
  /** Requests by GET have the digest of their parameters instead: as one JSON object of strings, in their order, without white space. */
  readonly query?: 'json';
}

/** A chain of certificates in the token's header (`x5c`, RFC 7515 §4.1.6). The keys of the route are the roots. */
export interface ChainDescription {
  /** Extensions that mark the certificates of this sender among all those under the root: of the signer, then of its issuers. */
  readonly extensions: readonly string[];
}

/** Clocks differ by less if they are synchronized. */
export const DEFAULT_CLOCK_TOLERANCE_MS: Milliseconds = 60_000;

/** A JSON Web Token (RFC 7519) that signs the delivery. Paths of claims are JSON paths. */
export interface JwtDescription {
  /** If the token is in the body: `$` if it is the whole body, or the path of the only member, such as `$.signedPayload`. */
  readonly content?: string;
  /** Accepted values of `iss`. */
  readonly issuers?: readonly string[];
  /** Accepted audiences. */
  readonly audience?: readonly string[];
  /** The claims that may name the audience; default: `$.aud`. */
  readonly audienceAt?: readonly string[];
  /** Accepted values of other claims. */
  readonly claims?: Readonly<Record<string, readonly (string | boolean)[]>>;
  /** Settings without which a token that the sender issued to another of its customers would be accepted. */
  readonly mustSet?: readonly string[];
  /** Without it, and with the token in a header, the body is not signed. */
  readonly bodyHash?: BodyHashDescription;
  /** Tokens without `exp` are rejected. */
  readonly requiresExpiry?: true;
  readonly chain?: ChainDescription;
  /** How far the clocks may differ for `exp` and `nbf`. Default: DEFAULT_CLOCK_TOLERANCE_MS. */
  readonly clockTolerance?: Milliseconds;
}

/** How a sender changes the text of a secret before it uses it as a key. `nfkd`: Unicode normalization. `html-entities`: decoded, as WordPress does with `wp_specialchars_decode` and ENT_QUOTES. */
export type SecretTransform = 'nfkd' | 'html-entities';

const ENTITY = /&(?:(quot|lt|gt|amp)|#0{0,9}(34|38|39|60|62)|#[xX]0{0,9}(22|26|27));/g;
const NAMED: Readonly<Record<string, string>> = { quot: '"', lt: '<', gt: '>', amp: '&' };

const TRANSFORMS: Readonly<Record<SecretTransform, (text: string) => string>> = {
  nfkd: (text) => text.normalize('NFKD'),
  'html-entities': (text) =>
    text.replace(ENTITY, (_, name: string | undefined, decimal: string | undefined, hex: string | undefined) => {
      if (name !== undefined) return NAMED[name] ?? '';
      return String.fromCharCode(decimal === undefined ? Number.parseInt(hex ?? '', 16) : Number(decimal));
    }),
};

/** The bytes of the key. Bytes that are not UTF-8 stay as they are. */
export function transformSecret(bytes: Buffer, transform: SecretTransform | undefined): Buffer {
  if (transform === undefined) return bytes;
  try {
    return Buffer.from(TRANSFORMS[transform](new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)));
  } catch {
    return bytes;
  }
}
