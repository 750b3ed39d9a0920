/** The forms in which serializers write the same JSON value, without changing its meaning: numbers keep their digits, keys their order. */
import { isUtf8 } from 'node:buffer';

/** One form. */
interface JsonForm {
  readonly cause: 'body_reserialised' | 'body_escapes';
  readonly text: string;
  readonly bytes: Buffer;
}

interface Spacing {
  readonly text: string;
  readonly style: JsonStyle;
}

interface Escaping {
  readonly text: string;
  /** Rewrites one string literal, including its quotes. */
  readonly string: (literal: Token) => Token;
}

const SPACINGS: readonly Spacing[] = [
  { text: 'as JSON.stringify writes it (compact)', style: { item: ',', colon: ':' } },
  { text: "spaced as Python's json.dumps does", style: { item: ', ', colon: ': ' } },
  { text: 'indented by 2 spaces', style: { item: ',', colon: ': ', indent: '  ' } },
  { text: 'indented by 4 spaces', style: { item: ',', colon: ': ', indent: '    ' } },
  { text: 'indented by tabs', style: { item: ',', colon: ': ', indent: '\t' } },
];

const minimal = (literal: Token): Token => (literal.includes('\\') ? JSON.stringify(JSON.parse(literal)) : literal);
const ascii = (literal: Token): Token => minimal(literal).replace(/[\u007f-\uffff]/g, toEscape);
const slashes = (literal: Token): Token => literal.replaceAll('/', '\\/');

const AS_IS: Escaping = { text: '', string: (literal) => literal };
const ESCAPINGS: readonly Escaping[] = [
  { text: 'with unescaped characters', string: minimal },
  { text: 'with \\u escapes for non-ASCII characters, as Python and others write it', string: ascii },
  { text: "with / and non-ASCII characters escaped, as PHP's json_encode does", string: (literal) => slashes(ascii(literal)) },
  { text: 'with / escaped, as PHP does with JSON_UNESCAPED_UNICODE', string: (literal) => slashes(minimal(literal)) },
  {
    text: 'with <, > and & escaped, as Go and Rails write it',
    string: (literal) => minimal(literal).replace(/[<>&\u2028\u2029]/g, toEscape),
  },
];

function toEscape(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** Indentation can make deeply nested JSON much longer. */
const MAX_GROWTH = 4;

/** Yields the forms of `body`, and undefined where other work can run; nothing if it is not JSON. */
export function* toJsonForms(body: Buffer): Generator<JsonForm | undefined> {
  if (!isUtf8(body)) return;
  const tokens = yield* toTokens(body.toString('utf8').replace(/^\uFEFF/, ''));
  if (tokens === undefined) return;
  const longest = 1_024 + body.length * MAX_GROWTH;
  const seen: (readonly Token[])[] = [];
  for (const { text: escapes, string } of [AS_IS, ...ESCAPINGS]) {
    const escaped = yield* escapeTokens(tokens, string);
    // Most bodies have nothing to escape, so the forms would repeat.
    if (seen.some((known) => known.every((token, i) => token === escaped[i]))) continue;
    seen.push(escaped);
    for (const spacing of SPACINGS) {
      const written = yield* writeJson(escaped, spacing.style, longest);
      if (written !== undefined) yield* toForms(written, spacing.text, escapes);
    }
  }
  const inner = toInnerText(tokens);
  if (inner !== undefined)
    yield {
      cause: 'body_reserialised',
      text: 'over the value of the received JSON string, which is itself JSON',
      bytes: inner,
    };
}

function* escapeTokens(tokens: readonly Token[], string: Escaping['string']): Generator<undefined, readonly Token[]> {
  const escaped: Token[] = [];
  for (const [index, token] of tokens.entries()) {
    escaped.push(token.startsWith('"') ? string(token) : token);
    if (isStepEnd(index)) yield undefined;
  }
  return escaped;
}

function* toForms(written: string, spacing: string, escapes: string): Generator<JsonForm> {
  const cause = escapes === '' ? 'body_reserialised' : 'body_escapes';
  const text = `over JSON ${spacing}${escapes === '' ? '' : `, ${escapes}`}`;
  yield { cause, text, bytes: Buffer.from(written) };
  // Stream encoders and pretty-printers append a line ending.
  yield { cause, text: `${text}, with a trailing line ending`, bytes: Buffer.from(`${written}\n`) };
}

function toInnerText(tokens: readonly string[]): Buffer | undefined {
  const [only = ''] = tokens;
  return tokens.length === 1 && only.startsWith('"') ? Buffer.from(JSON.parse(only) as string) : undefined;
}

/** One token: punctuation, or a literal as written. */
type Token = string;

/** How a serializer writes JSON. */
interface JsonStyle {
  readonly item: string;
  readonly colon: string;
  /** Of one level; undefined: everything on one line. */
  readonly indent?: string;
}

const TOKEN = /[\t\n\r ]*([[\]{},:]|"[^"\\]*(?:\\.[^"\\]*)*"|[-0-9.eE+]+|true|false|null)/y;

/** Tokens per step: one or two milliseconds, after which other work can run. */
const TOKENS_PER_STEP = 8_192;

/** Whether a step ends at this token, so that other work can run. */
function isStepEnd(index: number): boolean {
  return index % TOKENS_PER_STEP === TOKENS_PER_STEP - 1;
}

/** Splits the text into tokens, and yields where other work can run; returns undefined if it is not JSON. */
function* toTokens(text: string): Generator<undefined, readonly Token[] | undefined> {
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
function* writeJson(tokens: readonly Token[], style: JsonStyle, longest: number): Generator<undefined, string | undefined> {
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
