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
import type { ExplainCause } from './explain-metrics.ts';
import { toJsonForms } from './json-forms.ts';
import type { Meter } from './meter.ts';

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
