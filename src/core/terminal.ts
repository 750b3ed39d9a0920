/** Colors for text on a terminal. */

/** Color codes of ECMA-48: green, red, yellow. */
const TONES = { good: 32, bad: 31, warning: 33 } as const;

/** The meaning of a color. */
export type Tone = keyof typeof TONES;

/** Returns the text in color if standard output supports colors. */
export function paint({ isColored }: { readonly isColored?: boolean }, tone: Tone, text: string): string {
  return isColored === true ? `\u001b[${TONES[tone]}m${text}\u001b[0m` : text;
}
