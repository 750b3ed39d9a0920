/** The parameters of form content as Twilio signs them: sorted by name, each name followed by its value. */

/** Far more than any webhook has; who sends more is not known yet, and names are sorted. */
export const MOST_PARAMETERS = 1_000;
const AMPERSAND = 0x26;
const ESCAPE = /%([0-9a-f]{2})/gi;

/**
 * A name that comes several times is followed by each of its different values, sorted. Everything stays bytes (latin1 text
 * here): decoders put the same sign in place of all bytes that are not UTF-8, and so would many bodies share one signature.
 * Undefined for more than MOST_PARAMETERS, before any is decoded.
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
    if (++pairs > MOST_PARAMETERS) return true;
  return false;
}

/** One name or value (the URL Standard's application/x-www-form-urlencoded): a broken escape stands for itself. */
function decode(text: string): string {
  return text.replaceAll('+', ' ').replace(ESCAPE, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)));
}
