/** The interface of handshakes: pure functions from a request to a response of the gate, a refusal, or undefined. */

import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { isEqualInConstantTime } from '../../core/bytes.ts';
import type { HeaderFields } from '../../core/head.ts';
import { isJsonObject } from '../../core/json-path.ts';
import { parseJsonText } from '../../core/json-scan.ts';
import { acknowledge, type HandshakeReply, type Refusal, refuse } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import type { HandshakeName } from '../schemes/description.ts';
import type { Scheme, VerifyKey } from '../schemes/scheme.ts';

/** A route's settings for its sender's handshake. */
export interface HandshakeOptions {
  readonly type: HandshakeName;
  /** Whether a token for the handshake is configured. */
  readonly hasToken: boolean;
  /** The query parameter that contains the token, if the sender does not define one. */
  readonly parameter: string;
  readonly allowedOrigins: readonly string[];
  /** Requests per minute; undefined: no limit. */
  readonly allowedRate: number | undefined;
  /** The name of the key, for senders that want it in the response. */
  readonly publicKey?: string | undefined;
  /** Whether the route accepts any query. */
  readonly allowQuery: boolean;
  readonly scheme: Scheme;
}

/** A request whose body has not been read. */
export interface OpenRequest {
  readonly method: string;
  readonly query: string | undefined;
  readonly headers: HeaderFields;
}

/** The secrets that can authenticate it. */
export interface OpenSecrets {
  readonly keys: readonly VerifyKey[];
  /** Undefined if no token is configured, or if it cannot be read right now. */
  readonly token: Secret | undefined;
}

/** An unsigned handshake; undefined if the request is not one. The response applies only to requests without a body. */
type OpenHandshake = (request: OpenRequest, secrets: OpenSecrets) => Refusal | undefined;

/** Shows authorized operators a secret that a sender chose. Anyone may have sent it, so no delivery is verified with it. */
type OfferToken = (token: Secret) => void;

/** An unsigned POST with an empty or small body. */
export interface OpenMessage extends OpenRequest {
  readonly body: Buffer;
  readonly offer: OfferToken;
}

/** A handshake in an unsigned POST with an empty or small body; undefined if the message is not one, so it is checked as a delivery. */
type OpenBodyHandshake = (message: OpenMessage, secrets: OpenSecrets) => Refusal | undefined;

/** Larger bodies are not read before the signature headers were checked. */
export const MAX_OPEN_BODY_BYTES = 1_024;

/** A body whose signature was verified. */
interface SignedMessage {
  readonly headers: HeaderFields;
  readonly body: Buffer;
  /** The key that verified it; undefined if another gate authenticated the sender. */
  readonly key: VerifyKey | undefined;
}

/** A handshake that is signed like a delivery; undefined if the message is not one. */
export type SignedHandshake = (message: SignedMessage) => Refusal | undefined;

/** A compiled handshake. */
export interface Handshake {
  readonly open?: OpenHandshake | undefined;
  readonly openBody?: OpenBodyHandshake | undefined;
  readonly signed?: SignedHandshake;
}

/** Printable characters without a space, so that no echo can end a line; bounded in length. */
const CHALLENGE = /^[\x21-\x7e]{1,256}$/;
/** Browsers must never render a response as a page, because an attacker may have written the echoed text. */
const NOSNIFF = ['X-Content-Type-Options', 'nosniff'] as const;
/** Handshakes are short; larger bodies are events, and are not parsed here. */
const MAX_BODY_BYTES = 16_384;

/** A response to a handshake. */
export function respond(type: HandshakeName, { headers = [], ...reply }: HandshakeReply): Refusal {
  return acknowledge({ state: 'handshake', reply: { ...reply, headers: [...headers, NOSNIFF] } }, type);
}

/** A response in plain text. */
export function respondWithText(type: HandshakeName, body: string): Refusal {
  return respond(type, { status: 200, contentType: 'text/plain', body });
}

/** A response in JSON. */
export function respondWithJson(type: HandshakeName, value: object): Refusal {
  return respond(type, { status: 200, contentType: 'application/json', body: JSON.stringify(value) });
}

/** Rejects the handshake. Only the log contains `detail`, which must not include values from the request. */
export function decline(detail: string): Refusal {
  return refuse('handshake_refused', 'handshake_refused', detail);
}

/** A configured secret cannot be read. The fault is ours, so the sender should retry. */
export function failForMissingSecret(detail: string): Refusal {
  return refuse('secret_unavailable', 'secret_unavailable', detail);
}

/** The response to a challenge in `name`, or the refusal of one that must not be echoed. */
export function echo(name: string, value: unknown, toResponse: (challenge: string) => Refusal): Refusal {
  const isChallenge = typeof value === 'string' && CHALLENGE.test(value);
  return isChallenge ? toResponse(value) : decline(`${name} is not 1 to 256 visible characters`);
}

/** Compares digests, so that the time reveals nothing about the token, not even its length. */
export function isToken(given: string, token: Secret): boolean {
  return isEqualInConstantTime(hash('sha256', given, 'buffer'), hash('sha256', token.expose(), 'buffer'));
}

/** Rejects a token that is not the configured one; undefined if it is. */
export function checkToken(
  given: string | undefined,
  token: Secret | undefined,
  { hasToken }: Pick<HandshakeOptions, 'hasToken'>,
): Refusal | undefined {
  if (!hasToken) return decline('no handshake.verifyToken is configured');
  if (token === undefined) return failForMissingSecret('handshake.verifyToken cannot be read');
  return given !== undefined && isToken(given, token) ? undefined : decline('the token does not equal handshake.verifyToken');
}

/** Parses a small JSON object that contains `word`; undefined for any other body, which most are. */
export function parseSmallJson(body: Buffer, word: string): Readonly<Record<string, unknown>> | undefined {
  const value = parseSmall(body, word);
  return isJsonObject(value) ? value : undefined;
}

/** The same for any JSON value. */
export function parseSmall(body: Buffer, word: string): unknown {
  if (body.length > MAX_BODY_BYTES || !body.includes(word)) return undefined;
  try {
    return isUtf8(body) ? parseJsonText(body) : undefined;
  } catch {
    return undefined;
  }
}

/** The value of the only member of a small JSON object; undefined for any other body. */
export function parseOnlyMember(body: Buffer, name: string): unknown {
  const content = parseSmallJson(body, `"${name}"`);
  return content !== undefined && Object.keys(content).length === 1 ? content[name] : undefined;
}

const MAX_TOKEN_LENGTH = 258;
const TOKEN_LIKE = /^[A-Za-z0-9+/_.=-]*$/;

/** For handshakes that sign any token of letters, digits and base64 characters: a body that could be one is not a delivery. */
export function declineTokenLike(body: Buffer, name: string): Refusal | undefined {
  if (body.length > MAX_TOKEN_LENGTH || !TOKEN_LIKE.test(body.toString('latin1'))) return undefined;
  return decline(`the body could be a ${name}, which anyone can have signed`);
}
