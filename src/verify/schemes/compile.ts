/** Compiles a scheme's description when the config is loaded, so that requests make no decisions about it. */
import type { SignedHead } from '../../core/event.ts';
import type { Chunks } from '../../core/hmac.ts';
import { parseJsonListPath, readJsonList } from '../../core/json-path.ts';
import { countMembers } from '../../core/json-scan.ts';
import { refuse } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import { parseStrictJson } from '../../core/strict-json.ts';
import { ALGORITHMS, type AlgorithmEntry } from './algorithms.ts';
import { compileBodyHead } from './body-head.ts';
import { JSON_BOUNDS } from './body-values.ts';
import { needsFields, signsUrl } from './coverage.ts';
import type { Algorithm, SchemeDescription, SecretEncoding } from './description.ts';
import { compileFieldHead } from './field-head.ts';
import { compileHead, toHeaderNames } from './head.ts';
import { compileIdentity, compileOpenHead } from './identity.ts';
import { Material, readMaterial } from './keys.ts';
import { compilePieces } from './layout.ts';
import type { KeyFault, KeyParsed, Scheme, SignedRequest, SignRequest, VerifyKey } from './scheme.ts';
import { compileSigner, type EncodedKey, toHeaders } from './sign.ts';
import { signAnywhere } from './sign-anywhere.ts';
import { compileToken, compileTokenSigner, type TokenScheme } from './token.ts';
import { compileUrlForms } from './url.ts';

/** Shorter secrets can be guessed with any scheme. */
const MIN_SECRET_BYTES = 16;

/** Compiles a description. */
export function compileScheme(description: SchemeDescription): Scheme {
  const assemble = compilePieces(description);
  const toUrls = compileUrlForms(description);
  const identify = compileIdentity(description);
  const verifyContent = compileContentTokens(description.signature?.content);
  const usesUrl = signsUrl(description) || description.signed.includes('target');
  const findKey = compileKeySearch(description);
  const token = description.jwt && compileToken(description, identify);
  const readHead = token?.readHead ?? (needsFields(description) ? compileFieldHead(description) : compileHead(description));
  const readBody = verifyContent === undefined ? compileBodyHead(description) : checkContent;
  const signRequest = compileSigning(description, token, (request, key) =>
    signAnywhere({ description, readHead, readBody, assemble, toUrls }, request, key),
  );
  return {
    description,
    name: description.name,
    headerNames: toHeaderNames(description),
    signsUrl: usesUrl,
    parseKey: (name, secret, encoding, notAfter) => parseKey(description, { name, secret, encoding, notAfter }),
    readHead,
    readBody,
    token,
    verify(head, message, keys) {
      if (token !== undefined) return undefined;
      if (verifyContent !== undefined) return verifyContent(message.body, keys);
      if (!usesUrl) return findKey(head, assemble(head, message)(''), keys);
      let match: VerifyKey | undefined;
      const toChunks = assemble(head, message);
      for (const url of toUrls(message.url)) match ??= findKey(head, toChunks(url), keys);
      return match;
    },
    identify: (head, message) => identify(head, message, () => assemble(head, message)(toUrls(message.url)[0] ?? '') ?? []),
    toOpenHead: compileOpenHead(description),
    signRequest,
    sign: (request, secret, encoding) => toHeaders(request, signRequest(request, secret, encoding)),
  };
}

type FindKey = (head: SignedHead, chunks: Chunks | undefined, keys: readonly VerifyKey[]) => VerifyKey | undefined;

/** Signs by a token, by headers, or in the places that the scheme reads. */
function compileSigning(
  description: SchemeDescription,
  token: TokenScheme | undefined,
  signElsewhere: (request: SignRequest, key: EncodedKey) => SignedRequest,
): Scheme['signRequest'] {
  if (token !== undefined) return compileTokenSigner(description, token.jwt);
  if (needsFields(description)) return (request, secret, encoding) => signElsewhere(request, { secret, encoding });
  return compileSigner(description);
}

/** Never returns early: the time must not reveal which key or signature matched. */
function compileKeySearch({ signature }: SchemeDescription): FindKey {
  const secrets = new Set(signature?.forms.map(({ algorithm }) => algorithm).filter((name) => !ALGORITHMS[name].isAsymmetric));
  const isSigned = secrets.size > 1 ? isSignedByAny : isSignedBy;
  return (head, chunks, keys) => {
    if (chunks === undefined) return undefined;
    let match: VerifyKey | undefined;
    for (const key of keys) if (isSigned(key.material as Material, head, chunks)) match ??= key;
    return match;
  };
}

