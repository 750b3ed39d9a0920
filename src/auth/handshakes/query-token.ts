/** A token in the query of the URL configured at the sender, for senders that have no way to authenticate themselves. */
import { type Refusal, refuse } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import { failForMissingSecret, isToken } from './handshake.ts';
import { parseParameters } from './parameters.ts';

/** The token and its query parameter. */
export interface QueryToken {
  readonly parameter: string;
  readonly token: Secret | undefined;
}

/** Rejects a delivery's query unless it is absent or consists of the configured token alone; undefined if it is accepted. */
export function checkQuery(query: string | undefined, { parameter, token }: QueryToken): Refusal | undefined {
  if (query === undefined) return undefined;
  const given = parseParameters(query);
  const text = given?.size === 1 ? (given.get(parameter) ?? '') : '';
  // The text may be the right token. The fault is ours, and some senders never retry after a 4xx.
  if (token === undefined && text !== '') return failForMissingSecret('handshake.verifyToken cannot be read');
  const isOurs = token !== undefined && isToken(text, token);
  return isOurs ? undefined : refuse('malformed_request', 'query_not_signed', `the query is not the token in ${parameter} alone`);
}
