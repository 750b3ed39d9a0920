/** The league's second table: what the app receives of a request whose credentials are right. */
import { readField } from './raw-client.ts';
import type { Received } from './recorder.ts';
import { COLON, toGoodRequest } from './requests.ts';
import { type Observed, type Row, readForwarded, readStatuses, toStatus } from './row.ts';

/** The field that every server tells the app its user by. */
const IDENTITY = 'X-Forwarded-User';
const HOST = 'Host: gate.example';
const HELLO = '5\r\nhello\r\n0\r\n\r\n';

/** In the order of the report. */
export const FORWARDING_ROWS: readonly Row[] = [
  {
    title: `\`Connection: close, ${IDENTITY}\``,
    requests: [toGoodRequest({ standard: [HOST, `Connection: close, ${IDENTITY}`] })],
    read: readForwarded((received) => (readField(received.head, IDENTITY)[0] === COLON.user ? 'identity kept' : 'identity lost')),
    column: ['identity kept', '400'],
    ground: 'policy (CVE-2022-31813)',
  },
  {
    title: '`X_Forwarded_User: evil`',
    requests: [toGoodRequest({ fields: ['X_Forwarded_User: evil'] })],
    read: readForwarded((received) => (/^X.Forwarded.User: *evil/im.test(received.head) ? 'arrives' : 'removed')),
    column: ['removed', '400'],
    ground: 'policy',
  },
  {
    title: '`X-Forwarded-For: 6.6.6.6`',
    requests: [toGoodRequest({ fields: ['X-Forwarded-For: 6.6.6.6'] })],
    read: readForwarded(readForwardedFor),
    column: ['replaced'],
    ground: 'policy',
  },
  toRemovedRow('a field that `Connection` names', ['X-Hop'], 'RFC 9110 §7.6.1', {
    standard: [HOST, 'Connection: close, X-Hop'],
    fields: ['X-Hop: 1'],
  }),
  toRemovedRow('`Keep-Alive`, `Proxy-Connection`, `TE: gzip`', ['Keep-Alive', 'Proxy-Connection', 'TE'], 'RFC 9110 §7.6.1', {
    fields: ['Keep-Alive: timeout=9', 'Proxy-Connection: keep-alive', 'TE: gzip'],
  }),
  toRemovedRow('`Proxy-Authorization`', ['Proxy-Authorization'], 'policy (RFC 9110 §11.7.2)', {
    fields: ['Proxy-Authorization: Basic eDp5'],
  }),
  toRemovedRow('`Authorization`', ['Authorization'], 'policy', {}),
  {
    title: 'chunked DELETE',
    requests: [toGoodRequest({ line: 'DELETE /x HTTP/1.1', fields: ['Transfer-Encoding: chunked'], body: HELLO })],
    read: readForwarded(readContent),
    column: ['whole body (chunked)', 'whole body (Content-Length)'],
    ground: 'RFC 9112 §6.3',
  },
  {
    title: 'Content-Length beside Transfer-Encoding',
    requests: [
      toGoodRequest({
        line: 'POST /x HTTP/1.1',
        standard: [HOST],
        fields: ['Content-Length: 4', 'Transfer-Encoding: chunked'],
        body: HELLO,
      }),
    ],
    read: readFraming,
    column: ['400, closed'],
    ground: 'policy (RFC 9112 §6.1 allows both, and requires closing)',
  },
  {
    title: 'Transfer-Encoding on HTTP/1.0',
    requests: [
      toGoodRequest({
        line: 'POST /x HTTP/1.0',
        standard: [HOST, 'Connection: keep-alive'],
        fields: ['Transfer-Encoding: chunked'],
        body: HELLO,
      }),
    ],
    read: readFraming,
    column: ['400, closed'],
    ground: 'policy (RFC 9112 §6.1 requires closing)',
  },
  {
    title: '`TRACE` with credentials',
    requests: [toGoodRequest({ line: 'TRACE /x HTTP/1.1' })],
    read: readStatuses,
    column: ['405'],
    ground: 'policy (RFC 9110 §9.3.8)',
  },
  toPathRow('`/a/../b`, `/a/%2e%2e/b`', ['/a/../b', '/a/%2e%2e/b'], 'policy'),
  toPathRow('`//b`', ['//b'], 'policy', '`/b`'),
  toPathRow('`/a\\b`', ['/a\\b'], 'RFC 9112 §3.2, RFC 3986 §3.3'),
  toPathRow('`/a#b`', ['/a#b'], 'RFC 9112 §3.2'),
  toPathRow('`/a%00b`', ['/a%00b'], 'policy'),
  {
    title: 'absolute-form with another host',
    requests: [toGoodRequest({ line: 'GET http://other.example/x HTTP/1.1' })],
    read: readForwarded(({ target, head }) => `\`${target}\`, Host ${readField(head, 'host').join(' and ')}`),
    column: ['400'],
    ground: 'policy (RFC 9112 §3.2.2 requires origins to accept it)',
  },
  {
    title: 'two `Host` lines',
    requests: [toGoodRequest({ fields: ['Host: other.example'] })],
    read: readStatuses,
    column: ['400'],
    ground: 'RFC 9112 §3.2',
  },
  toRemovedRow('`Trailer: x-a` on GET', ['Trailer'], 'policy (RFC 9110 §6.5.1)', { fields: ['Trailer: x-a'] }),
];

function toRemovedRow(title: string, names: readonly string[], ground: string, parts: Parameters<typeof toGoodRequest>[0]): Row {
  const look = ({ head }: Received): string => {
    const arriving = names.filter((name) => readField(head, name).length > 0);
    if (arriving.length === 0) return 'removed';
    return names.length === 1 ? 'arrives' : `arrives: ${arriving.join(', ')}`;
  };
  return { title, requests: [toGoodRequest(parts)], read: readForwarded(look), column: ['removed'], ground };
}

function toPathRow(title: string, paths: readonly string[], ground: string, ...alsoFine: readonly string[]): Row {
  const requests = paths.map((path) => toGoodRequest({ line: `GET ${path} HTTP/1.1` }));
  const isSent = new Set(paths);
  const read = readForwarded(({ target }) => (isSent.has(target) ? 'as is' : `\`${target}\``));
  return { title, requests, read, column: ['400', ...alsoFine], ground };
}

function readForwardedFor({ head }: Received): string {
  const lines = readField(head, 'x-forwarded-for');
  if (!lines.some((line) => line.includes('6.6.6.6'))) return 'replaced';
  const isAlone = lines.length === 1 && lines[0] === '6.6.6.6';
  return isAlone ? 'as is' : 'appended';
}

function readContent({ framing, content, rest }: Received): string {
  const isWhole = content === 'hello' && rest === '' && (framing === 'chunked' || framing === 'Content-Length');
  return `${isWhole ? 'whole' : 'broken'} body (${framing})`;
}

function readFraming([observed]: readonly Observed[]): string {
  if (observed === undefined) return '';
  const [received] = observed.received;
  const status = toStatus(observed);
  const seen = status === '200' && received !== undefined ? `200 (${received.framing})` : status;
  return `${seen}, ${observed.answer?.isClosed === false ? 'kept open' : 'closed'}`;
}
