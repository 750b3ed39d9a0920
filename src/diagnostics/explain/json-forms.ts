/** The forms in which serializers write the same JSON value. */
import { isUtf8 } from 'node:buffer';
import { isStepEnd, type JsonStyle, type Token, toTokens, writeJson } from './json-tokens.ts';

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
