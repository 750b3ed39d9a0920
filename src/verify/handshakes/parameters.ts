/** Parses the parameters of a query, and rejects queries that parsers interpret differently. */

/** By name, decoded. */
export type Parameters = ReadonlyMap<string, string>;

/** Far more than any handshake has. */
const MAX_PARAMETERS = 16;

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
