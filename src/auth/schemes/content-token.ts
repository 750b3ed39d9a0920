/** Tokens that stand in the content: senders that sign nothing, but repeat in each item what they were told. */
import { parseJsonListPath, readJsonList } from '../../core/json-path.ts';
import { ALGORITHMS } from './algorithms.ts';
import type { Material } from './keys.ts';
import type { VerifyKey } from './scheme.ts';

/** The key that the first token is; undefined unless every token is one of `keys`. */
export type VerifyContent = (body: Buffer, keys: readonly VerifyKey[]) => VerifyKey | undefined;

/** Far more than one delivery has; who sends it is not known yet. */
const MOST_TOKENS = 1_000;

/** Compiles it; undefined where the scheme has no such tokens. */
export function compileContentTokens(content: string | undefined): VerifyContent | undefined {
  if (content === undefined) return undefined;
  const path = parseJsonListPath(content);
  if (path === undefined) throw new Error(`${content} is no path with [*]`);
  return (body, keys) => {
    const tokens = readJsonList(path, parse(body));
    if (tokens === undefined || tokens.length > MOST_TOKENS) return undefined;
    const checkers = keys.map(({ material }) => ALGORITHMS.token.checker((material as Material).key, []));
    // All of them: one item with the right token must not carry in others without.
    let first: number | undefined;
    for (const token of tokens) {
      const match = typeof token === 'string' ? findMatch(Buffer.from(token), checkers) : -1;
      // At the first that is none: which item it was tells nothing of a key.
      if (match === -1) return undefined;
      first ??= match;
    }
    return first === undefined ? undefined : keys[first];
  };
}

/** No early end: how long it takes must not tell which key matched. */
function findMatch(token: Buffer, checkers: readonly ((token: Buffer) => boolean)[]): number {
  let match = -1;
  for (const [index, check] of checkers.entries()) if (check(token) && match === -1) match = index;
  return match;
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body));
  } catch {
    return undefined;
  }
}
