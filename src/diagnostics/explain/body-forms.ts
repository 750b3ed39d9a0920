/** The forms that the body may have had when it was signed: proxies, middleware and tools change it in these ways. */
import { isAscii, isUtf8 } from 'node:buffer';
import {
  brotliDecompressSync,
  deflateSync,
  gunzipSync,
  gzipSync,
  inflateRawSync,
  inflateSync,
  zstdDecompressSync,
} from 'node:zlib';
import { trimEnd, trimEnds } from '../../core/text.ts';
import type { Meter } from './analysis.ts';
import type { ExplainCause } from './explain-metrics.ts';

/** One form of the body. */
export interface BodyForm {
  /** Undefined for the bytes as received. */
  readonly cause: ExplainCause | undefined;
  /** "it matches …" */
  readonly text: string;
  readonly bytes: Buffer;
}

const BOM = Buffer.from([0xef, 0xbb, 0xbf]);
const EMPTY = Buffer.alloc(0);
const LINE_ENDS: ReadonlySet<string> = new Set('\r\n');
const WHITESPACE: ReadonlySet<string> = new Set('\t\n\r ');
/** A small body can decompress to gigabytes. */
const MAX_DECOMPRESSED_BYTES = 1_048_576;
/** Compression blocks the event loop, so larger bodies are not compressed. */
const MAX_COMPRESSED_BYTES = 65_536;

/** Yields all forms except the received one, likely ones first, without repetition and within the budget; undefined where other work can run. */
export function* toBodyForms(body: Buffer, meter: Meter): Generator<BodyForm | undefined> {
  const seen = new Set([toIdentity(body)]);
  for (const form of toAnyForms(body)) {
    if (form === undefined) {
      yield undefined;
      continue;
    }
    if (!meter.takeBytes(form.bytes.length)) return;
    const identity = toIdentity(form.bytes);
    if (seen.has(identity)) continue;
    seen.add(identity);
    yield form;
  }
}

function toIdentity(bytes: Buffer): string {
  return bytes.toString('latin1');
}

function* toAnyForms(body: Buffer): Generator<BodyForm | undefined> {
  yield* toWhitespaceForms(body);
  yield* toTextForms(body);
  yield* toJsonForms(body);
  yield* toEncodedForms(body);
  yield* toFormForms(body);
  if (body.length > 0) yield { cause: 'body_empty', text: 'over an empty body', bytes: EMPTY };
}

function* toWhitespaceForms(body: Buffer): Generator<BodyForm> {
  const cause = 'body_whitespace';
  const text = body.toString('latin1');
  const form = (how: string, changed: string): BodyForm => ({ cause, text: how, bytes: Buffer.from(changed, 'latin1') });
  yield form('without the line end after the body', text.replace(/\r?\n$/, ''));
  yield form('without the line ends after the body', trimEnd(text, LINE_ENDS));
  yield form('without the whitespace after the body', trimEnd(text, WHITESPACE));
  yield form('without the whitespace around the body', trimEnds(text, WHITESPACE));
  yield form('without any line end, as curl --data reads a file', text.replace(/[\r\n]+/g, ''));
  yield form('with a line end after the body', `${text}\n`);
  yield form('with a line end (CRLF) after the body', `${text}\r\n`);
}

function* toTextForms(body: Buffer): Generator<BodyForm> {
  const text = body.toString('latin1');
  const lines = 'body_line_ends';
  yield { cause: lines, text: 'with LF in place of CRLF', bytes: Buffer.from(text.replaceAll('\r\n', '\n'), 'latin1') };
  yield { cause: lines, text: 'with CRLF in place of LF', bytes: Buffer.from(text.replace(/\r?\n/g, '\r\n'), 'latin1') };
  const bom = 'body_bom';
  if (body.subarray(0, BOM.length).equals(BOM))
    yield { cause: bom, text: 'without the byte order mark before the body', bytes: body.subarray(BOM.length) };
  else yield { cause: bom, text: 'with a byte order mark before the body', bytes: Buffer.concat([BOM, body]) };
  if (isAscii(body)) return;
  const charset = 'body_charset';
  yield { cause: charset, text: 'read as Latin-1 and written as UTF-8', bytes: Buffer.from(text, 'utf8') };
  if (isUtf8(body))
    yield { cause: charset, text: 'read as UTF-8 and written as Latin-1', bytes: Buffer.from(body.toString('utf8'), 'latin1') };
}

const INFLATERS: readonly (readonly [string, (bytes: Buffer, options: { maxOutputLength: number }) => Buffer])[] = [
  ['gzip', gunzipSync],
  ['deflate', inflateSync],
  ['deflate (raw)', inflateRawSync],
  ['br', brotliDecompressSync],
  ['zstd', zstdDecompressSync],
];
const GZIP_LEVELS = [6, 9, 1];

function* toEncodedForms(body: Buffer): Generator<BodyForm> {
  const cause = 'body_compression';
  for (const [coding, inflate] of INFLATERS) {
    const bytes = tryInflate(() => inflate(body, { maxOutputLength: MAX_DECOMPRESSED_BYTES }));
    if (bytes !== undefined) yield { cause, text: `decompressed (${coding})`, bytes };
  }
  if (body.length > 0 && body.length <= MAX_COMPRESSED_BYTES) {
    for (const level of GZIP_LEVELS) yield { cause, text: `compressed (gzip, level ${level})`, bytes: gzipSync(body, { level }) };
    yield { cause, text: 'compressed (deflate)', bytes: deflateSync(body) };
  }
  const text = body.toString('latin1').replace(/[\r\n]/g, '');
  if (text.length >= 4 && /^[A-Za-z0-9+/_-]+={0,2}$/.test(text))
    yield { cause: 'body_base64', text: 'decoded from base64', bytes: Buffer.from(text, 'base64') };
}

function tryInflate(inflate: () => Buffer): Buffer | undefined {
  try {
    const bytes = inflate();
    return bytes.length === 0 ? undefined : bytes;
  } catch {
    return undefined;
  }
}

function* toFormForms(body: Buffer): Generator<BodyForm> {
  const cause = 'body_form';
  const text = body.toString('utf8');
  const [, name, value = ''] = /^([A-Za-z_][A-Za-z0-9_-]{0,63})=([^&]*)$/.exec(text) ?? [];
  if (name !== undefined) {
    const decoded = tryDecode(value);
    if (decoded !== undefined) yield { cause, text: 'over the decoded value of the form field', bytes: Buffer.from(decoded) };
    return;
  }
  // Decoding invalid UTF-8 would yield replacement characters, which the sender cannot have signed.
  if (!isUtf8(body)) return;
  const escaped = encodeURIComponent(text);
  yield { cause, text: 'as a form with the field payload', bytes: Buffer.from(`payload=${escaped}`) };
  const plus = escaped.replaceAll('%20', '+').replace(/[!'()~*]/g, toPercent);
  yield { cause, text: 'as a form with the field payload', bytes: Buffer.from(`payload=${plus.replaceAll('%2A', '*')}`) };
  yield { cause, text: 'as a form with the field payload', bytes: Buffer.from(`payload=${plus}`) };
}

function tryDecode(value: string): string | undefined {
  try {
    return decodeURIComponent(value.replaceAll('+', ' '));
  } catch {
    return undefined;
  }
}

function toPercent(character: string): string {
  return `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
}

// The forms in which serializers write the same JSON value, without changing its meaning: numbers keep their digits, keys their order.

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
function* toJsonForms(body: Buffer): Generator<JsonForm | undefined> {
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

// JSON as tokens.

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
