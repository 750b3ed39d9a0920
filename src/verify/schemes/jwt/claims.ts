/** Checks what the claims of a verified token say: for whom it is, and the digest of the body. */
import { hash } from 'node:crypto';
import { isEqualInConstantTime, parseBase64, parseBase64Url, parseHex } from '../../../core/bytes.ts';
import type { DecodedToken } from '../../../core/event.ts';
import { compileClaim } from '../identity.ts';
import type { BodyHashDescription, JwtDescription } from '../key-description.ts';
import type { TokenProblem } from '../scheme.ts';
import { malformed } from './problem.ts';

type TokenClaims = DecodedToken['claims'];

/** Why the claims of a verified token are not acceptable; undefined if they are. */
type CheckClaims = (claims: TokenClaims, body: Buffer) => TokenProblem | undefined;

const DEFAULT_AUDIENCE_CLAIM = '$.aud';
const DECODERS = { hex: parseHex, base64: parseBase64, base64url: parseBase64Url };

/** Compiles the checks of everything that jose does not check itself. */
export function compileClaimChecks({ audience, audienceAt, claims = {}, bodyHash }: JwtDescription): CheckClaims {
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
export function compileStrangeClaims({
  issuers,
  audience,
  audienceAt,
  claims = {},
}: JwtDescription): (claims: TokenClaims) => string[] {
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
export function readBodyHash({ claim, encoding }: BodyHashDescription, claims: TokenClaims): Buffer | undefined {
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
