/** Heads of requests, from the bytes of a connection to the target that is routed. */
import { Socket } from 'node:net';
import { HeaderFields } from '../../../src/core/head.ts';
import { Refusal } from '../../../src/core/refusal.ts';
import { checkHead } from '../../../src/http/server/strict-server.ts';
import type { Target } from '../guided.ts';
import { expectEqual } from './expect-equal.ts';
import { readByNode } from './node-parser.ts';

const SOCKET = new Socket();
const LIMITS = { maxHeaderFields: 100, maxTarget: 1_024 };
/**
 * RFC 9112 §2.1, §3, §5: each line ends with CRLF, no line is folded, and no space precedes a colon. llhttp skips further spaces before
 * and after the target, as §3 permits.
 */
const HEAD = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) +([\x21-\x7e]+) +HTTP\/1\.([01])\r\n((?:[^\r\n]+\r\n)*)\r\n/;
const FIELD =
  /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t ]*((?:[\x21-\x7e\x80-\xff](?:[\t \x21-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?)[\t ]*$/;
/** What `new URL` writes in another way, although no parser takes it for another path. */
const REWRITTEN = /["<>^`{|}']/;

/** The fields as the RFC reads them. */
function readFields(lines: string): string[] {
  return lines
    .split('\r\n')
    .slice(0, -1)
    .flatMap((line) => {
      const field = FIELD.exec(line);
      if (field === null) throw new Error(`accepted the line ${JSON.stringify(line)}`);
      return [field[1] as string, field[2] as string];
    });
}

/** A head that is accepted is what the RFC's grammar says, byte for byte, and its target has one interpretation. */
export const REQUEST_HEAD: Target = {
  name: 'request-head',
  seeds: [
    'GET / HTTP/1.1\r\nHost: a\r\n\r\n',
    'POST /hooks/billing?a=b HTTP/1.1\r\nHost: app.example:8080\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n{}',
    'PUT /a%20b/c;d=e HTTP/1.1\r\nhost: [::1]:80\r\nTransfer-Encoding: chunked\r\nX-A:\t b c \r\n\r\n0\r\n\r\n',
    'GET /x HTTP/1.0\r\nConnection: close, X-B\r\nX-B: \xe9\r\n\r\n',
    'OPTIONS /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nExpect: 100-continue\r\n\r\n',
  ].map((text) => Buffer.from(text, 'latin1')),
  pieces: [
    '\r\n',
    '\n',
    '\r',
    '\r\n ',
    '\r\n\t',
    ' ',
    '\t',
    ':',
    ' :',
    '\0',
    '\x7f',
    '\xff',
    '\x85',
    'Host: b\r\n',
    'Host:',
    'Content-Length: 5\r\n',
    'Content-Length: +5\r\n',
    'Transfer-Encoding: chunked\r\n',
    'Transfer-Encoding: gzip, chunked\r\n',
    'Transfer-Encoding : chunked\r\n',
    'Connection: Content-Length\r\n',
    'Connection: host, authorization\r\n',
    'HTTP/1.1',
    'HTTP/1.0',
    'HTTP/0.9',
    'HTTP/2.0',
    'http://a/',
    '/..;/',
    '/%2e%2e/',
    '//',
    '/./',
    '%00',
    '%2f',
    '%5c',
    '\\',
    '#',
    '?',
    ';',
    '%',
    '%c0%af',
    '%e2%80%a8',
    '*',
  ],
  check(input) {
    const [message] = readByNode(input, 'REQUEST').messages;
    if (message === undefined) return;
    // RFC 9112 §2.2: empty lines before a request are ignored; llhttp takes a CR alone for one.
    const text = input.toString('latin1').replace(/^[\r\n]+/, '');
    const { headers, url = '', version } = message;
    const head = {
      method: text.slice(0, text.indexOf(' ')),
      url,
      headers: new HeaderFields(headers),
      hasValidVersion: version === '1.1' || version === '1.0',
      isOld: version.endsWith('.0'),
      socket: SOCKET,
    };
    const target = checkHead(head, LIMITS, () => undefined);
    if (target instanceof Refusal) return;
    const found = HEAD.exec(text);
    if (found === null) throw new Error('accepted a head that RFC 9112 does not allow');
    expectEqual('the target', target.raw, found[2]);
    expectEqual('the fields', headers, readFields(found[4] as string));
    if (target.ambiguities.length > 0 || REWRITTEN.test(target.raw)) return;
    const { pathname, search, hash } = new URL(target.raw, 'http://host');
    const query = target.query === undefined || target.query === '' ? '' : `?${target.query}`;
    expectEqual('as a URL', [pathname, search, hash], [target.path, query, '']);
  },
};
