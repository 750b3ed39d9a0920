/** What a signature scheme is, as plain data: presets and the config's `custom` are written in it, and compile.ts makes it run. */
import type { Milliseconds } from '../../core/clock.ts';

/** How a signature is computed; `token` is none: the header carries the secret itself. */
export type Algorithm = 'hmac-sha1' | 'hmac-sha256' | 'hmac-sha512' | 'ed25519' | 'ecdsa-p256' | 'token';

/** How a secret's text becomes key bytes, where no prefix says it. */
export type SecretEncoding = 'utf8' | 'base64' | 'hex';

/** How signature bytes are written; `text` only for tokens. */
export type SignatureEncoding = 'hex' | 'base64' | 'base64url' | 'text';

/** A part of what is signed; `form`: the parameters of form content, sorted, name and value without anything between. */
export type Piece = 'id' | 'timestamp' | 'body' | 'method' | 'url' | 'form' | { readonly text: string };

/** Where a value stands; `entry`: in the signature header's list, behind this prefix. */
export type Source = { readonly header: string } | { readonly entry: string } | { readonly json: string };

/** One form of signature that the header may carry. */
export interface SignatureForm {
  /** What stands before the encoded bytes; never optional. */
  readonly prefix: string;
  readonly algorithm: Algorithm;
}

/** How a sender finds out, before or between deliveries, whether the endpoint is its receiver's own. */
export type HandshakeName = 'slack' | 'zoom' | 'meta' | 'x' | 'twitch' | 'discord' | 'microsoft-graph' | 'cloudevents';

/** Where signatures stand and how they are written. */
export interface SignatureDescription {
  /** Empty where `content` says where the token stands. */
  readonly header: string;
  /** For tokens in JSON content: their path, with `[*]` for each item of a list; every one of them must be the secret. */
  readonly content?: string;
  readonly encoding: SignatureEncoding;
  /** Separates entries, where one header carries several. */
  readonly list?: ',' | ';' | ' ';
  /** Entries of another form are skipped. */
  readonly forms: readonly SignatureForm[];
}

/** How the sender writes its time. */
export interface TimestampDescription {
  readonly from: Source;
  /** `rfc3339`: in UTC, with any fraction. */
  readonly unit: 's' | 'ms' | 'rfc3339';
}

/** How a secret's text is read where the config names no encoding. */
export interface SecretDescription {
  readonly encoding: SecretEncoding;
  /** What the sender's secrets begin with and is part of the key; a secret without it is probably another one, and gets a warning. */
  readonly usualStart?: string;
  /** Cut off before decoding; with `encoding` named in the config it may be left out. */
  readonly prefix?: string;
}

/** How a public key's text is read; PEM always is. */
export interface PublicKeyDescription {
  readonly encoding: 'hex' | 'base64';
  /** The key's raw bytes (Ed25519), or SubjectPublicKeyInfo in DER (RFC 5280 §4.1). */
  readonly format: 'raw' | 'spki';
  /** Tells it from a secret, where a scheme has both. */
  readonly prefix?: string;
  /** The prefix of the private half, which only signs. */
  readonly privatePrefix?: string;
}

/** What verified content must be. */
export type ContentShape = 'json-object' | 'json-array' | 'json-object-or-array';

/** Who signs like this, for the docs and for the errors that a key of the wrong form gets. */
export interface SenderDescription {
  readonly title: string;
  /** The page of its own documentation that describes the signature. */
  readonly docs: string;
  /** What the key is, and where the sender shows it. */
  readonly key: string;
}

/** How far a timestamp may lie off. */
export interface Tolerance {
  readonly past: Milliseconds;
  readonly future: Milliseconds;
}

/** A signature scheme. */
export interface SchemeDescription {
  /** As written in the config. */
  readonly name: string;
  readonly from?: SenderDescription;
  /** Left out: nothing is signed, and another gate of the route must know the sender. */
  readonly signature?: SignatureDescription;
  /** The content carries its own signature, and a gate of its own checks it. */
  readonly isSignedInContent?: true;
  /** In order; empty for tokens. */
  readonly signed: readonly Piece[];
  /** Stands between two pieces. */
  readonly separator: string;
  readonly timestamp?: TimestampDescription;
  /** Left out: the digest of what was signed identifies an event. `[*]` in a JSON path: the ids of all items together. */
  readonly id?: Source;
  /** The headers, unsigned, that tell kinds of event apart which may have the same content: each kind is an event of its own. */
  readonly kind?: readonly string[];
  readonly secret: SecretDescription;
  readonly publicKey?: PublicKeyDescription;
  /** The config's `tolerance`, where it is left out. */
  readonly tolerance: Tolerance;
  /** The config's `contentTypes`, where they are left out. */
  readonly contentTypes: readonly string[];
  /** The public URL may be signed with its default port written out, or without. */
  readonly isPortOptional?: true;
  /** The query parameter that holds the content's SHA-256 in hex, in place of the `form` piece. */
  readonly contentDigestParameter?: string;
  /** Escapes of these characters in the URL are signed decoded. */
  readonly decodedInUrl?: string;
  /**
   * Anything else is refused, though it be signed: what the sender signs beside events is none (X signs any token by its CRC), and
   * where nothing stands between the content and its neighbour, no byte of one can be passed off as the other's.
   */
  readonly contentShape?: ContentShape;
  /** Fields of another family with the same meaning, which must not say anything else: our name → theirs. */
  readonly twins?: Readonly<Record<string, string>>;
  /** Answered at the gate unless the config says otherwise. */
  readonly handshake?: HandshakeName;
  /** The spec's least length of a secret in bytes; shorter ones get a warning. */
  readonly leastSecretBytes?: number;
}
