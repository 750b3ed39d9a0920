/** Finds secrets in content, also if JSON or a form escapes their characters. */

/** `\u002f`, `\/` or `%2f`. */
const ESCAPE = /\\u([0-9a-f]{4})|\\([^u])|%([0-9a-f]{2})/gi;
/** JSON in a string of JSON, in a parameter of a form. */
const MAX_LAYERS = 3;

/** Whether the content contains one of the secrets. */
export function containsSecret(content: Buffer, secrets: readonly Buffer[]): boolean {
  if (secrets.some((secret) => content.includes(secret))) return true;
  if (secrets.length === 0 || !(content.includes('\\') || content.includes('%'))) return false;
  const texts = secrets.map((secret) => secret.toString('latin1'));
  let decoded = content.toString('latin1');
  for (let layer = 0; layer < MAX_LAYERS; layer++) {
    decoded = decoded.replace(ESCAPE, toCharacter);
    if (texts.some((text) => decoded.includes(text))) return true;
  }
  return false;
}

function toCharacter(_: string, unicode: string | undefined, character: string | undefined, hex: string | undefined): string {
  return character ?? String.fromCharCode(Number.parseInt(unicode ?? hex ?? '', 16));
}
