/** Signs deliveries with a JSON Web Token as the sender of a scheme does, for commands and tests. */
import { hash, sign as signBytes } from 'node:crypto';
import { parseJsonPath } from '../../../core/json-path.ts';
import { ALGORITHMS } from '../algorithms.ts';
import { TIMESTAMP_FORMATS } from '../coverage.ts';
import type { SchemeDescription } from '../description.ts';
import { compileClaim } from '../identity.ts';
import type { Material } from '../keys.ts';
import { JWS_NAMES } from '../public-keys.ts';
import type { GivenToken, SignRequest } from '../scheme.ts';

const LIFETIME_S = 300;

/** The token of a request. */
export function signToken(
  description: SchemeDescription,
  request: SignRequest,
  material: Material,
  { claims, chain }: GivenToken,
): string {
  const header = { alg: JWS_NAMES[material.algorithm], typ: 'JWT', ...(chain !== undefined && { x5c: chain }) };
  const signed = `${encode(header)}.${encode(toClaims(description, request, claims))}`;
  return `${signed}.${signText(signed, material).toString('base64url')}`;
}

/** The given claims, and those that the scheme expects beside them, with the first of the accepted values. */
function toClaims(
  { jwt = {}, id, timestamp }: SchemeDescription,
  { id: requestId, timestamp: at, body }: SignRequest,
  given: GivenToken['claims'],
): object {
  const { issuers, audience, audienceAt = ['$.aud'], claims = {}, bodyHash, requiresExpiry } = jwt;
  const seconds = Math.floor(at / 1_000);
  const found = structuredClone(given);
  setClaim(found, '$.iss', issuers?.[0]);
  const hasAudience = audienceAt.some((path) => compileClaim(path)(found) !== undefined);
  if (!hasAudience) setClaim(found, audienceAt[0] ?? '', audience?.[0]);
  for (const [path, [value]] of Object.entries(claims)) setClaim(found, path, value);
  if (id !== undefined && 'claim' in id) setClaim(found, id.claim, requestId);
  if (requiresExpiry === true) setClaim(found, '$.exp', seconds + LIFETIME_S);
  if (timestamp !== undefined && 'claim' in timestamp.from) {
    const { isNumber, format } = TIMESTAMP_FORMATS[timestamp.unit];
    const text = format(at);
    setClaim(found, timestamp.from.claim, isNumber ? Number(text) : text);
  }
  if (bodyHash !== undefined) setClaim(found, bodyHash.claim, hash(bodyHash.digest, body, 'buffer').toString(bodyHash.encoding));
  return found;
}

/** Sets the value at a path, unless the path has one; nothing if it is undefined. */
function setClaim(claims: object, text: string, value: unknown): void {
  const path = parseJsonPath(text);
  if ('problem' in path || value === undefined) return;
  let at = claims as Record<string | number, unknown>;
  for (const step of path.steps.slice(0, -1)) {
    at[step] ??= {};
    if (typeof at[step] !== 'object') return;
    at = at[step] as Record<string | number, unknown>;
  }
  at[path.steps.at(-1) ?? ''] ??= value;
}

/** ECDSA signatures of tokens are two numbers of 32 bytes (RFC 7518 §3.4), not DER. */
function signText(text: string, { algorithm, key }: Material): Buffer {
  if (algorithm !== 'ecdsa-p256') return ALGORITHMS[algorithm].sign(key, [text]);
  return signBytes('sha256', Buffer.from(text), { key, dsaEncoding: 'ieee-p1363' });
}

function encode(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
