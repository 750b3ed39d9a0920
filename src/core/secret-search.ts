/** Finds secrets in content, also if JSON or a form escapes their characters. */

/** `\u002f`, `\/` or `%2f`; a character beyond U+FFFF is two escapes in a row. */
const ESCAPE = /((?:\\u[0-9a-f]{4})+)|\\([^u])|%([0-9a-f]{2})/gi;
/** A shorter one could be in any content. */
const MIN_DECODED_LENGTH = 8;
const UNIT_LENGTH = '\\u002f'.length;
/** JSON in a string of JSON, in a parameter of a form. */
const MAX_LAYERS = 3;
/** How many bytes one byte of a secret can take: each layer may write `\u005c` for a character of the layer below. */
export const MAX_ESCAPED_LENGTH = UNIT_LENGTH ** MAX_LAYERS;

/** Whether the content contains one of the secrets. */
export function containsSecret(content: Buffer, secrets: readonly Buffer[]): boolean {
  if (secrets.some((secret) => content.includes(secret))) return true;
  if (secrets.length === 0 || !(content.includes('\\') || content.includes('%'))) return false;
  const texts = secrets.flatMap(toForms);
  let decoded = content.toString('latin1');
  for (let layer = 0; layer < MAX_LAYERS; layer++) {
    decoded = decoded.replace(ESCAPE, toCharacter);
    if (texts.some((text) => decoded.includes(text))) return true;
  }
  return false;
}

/** A secret may contain what looks like an escape, which is decoded with the real ones. */
function toForms(secret: Buffer): string[] {
  const text = secret.toString('latin1');
  const decoded = text.replace(ESCAPE, toCharacter);
  return decoded === text || decoded.length < MIN_DECODED_LENGTH ? [text] : [text, decoded];
}

/** As bytes of UTF-8, each of which is a character of Latin-1. */
function toCharacter(_: string, units: string | undefined, character: string | undefined, hex: string | undefined): string {
  if (units !== undefined) return Buffer.from(toUnits(units)).toString('latin1');
  return character ?? String.fromCharCode(Number.parseInt(hex ?? '', 16));
}

function toUnits(escapes: string): string {
  let text = '';
  for (let at = 0; at < escapes.length; at += UNIT_LENGTH)
    text += String.fromCharCode(Number.parseInt(escapes.slice(at + 2, at + UNIT_LENGTH), 16));
  return text;
}
