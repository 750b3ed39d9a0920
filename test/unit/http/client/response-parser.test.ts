import { describe, expect, test } from 'vitest';
import { systemClock } from '../../../../src/core/clock.ts';
import { ResponseHeaderPolicy } from '../../../../src/gateway/upstream/headers.ts';
import { HttpClient, Pool } from '../../../../src/http/client/pool.ts';
import { parseResponseHead, ResponseHeads, ResponseParser } from '../../../../src/http/client/response-parser.ts';
import { fc } from '../../../support/property.ts';

/** All events of a parser for some bytes, split at the given positions. */
function parse(bytes: Buffer, cuts: readonly number[], method = 'GET', maxHeadBytes = 4_096): string[] {
  const said: string[] = [];
  let content = '';
  const parser = new ResponseParser(
    {
      onUpgrade: () => undefined,
      onInformation: (status, headers) => said.push(`info ${status} ${headers.join('|')}`),
      onHead: ({ status, statusText, headers, keepsAlive, idleSeconds }) =>
        said.push(`head ${status} ${statusText} ${headers.join('|')} ${keepsAlive} ${idleSeconds}`),
      onBody: (chunk) => {
        content += chunk.toString('latin1');
      },
    },
    maxHeadBytes,
  );
  parser.expect(method, false);
  const ends = [...new Set(cuts)].filter((cut) => cut > 0 && cut < bytes.length).sort((a, b) => a - b);
  let from = 0;
  for (const end of [...ends, bytes.length]) {
    // As with a socket, the bytes are overwritten afterwards.
    const lent = Buffer.from(bytes.subarray(from, end));
    const progress = parser.push(lent);
    lent.fill(0);
    if (progress === 'malformed') return [...said, `malformed: ${parser.problem}`];
    if (progress !== 'more') said.push(`content ${content}`, `${progress} ${parser.trailers.join('|')}`);
    from = end;
  }
  return said;
}

const RESPONSES = [
  'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nKeep-Alive: timeout=5, max=100\r\n\r\nhello',
  'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: foo, close\r\n\r\n5;x=y\r\nhello\r\nb\r\n wide world\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\n',
  'HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n',
];

test.each(RESPONSES)('parses a response identically however its bytes are split (%#)', (text) => {
  const bytes = Buffer.from(text, 'latin1');
  const whole = parse(bytes, []);
  expect(whole.at(-1)).toMatch(/^complete/);
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: bytes.length }), { maxLength: 30 }), (cuts) => {
      expect(parse(bytes, cuts)).toEqual(whole);
    }),
  );
});

/** What `onBody` gets for each push of a chunked response. */
function readContents(pushes: readonly string[]): string[][] {
  let contents: string[] = [];
  const ignore = (): void => undefined;
  const onBody = (content: Buffer): void => void contents.push(content.toString('latin1'));
  const parser = new ResponseParser({ onUpgrade: ignore, onInformation: ignore, onHead: ignore, onBody }, 4_096);
  parser.expect('GET', false);
  parser.push(Buffer.from('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'));
  return pushes.map((text) => {
    contents = [];
    parser.push(Buffer.from(text, 'latin1'));
    return contents;
  });
}

test('passes on the content of all chunks of one read at once', () => {
  expect(readContents([`${'1\r\na\r\n'.repeat(10_000)}0\r\n\r\n`])).toEqual([['a'.repeat(10_000)]]);
});

test('passes on what each read has of a chunk without waiting for the next read', () => {
  const pushes = ['3;x=y\r\nabc\r\n2\r\nd', 'e\r\n', '4', '\r\nfg', 'hi\r\n1\r\nj\r\n0\r\nX-A: 1\r\n', '\r\n'];
  expect(readContents(pushes)).toEqual([['abcd'], ['e'], [], ['fg'], ['hij'], []]);
});

test('passes on the content that precedes an invalid chunk', () => {
  expect(readContents(['1\r\na\r\n1\r\nb\r\nx\r\n'])).toEqual([['ab']]);
});

test('never throws, whatever the bytes', () => {
  const pieces = fc.oneof(
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes).toString('latin1')),
    fc.constantFrom(
      'HTTP/1.1 200 OK',
      '\r\n',
      '\r\n\r\n',
      'Content-Length: ',
      'Transfer-Encoding: chunked',
      '5',
      '0',
      ': ',
      '\n',
      '\r',
    ),
  );
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 30 }), fc.array(fc.nat(200), { maxLength: 5 }), (parts, cuts) => {
      const bytes = Buffer.from(parts.join(''), 'latin1');
      parse(
        bytes,
        cuts.map((cut) => Math.min(cut, bytes.length)),
      );
    }),
    { numRuns: 2_000 },
  );
});

