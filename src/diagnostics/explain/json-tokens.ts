/** JSON as tokens, so that it can be written in other forms without a change of what it says: numbers keep their digits, keys their order. */

/** One token: punctuation, or a string or other literal as it is written. */
export type Token = string;

/** How a serialiser writes JSON. */
export interface JsonStyle {
  readonly item: string;
  readonly colon: string;
  /** Of one level; undefined: all on one line. */
  readonly indent?: string;
}

const TOKEN = /[\t\n\r ]*([[\]{},:]|"[^"\\]*(?:\\.[^"\\]*)*"|[-0-9.eE+]+|true|false|null)/y;

/** Tokens that are worked on before other work may go first: a millisecond or two. */
const TOKENS_PER_STEP = 8_192;

/** Tells after how many tokens other work may go first. */
export function isStepEnd(index: number): boolean {
  return index % TOKENS_PER_STEP === TOKENS_PER_STEP - 1;
}

/** Takes the text apart, and yields where other work may go first; undefined where it is no JSON. */
export function* toTokens(text: string): Generator<undefined, readonly Token[] | undefined> {
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  const tokens: string[] = [];
  for (let at = 0; ; ) {
    // Several analyses may be under way, and the pattern has one place to remember.
    TOKEN.lastIndex = at;
    const match = TOKEN.exec(text);
    if (match === null) return tokens;
    at = TOKEN.lastIndex;
    tokens.push(match[1] as string);
    if (isStepEnd(tokens.length)) yield undefined;
  }
}

/** Writes tokens in a style, and yields where other work may go first; undefined where that would be longer than `longest`, as indents blow deep nesting up. */
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

/** The line break before a token; empty mappings and lists are written without one by all serialisers. */
function toGap(before: Token, token: Token, { indent }: JsonStyle, depth: number): string {
  const isBroken = before === ',' || isOpen(before) !== isClose(token);
  return indent !== undefined && isBroken ? `\n${indent.repeat(depth)}` : '';
}

function toText(token: Token, { item, colon }: JsonStyle): string {
  if (token === ',') return item;
  return token === ':' ? colon : token;
}
