/** Splits JSON into tokens, so that it can be written in other forms without changing its meaning: numbers keep their digits, keys their order. */

/** One token: punctuation, or a literal as written. */
export type Token = string;

/** How a serializer writes JSON. */
export interface JsonStyle {
  readonly item: string;
  readonly colon: string;
  /** Of one level; undefined: everything on one line. */
  readonly indent?: string;
}

const TOKEN = /[\t\n\r ]*([[\]{},:]|"[^"\\]*(?:\\.[^"\\]*)*"|[-0-9.eE+]+|true|false|null)/y;

/** Tokens per step: one or two milliseconds, after which other work can run. */
const TOKENS_PER_STEP = 8_192;

/** Whether a step ends at this token, so that other work can run. */
export function isStepEnd(index: number): boolean {
  return index % TOKENS_PER_STEP === TOKENS_PER_STEP - 1;
}

/** Splits the text into tokens, and yields where other work can run; returns undefined if it is not JSON. */
export function* toTokens(text: string): Generator<undefined, readonly Token[] | undefined> {
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  const tokens: string[] = [];
  for (let at = 0; ; ) {
    // Concurrent analyses share the pattern, and with it `lastIndex`.
    TOKEN.lastIndex = at;
    const match = TOKEN.exec(text);
    if (match === null) return tokens;
    at = TOKEN.lastIndex;
    tokens.push(match[1] as string);
    if (isStepEnd(tokens.length)) yield undefined;
  }
}

/** Writes tokens in a style, and yields where other work can run; returns undefined if the result would be longer than `longest`. */
export function* writeJson(
  tokens: readonly Token[],
  style: JsonStyle,
  longest: number,
): Generator<undefined, string | undefined> {
  let text = '';
  let depth = 0;
  let before = '';
  for (const [index, token] of tokens.entries()) {
    if (isStepEnd(index)) yield undefined;
    if (isClose(token)) depth--;
    text += toGap(before, token, style, depth) + toText(token, style);
    if (isOpen(token)) depth++;
    if (text.length > longest) return undefined;
    before = token;
  }
  return text;
}

function isOpen(token: Token): boolean {
  return token === '{' || token === '[';
}

function isClose(token: Token): boolean {
  return token === '}' || token === ']';
}

/** The line break before a token; no serializer writes one inside an empty object or array. */
function toGap(before: Token, token: Token, { indent }: JsonStyle, depth: number): string {
  const isBroken = before === ',' || isOpen(before) !== isClose(token);
  return indent !== undefined && isBroken ? `\n${indent.repeat(depth)}` : '';
}

function toText(token: Token, { item, colon }: JsonStyle): string {
  if (token === ',') return item;
  return token === ':' ? colon : token;
}
