/**
 * JSON Web Tokens (RFC 7519): decodes them so strictly that every parser reads the same token from the text, has jose verify signature and
 * times, and checks the claims. The entry point of a separate bundle, which only configs with such a scheme load (ADR 19).
 */
import { hash, type KeyObject, X509Certificate } from 'node:crypto';
import { errors, type JWTVerifyOptions, jwtVerify } from 'jose';
import { isEqualInConstantTime, parseBase64, parseBase64Url, parseHex, readElement } from '../../../core/bytes.ts';
import { type EpochMilliseconds, toDate } from '../../../core/clock.ts';
import type { DecodedToken, SealedToken } from '../../../core/event.ts';
import { isJsonObject } from '../../../core/json-path.ts';
import { parseStrictJson } from '../../../core/strict-json.ts';
import type { Algorithm, SchemeDescription, SignatureDescription } from '../description.ts';
import { compileClaim } from '../identity.ts';
import {
  type BodyHashDescription,
  type ChainDescription,
  DEFAULT_CLOCK_TOLERANCE_MS,
  type JwtDescription,
} from '../key-description.ts';
import type { Material } from '../keys.ts';
import { findWeakKey, isOfKind, JWS_NAMES, toValidity } from '../public-keys.ts';
import type { Jwt, TokenProblem, VerifyKey } from '../scheme.ts';
import { signToken } from './sign.ts';

const WHOLE_BODY = '$';
/** The name of a member of the outermost object. */
const MEMBER = /^\$\.([A-Za-z0-9_-]{1,64})$/;
/** Of the body; the values of the token are counted apart. */
const BODY_BOUNDS = { maxDepth: 2, maxValues: 16 };

type TokenClaims = DecodedToken['claims'];

/** Why the claims of a verified token are not acceptable; undefined if they are. */
type CheckClaims = (claims: TokenClaims, body: Buffer) => TokenProblem | undefined;

const DEFAULT_AUDIENCE_CLAIM = '$.aud';
const DECODERS = { hex: parseHex, base64: parseBase64, base64url: parseBase64Url };

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
interface TokenForm {
  /** The names of the accepted algorithms (RFC 7518 §3.1). */
  readonly algorithms: readonly string[];
  readonly hasChain: boolean;
  readonly place: keyof typeof CLAIM_BOUNDS;
}

/** A key that may have signed a token. */
interface Signer {
  readonly key: VerifyKey;
  readonly publicKey: KeyObject;
}

type Verified = VerifyKey | TokenProblem | 'mismatch';

/** The key that signed a token, if its times and its issuer are acceptable. */
type VerifySignature = (
  token: SealedToken,
  algorithm: Algorithm,
  keys: readonly VerifyKey[],
  at: EpochMilliseconds,
) => Promise<Verified>;

/** Compiles the tokens of a scheme. */
export function compileJwt(description: SchemeDescription): Jwt {
  const { signature, jwt } = description;
  if (signature === undefined || jwt === undefined) throw new Error(`${description.name} has no token`);
  const form = toForm(signature, jwt);
  const algorithms = new Map(signature.forms.map(({ algorithm }) => [JWS_NAMES[algorithm], algorithm]));
  const toAlgorithm = ({ header }: SealedToken): Algorithm => algorithms.get(String(header['alg'])) as Algorithm;
  const verifySignature = compileSignature(jwt);
  const checkClaims = compileClaimChecks(jwt);
  const { bodyHash } = jwt;
  return {
    readHeader: compileHeader(signature, form),
    readBody: compileBody(jwt, form),
    readClaims: (token) => decodeClaims(token, form),
    async verify(token, body, keys, at) {
      const found = await verifySignature(token, toAlgorithm(token), keys, at);
      if (found === 'mismatch' || 'problem' in found) return found;
      const decoded = 'claims' in token ? token : decodeClaims(token, form);
      if ('problem' in decoded) return decoded;
      return checkClaims(decoded.claims, body) ?? { key: found, token: decoded };
    },
    toAlgorithm,
    listStrangeClaims: compileStrangeClaims(jwt),
    readBodyHash: (claims) => bodyHash && readBodyHash(bodyHash, claims),
    sign: (request, material, given) => signToken(description, request, material as Material, given),
  };
}

function compileHeader({ forms }: SignatureDescription, form: TokenForm): Jwt['readHeader'] {
  const { prefix = '' } = forms[0] ?? {};
  const start = prefix.toLowerCase();
  return (header) => {
    // The names of authentication schemes are case-insensitive (RFC 9110 §11.1).
    if (header.slice(0, prefix.length).toLowerCase() !== start) return malformed(`the token does not follow ${prefix.trim()}`);
    const token = decodeSealed(header.slice(prefix.length), form);
    return 'problem' in token ? token : decodeClaims(token, form);
  };
}

