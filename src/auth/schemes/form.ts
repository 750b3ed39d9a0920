/** The parameters of a form body as Twilio signs them: sorted by name, each name followed by its value. */

/** Far more than any webhook has. Bounds the work (names are sorted) for a sender that is not verified yet. */
export const MAX_PARAMETERS = 1_000;
const AMPERSAND = 0x26;
const ESCAPE = /%([0-9a-f]{2})/gi;

/**
 * A repeated name is followed by each of its distinct values, sorted. Everything is handled as bytes (latin1 strings here): a UTF-8
 * decoder replaces all invalid bytes with the same character, so many bodies would share one signature.
 * Returns undefined for more than MAX_PARAMETERS, before decoding any.
 */
export function toFormText(body: Buffer): Buffer | undefined {
  if (hasTooMany(body)) return undefined;
  const parameters = new Map<string, Set<string>>();
  for (const pair of body.toString('latin1').split('&')) {
    if (pair === '') continue;
    const at = pair.indexOf('=');
    const name = decode(at === -1 ? pair : pair.slice(0, at));
    const value = at === -1 ? '' : decode(pair.slice(at + 1));
    const values = parameters.get(name);
    if (values === undefined) parameters.set(name, new Set([value]));
    else values.add(value);
  }
  let text = '';
  for (const [name, values] of [...parameters].sort(([a], [b]) => (a < b ? -1 : 1)))
    for (const value of [...values].sort()) text += name + value;
  return Buffer.from(text, 'latin1');
}

function hasTooMany(body: Buffer): boolean {
  let pairs = 1;
  for (let at = body.indexOf(AMPERSAND); at !== -1; at = body.indexOf(AMPERSAND, at + 1))
    if (++pairs > MAX_PARAMETERS) return true;
  return false;
}

/** Decodes a name or value (the URL Standard's application/x-www-form-urlencoded); an invalid escape is kept as it is. */
function decode(text: string): string {
  return text.replaceAll('+', ' ').replace(ESCAPE, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)));
}
