/** Tokens in the body, for senders that do not sign, but repeat a configured secret in each item. */
import { parseJsonListPath, readJsonList } from '../../core/json-path.ts';
import { countMembers } from '../../core/json-scan.ts';
import { refuse } from '../../core/refusal.ts';
import { parseStrictJson } from '../../core/strict-json.ts';
import { ALGORITHMS } from './algorithms.ts';
import { JSON_BOUNDS } from './body-values.ts';
import type { Material } from './keys.ts';
import type { Scheme, VerifyKey } from './scheme.ts';

/** The key that equals the first token; undefined unless every token equals one of `keys`. */
export type VerifyContent = (body: Buffer, keys: readonly VerifyKey[]) => VerifyKey | undefined;

/** Far more than any delivery has. Bounds the work for a sender that is not verified yet. */
const MAX_TOKENS = 1_000;

/** Compiles the check; undefined if the scheme has no tokens in the body. */
export function compileContentTokens(content: string | undefined): VerifyContent | undefined {
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
export const checkContent: NonNullable<Scheme['readBody']> = (head, body) => {
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