function compileBody({ content }: JwtDescription, form: TokenForm): Jwt['readBody'] {
  if (content === undefined) return undefined;
  if (content === WHOLE_BODY) return (body) => decodeSealed(body.toString('latin1'), form);
  const name = MEMBER.exec(content)?.[1];
  if (name === undefined) throw new Error(`${content} is not the path of a member`);
  return (body) => {
    const parsed = parseStrictJson(body, BODY_BOUNDS);
    if (parsed.kind === 'problem') return malformed(`the body: ${parsed.problem}`);
    const entries = Object.entries(parsed.value ?? {});
    const [[found, text] = []] = entries;
    // The token signs nothing beside itself, and the app could read what is there.
    if (entries.length !== 1 || found !== name || typeof text !== 'string')
      return malformed(`the body is not an object with ${name} and nothing else`);
    return decodeSealed(text, form);
  };
}

function toForm({ forms }: SignatureDescription, { chain, content }: JwtDescription): TokenForm {
  const algorithms = forms.flatMap(({ algorithm }) => JWS_NAMES[algorithm] ?? []);
  return { algorithms, hasChain: chain !== undefined, place: content === undefined ? 'header' : 'body' };
}

/** Compiles the checks of everything that jose does not check itself. */
function compileClaimChecks({ audience, audienceAt, claims = {}, bodyHash }: JwtDescription): CheckClaims {
  const checks: CheckClaims[] = [];
  if (audience !== undefined) checks.push(compileAudience(audience, audienceAt));
  for (const [path, accepted] of Object.entries(claims)) checks.push(compileValue(path, accepted));
  if (bodyHash !== undefined) checks.push(compileBodyHash(bodyHash));
  return (found, body) => {
    for (const check of checks) {
      const problem = check(found, body);
      if (problem !== undefined) return problem;
    }
    return undefined;
  };
}

/** Compiles the function that lists the claims that are not accepted, for explanations. */
function compileStrangeClaims({ issuers, audience, audienceAt, claims = {} }: JwtDescription): (claims: TokenClaims) => string[] {
  const all = issuers === undefined ? claims : { ...claims, '$.iss': issuers };
  const checks = Object.entries(all).map(([path, accepted]) => ({ path, check: compileValue(path, accepted) }));
  const isAccepted = audience === undefined ? () => true : compileAudienceTest(audience, audienceAt);
  const nobody = Buffer.alloc(0);
  return (found) => [
    ...checks.flatMap(({ path, check }) => (check(found, nobody) === undefined ? [] : [path])),
    ...(isAccepted(found) ? [] : (audienceAt ?? [DEFAULT_AUDIENCE_CLAIM])),
  ];
}

/** Compiles the test whether a token is for one of the accepted audiences; a claim may be a list (RFC 7519 §4.1.3). */
function compileAudienceTest(
  accepted: readonly string[],
  paths: readonly string[] = [DEFAULT_AUDIENCE_CLAIM],
): (claims: TokenClaims) => boolean {
  const known = new Set<unknown>(accepted);
  const readers = paths.map(compileClaim);
  return (claims) => readers.some((read) => [read(claims)].flat().some((value) => known.has(value)));
}

function compileAudience(accepted: readonly string[], paths: readonly string[] | undefined): CheckClaims {
  const isAccepted = compileAudienceTest(accepted, paths);
  const names = (paths ?? [DEFAULT_AUDIENCE_CLAIM]).join(' or ');
  return (claims) => (isAccepted(claims) ? undefined : toStranger(`${names} is not an accepted audience`));
}

function compileValue(path: string, accepted: readonly (string | boolean)[]): CheckClaims {
  const known = new Set<unknown>(accepted);
  const read = compileClaim(path);
  return (claims) => (known.has(read(claims)) ? undefined : toStranger(`the claim ${path} is not an accepted value`));
}

function toStranger(problem: string): TokenProblem {
  return { problem, kind: 'stranger' };
}

/** The digest of the body that the claims name; undefined if it is malformed. */
function readBodyHash({ claim, encoding }: BodyHashDescription, claims: TokenClaims): Buffer | undefined {
  const text = compileClaim(claim)(claims);
  return typeof text === 'string' ? DECODERS[encoding](text) : undefined;
}

function compileBodyHash(description: BodyHashDescription): CheckClaims {
  const { claim, digest, encoding } = description;
  return (claims, body) => {
    const named = readBodyHash(description, claims);
    if (named === undefined) return malformed(`the claim ${claim} is not a digest in ${encoding}`);
    if (isEqualInConstantTime(named, hash(digest, body, 'buffer'))) return undefined;
    return { problem: `the token is valid, but signs another body than this one (${claim})`, kind: 'altered' };
  };
}