function isSignedBy({ algorithm, key }: Material, { signatures }: SignedHead, chunks: Chunks): boolean {
  let check: ReturnType<AlgorithmEntry['checker']> | undefined;
  let isMatch = false;
  for (const signature of signatures) {
    if (signature.algorithm !== algorithm) continue;
    check ??= ALGORITHMS[algorithm].checker(key, chunks);
    if (check(signature.bytes)) isMatch = true;
  }
  return isMatch;
}

/** For headers with signatures by several MACs, which one secret verifies. */
function isSignedByAny(material: Material, head: SignedHead, chunks: Chunks): boolean {
  if (ALGORITHMS[material.algorithm].isAsymmetric) return isSignedBy(material, head, chunks);
  // Each algorithm reads the signed bytes once, for any number of signatures.
  const checks = new Map<string, ReturnType<AlgorithmEntry['checker']>>();
  let isMatch = false;
  for (const { algorithm, bytes } of head.signatures) {
    const entry = ALGORITHMS[algorithm as Algorithm];
    if (entry.isAsymmetric) continue;
    const check = checks.get(algorithm) ?? entry.checker(material.key, chunks);
    checks.set(algorithm, check);
    if (check(bytes)) isMatch = true;
  }
  return isMatch;
}

interface KeyText {
  readonly name: string;
  readonly secret: Secret;
  readonly encoding: SecretEncoding | undefined;
  readonly notAfter: number | undefined;
}

function parseKey(description: SchemeDescription, { name, secret, encoding, notAfter }: KeyText): KeyParsed | KeyFault {
  const material = readMaterial(secret, { description, encoding, purpose: 'verify' });
  if (!(material instanceof Material)) return material;
  const { validity } = material;
  const key = { name, material, notBefore: validity?.notBefore, notAfter: toEarlier(notAfter, validity?.notAfter) };
  const warning = findWeakness(description, secret, material.key.symmetricKeySize);
  return warning === undefined ? { key } : { key, warning };
}

/** A certificate ends a key as its own `notAfter` does. */
function toEarlier(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.min(a, b);
}

/** `length` is undefined for public keys. */
function findWeakness(description: SchemeDescription, secret: Secret, length: number | undefined): string | undefined {
  if (length === undefined) return undefined;
  const { usualStart = '' } = description.secret;
  if (!secret.expose().toString('latin1').startsWith(usualStart))
    return `the secret does not start with ${usualStart}: this key should be ${description.from?.key ?? 'one that does'}`;
  const min = description.leastSecretBytes ?? MIN_SECRET_BYTES;
  return length < min ? `the secret has ${length} bytes; it should have at least ${min}` : undefined;
}

/** The key that equals the first token; undefined unless every token equals one of `keys`. */
type VerifyContent = (body: Buffer, keys: readonly VerifyKey[]) => VerifyKey | undefined;

/** Far more than any delivery has. Bounds the work for a sender that is not verified yet. */
const MAX_TOKENS = 1_000;

/** For senders that do not sign, but repeat a configured secret in each item. Undefined if the scheme has no tokens in the body. */
function compileContentTokens(content: string | undefined): VerifyContent | undefined {
  if (content === undefined) return undefined;
  const path = parseJsonListPath(content);
  if (path === undefined) throw new Error(`${content} is not a path with [*]`);
  return (body, keys) => {
    const tokens = readJsonList(path, parse(body));
    if (tokens === undefined || tokens.length > MAX_TOKENS) return undefined;
    const checkers = keys.map(({ material }) => ALGORITHMS.token.checker((material as Material).key, []));
    // Checks all tokens: one item with the right token must not make the others valid.
    let first: number | undefined;
    for (const token of tokens) {
      const match = typeof token === 'string' ? findMatch(Buffer.from(token), checkers) : -1;
      // Stopping at the first mismatch is safe: the position of an item reveals nothing about a key.
      if (match === -1) return undefined;
      first ??= match;
    }
    return first === undefined ? undefined : keys[first];
  };
}

/** Rejects a body that is too large to be parsed, and names the limit. */
const checkContent: NonNullable<Scheme['readBody']> = (head, body) => {
  const counted = countMembers(body, JSON_BOUNDS);
  if (typeof counted === 'number') return head;
  return refuse('malformed_signature', 'malformed_signature', `the body cannot be read as JSON: ${counted}`);
};

/** Never returns early: the time must not reveal which key matched. */
function findMatch(token: Buffer, checkers: readonly ((token: Buffer) => boolean)[]): number {
  let match = -1;
  for (const [index, check] of checkers.entries()) if (check(token) && match === -1) match = index;
  return match;
}

function parse(body: Buffer): unknown {
  const parsed = parseStrictJson(body, JSON_BOUNDS);
  return parsed.kind === 'value' ? parsed.value : undefined;
}
