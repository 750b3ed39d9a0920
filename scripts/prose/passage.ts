/** The unit that the prose rules read: a piece of a file's text in which everything but prose is blanked, so that offsets stay valid. */
export interface Passage {
  /** `heading` has its own rules, and `message`, a text of the program, additional ones; `prose` is everything else. */
  readonly kind: 'prose' | 'message' | 'heading';
  /** Offset of the first character in the file. */
  readonly start: number;
  readonly text: string;
}

/** Stands for each character of code: neither a letter nor a space, so a code span counts as one word and matches no rule. */
export const CODE = '\uFFFC';

/** Half-open. */
export type Range = readonly [start: number, end: number];

/** `text` with each range replaced by as many `filler` characters. */
export function blank(text: string, ranges: readonly Range[], filler: string): string {
  let result = text;
  for (const [start, end] of ranges) result = result.slice(0, start) + filler.repeat(end - start) + result.slice(end);
  return result;
}

/** `text` with each match of `pattern` replaced by as many `filler` characters. */
export function blankMatches(text: string, pattern: RegExp, filler: string): string {
  return text.replace(pattern, (found) => filler.repeat(found.length));
}

/** Code spans, URLs and paths in a text that has no parser of its own (a comment, a message, a chart's text). */
export function blankCode(text: string): string {
  const withoutSpans = blankMatches(text, /`[^`]*`|\bhttps?:\/\/\S+/g, CODE);
  return blankMatches(withoutSpans, /(?<![\w.])(?:[\w.@-]+\/)+[\w.@*-]*\w/g, CODE);
}
