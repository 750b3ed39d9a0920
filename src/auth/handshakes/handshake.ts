/** What a handshake is asked and answers: pure, from a request to an answer of the gate's own, a refusal, or nothing. */
import { hash } from 'node:crypto';
import { isEqualInConstantTime } from '../../core/bytes.ts';
import type { HeaderFields } from '../../core/headers.ts';
import { type Refusal, type Reply, refuse } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import type { HandshakeName } from '../schemes/description.ts';
import type { Scheme, VerifyKey } from '../schemes/scheme.ts';

/** How a route takes its sender's handshake. */
export interface HandshakeOptions {
  readonly type: HandshakeName;
  /** A token of the handshake's own is configured. */
  readonly hasToken: boolean;
  /** The query parameter that carries it, where the sender has no name for it. */
  readonly parameter: string;
  readonly allowedOrigins: readonly string[];
  /** Requests a minute; undefined for as many as the sender likes. */
  readonly allowedRate: number | undefined;
  /** The route lets any query through. */
  readonly allowQuery: boolean;
  readonly scheme: Scheme;
}

/** A request whose content nobody has read. */
export interface OpenRequest {
  readonly method: string;
  readonly query: string | undefined;
  readonly headers: HeaderFields;
}

/** What it may be judged by. */
export interface OpenSecrets {
  readonly keys: readonly VerifyKey[];
  /** Undefined where none is configured, or it cannot be read right now. */
  readonly token: Secret | undefined;
}

/** A handshake that comes unsigned; undefined: this request is none. An answer holds for requests without content only. */
export type OpenHandshake = (request: OpenRequest, secrets: OpenSecrets) => Refusal | undefined;

/** Content whose signature held. */
export interface SignedMessage {
  readonly headers: HeaderFields;
  readonly body: Buffer;
  /** What verified it; undefined where another gate knew the sender. */
  readonly key: VerifyKey | undefined;
}

/** A handshake that comes signed like any delivery; undefined: this message is none. */
export type SignedHandshake = (message: SignedMessage) => Refusal | undefined;

/** One kind of handshake, compiled. */
export interface Handshake {
  readonly open?: OpenHandshake;
  readonly signed?: SignedHandshake;
}

/** What senders let us echo: nothing that ends a line, and nothing long. */
const CHALLENGE = /^[\x21-\x7e]{1,256}$/;
/** No answer is ever taken for a page: a stranger may have written what it repeats. */
const NOSNIFF = ['X-Content-Type-Options', 'nosniff'] as const;
/** Handshakes are short; longer content is an event, and not parsed here. */
const LONGEST_CONTENT = 16_384;

/** The answer to a handshake. */
export function answer(type: HandshakeName, { headers = [], ...reply }: Reply): Refusal {
  return refuse('handshake', 'handshake', { detail: type, reply: { ...reply, headers: [...headers, NOSNIFF] } });
}

/** What the sender wants to read again. */
export function answerText(type: HandshakeName, body: string): Refusal {
  return answer(type, { status: 200, contentType: 'text/plain', body });
}

/** The sender wants an object. */
export function answerJson(type: HandshakeName, value: object): Refusal {
  return answer(type, { status: 200, contentType: 'application/json', body: JSON.stringify(value) });
}

/** Says why in the log only; no value that was sent. */
export function decline(detail: string): Refusal {
  return refuse('handshake_refused', 'handshake_refused', detail);
}

/** A token of ours is configured but gone: our own trouble, so the sender should come again. */
export function declineForLack(what: string): Refusal {
  return refuse('secret_unavailable', 'secret_unavailable', what);
}

/** A challenge that may be echoed. */
export function isChallenge(value: unknown): value is string {
  return typeof value === 'string' && CHALLENGE.test(value);
}

/** By digests: the time tells nothing of the token, its length included. */
export function isToken(given: string, token: Secret): boolean {
  return isEqualInConstantTime(hash('sha256', given, 'buffer'), hash('sha256', token.expose(), 'buffer'));
}

/** Why a token does not prove anything; undefined where it is the configured one. */
export function judgeToken(
  given: string | undefined,
  token: Secret | undefined,
  { hasToken }: Pick<HandshakeOptions, 'hasToken'>,
): Refusal | undefined {
  if (!hasToken) return decline('no handshake.verifyToken is configured');
  if (token === undefined) return declineForLack('handshake.verifyToken cannot be read');
  return given !== undefined && isToken(given, token) ? undefined : decline('the token is not handshake.verifyToken');
}

/** Short content that mentions `word` and is a JSON object; undefined for all else, which is nearly everything. */
export function parseBrief(body: Buffer, word: string): Readonly<Record<string, unknown>> | undefined {
  if (body.length > LONGEST_CONTENT || !body.includes(word)) return undefined;
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body));
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Neither null nor a list. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
