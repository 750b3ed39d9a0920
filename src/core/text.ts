/** Text from outside: trimmed, compared, and printed on a terminal. */

/** The set of characters to trim. Not a regular expression: an unanchored `+$` is retried at each character of a run, in quadratic time. */
export interface Characters {
  has(character: string): boolean;
}

/** Removes the characters from the end of the text. */
export function trimEnd(text: string, characters: Characters): string {
  let end = text.length;
  while (end > 0 && characters.has(text.charAt(end - 1))) end--;
  return text.slice(0, end);
}

/** Removes the characters from both ends of the text. */
export function trimEnds(text: string, characters: Characters): string {
  const kept = trimEnd(text, characters);
  let start = 0;
  while (start < kept.length && characters.has(kept.charAt(start))) start++;
  return kept.slice(start);
}

const NOT_ASCII = /[^\0-\x7f]/;

/**
 * Converts names for a comparison by the most lenient app. Makes equal all texts that differ only in case, by any rule: Unicode's folding, simple (Go) and full (Python), and upper and lower case
 * (.NET, Java). `ſ` becomes s, the Kelvin sign k, `İ` and `ı` i, `ẞ` and `ß` ss.
 */
export function foldCase(text: string): string {
  if (!NOT_ASCII.test(text)) return text.toLowerCase();
  // First, because each of these becomes two characters: a hostile name has nothing else.
  const undotted = text.replaceAll(/\u0130+/g, (found) => 'i'.repeat(found.length));
  return undotted.toLowerCase().toUpperCase().toLowerCase().replaceAll('i\u0307', 'i').replaceAll('ς', 'σ');
}

// Text for a terminal.

/** Color codes of ECMA-48: green, red, yellow. */
const TONES = { good: 32, bad: 31, warning: 33 } as const;

/** The meaning of a color. */
export type Tone = keyof typeof TONES;

/** Returns the text in color if standard output supports colors. */
export function paint({ isColored }: { readonly isColored?: boolean }, tone: Tone, text: string): string {
  return isColored === true ? `\u001b[${TONES[tone]}m${text}\u001b[0m` : text;
}

/** A terminal could take them for commands, or hide them: control and formatting characters, line separators, lone surrogates. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
const UNPRINTABLE_IN_LINES = /(?![\n\t]|\r\n|^\r)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** JSON escapes the characters below U+0020 itself, and the only ones of them in its text are its line breaks. */
const UNPRINTABLE_IN_JSON = /[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu;

/** JSON, pretty or in one line. Characters that could change what a terminal shows are escaped, which parsers undo. */
export function formatJson(value: unknown, isPretty = true): string {
  const text = JSON.stringify(value, undefined, isPretty ? 2 : undefined);
  return `${text.replaceAll(UNPRINTABLE_IN_JSON, escapeUnits)}\n`;
}

/** Escapes characters that could change what a terminal shows, as JSON does: clients, receivers and configs decide parts of these texts. */
export function toPrintable(text: string): string {
  return text.replaceAll(UNPRINTABLE, escapeUnits);
}

/** The same, but keeps line breaks and tabs, and the return to the start of a line that the text begins with. */
export function toPrintableLines(text: string): string {
  return text.replaceAll(UNPRINTABLE_IN_LINES, escapeUnits);
}

function escapeUnits(text: string): string {
  return Array.from({ length: text.length }, (_, i) => `\\u${text.charCodeAt(i).toString(16).padStart(4, '0')}`).join('');
}
