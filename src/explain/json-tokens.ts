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

/** Takes the text apart; undefined where it is no JSON. */
export function toTokens(text: string): readonly Token[] | undefined {
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  const tokens: string[] = [];
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(text); match !== null; match = TOKEN.exec(text)) tokens.push(match[1] as string);
  return tokens;
}

/** Writes tokens in a style; undefined where that would be longer than `longest`, as indents blow deep nesting up. */
export function writeJson(tokens: readonly Token[], style: JsonStyle, longest: number): string | undefined {
  let text = '';
  let depth = 0;
  let before = '';
  for (const token of tokens) {
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
