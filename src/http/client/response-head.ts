/** Parses the head of an app's response (RFC 9112 §4, §5): its fields, unchanged, and how its body is framed. */
import type { RawHeaders } from '../../core/headers.ts';

/** The head of a response. */
export interface ResponseHead {
  readonly status: number;
  readonly statusText: string;
  readonly headers: RawHeaders;
  /** Framed by `Transfer-Encoding: chunked`. */
  readonly isChunked: boolean;
  /** Content-Length in bytes, if present. */
  readonly length: number | undefined;
  /** The connection can carry another request after this response, as far as the head shows. */
  readonly keepsAlive: boolean;
  /** The app's idle timeout in seconds (`Keep-Alive: timeout=`), if it sends one. */
  readonly idleSeconds: number | undefined;
}

/** Why a head is invalid; for the log. */
type HeadProblem = string;

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5][0-9]{2})(?: (.*))?$/;
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Control bytes, and a bare CR or LF, which only some parsers treat as the end of a line (RFC 9112 §2.2). */
const FORBIDDEN = /[^\t\r\n\x20-\x7e\x80-\xff]|\r(?!\n)|(?<!\r)\n/;
const LENGTH = /^[0-9]{1,15}$/;
const CLOSE_OPTION = /(?:^|,)[\t ]*close[\t ]*(?:,|$)/i;
const IDLE_SECONDS = /(?:^|,)[\t ]*timeout=([0-9]{1,6})/i;
const NEWLINE = '\r\n';
const SPACE = 32;
const TAB = 9;

/** In characters; longer heads are parsed each time. */
const MAX_REMEMBERED_HEAD = 4_096;
/** A power of 2. */
const REMEMBERED_HEADS = 8;

/**
 * Parses the heads of one app, and remembers the latest ones: most responses to deliveries have the same head, until the next second
 * changes its Date. Parsing a head costs 2 µs, and the same headers need no new decision on what is passed on (response-headers.ts).
 */
export class ResponseHeads {
  readonly #texts: string[] = Array<string>(REMEMBERED_HEADS).fill('');
  readonly #heads: (ResponseHead | undefined)[] = [];

  /** Parses a head without the empty line that ends it. */
  parse(text: string): ResponseHead | HeadProblem {
    const place = text.length & (REMEMBERED_HEADS - 1);
    const known = this.#heads[place];
    if (known !== undefined && this.#texts[place] === text) return known;
    const head = parseResponseHead(text);
    if (typeof head === 'string' || text.length > MAX_REMEMBERED_HEAD) return head;
    this.#texts[place] = text;
    this.#heads[place] = head;
    return head;
  }
}

/** Parses a head without the empty line that ends it. */
export function parseResponseHead(text: string): ResponseHead | HeadProblem {
  if (FORBIDDEN.test(text)) return 'the head has a control byte';
  const end = text.indexOf(NEWLINE);
  const line = STATUS_LINE.exec(end === -1 ? text : text.slice(0, end));
  if (line === null) return 'the status line is malformed';
  const headers = end === -1 ? [] : toFields(text, end + NEWLINE.length);
  if (headers === undefined) return 'a header line is malformed';
  const framing = toFraming(headers);
  if (typeof framing === 'string') return framing;
  const isCurrent = line[1] === '1';
  // RFC 9112 §6.1: an old hop in between may have framed the body differently.
  if (framing.isChunked && !isCurrent) return 'Transfer-Encoding on HTTP/1.0';
  return {
    status: Number(line[2]),
    statusText: line[3] ?? '',
    headers,
    isChunked: framing.isChunked,
    length: framing.length,
    keepsAlive: isCurrent && !framing.closes,
    idleSeconds: framing.idleSeconds,
  };
}

/** Parses trailer lines without the empty line that ends them; undefined if one is malformed. */
export function parseTrailers(text: string): string[] | undefined {
  return FORBIDDEN.test(text) ? undefined : toFields(text, 0);
}

/** Name, value, name, value, … of the lines from `at`. A folded line (RFC 9112 §5.2) has no name and is malformed. */
function toFields(text: string, at: number): string[] | undefined {
  const fields: string[] = [];
  let start = at;
  while (start <= text.length) {
    const newline = text.indexOf(NEWLINE, start);
    const end = newline === -1 ? text.length : newline;
    const colon = text.indexOf(':', start);
    // A line without a colon has no name, which is malformed, too.
    const name = colon === -1 ? '' : text.slice(start, colon);
    if (!TOKEN.test(name)) return undefined;
    fields.push(name, sliceTrimmed(text, colon + 1, end));
    start = end + NEWLINE.length;
  }
  return fields;
}

/** Not a regular expression: optional space at both ends takes quadratic time over a long run of spaces. */
function sliceTrimmed(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isSpace(text.charCodeAt(start))) start++;
  while (end > start && isSpace(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

function isSpace(code: number): boolean {
  return code === SPACE || code === TAB;
}

interface Framing {
  isChunked: boolean;
  length: number | undefined;
  closes: boolean;
  idleSeconds: number | undefined;
}

/** How the body is framed, or why that is ambiguous. */
function toFraming(headers: RawHeaders): Framing | HeadProblem {
  const framing: Framing = { isChunked: false, length: undefined, closes: false, idleSeconds: undefined };
  for (let i = 0; i < headers.length; i += 2) {
    const problem = readFramingField(framing, headers[i] as string, headers[i + 1] as string);
    if (problem !== undefined) return problem;
  }
  // RFC 9112 §6.3: request smuggling, or a bug; in either case two parsers could disagree.
  return framing.isChunked && framing.length !== undefined ? 'both Content-Length and Transfer-Encoding' : framing;
}

/** The length of a name excludes most fields before a comparison must fold their case. */
function readFramingField(framing: Framing, name: string, value: string): HeadProblem | undefined {
  switch (name.length) {
    case 10:
      readHopField(framing, name.toLowerCase(), value);
      return undefined;
    case 14:
      return name.toLowerCase() === 'content-length' ? readLength(framing, value) : undefined;
    case 17:
      return name.toLowerCase() === 'transfer-encoding' ? readCoding(framing, value) : undefined;
    default:
      return undefined;
  }
}

function readHopField(framing: Framing, name: string, value: string): void {
  if (name === 'connection') framing.closes ||= CLOSE_OPTION.test(value);
  else if (name === 'keep-alive') {
    const timeout = IDLE_SECONDS.exec(value);
    if (timeout !== null) framing.idleSeconds = Number(timeout[1]);
  }
}

function readLength(framing: Framing, value: string): HeadProblem | undefined {
  if (framing.length !== undefined) return 'repeated Content-Length';
  if (!LENGTH.test(value)) return 'Content-Length is malformed';
  framing.length = Number(value);
  return undefined;
}

function readCoding(framing: Framing, value: string): HeadProblem | undefined {
  if (framing.isChunked || value.toLowerCase() !== 'chunked') return 'Transfer-Encoding is not just chunked';
  framing.isChunked = true;
  return undefined;
}
