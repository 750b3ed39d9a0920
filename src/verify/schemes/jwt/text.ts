/** Decodes JSON Web Tokens (RFC 7519) in compact form, so strictly that every parser reads the same token from the text. */

import { parseBase64Url } from '../../../core/bytes.ts';
import type { DecodedToken, SealedToken } from '../../../core/event.ts';
import { isJsonObject } from '../../../core/json-path.ts';
import { parseStrictJson } from '../../../core/strict-json.ts';
import type { TokenProblem } from '../scheme.ts';
import { malformed } from './problem.ts';

const HEADER_BOUNDS = { maxDepth: 4, maxValues: 64 };
/** Characters of the header, which nobody has verified; a chain has up to five certificates of 8 KiB. */
const [MAX_HEADER, MAX_HEADER_WITH_CHAIN] = [4_096, 65_536];
/** The claims of a token in a header stay in memory while the client sends the body; those in a body are decoded after the verification. */
const CLAIM_BOUNDS = { header: { maxDepth: 8, maxValues: 256 }, body: { maxDepth: 32, maxValues: 10_000 } };
const MAX_KEY_ID_LENGTH = 256;
/** Bytes of a decoded signature: of an Ed25519 signature or an HMAC at least, of an RSA signature at most. */
const [MIN_SIGNATURE, MAX_SIGNATURE] = [32, 1_024];
const PARTS = 3;
const NOT_CANONICAL = 'a part of the token is not canonical base64url';
/**
 * Header parameters that name a key or change what is signed. An attacker writes the header before anything is verified, so the key must
 * come from the config; and a library that does not know a critical parameter would verify something else (RFC 7515 §4.1.11).
 */
const REJECTED_PARAMETERS = ['crit', 'jku', 'jwk', 'x5u', 'b64', 'zip', 'enc'];
/** Allowed if the scheme verifies the chain; its digests are of no use without it. */
const CHAIN_PARAMETERS = ['x5c', 'x5t', 'x5t#S256'];

/** Options of a scheme's tokens. */
export interface TokenForm {
  /** The names of the accepted algorithms (RFC 7518 §3.1). */
  readonly algorithms: readonly string[];
  readonly hasChain: boolean;
  readonly place: keyof typeof CLAIM_BOUNDS;
}

/** Decodes everything but the claims; nothing is verified. */
export function decodeSealed(text: string, { algorithms, hasChain }: TokenForm): SealedToken | TokenProblem {
  // A body of a mebibyte can consist of dots.
  const parts = text.split('.', PARTS + 1);
  if (parts.length !== PARTS) return malformed('the token does not have three parts');
  const [headerText = '', , signatureText = ''] = parts;
  if (headerText.length > (hasChain ? MAX_HEADER_WITH_CHAIN : MAX_HEADER))
    return malformed('the header of the token is too long');
  const [headerBytes, signature] = [headerText, signatureText].map(parseBase64Url);
  if (headerBytes === undefined || signature === undefined) return malformed(NOT_CANONICAL);
  const header = parseStrictJson(headerBytes, HEADER_BOUNDS, 'finite');
  if (header.kind === 'problem') return malformed(`the header of the token: ${header.problem}`);
  if (!isJsonObject(header.value)) return malformed('the header of the token is not an object');
  const problem = findHeaderProblem(header.value, algorithms, hasChain);
  if (problem !== undefined) return malformed(problem);
  if (signature.length < MIN_SIGNATURE || signature.length > MAX_SIGNATURE)
    return malformed('the signature of the token does not have the length of one');
  return { text, header: header.value, signature };
}

/** Decodes the claims as well. */
export function decodeClaims(token: SealedToken, { place }: TokenForm): DecodedToken | TokenProblem {
  const bytes = parseBase64Url(token.text.split('.', PARTS)[1] ?? '');
  if (bytes === undefined) return malformed(NOT_CANONICAL);
  // An `exp` of 1e400 never comes.
  const claims = parseStrictJson(bytes, CLAIM_BOUNDS[place], 'finite');
  if (claims.kind === 'problem') return malformed(`the claims of the token: ${claims.problem}`);
  return isJsonObject(claims.value) ? { ...token, claims: claims.value } : malformed('the claims of the token are not an object');
}

function findHeaderProblem(
  header: Readonly<Record<string, unknown>>,
  algorithms: readonly string[],
  hasChain: boolean,
): string | undefined {
  const rejected = hasChain ? REJECTED_PARAMETERS : [...REJECTED_PARAMETERS, ...CHAIN_PARAMETERS];
  const found = rejected.find((name) => Object.hasOwn(header, name));
  if (found !== undefined) return `the header of the token has ${found}, which this scheme does not use`;
  const { alg, kid } = header as { alg?: unknown; kid?: unknown };
  if (typeof alg !== 'string' || !algorithms.includes(alg)) return `the token is not signed by ${algorithms.join(' or ')}`;
  if (kid !== undefined && (typeof kid !== 'string' || kid.length > MAX_KEY_ID_LENGTH))
    return `kid is not a string of at most ${MAX_KEY_ID_LENGTH} characters`;
  return undefined;
}