test('reads the idle timeout of the app, and the options of Connection', () => {
  expect(parse(Buffer.from(RESPONSES[0] as string), [])[0]).toContain('true 5');
  expect(parse(Buffer.from(RESPONSES[1] as string), [])[1]).toContain('false undefined');
  expect(parse(Buffer.from('HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n'), [])[0]).toContain('false undefined');
});

test('finds close in any of several Connection lines', () => {
  const head = 'HTTP/1.1 200 OK\r\nConnection: close\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n';
  expect(parse(Buffer.from(head), [])[0]).toContain('false undefined');
});

test('reads a head of spaces in linear time', () => {
  const value = `x${' '.repeat(1_000_000)}y`;
  const text = `HTTP/1.1 200 OK\r\nX-A: ${value}\r\nContent-Length: 0\r\n\r\n`;
  expect(parse(Buffer.from(text), [], 'GET', 2_000_000)[0]).toContain(value);
});

test('reports bytes after the end of the response', () => {
  expect(parse(Buffer.from('HTTP/1.1 204 No\r\n\r\nHTTP/1.1 200'), [])).toContain('overrun ');
});

test.each([
  ['HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n', 'malformed: Transfer-Encoding on HTTP/1.0'],
  ['HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n', 'malformed: Transfer-Encoding is not just chunked'],
  [`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;${'x'.repeat(2_000)}`, 'malformed: a chunk size line is too long'],
  [`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ${'x'.repeat(5_000)}`, 'malformed: the trailers are too large'],
  ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n', 'malformed: a trailer line is malformed'],
  ...['', 'g', '-1', '+1', '0x1', ' 1', '1 ', '123456789', '1;\x01', '1\n', '1x'].map((size) => [
    `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${size}\r\na\r\n`,
    'malformed: a chunk size is malformed',
  ]),
  ['HTTP/1.1 102 P\r\n\r\n'.repeat(17), 'malformed: too many 1xx responses'],
])('rejects %j', (text, error) => {
  expect(parse(Buffer.from(text), []).filter((said) => said.startsWith('malformed'))).toEqual([error]);
});

describe('ResponseHeads', () => {
  const status = fc.constantFrom(200, 204, 304, 404, 503);
  const field = fc.constantFrom(
    'Content-Length: 3',
    'Content-Length: x',
    'Connection: close',
    'Connection: X-A',
    'X-A: 1',
    'X-A: 2',
    'bad',
  );
  const text = fc
    .tuple(status, fc.array(field, { maxLength: 4 }))
    .map(([code, fields]) => [`HTTP/1.1 ${code} Text`, ...fields].join('\r\n'));

  describe('the heads of responses that are remembered', () => {
    test('are what the parser makes of each, whatever came before', () => {
      fc.assert(
        fc.property(fc.array(text, { maxLength: 40 }), (texts) => {
          const heads = new ResponseHeads();
          for (const each of texts) expect(heads.parse(each)).toEqual(parseResponseHead(each));
        }),
      );
    });

    test('lead to the header for the sender that a head for the first time leads to', () => {
      fc.assert(
        fc.property(fc.array(text, { maxLength: 40 }), (texts) => {
          const heads = new ResponseHeads();
          const policy = new ResponseHeaderPolicy(new Set());
          for (const each of texts) {
            const head = heads.parse(each);
            if (typeof head === 'string') continue;
            const fresh = new ResponseHeaderPolicy(new Set()).toSenderHead(head.status, [...head.headers]);
            expect(policy.toSenderHead(head.status, head.headers)).toEqual(fresh);
          }
        }),
      );
    });

    test('are the same object for the same text, and do not include long heads and those of 1xx', () => {
      const heads = new ResponseHeads();
      const [short, long] = ['HTTP/1.1 200 OK\r\nX-A: 1', `HTTP/1.1 200 OK\r\nX-A: ${'x'.repeat(5_000)}`];
      expect(heads.parse(short)).toBe(heads.parse(short));
      expect(heads.parse(long)).not.toBe(heads.parse(long));
      expect(heads.parse('HTTP/1.1 103 Early Hints')).not.toBe(heads.parse('HTTP/1.1 103 Early Hints'));
    });

    test('are those of an app, and not of a server that others choose', () => {
      const limits = {
        connectTimeout: 1,
        responseTimeout: 1,
        idleResponseTimeout: 1,
        idleTimeout: 1,
        maxConnections: 1,
        maxHeadBytes: 1,
      };
      const pool = new Pool(new HttpClient(systemClock), limits, () => Promise.reject(new Error('closed')));
      expect(pool.heads.parse('HTTP/1.1 200 OK')).not.toBe(pool.heads.parse('HTTP/1.1 200 OK'));
    });
  });
});
