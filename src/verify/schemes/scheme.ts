/** The interface of compiled signature schemes: parse headers, verify, sign. Pure: no clock, no files, no network. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { DecodedToken, EventIdentity, SealedToken, SignedHead } from '../../core/event.ts';
import type { HeaderFields } from '../../core/head.ts';
import type { Fault } from '../../core/problem.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import type { Algorithm, SchemeDescription, SecretEncoding } from './description.ts';

/** A verification key, prepared once at load, because preparing it for each request would cost more than the HMAC. */
export interface VerifyKey {
  /** The configured name. */
  readonly name: string;
  /** Prepared material, private to the scheme; never enumerable data. */
  readonly material: unknown;
  /** Usable from this instant on; undefined: immediately. */
  readonly notBefore?: EpochMilliseconds | undefined;
  /** Usable before this instant; undefined: no expiry. */
  readonly notAfter: EpochMilliseconds | undefined;
}

/** Why a secret's text is not a valid key; contains no secret. */
export interface KeyFault extends Fault {
  /** The hint follows from the text itself, so no guess is better. */
  readonly isCertain?: true;
}

/** A key, with a warning if its secret is weak. */
export interface KeyParsed {
  readonly key: VerifyKey;
  readonly warning?: string;
}

/** Options of a route that relax the scheme's rules. */
export interface HeadOptions {
  /** Accepts the separator in the ID, which allows bytes to move between ID, timestamp and body. */
  readonly allowDotInId: boolean;
  /** Accepts parameters that the signature does not cover, beside those that the scheme reads from the query. */
  readonly allowQuery?: boolean;
}

/** The parts of a request that a signature can cover besides the signature headers. */
export interface Message {
  readonly method: string;
  /** The absolute URL, as the sender wrote it; empty if the signature does not cover it. */
  readonly url: string;
  readonly body: Buffer;
  /** The part of the target after the question mark, for tokens with its digest. */
  readonly query?: string | undefined;
  /** Content-Type says that the body is a multipart form, with a boundary of which all parsers read the same. */
  readonly isMultipart?: boolean;
}

/** A request to sign. */
export interface SignRequest extends Partial<Message> {
  readonly id: string;
  readonly timestamp: EpochMilliseconds;
  readonly body: Buffer;
  /** Headers that the sender sends, for schemes that sign some of them. */
  readonly headers?: HeaderFields;
}

/** A signed request: the headers that were added, and the URL and the body, which may contain the signature. */
export interface SignedRequest {
  readonly headers: readonly (readonly [string, string])[];
  readonly url: string;
  readonly body: Buffer;
}

/** The identity of a verified message, or why it cannot be determined. */
export type Identified = EventIdentity | { readonly problem: string };

/** Why a token is not accepted. Plain data: the bundle of the tokens has copies of all classes, which are not those of the gate. */
export interface TokenProblem {
  readonly problem: string;
  /** `stranger`: the sender issued it for another receiver. `altered`: the sender signed another body. */
  readonly kind: 'malformed' | 'stranger' | 'altered' | 'old' | 'future';
}

/** The tokens of one scheme. */
export interface Jwt {
  /** Decodes the token in the header; nothing is verified. */
  readHeader(header: string): DecodedToken | TokenProblem;
  /** Decodes the token in the body, without its claims: untrusted clients could make them large. Undefined if it is in a header. */
  readonly readBody: ((body: Buffer) => SealedToken | TokenProblem) | undefined;
  /** Decodes the claims; nothing is verified. */
  readClaims(token: SealedToken): DecodedToken | TokenProblem;
  /** The key that signed the token and thereby the body, if the token is for this route; and the token with its claims. */
  verify(
    token: SealedToken | DecodedToken,
    body: Buffer,
    keys: readonly VerifyKey[],
    at: EpochMilliseconds,
  ): Promise<{ readonly key: VerifyKey; readonly token: DecodedToken } | TokenProblem | 'mismatch'>;
  /** The scheme's name for the algorithm that the header of a token names. */
  toAlgorithm(token: SealedToken): Algorithm;
  /** The claims that are not accepted, for explanations. */
  listStrangeClaims(claims: DecodedToken['claims']): string[];
  /** The digest of the body; undefined if the token has none. */
  readBodyHash(claims: DecodedToken['claims']): Buffer | undefined;
  /** The token of a request, signed with the material of a private key or a secret. */
  sign(request: SignRequest, material: unknown, given: GivenToken): string;
}

/** The parts of a token that is about to be signed, beside those that its scheme requires. */
export interface GivenToken {
  /** Take precedence over those that the scheme requires. */
  readonly claims: Readonly<Record<string, unknown>>;
  /** The certificates of `x5c` in base64; undefined if the scheme has none. */
  readonly chain: readonly string[] | undefined;
}

/** A token that was verified: which key verified it, and which event it signs. */
interface VerifiedToken {
  readonly key: VerifyKey;
  readonly identity: EventIdentity;
}

/** Verifies the token of a delivery, with the keys that the route has when its turn comes. `mismatch`: none of them signed it. */
export type VerifyToken = (
  head: SignedHead,
  message: Message,
  readKeys: () => readonly VerifyKey[],
  at: EpochMilliseconds,
) => Promise<VerifiedToken | Refusal | 'mismatch'>;

/** A signature scheme. */
export interface Scheme {
  readonly description: SchemeDescription;
  /** The name in the config. */
  readonly name: string;
  /** Lower-cased names of the signature headers; none may be repeated. */
  readonly headerNames: readonly string[];
  /** The URL, or path and query, are signed. */
  readonly signsUrl: boolean;
  /** Parses a secret's text into a verification key. */
  parseKey(
    name: string,
    secret: Secret,
    encoding: SecretEncoding | undefined,
    notAfter?: EpochMilliseconds,
  ): KeyParsed | KeyFault;
  /** Parses the signature headers, or returns the refusal `missing_signature` or `malformed_signature`. */
  readHead(headers: HeaderFields, options: HeadOptions, query?: string): SignedHead | Refusal;
  /**
   * Completes the head with what is in the body, or returns the refusal `missing_signature` or `malformed_signature`. Undefined if the
   * scheme needs nothing in the body before it is verified.
   */
  readonly readBody: ((head: SignedHead, body: Buffer, options: HeadOptions) => SignedHead | Refusal) | undefined;
  /** For schemes with a JSON Web Token, which verifies and identifies deliveries. `verify` then finds no key. */
  readonly token: { readonly jwt: Jwt; readonly verify: VerifyToken } | undefined;
  /** The first of `keys` that signed `head` and `message`. Every key and signature is tried, even after a match. */
  verify(head: SignedHead, message: Message, keys: readonly VerifyKey[]): VerifyKey | undefined;
  /** Determines the event's identity. Only for verified messages, because it may parse the body. */
  identify(head: SignedHead, message: Message): Identified;
  /** The request target without signed values and the signature, with the headers to compare; undefined if the target is enough. */
  readonly toOpenHead: ((target: string, headers: HeaderFields) => string) | undefined;
  /** Signs like the sender, also in the body or the query. Throws SidegateError('user') for a secret or a request that cannot be signed. */
  signRequest(request: SignRequest, secret: Secret, encoding: SecretEncoding | undefined): SignedRequest;
  /** The signature headers (name and value) of the request, if the signature is in headers. Throws SidegateError('user') for a secret that cannot sign. */
  sign(request: SignRequest, secret: Secret, encoding: SecretEncoding | undefined): readonly (readonly [string, string])[];
}
