/** Compiles a scheme's description when the config is loaded, so that requests make no decisions about it. */
import type { SignedHead } from '../../core/event.ts';
import type { Chunks } from '../../core/hmac.ts';
import type { Secret } from '../../core/secret.ts';
import { ALGORITHMS, type AlgorithmEntry } from './algorithms.ts';
import { compileBodyHead } from './body-head.ts';
import { checkContent, compileContentTokens } from './content-token.ts';
import { needsFields, signsUrl } from './coverage.ts';
import type { Algorithm, SchemeDescription, SecretEncoding } from './description.ts';
import { compileFieldHead } from './field-head.ts';
import { compileHead, toHeaderNames } from './head.ts';
import { compileIdentity } from './identity.ts';
import { Material, readJwk, readMaterial } from './keys.ts';
import { compileOpenHead } from './open-content.ts';
import { compilePieces } from './pieces.ts';
import type { KeyParsed, KeyProblem, Scheme, SignedRequest, SignRequest, VerifyKey } from './scheme.ts';
import { compileSigner, type SigningKey, toHeaders } from './sign.ts';
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
    parseJwk(name, jwk) {
      const material = readJwk(jwk, description);
      return material && { name, material, notAfter: undefined, ...material.validity };
    },
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
  signElsewhere: (request: SignRequest, key: SigningKey) => SignedRequest,
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

function parseKey(description: SchemeDescription, { name, secret, encoding, notAfter }: KeyText): KeyParsed | KeyProblem {
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
