/** A captured request, independent of the capture format; and its plainest format, the request as it was sent. */

import type { EpochMilliseconds } from '../../core/clock.ts';
import { usageError } from '../../core/errors.ts';
import { trimEnds } from '../../core/text.ts';

/** One request as sent on the wire, as far as the format contains it. */
export interface Captured {
  readonly method: string;
  /** Scheme and host; undefined if the capture has only the target. */
  readonly origin: string | undefined;
  /** In origin-form. */
  readonly target: string;
  /** Name, value, name, value, …; values are latin1, like header fields. */
  readonly headers: readonly string[];
  /** Empty if the capture has none. */
  readonly body: Buffer;
  /** False if the capture says that the body, or a part of it, is missing. */
  readonly isBodyComplete?: boolean;
  /** When it was sent, if the capture contains the time. */
  readonly at?: EpochMilliseconds;
  /** Possible differences from the original request. */
  readonly notes: readonly string[];
}

/** Reads a file that a curl command line names. */
export type ReadNamedFile = (file: string) => Buffer;

/** Splits an absolute URL, or a target, without changing its bytes. */
export function splitUrl(url: string): { origin: string | undefined; target: string } {
  const [, origin, rest = ''] = /^(https?:\/\/[^/?#]+)([^#]*)/i.exec(url) ?? [];
  if (origin === undefined) return { origin, target: url };
  return { origin, target: rest.startsWith('/') ? rest : `/${rest}` };
}

// Reads a request as sent on the wire (RFC 9112), leniently, because such files are often edited by hand.

const REQUEST_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP\/[0-9.]+$/;
const WHITESPACE: ReadonlySet<string> = new Set(' \t\r\n');

/** Reads one request; the lines of its head may end with LF only. */
export function readHttp(bytes: Buffer): Captured {
  const text = bytes.toString('latin1');
  const skipped = /^[\r\n]*/.exec(text)?.[0].length ?? 0;
  const { 0: gap = '', index: end = text.length } = /\r?\n\r?\n/.exec(text.slice(skipped)) ?? {};
  const [first = '', ...lines] = text.slice(skipped, skipped + end).split(/\r?\n/);
  const [, method = '', url = ''] = REQUEST_LINE.exec(first.trimEnd()) ?? [];
  if (method === '') throw usageError('the first line of the request is not METHOD TARGET HTTP/1.1');
  const headers = lines.filter((line) => line !== '').flatMap(toField);
  const rest = bytes.subarray(skipped + end + gap.length);
  return { method, ...splitUrl(url), headers, ...toContent(rest, headers) };
}

/** Parses a field line without the whitespace around its value (RFC 9112 §5). */
export function toField(line: string): [string, string] {
  const colon = line.indexOf(':', 1);
  if (colon < 1) throw usageError(`"${line.slice(0, 40)}" in the head of the request is not a header such as Name: value`);
  return [line.slice(0, colon), trimEnds(line.slice(colon + 1), WHITESPACE)];
}

function toContent(rest: Buffer, headers: readonly string[]): Pick<Captured, 'body' | 'notes'> {
  if (/^chunked$/i.test(find(headers, 'transfer-encoding') ?? '')) return { body: readChunks(rest), notes: [] };
  const length = Number(find(headers, 'content-length') ?? Number.NaN);
  if (!Number.isSafeInteger(length) || length === rest.length) return { body: rest, notes: [] };
  if (rest.length < length)
    return {
      body: rest,
      notes: [`Content-Length is ${length} bytes, but the capture contains only ${rest.length}: it is truncated`],
    };
  const more = rest.length - length;
  return { body: rest.subarray(0, length), notes: [`ignored ${more} bytes after the ${length} bytes of Content-Length`] };
}

function find(headers: readonly string[], name: string): string | undefined {
  const at = headers.findIndex((each, i) => i % 2 === 0 && each.toLowerCase() === name);
  return at === -1 ? undefined : headers[at + 1];
}

/** Decodes the chunked coding (RFC 9112 §7.1); a body that is already decoded, as some tools save it, is returned unchanged. */
function readChunks(bytes: Buffer): Buffer {
  const chunks: Buffer[] = [];
  for (let at = 0; ; ) {
    const end = bytes.indexOf('\n', at);
    const size = end === -1 ? '' : bytes.subarray(at, end).toString('latin1').split(';')[0]?.trim();
    if (size === undefined || !/^[0-9A-Fa-f]{1,8}$/.test(size)) return bytes;
    const length = Number.parseInt(size, 16);
    if (length === 0) return Buffer.concat(chunks);
    chunks.push(bytes.subarray(end + 1, end + 1 + length));
    at = end + 1 + length;
    at += bytes.subarray(at, at + 2).toString('latin1') === '\r\n' ? 2 : 1;
  }
}
