/** Cuts characters off the ends of texts that strangers write: an unanchored `+$` would look again from every character of a run. */

/** Tells whether a character goes. */
export interface Characters {
  has(character: string): boolean;
}

/** Without those at the end. */
export function trimEnd(text: string, characters: Characters): string {
  let end = text.length;
  while (end > 0 && characters.has(text.charAt(end - 1))) end--;
  return text.slice(0, end);
}

/** Without those at either end. */
export function trimEnds(text: string, characters: Characters): string {
  const kept = trimEnd(text, characters);
  let start = 0;
  while (start < kept.length && characters.has(kept.charAt(start))) start++;
  return kept.slice(start);
}
