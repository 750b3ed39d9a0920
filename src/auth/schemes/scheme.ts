/** What every compiled signature scheme gives: how its headers are read, checked and written. Pure: no time, no files, no network. */
import type { JsonWebKey } from 'node:crypto';
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { EventIdentity, SignedHead } from '../../core/event.ts';
import type { HeaderFields } from '../../core/headers.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import type { SchemeDescription, SecretEncoding } from './description.ts';

/** A verification key, prepared once at load: deriving it for each request would cost more than the HMAC. */
export interface VerifyKey {
  /** The configured name. */
  readonly name: string;
  /** Scheme-private prepared material; never enumerable data. */
  readonly material: unknown;
  /** Usable from this instant on; left out: at once. */
  readonly notBefore?: EpochMilliseconds | undefined;
  /** Usable before this instant; undefined for ever. */
  readonly notAfter: EpochMilliseconds | undefined;
}

/** Why a secret's text is no key; safe to show. */
export interface KeyProblem {
  readonly problem: string;
  readonly hint: string;
}

/** A key, with a warning where its secret is weaker than it should be. */
export interface KeyParsed {
  readonly key: VerifyKey;
  readonly warning?: string;
}

/** A route's ways to be laxer than the scheme asks. */
export interface HeadOptions {
  /** Accept the separator in the id, which lets bytes move between id, timestamp and body. */
  readonly allowDotInId: boolean;
}

/** What a signature may cover beside its own headers. */
export interface Message {
  readonly method: string;
  /** As the sender wrote it, from the scheme on; empty where the scheme does not sign it. */
  readonly url: string;
  readonly body: Buffer;
}

/** What is to be signed. */
export interface SignRequest extends Partial<Message> {
  readonly id: string;
  readonly timestamp: EpochMilliseconds;
  readonly body: Buffer;
}

/** Which event a verified message is, or why that cannot be told. */
export type Identified = EventIdentity | { readonly problem: string };

/** A signature scheme. */
export interface Scheme {
  readonly description: SchemeDescription;
  /** As written in the config. */
  readonly name: string;
  /** Lower-cased names of the headers that carry the signature; each may come once only. */
  readonly headerNames: readonly string[];
  /** The URL is signed, so the route must know its public one. */
  readonly signsUrl: boolean;
  /** Prepares a key for verification from a secret's text. */
  parseKey(
    name: string,
    secret: Secret,
    encoding: SecretEncoding | undefined,
    notAfter?: EpochMilliseconds,
  ): KeyParsed | KeyProblem;
  /** The same from a public key as a JWK (RFC 7517 §4); undefined for one that the scheme's signatures are not made by. */
  parseJwk(name: string, jwk: JsonWebKey): VerifyKey | undefined;
  /** Reads the signature headers, or refuses: `missing_signature` or `malformed_signature`. */
  readHead(headers: HeaderFields, options: HeadOptions): SignedHead | Refusal;
  /** The first of `keys`, in order, that signed `head` and `message`; every key and signature is tried, whatever matched before. */
  verify(head: SignedHead, message: Message, keys: readonly VerifyKey[]): VerifyKey | undefined;
  /** Which event it is. Only for what was verified: it may parse the content. */
  identify(head: SignedHead, message: Message): Identified;
  /** The headers, name and value, that sign the request; throws SidegateError('user') for a secret that cannot sign. */
  sign(request: SignRequest, secret: Secret, encoding: SecretEncoding | undefined): readonly (readonly [string, string])[];
}
