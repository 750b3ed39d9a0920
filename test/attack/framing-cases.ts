/** Requests whose end is uncertain, for every port that reads requests. */

/** What an attacker would like to be read as a request of its own. */
export const SMUGGLED = 'GET /admin HTTP/1.1\r\nHost: a\r\n\r\n';

/** A head, given its request line and what lets it pass, and the bytes behind it: all of them 400, and the connection closed. */
export const FRAMING_CASES: readonly (readonly [string, (line: string, credentials: string[]) => readonly string[], string])[] = [
  [
    'Content-Length beside Transfer-Encoding (CL.TE)',
    (line) => [line, 'Host: a', 'Content-Length: 5', 'Transfer-Encoding: chunked'],
    `0\r\n\r\n${SMUGGLED}`,
  ],
  [
    'Transfer-Encoding beside Content-Length (TE.CL)',
    (line) => [line, 'Host: a', 'Transfer-Encoding: chunked', 'Content-Length: 3'],
    `8\r\nSMUGGLED\r\n0\r\n\r\n`,
  ],
  ['a coding other than chunked', (line) => [line, 'Host: a', 'Transfer-Encoding: gzip, chunked'], '0\r\n\r\n'],
  ['chunked that is not last', (line) => [line, 'Host: a', 'Transfer-Encoding: chunked, identity'], '0\r\n\r\n'],
  ['chunked twice', (line) => [line, 'Host: a', 'Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'], '0\r\n\r\n'],
  ['an obfuscated coding name', (line) => [line, 'Host: a', 'Transfer-Encoding: xchunked'], '0\r\n\r\n'],
  ['Transfer-Encoding on HTTP/1.0', (line) => [line.replace('1.1', '1.0'), 'Host: a', 'Transfer-Encoding: chunked'], '0\r\n\r\n'],
  ['two Content-Length that differ', (line) => [line, 'Host: a', 'Content-Length: 5', 'Content-Length: 6'], 'hello'],
  ['two Content-Length that agree', (line) => [line, 'Host: a', 'Content-Length: 5', 'Content-Length: 5'], 'hello'],
  ['a Content-Length list', (line) => [line, 'Host: a', 'Content-Length: 5, 5'], 'hello'],
  ['a signed Content-Length', (line) => [line, 'Host: a', 'Content-Length: +5'], 'hello'],
  ['a hexadecimal Content-Length', (line) => [line, 'Host: a', 'Content-Length: 0x5'], 'hello'],
  ['a negative Content-Length', (line) => [line, 'Host: a', 'Content-Length: -1'], 'hello'],
  ['an underscore in Content-Length', (line) => [line, 'Host: a', 'Content-Length: 1_0'], 'hello'],
  ['a folded header line (obs-fold)', (line) => [line, 'Host: a', 'X-Folded: a\r\n b', 'Content-Length: 0'], ''],
  ['a space before the colon', (line) => [line, 'Host : a', 'Content-Length: 0'], ''],
  ['a header line without a colon', (line) => [line, 'Host: a', 'nonsense'], ''],
  ['an empty header name', (line) => [line, 'Host: a', ': x'], ''],
  ['a NUL in a header value', (line) => [line, 'Host: a', 'X-A: a\0b'], ''],
  ['a bare CR in a header value', (line) => [line, 'Host: a', 'X-A: a\rb'], ''],
  ['no version (HTTP/0.9)', (line) => [line.replace(' HTTP/1.1', ''), 'Host: a', 'Content-Length: 0'], ''],
  ['HTTP/0.9', (line) => [line.replace('1.1', '0.9'), 'Host: a', 'Content-Length: 0'], ''],
  ['HTTP/2.0', (line) => [line.replace('1.1', '2.0'), 'Host: a', 'Content-Length: 0'], ''],
  ['HTTP/1.2', (line) => [line.replace('1.1', '1.2'), 'Host: a', 'Content-Length: 0'], ''],
  ['two Host lines', (line) => [line, 'Host: a', 'Host: b', 'Content-Length: 0'], ''],
  ['no Host', (line) => [line, 'Content-Length: 0'], ''],
  ['an empty Host', (line) => [line, 'Host:', 'Content-Length: 0'], ''],
  ['a Host with a user part', (line) => [line, 'Host: u:p@a', 'Content-Length: 0'], ''],
  ['a Host with a path', (line) => [line, 'Host: a/b', 'Content-Length: 0'], ''],
  [
    'a chunk size with a sign',
    (line, credentials) => [line, 'Host: a', 'Transfer-Encoding: chunked', ...credentials],
    '+5\r\nhello\r\n0\r\n\r\n',
  ],
  [
    'a chunk size with 0x',
    (line, credentials) => [line, 'Host: a', 'Transfer-Encoding: chunked', ...credentials],
    '0x5\r\nhello\r\n0\r\n\r\n',
  ],
  [
    'a chunk size that overflows',
    (line, credentials) => [line, 'Host: a', 'Transfer-Encoding: chunked', ...credentials],
    'fffffffffffffffff\r\nhello\r\n0\r\n\r\n',
  ],
  [
    'a bare LF behind a chunk size',
    (line, credentials) => [line, 'Host: a', 'Transfer-Encoding: chunked', ...credentials],
    '5\nhello\r\n0\r\n\r\n',
  ],
  [
    'a chunk that is longer than its size',
    (line, credentials) => [line, 'Host: a', 'Transfer-Encoding: chunked', ...credentials],
    '5\r\nhello!\r\n0\r\n\r\n',
  ],
  ['an unknown HTTP version', (line) => [line.replace('1.1', '3.7'), 'Host: a', 'Content-Length: 0'], ''],
];
