/** Responses of apps. */
import { ResponseParser } from '../../../src/http/client/response-parser.ts';
import type { Target } from '../guided.ts';
import { expectEqual } from './expect-equal.ts';
import { readByNode } from './node-parser.ts';

const MAX_HEAD_BYTES = 4_096;
/** RFC 9110 §5.5 excludes a tab at the end from the value; llhttp compares the coding with the tab, and then reads until the end. */
const TAB_AFTER_CODING = /^transfer-encoding:.*\t\r?$/im;
const CONTROL = /[^\t\x20-\x7e\x80-\xff]/;

interface Reading {
  readonly heads: readonly (readonly [status: number, headers: readonly string[]])[];
  readonly body: string;
  readonly trailers: readonly string[];
  /** The last progress, or why the response is malformed. */
  readonly end: string;
}

/** Reads the response in pieces of `size` bytes, which are overwritten afterwards as those of a socket are. */
function read(bytes: Buffer, size: number): Reading {
  const heads: [number, readonly string[]][] = [];
  let body = '';
  const onHead = ({ status, headers }: { readonly status: number; readonly headers: readonly string[] }): void =>
    void heads.push([status, headers]);
  const parser = new ResponseParser(
    {
      onUpgrade: () => undefined,
      onInformation: (status, headers) => onHead({ status, headers }),
      onHead,
      onBody: (chunk) => {
        body += chunk.toString('latin1');
      },
    },
    MAX_HEAD_BYTES,
  );
  parser.expect('GET', false);
  let end = 'more';
  for (let at = 0; at < bytes.length && end === 'more'; at += size) {
    const lent = Buffer.from(bytes.subarray(at, at + size));
    end = parser.push(lent);
    lent.fill(0);
  }
  return { heads, body, trailers: parser.trailers, end: end === 'malformed' ? parser.problem : end };
}

/** llhttp also reports 100, which has no meaning for us. */
function readSecond(bytes: Buffer): Reading {
  const messages = readByNode(bytes, 'RESPONSE').messages.filter(({ status }) => status !== 100);
  const last = messages.findIndex(({ status = 0 }) => status >= 200);
  const own = messages.slice(0, last + 1);
  return {
    heads: own.map(({ status = 0, headers }) => [status, headers]),
    body: own.map(({ body }) => body).join(''),
    trailers: own.at(-1)?.trailers ?? [],
    end: own.at(-1)?.isComplete === true ? 'complete' : 'more',
  };
}

/** We ignore the extensions of a chunk, whatever they are: they end with their line, and are not forwarded. llhttp parses them. */
function hasOddExtension(bytes: Buffer): boolean {
  return /^[0-9A-Fa-f]+[\t ]*;/m.test(bytes.toString('latin1')) && readByNode(bytes, 'RESPONSE').error !== undefined;
}

/** The pieces of a response do not matter, and what is complete for us is the same for llhttp. */
export const RESPONSE: Target = {
  name: 'response',
  seeds: [
    'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nKeep-Alive: timeout=5, max=100\r\n\r\nhello',
    'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: foo, close\r\n\r\n5;x=y\r\nhello\r\nb\r\n wide world\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\n',
    'HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n',
    'HTTP/1.0 200 OK\r\n\r\nuntil the end',
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n',
  ].map((text) => Buffer.from(text, 'latin1')),
  pieces: [
    'HTTP/1.1 200 OK\r\n',
    'HTTP/1.0 ',
    'HTTP/1.1 101 X\r\n\r\n',
    'Transfer-Encoding: chunked\r\n',
    'transfer-encoding:\tChunked \r\n',
    'Content-Length: 5\r\n',
    'Content-Length: ',
    'Connection: close\r\n',
    'Connection: upgrade\r\nUpgrade: h2c\r\n',
    'Keep-Alive: timeout=5\r\n',
    '\r\n\r\n',
    '\r\n',
    '\n',
    '\r',
    ' ',
    '\t',
    ':',
    ';',
    '"',
    ',',
    '0\r\n\r\n',
    '5\r\nhello\r\n',
    'ffffffff',
    '\0',
    '\x7f',
    '\xff',
    '\x85',
  ],
  check(input) {
    const whole = read(input, Math.max(1, input.length));
    // A limit may be noticed later where the bytes come one by one, and bytes after the end only where they come at once.
    const pieces = read(input, 1);
    const isComparable = whole.end !== 'overrun' && !whole.end.endsWith('too large') && !whole.end.endsWith('too long');
    if (isComparable) expectEqual('byte by byte', pieces, whole);
    if (whole.end === 'complete' && !TAB_AFTER_CODING.test(input.toString('latin1')) && !hasOddExtension(input))
      expectEqual('by llhttp', readSecond(input), whole);
    for (const [, headers] of whole.heads)
      if (headers.some((text) => CONTROL.test(text))) throw new Error('a field has a control byte');
  },
};
