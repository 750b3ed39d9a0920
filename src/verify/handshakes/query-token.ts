/** A token in the query of the URL configured at the sender, for senders that have no way to authenticate themselves. */
import { type Refusal, refuse } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import { checkToken, decline, failForMissingSecret, type HandshakeOptions, isToken, type OpenSecrets } from './handshake.ts';
import { hasOnly, type Parameters, parseParameters } from './parameters.ts';

/** The token and its query parameter. */
interface QueryToken {
  readonly parameter: string;
  readonly token: Secret | undefined;
}

/** Rejects a delivery's query unless it is absent or consists of the configured token alone; undefined if it is accepted. */
function checkQuery(query: string | undefined, { parameter, token }: QueryToken): Refusal | undefined {
  if (query === undefined) return undefined;
  const given = parseParameters(query);
  const text = given?.size === 1 ? (given.get(parameter) ?? '') : '';
  // The text may be the right token. The fault is ours, and some senders never retry after a 4xx.
  if (token === undefined && text !== '') return failForMissingSecret('handshake.verifyToken cannot be read');
  const isOurs = token !== undefined && isToken(text, token);
  return isOurs ? undefined : refuse('malformed_request', 'query_not_signed', `the query is not the token in ${parameter} alone`);
}

/** Builds the check of the query of all other requests than handshakes: senders repeat the token of the URL in each delivery. */
export function compileQueryCheck({
  hasToken,
  parameter,
  allowQuery,
}: HandshakeOptions): (query: string | undefined, secrets: OpenSecrets) => Refusal | undefined {
  if (!hasToken || allowQuery) return () => undefined;
  return (query, { token }) => checkQuery(query, { parameter, token });
}

/** The parameters of a handshake: `names`, and the token if one is configured. A refusal if there are others, or if the token is wrong. */
export function readParameters(
  query: string | undefined,
  names: readonly string[],
  { token }: OpenSecrets,
  options: HandshakeOptions,
): Parameters | Refusal {
  const { hasToken, parameter } = options;
  const all = hasToken ? [...names, parameter] : names;
  const parameters = parseParameters(query);
  if (parameters === undefined || !hasOnly(parameters, all))
    return decline(all.length === 0 ? 'the request has a query' : `the query must consist of ${all.join(', ')}, each once`);
  return (hasToken ? checkToken(parameters.get(parameter), token, options) : undefined) ?? parameters;
}
