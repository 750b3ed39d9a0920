/** The parameters of a form body as Twilio signs them: sorted by name, each name followed by its value. */

/** Far more than any webhook has. Bounds the work (names are sorted) for a sender that is not verified yet. */
export const MAX_PARAMETERS = 1_000;
const AMPERSAND = 0x26;
const [PERCENT, PLUS, SPACE] = [0x25, 0x2b, 0x20];
const ENCODED = /[%+]/;
/** The value of each hex digit by its code; 16 for other characters. */
const DIGITS = Uint8Array.from({ length: 0x100 }, (_, code) => {
  const digit = '0123456789abcdef'.indexOf(String.fromCharCode(code | 0x20));
  return digit === -1 || (code < 0x30 && digit < 10) ? 16 : digit;
});

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
    const name = decodeFormText(at === -1 ? pair : pair.slice(0, at));
    const value = at === -1 ? '' : decodeFormText(pair.slice(at + 1));
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

/**
 * Decodes a name or value (the URL Standard's application/x-www-form-urlencoded); an invalid escape is kept as it is. A loop over bytes:
 * a function called for each escape takes ten times as long, and `replaceAll` for each plus as well.
 */
export function decodeFormText(text: string): string {
  if (!ENCODED.test(text)) return text;
  const bytes = Buffer.from(text, 'latin1');
  let length = 0;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0;
    const decoded = byte === PERCENT ? toByte(bytes, at + 1) : undefined;
    if (decoded !== undefined) at += 2;
    bytes[length++] = decoded ?? (byte === PLUS ? SPACE : byte);
  }
  return bytes.toString('latin1', 0, length);
}

/** The byte that two hex digits encode; undefined if they are not there. */
function toByte(bytes: Buffer, at: number): number | undefined {
  const high = toDigit(bytes[at]);
  const low = toDigit(bytes[at + 1]);
  return high === 16 || low === 16 ? undefined : high * 16 + low;
}

function toDigit(code = 0): number {
  return DIGITS[code] ?? 16;
}