/** Decodes everything but the claims; nothing is verified. */
function decodeSealed(text: string, { algorithms, hasChain }: TokenForm): SealedToken | TokenProblem {
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
function decodeClaims(token: SealedToken, { place }: TokenForm): DecodedToken | TokenProblem {
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

/** Compiles the verification. */
function compileSignature(jwt: JwtDescription): VerifySignature {
  const { issuers, requiresExpiry, clockTolerance = DEFAULT_CLOCK_TOLERANCE_MS } = jwt;
  const common = {
    clockTolerance: clockTolerance / 1_000,
    ...(issuers === undefined ? undefined : { issuer: [...issuers] }),
    ...(requiresExpiry === true ? { requiredClaims: ['exp'] } : undefined),
  };
  return async (token, algorithm, keys, at) => {
    const options = { ...common, algorithms: [JWS_NAMES[algorithm] ?? ''], currentDate: toDate(at) };
    let result: Verified = 'mismatch';
    // Never returns early: the time must not reveal which key matched.
    for (const signer of toSigners(token, algorithm, keys, jwt, at)) {
      const found = await tryKey(token.text, signer, options);
      if (result === 'mismatch') result = found;
    }
    return result;
  };
}

async function tryKey(text: string, { key, publicKey }: Signer, options: JWTVerifyOptions): Promise<Verified> {
  try {
    await jwtVerify(text, publicKey, options);
    return key;
  } catch (thrown) {
    return thrown instanceof errors.JWSSignatureVerificationFailed ? 'mismatch' : toProblem(thrown);
  }
}

/** A token that names its key is only tried with that key, if keys have names. Each key has one algorithm, which the token cannot change. */
function toSigners(
  { header }: SealedToken,
  algorithm: Algorithm,
  keys: readonly VerifyKey[],
  { chain }: JwtDescription,
  at: EpochMilliseconds,
): Signer[] {
  if (chain !== undefined) {
    const leaf = findLeafKey(header['x5c'], keys, { chain, algorithm, at });
    return leaf === undefined ? [] : [leaf];
  }
  const kid = header['kid'];
  return keys.flatMap((key) => {
    const material = key.material as Material;
    const isOther = kid !== undefined && material.id !== undefined && material.id !== kid;
    return material.algorithm !== algorithm || isOther ? [] : [{ key, publicKey: material.key }];
  });
}

/** jose checks the claims after the signature, so these say what is wrong with a token of the sender. Any other error is a bug. */
function toProblem(thrown: unknown): TokenProblem {
  if (thrown instanceof errors.JWTExpired) return { problem: 'the token has expired', kind: 'old' };
  if (thrown instanceof errors.JWTClaimValidationFailed) {
    const { claim, reason } = thrown;
    if (claim === 'iss') return { problem: 'the claim $.iss is not an accepted issuer', kind: 'stranger' };
    if (claim === 'nbf' && reason === 'check_failed') return { problem: 'the token is not valid yet', kind: 'future' };
    return malformed(`the claim $.${claim} is missing or malformed`);
  }
  if (thrown instanceof errors.JOSEError) return malformed(thrown.message);
  throw thrown;
}

/** A problem with the form of a token. */
function malformed(problem: string): TokenProblem {
  return { problem, kind: 'malformed' };
}

// The chain of certificates in a token's header (`x5c`), up to a root that the route pins.

/** The rules for a chain. */
interface ChainRules {
  readonly chain: ChainDescription;
  /** The algorithm of the signer's key. */
  readonly algorithm: Algorithm;
  readonly at: EpochMilliseconds;
}

/** The key of the signer, and the root that vouches for it. */
interface Leaf {
  readonly key: VerifyKey;
  readonly publicKey: KeyObject;
}

const MAX_CERTIFICATE_CHARS = 8_192;
/** RSASSA-PKCS1-v1_5 and ECDSA with SHA-256, 384 and 512, Ed25519: two certificates can have the same MD5 or SHA-1 (RFC 9155 §1). */
const SIGNATURES: ReadonlySet<string> = new Set(
  [
    ...[11, 12, 13].map((last) => `1.2.840.113549.1.1.${last}`),
    ...[2, 3, 4].map((last) => `1.2.840.10045.4.3.${last}`),
    '1.3.101.112',
  ].map((id) => toIdentifier(id).toString('hex')),
);
const [SEQUENCE, OBJECT_IDENTIFIER, EXTENSIONS] = [0x30, 0x06, 0xa3];

/**
 * Verifies a chain from the signer upwards. Its length is fixed by the extensions that mark its certificates; the root may follow. Checks
 * names and dates first: an unverified sender must not be able to cause signatures to be verified without a chain that looks right.
 */
function findLeafKey(x5c: unknown, roots: readonly VerifyKey[], { chain, algorithm, at }: ChainRules): Leaf | undefined {
  const { extensions } = chain;
  const certificates = parseChain(x5c, extensions.length);
  if (certificates === undefined) return undefined;
  const issued = certificates.slice(0, extensions.length);
  const isMarked = issued.every((each, index) => isValidAt(each, at) && hasExtension(each, extensions[index] ?? ''));
  const isLinked = issued.slice(1).every((issuer, index) => issuer.ca && issued[index]?.checkIssued(issuer) === true);
  const [leaf, top, given] = [issued[0], issued.at(-1), certificates[extensions.length]];
  if (!isMarked || !isLinked || leaf === undefined || top === undefined) return undefined;
  const root = roots.find(({ material }) => {
    const { certificate } = material as Material;
    if (certificate === undefined || (given !== undefined && !given.raw.equals(certificate.raw))) return false;
    return top.checkIssued(certificate) && isSignedBy(top, certificate);
  });
  if (root === undefined) return undefined;
  for (let index = issued.length - 1; index > 0; index--) {
    const issuer = issued[index];
    const below = issued[index - 1];
    if (issuer === undefined || below === undefined || !isSignedBy(below, issuer)) return undefined;
  }
  const { publicKey } = leaf;
  return isOfKind(publicKey, algorithm) && findWeakKey(publicKey) === undefined ? { key: root, publicKey } : undefined;
}

function parseChain(x5c: unknown, length: number): X509Certificate[] | undefined {
  if (!Array.isArray(x5c) || (x5c.length !== length && x5c.length !== length + 1)) return undefined;
  const found: X509Certificate[] = [];
  for (const text of x5c) {
    const der = typeof text === 'string' && text.length <= MAX_CERTIFICATE_CHARS ? parseBase64(text) : undefined;
    if (der === undefined) return undefined;
    try {
      const certificate = new X509Certificate(der);
      // Nothing may follow the certificate.
      if (!certificate.raw.equals(der)) return undefined;
      found.push(certificate);
    } catch {
      return undefined;
    }
  }
  return found;
}

function isValidAt(certificate: X509Certificate, at: EpochMilliseconds): boolean {
  const { notBefore, notAfter } = toValidity(certificate);
  return notBefore <= at && at < notAfter;
}

function isSignedBy(certificate: X509Certificate, { publicKey }: X509Certificate): boolean {
  return findWeakKey(publicKey) === undefined && isSignedSafely(certificate) && certificate.verify(publicKey);
}

/** OpenSSL verifies any digest. Node has the name of the algorithm only from version 24.9 on. */
function isSignedSafely({ raw }: X509Certificate): boolean {
  const whole = readElement(raw, 0, SEQUENCE);
  const body = whole && readElement(raw, whole.start, SEQUENCE);
  const algorithm = body && readElement(raw, body.end, SEQUENCE);
  const id = algorithm && readElement(raw, algorithm.start, OBJECT_IDENTIFIER);
  return id !== undefined && SIGNATURES.has(raw.toString('hex', id.start, id.end));
}

/** Looks at the extensions only: the rest of a certificate may contain the same bytes, as its owner chooses its key and its names. */
function hasExtension({ raw }: X509Certificate, id: string): boolean {
  const wanted = toIdentifier(id);
  const whole = readElement(raw, 0, SEQUENCE);
  const body = whole && readElement(raw, whole.start, SEQUENCE);
  for (let at = body?.start; body !== undefined && at !== undefined && at < body.end; at = readElement(raw, at)?.end) {
    const extensions = readElement(raw, at, EXTENSIONS);
    const list = extensions && readElement(raw, extensions.start, SEQUENCE);
    if (list !== undefined) return hasIdentifier(raw, list, wanted);
  }
  return false;
}

function hasIdentifier(raw: Buffer, list: { readonly start: number; readonly end: number }, wanted: Buffer): boolean {
  for (let at = list.start; at < list.end; ) {
    const extension = readElement(raw, at, SEQUENCE);
    const name = extension && readElement(raw, extension.start, OBJECT_IDENTIFIER);
    if (extension === undefined || name === undefined) return false;
    if (raw.subarray(name.start, name.end).equals(wanted)) return true;
    at = extension.end;
  }
  return false;
}

/** Encodes an object identifier such as 1.2.840.113635 (X.690 §8.19). */
function toIdentifier(id: string): Buffer {
  const [first = 0, second = 0, ...rest] = id.split('.').map(Number);
  const bytes = [first * 40 + second, ...rest].flatMap((number) => {
    const digits = [number % 0x80];
    // Numbers may have more than 32 bits.
    for (let left = Math.floor(number / 0x80); left > 0; left = Math.floor(left / 0x80)) digits.unshift((left % 0x80) | 0x80);
    return digits;
  });
  return Buffer.from(bytes);
}
