/** JSON Web Tokens as senders make them, by node:crypto, and what a scheme makes of them. */
import { createHmac, generateKeyPairSync, type KeyObject, sign as signBytes } from 'node:crypto';
import { HeaderFields } from '../../src/core/head.ts';
import { Refusal } from '../../src/core/refusal.ts';
import { Secret } from '../../src/core/secret.ts';
import { checkRecency } from '../../src/gateway/pipeline/gates/signature.ts';
import { compileScheme } from '../../src/verify/schemes/compile.ts';
import { type SchemeDescription, withReceiverId } from '../../src/verify/schemes/description.ts';
import type { VerifyKey } from '../../src/verify/schemes/scheme.ts';
import type { Vector } from './oracles/vectors.ts';

/** A key pair of a sender that signs by RS256. */
export const RSA_PAIR = generateKeyPairSync('rsa', { modulusLength: 2048 });

export function toPem(key: KeyObject): string {
  return key.export({ format: 'pem', type: key.type === 'public' ? 'spki' : 'pkcs8' }).toString();
}

export function encodePart(value: unknown): string {
  return Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
}

/** The signature of `text`, by the algorithm that is named as in a token. */
export function signText(alg: string, text: string, key: KeyObject | string): Buffer {
  if (alg === 'none') return Buffer.alloc(0);
  if (alg.startsWith('HS'))
    return createHmac(`sha${alg.slice(2)}`, key)
      .update(text)
      .digest();
  if (alg === 'ES256') return signBytes('sha256', Buffer.from(text), { key: key as KeyObject, dsaEncoding: 'ieee-p1363' });
  if (alg === 'EdDSA') return signBytes(null, Buffer.from(text), key as KeyObject);
  return signBytes(`sha${alg.slice(2)}`, Buffer.from(text), key);
}

/** A token; header and claims may be texts, which are signed as they are. */
export function makeToken(header: object | string, claims: object | string, key: KeyObject | string, alg = 'RS256'): string {
  const text = `${encodePart(header)}.${encodePart(claims)}`;
  return `${text}.${signText(alg, text, key).toString('base64url')}`;
}

/** The settings of a route that a vector names. */
export function withSettings(
  base: SchemeDescription,
  { receiverId, audience, claims }: Pick<Vector, 'receiverId' | 'audience' | 'claims'>,
): SchemeDescription {
  const description = receiverId === undefined ? base : withReceiverId(base, receiverId);
  if (description.jwt === undefined) return description;
  const accepted = { ...description.jwt.claims, ...claims };
  return { ...description, jwt: { ...description.jwt, ...(audience && { audience }), claims: accepted } };
}

/** A delivery as a scheme gets it. */
export interface Judged {
  readonly secret: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  readonly at: number;
}

/** The keys of a route that has this one. */
export function toKeys(description: SchemeDescription, secret: string): VerifyKey[] {
  const parsed = compileScheme(description).parseKey('k', new Secret(Buffer.from(secret)), undefined);
  if ('problem' in parsed) throw new Error(`${parsed.problem}: ${parsed.hint}`);
  return [parsed.key];
}

/** `ok` and the ID, or the code of what refused it, and why. */
export async function judgeToken(description: SchemeDescription, { secret, headers, body, at }: Judged): Promise<string> {
  const scheme = compileScheme(description);
  const keys = toKeys(description, secret);
  const head = scheme.readHead(new HeaderFields(Object.entries(headers).flat()), { allowDotInId: false });
  if (head instanceof Refusal) return toText(head);
  const message = { method: 'POST', url: '', body };
  const { tolerance } = description;
  const recency = { tolerance: description.timestamp === undefined ? undefined : tolerance, onSkew: () => undefined };
  let identity: { id: string | undefined; timestamp: number | undefined };
  if (scheme.token === undefined) {
    const whole = scheme.readBody?.(head, body, { allowDotInId: false }) ?? head;
    if (whole instanceof Refusal) return toText(whole);
    if (scheme.verify(whole, message, keys) === undefined) return 'mismatch';
    const found = scheme.identify(whole, message);
    if ('problem' in found) return found.problem;
    identity = found;
  } else {
    const verified = await scheme.token.verify(head, message, () => keys, at);
    if (verified === 'mismatch') return verified;
    if (verified instanceof Refusal) return toText(verified);
    identity = verified.identity;
  }
  const late = identity.timestamp === undefined ? undefined : checkRecency(identity.timestamp, at, recency);
  return late === undefined ? `ok ${identity.id ?? ''}`.trim() : toText(late);
}

function toText({ code, detail }: Refusal): string {
  return detail === undefined ? code : `${code}: ${detail}`;
}
