/**
 * Parses the parameters of a query, and rejects queries that parsers interpret differently. A token may be among them, for senders that have
 * no way to authenticate themselves.
 */
import { type Refusal, refuse } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import { checkToken, decline, failForMissingSecret, type HandshakeOptions, isToken, type OpenSecrets } from './handshake.ts';

/** By name, decoded. */
export type Parameters = ReadonlyMap<string, string>;

/** Far more than any handshake has. */
const MAX_PARAMETERS = 16;

/** The token and its query parameter. */
interface QueryToken {
  readonly parameter: string;
  readonly token: Secret | undefined;
}

/** By name, decoded once. Undefined if parsers would differ: a repeated name, an invalid escape, bytes that are not UTF-8. */
export function parseParameters(query: string | undefined): Parameters | undefined {
  const parameters = new Map<string, string>();
  if (query === undefined || query === '') return parameters;
  const pairs = query.split('&');
  if (pairs.length > MAX_PARAMETERS) return undefined;
  for (const pair of pairs) {
    const at = pair.indexOf('=');
    const name = decode(at === -1 ? pair : pair.slice(0, at));
    const value = at === -1 ? '' : decode(pair.slice(at + 1));
    if (name === undefined || value === undefined || parameters.has(name)) return undefined;
    parameters.set(name, value);
  }
  return parameters;
}

/** As in forms (the URL Standard's application/x-www-form-urlencoded), a plus is a space. */
function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return undefined;
  }
}

/** Whether `parameters` contains all of `names` and nothing else except `optional`. */
export function hasOnly(parameters: Parameters, names: readonly string[], optional: readonly string[] = []): boolean {
  const known = new Set([...names, ...optional]);
  return names.every((name) => parameters.has(name)) && [...parameters.keys()].every((name) => known.has(name));
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
  optional: readonly string[] = [],
): Parameters | Refusal {
  const { hasToken, parameter } = options;
  const all = hasToken ? [...names, parameter] : names;
  const parameters = parseParameters(query);
  if (parameters === undefined || !hasOnly(parameters, all, optional))
    return decline(all.length === 0 ? 'the request has a query' : `the query must consist of ${all.join(', ')}, each once`);
  return (hasToken ? checkToken(parameters.get(parameter), token, options) : undefined) ?? parameters;
}
