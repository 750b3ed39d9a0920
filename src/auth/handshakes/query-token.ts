/** A token in the query of the URL that a sender was given, where the sender itself has nothing to prove who it is by. */
import { type Refusal, refuse } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import { declineForLack, isToken } from './handshake.ts';
import { parseParameters } from './parameters.ts';

/** Where it stands. */
export interface QueryToken {
  readonly parameter: string;
  readonly token: Secret | undefined;
}

/** Whether deliveries may have this query: none, or nothing but the token, which is configured. */
export function judgeQuery(query: string | undefined, { parameter, token }: QueryToken): Refusal | undefined {
  if (query === undefined) return undefined;
  const given = parseParameters(query);
  const text = given?.size === 1 ? (given.get(parameter) ?? '') : '';
  // It may well be the token: some senders never come again after a 4xx, and this trouble is ours.
  if (token === undefined && text !== '') return declineForLack('handshake.verifyToken cannot be read');
  const isOurs = token !== undefined && isToken(text, token);
  return isOurs ? undefined : refuse('malformed_request', 'query_not_signed', `not the token in ${parameter} alone`);
}
