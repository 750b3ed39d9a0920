/** Verifies the signature and the times of a token by jose, with the keys of the route. */
import type { KeyObject } from 'node:crypto';
import { errors, type JWTVerifyOptions, jwtVerify } from 'jose';
import { type EpochMilliseconds, toDate } from '../../../core/clock.ts';
import type { SealedToken } from '../../../core/event.ts';
import type { Algorithm } from '../description.ts';
import { DEFAULT_CLOCK_TOLERANCE_MS, type JwtDescription } from '../key-description.ts';
import type { Material } from '../keys.ts';
import { JWS_NAMES } from '../public-keys.ts';
import type { TokenProblem, VerifyKey } from '../scheme.ts';
import { findLeafKey } from './chain.ts';
import { malformed } from './problem.ts';

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

/** Compiles the verification. */
export function compileSignature(jwt: JwtDescription): VerifySignature {
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
