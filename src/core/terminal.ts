/** Colours of text on a terminal. */

/** Of ECMA-48: green, red, yellow. */
const TONES = { good: 32, bad: 31, warning: 33 } as const;

/** What a colour says. */
export type Tone = keyof typeof TONES;

/** The text in colour, where standard output shows colours. */
export function paint({ isColoured }: { readonly isColoured?: boolean }, tone: Tone, text: string): string {
  return isColoured === true ? `\u001b[${TONES[tone]}m${text}\u001b[0m` : text;
}
