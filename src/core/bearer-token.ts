/** Bearer tokens (RFC 6750): which secrets can be one, and how a presented token is compared. */
import { createHash } from 'node:crypto';
import { isEqualInConstantTime } from './bytes.ts';
import type { Fault } from './problem.ts';
import type { Secret } from './secret.ts';

const MIN_TOKEN_BYTES = 16;
/** The characters that a client can send after `Bearer` (RFC 6750 §2.1). */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;
const CREDENTIALS = /^Bearer +([^ ]+)$/i;

/** Returns why a secret cannot be a token; undefined if it can. */
export function findTokenProblem(secret: Secret): Fault | undefined {
  const hint = 'create one with `openssl rand -hex 32`';
  if (secret.length < MIN_TOKEN_BYTES)
    return { problem: `the token has ${secret.length} bytes; it needs at least ${MIN_TOKEN_BYTES}`, hint };
  if (!TOKEN.test(secret.expose().toString('latin1')))
    return { problem: 'the token contains characters that a client cannot send (RFC 6750 §2.1)', hint };
  return undefined;
}

/** A token that requests have to present. */
export class BearerToken {
  readonly #digest: Buffer;

  /** `secret`: checked with `findTokenProblem`. */
  constructor(secret: Secret) {
    this.#digest = sha256(secret.expose());
  }

  /** Whether an `Authorization` field presents this token. */
  isPresentedIn(authorization: string): boolean {
    const presented = CREDENTIALS.exec(authorization)?.[1] ?? '';
    // Digests have a fixed length, so the timing does not reveal the length of the token.
    return isEqualInConstantTime(sha256(Buffer.from(presented, 'latin1')), this.#digest);
  }
}

function sha256(bytes: Buffer): Buffer {
  return createHash('sha256').update(bytes).digest();
}
