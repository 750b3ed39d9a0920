/**
 * Trims characters from untrusted text without a regular expression: an unanchored `+$` is retried at each character of a run, in
 * quadratic time.
 */

/** The set of characters to trim. */
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
