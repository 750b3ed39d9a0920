import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from 'node:http2';
import { connect as connectTcp } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import type { Clock } from '../../src/core/clock.ts';
import { toTlsFiles } from '../support/certificates.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp, useAuthority, useServer } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { FLAG, FRAME, type FrameClient, openFrames, toBlock, toFrame } from '../support/h2-frames.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const authority = useAuthority();
const pair = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
const app = useApp();
let onStream: (response: ServerResponse) => void = () => undefined;
let onRequest: (request: IncomingMessage) => void = () => undefined;
let gate: TestGate;
let session: ClientHttp2Session | undefined;
let fakeClock: FakeClock | undefined;

const server = createServer((request, response) => {
  if (request.url === '/echo') request.pipe(response);
  else if (request.url === '/hold') onRequest(request);
  else onStream(response);
});
/** An app that streams in both directions, and may break off. */
const streams = useServer(server);
afterEach(async () => {
  session?.destroy();
  session = undefined;
  const stopped = gate.stop();
  await fakeClock?.advance(10_000);
  fakeClock = undefined;
  await stopped;
});

const start = async (
  tls: Sections = {},
  clock?: Clock,
  limits: Sections = {},
  more: Sections = {},
  trustedProxies: string[] = [],
): Promise<void> => {
  const upstream = `http://127.0.0.1:${app.port}`;
  gate = await startGate(
    {
      ...more,
      listen: { address: '127.0.0.1:0', trustedProxies, tls: { certFile: 'tls.crt', keyFile: 'tls.key', ...tls } },
      limits,
      routes: [
        { name: 'admin', match: { pathPrefix: '/admin' }, upstream, basic: { realm: 'admin', users: { file: 'users' } } },
        { name: 'open', match: { pathPrefix: '/open' }, upstream, allow: 'anyone' },
        {
          name: 'streams',
          match: { pathPrefix: '/' },
          upstream: `http://127.0.0.1:${streams.port}`,
          allow: 'anyone',
        },
        toRoute(app.port),
      ],
    },
    clock,
    { users: makeEntry('Aladdin', 'open sesame'), ...toTlsFiles(pair) },
  );
};

const openSession = (): ClientHttp2Session => {
  session = connect(`https://localhost:${gate.port}`, { ca: readFileSync(authority.ca) });
  session.on('error', () => undefined);
  return session;
};

interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly trailers: IncomingHttpHeaders | undefined;
  /** The stream's error code. */
  readonly code: number;
}

const read = (stream: ClientHttp2Stream): Promise<Reply> =>
  new Promise((resolve) => {
    let headers: IncomingHttpHeaders = {};
    let trailers: IncomingHttpHeaders | undefined;
    let text = '';
    stream.on('response', (given) => {
      headers = given;
    });
    stream.on('trailers', (given) => {
      trailers = given;
    });
    stream.on('data', (chunk: Buffer) => {
      text += String(chunk);
    });
    stream.on('error', () => undefined);
    stream.on('close', () => resolve({ status: Number(headers[':status']), headers, text, trailers, code: stream.rstCode }));
  });

const ask = (headers: OutgoingHttpHeaders, body?: Buffer | string): Promise<Reply> => {
  const stream = (session ?? openSession()).request(headers, { endStream: body === undefined });
  if (body !== undefined) stream.end(body);
  return read(stream);
};

const toHead = (path: string, more: readonly (readonly [string, string])[] = []): (readonly [string, string])[] => [
  [':method', 'GET'],
  [':scheme', 'https'],
  [':path', path],
  [':authority', 'localhost'],
  ...more,
];
const toHeaders = (stream: number, path: string, more: readonly (readonly [string, string])[] = []): Buffer =>
  toFrame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, toBlock(toHead(path, more)));

const isGoaway = ({ type }: { type: number }): boolean => type === FRAME.goaway;

describe('a request over HTTP/2', () => {
  test('reaches the app as HTTP/1.1, its authority as Host and its cookies as one field', async () => {
    await start();
    const headers = { ':path': '/open/x?y=1', cookie: ['a=1', 'b=2'], 'x-twice': ['1', '2'], te: 'trailers' };
    const reply = await ask(headers);
    expect(reply).toMatchObject({ status: 200, text: 'handled', code: 0 });
    const [received] = app.received;
    expect(received?.url).toBe('/open/x?y=1');
    expect(received?.headers).toMatchObject({
      host: `localhost:${gate.port}`,
      cookie: 'a=1; b=2',
      'x-twice': '1, 2',
      'x-forwarded-proto': 'https',
      'x-forwarded-host': `localhost:${gate.port}`,
    });
    expect(received?.headers['te']).toBeUndefined();
    expect(gate.log().find(({ msg }) => msg === 'request')).toMatchObject({ route: 'open', status: 200 });
  });

  test('gets a challenge, and is allowed with the correct password', async () => {
    await start();
    const refused = await ask({ ':path': '/admin' });
    expect(refused).toMatchObject({ status: 401 });
    expect(refused.headers).toMatchObject({
      'www-authenticate': 'Basic realm="admin", charset="UTF-8"',
      'cache-control': 'no-store',
      'content-type': 'application/problem+json',
    });
    const { Authorization } = toBasic('Aladdin', 'open sesame');
    expect(await ask({ ':path': '/admin', authorization: Authorization })).toMatchObject({ status: 200, text: 'handled' });
    expect(app.received[0]?.headers).toMatchObject({ 'sidegate-user': 'Aladdin' });
    expect(app.received[0]?.headers.authorization).toBeUndefined();
  });

  test('delivers a signed webhook once', async () => {
    await start();
    const { headers, body } = makeDelivery();
    const asked = { ':path': '/hooks/billing', ':method': 'POST', ...headers };
    expect(await ask(asked, body)).toMatchObject({ status: 200, text: 'handled' });
    expect(JSON.parse((await ask(asked, body)).text)).toMatchObject({ code: 'duplicate' });
    expect(app.received.map((one) => one.body.equals(body))).toEqual([true]);
  });

  test('gets its own response among many concurrent ones', async () => {
    await start();
    app.handler = ({ url }, response) => response.end(url);
    const paths = Array.from({ length: 60 }, (_, index) => `/open/${index}`);
    const replies = await Promise.all(paths.map((path) => ask({ ':path': path })));
    expect(replies.map(({ text }) => text)).toEqual(paths);
  });

  test('with a body is streamed, and so is the response', async () => {
    await start();
    const stream = openSession().request({ ':path': '/echo', ':method': 'POST' });
    const reply = read(stream);
    stream.write('one ');
    await new Promise((resolve) => stream.once('data', resolve));
    stream.end('two');
    expect(await reply).toMatchObject({ status: 200, text: 'one two' });
  });

  test('of a megabyte in each direction loses nothing', async () => {
    await start();
    const content = Buffer.alloc(3 * 1024 * 1024, 'sidegate');
    const { text } = await ask({ ':path': '/echo', ':method': 'POST' }, content);
    expect(text === content.toString()).toBe(true);
  });

  test('ends with its head for HEAD, and for a response without a body', async () => {
    await start();
    app.handler = ({ method }, response) => {
      response.writeHead(method === 'HEAD' ? 200 : 204, method === 'HEAD' ? { 'Content-Length': '7' } : {});
      response.end();
    };
    expect(await ask({ ':path': '/open', ':method': 'HEAD' })).toMatchObject({ status: 200, text: '' });
    expect(await ask({ ':path': '/open' })).toMatchObject({ status: 204, text: '' });
  });

  test.each([['HEAD'], ['GET'], ['POST'], ['POST', '']])(
    'with %s gets its response if it waits because connections arrive, also with an empty body (%j)',
    async (method, body?: string) => {
      await start();
      await ask({ ':path': '/open' });
      const requests = Array.from({ length: 60 }, () => ask({ ':path': '/open', ':method': method }, body));
      const arriving = Array.from({ length: 60 }, () => connectTcp(gate.port, '127.0.0.1').on('error', () => undefined));
      const statuses = (await Promise.all(requests)).map(({ status }) => status);
      for (const socket of arriving) socket.destroy();
      expect(new Set(statuses)).toEqual(new Set([200]));
    },
  );

  test('whose body turns out to be empty gets its response after its password was checked', async () => {
    await start();
    const { Authorization } = toBasic('Aladdin', 'open sesame');
    expect(await ask({ ':path': '/admin', ':method': 'POST', authorization: Authorization }, '')).toMatchObject({
      status: 200,
      text: 'handled',
    });
  });

  test('ends with its head for a 205, although the app sends content', async () => {
    await start();
    for (const fields of [{ 'Content-Length': '5' }, {}]) {
      app.handler = (_request, response) => response.writeHead(205, fields).end('abcde');
      const { status, headers, text, code } = await ask({ ':path': '/open' });
      expect([status, headers['content-length'], text, code]).toEqual([205, '0', '', 0]);
    }
  });

  test('gets the trailers and early hints of the app', async () => {
    await start();
    onStream = (response) => {
      response.writeEarlyHints({ link: '</a.css>; rel=preload' });
      response.writeHead(200, { Trailer: 'X-Sum' });
      response.write('content');
      response.addTrailers({ 'X-Sum': '42' });
      response.end();
    };
    const stream = openSession().request({ ':path': '/trailers', te: 'trailers' });
    const hints: unknown[] = [];
    stream.on('headers', (headers) => hints.push([headers[':status'], headers['link']]));
    const reply = await read(stream);
    expect(reply).toMatchObject({ status: 200, text: 'content', trailers: { 'x-sum': '42' } });
    expect(hints).toEqual([[103, '</a.css>; rel=preload']]);
  });

  test('that expects 100 gets it; another expectation is rejected', async () => {
    await start();
    const stream = openSession().request({ ':path': '/echo', ':method': 'POST', expect: '100-continue' });
    const reply = read(stream);
    await new Promise((resolve) => stream.once('continue', resolve));
    stream.end('sent on');
    expect(await reply).toMatchObject({ status: 200, text: 'sent on' });
    expect(await ask({ ':path': '/open', expect: 'miracles' })).toMatchObject({ status: 417 });
  });

  test('can be answered before its body is complete, and the connection stays usable', async () => {
    await start();
    const client = await openFrames(gate.port, authority.ca);
    const head = [[':method', 'POST'], ...toHead('/admin').slice(1)] as const;
    client.socket.write(toFrame(FRAME.headers, FLAG.endHeaders, 1, toBlock(head)));
    client.socket.write(toFrame(FRAME.data, 0, 1, Buffer.alloc(15_000)));
    await client.next(({ type, flags, stream }) => type === FRAME.data && flags === FLAG.endStream && stream === 1);
    const ended = await client.next(({ type, stream }) => type === FRAME.rstStream && stream === 1);
    expect(ended.payload.readUInt32BE()).toBe(constants.NGHTTP2_NO_ERROR);
    client.socket.write(toHeaders(3, '/open'));
    await client.next(({ type, stream }) => type === FRAME.headers && stream === 3);
    client.socket.destroy();
  });

  test('from curl is allowed', async () => {
    await start();
    const args = ['-sS', '--http2', '--cacert', authority.ca, '-u', 'Aladdin:open sesame', '-w', ' %{http_version} %{http_code}'];
    const child = spawn('curl', [...args, `https://localhost:${gate.port}/admin`], { stdio: ['ignore', 'pipe', 'inherit'] });
    let text = '';
    for await (const chunk of child.stdout) text += String(chunk);
    expect(text).toBe('handled 2 200');
  });
});

describe('a broken exchange', () => {
  test.each([
    ['takes its request back', toFrame(FRAME.rstStream, 0, 1, Buffer.from([0, 0, 0, 8]))],
    ['does so as if all were well', toFrame(FRAME.rstStream, 0, 1, Buffer.from([0, 0, 0, 0]))],
    ['breaks the protocol', toFrame(FRAME.data, 0, 0)],
  ])('of a client that %s during its body never looks complete to the app', async (_what, bytes) => {
    await start();
    const client = await openFrames(gate.port, authority.ca);
    const ended = new Promise((resolve) => {
      onRequest = (request) => {
        request.on('close', () => resolve(request.complete));
        request.once('data', () => client.socket.write(bytes));
      };
    });
    const head = [[':method', 'POST'], ...toHead('/hold').slice(1)] as const;
    client.socket.write(toFrame(FRAME.headers, FLAG.endHeaders, 1, toBlock(head)));
    client.socket.write(toFrame(FRAME.data, 0, 1, Buffer.from('half')));
    expect(await ended).toBe(false);
    const line = await until(() => gate.log().find(({ msg }) => msg === 'request'));
    expect(line).toMatchObject({ status: 499, reason: 'sender_gone' });
    client.socket.destroy();
  });

  test('of an app that dies during its response is an error, not an end', async () => {
    await start();
    onStream = (response) => {
      response.writeHead(200);
      response.write('half', () => response.destroy());
    };
    expect(await ask({ ':path': '/half' })).toMatchObject({ status: 200, text: 'half', code: constants.NGHTTP2_INTERNAL_ERROR });
  });
});

describe('a head', () => {
  test.each([
    ['with an ambiguous path', { ':path': '/open/../admin' }, 400],
    ['of CONNECT', { ':method': 'CONNECT', ':authority': 'localhost:1', ':path': undefined }, 400],
    ['with too many fields', { ':path': '/open', ...toFields(120) }, 431],
    ['larger than the limit', { ':path': '/open', 'x-large': 'a'.repeat(20_000) }, 431],
    ['with a target that is too long', { ':path': `/open/${'a'.repeat(9_000)}` }, 414],
  ])('%s is rejected', async (_what, headers, status) => {
    await start();
    const stream = openSession().request(headers, { endStream: true });
    expect(await read(stream)).toMatchObject({ status });
    expect(app.received).toHaveLength(0);
  });

  test('larger than the limit is rejected also after the client has got the settings', async () => {
    await start();
    const opened = openSession();
    expect(await read(opened.request({ ':path': '/open' }, { endStream: true }))).toMatchObject({ status: 200 });
    const fields = Object.fromEntries(Array.from({ length: 5 }, (_, index) => [`x-large-${index}`, 'a'.repeat(4_000)]));
    expect(await read(opened.request({ ':path': '/open', ...fields }, { endStream: true }))).toMatchObject({ status: 431 });
  });
});

function toFields(count: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`x-${index}`, '1']));
}

describe('an attack by frames', () => {
  const attack = async (): Promise<FrameClient> => {
    await start();
    return openFrames(gate.port, authority.ca);
  };
  const expectAlive = async (): Promise<void> => {
    expect(await ask({ ':path': '/open' })).toMatchObject({ status: 200 });
  };

  test('that opens streams and resets them at once is disconnected (CVE-2023-44487)', async () => {
    const client = await attack();
    for (let stream = 1; stream < 4_000; stream += 2) {
      client.socket.write(toHeaders(stream, '/open'));
      client.socket.write(toFrame(FRAME.rstStream, 0, stream, Buffer.from([0, 0, 0, 8])));
    }
    await client.closed;
    expect(app.received.length).toBeLessThan(1_000);
    await expectAlive();
  });

  test('of a header block without an end is disconnected (CVE-2024-27316)', async () => {
    const client = await attack();
    client.socket.write(toFrame(FRAME.headers, 0, 1, toBlock(toHead('/open'))));
    const filler = toBlock([['x-filler', 'a'.repeat(4_000)]]);
    for (let count = 0; count < 1_000 && !client.socket.destroyed; count++)
      client.socket.write(toFrame(FRAME.continuation, 0, 1, filler));
    await client.closed;
    expect(app.received).toHaveLength(0);
    await expectAlive();
  });

  test('of a head much larger than the limit is disconnected', async () => {
    const client = await attack();
    const block = toBlock(toHead('/open', [['x-large', 'a'.repeat(80_000)]]));
    const pieces = Array.from({ length: Math.ceil(block.length / 16_000) }, (_, index) =>
      block.subarray(index * 16_000, (index + 1) * 16_000),
    );
    for (const [index, piece] of pieces.entries()) {
      const flags = index === pieces.length - 1 ? FLAG.endHeaders : 0;
      client.socket.write(toFrame(index === 0 ? FRAME.headers : FRAME.continuation, flags, 1, piece));
    }
    await client.closed;
    expect(app.received).toHaveLength(0);
    await expectAlive();
  });

  test('of more streams than allowed at once is rejected', async () => {
    const client = await attack();
    const held: ServerResponse[] = [];
    app.handler = (_request, response) => void held.push(response);
    for (let stream = 1; stream <= 2 * 110; stream += 2) client.socket.write(toHeaders(stream, '/open'));
    // One client's share of an open route; the others wait for a place.
    await until(() => held.length === 72);
    const refused = await client.next(({ type, stream }) => type === FRAME.rstStream && stream === 219);
    expect(refused.payload.readUInt32BE()).toBe(constants.NGHTTP2_REFUSED_STREAM);
    expect(app.received).toHaveLength(72);
    expect(await gate.metric('sidegate_http_requests_queued')).toBe(28);
    client.socket.destroy();
  });

  test.each([
    ['connection', 'close'],
    ['transfer-encoding', 'chunked'],
    ['upgrade', 'websocket'],
    ['keep-alive', 'timeout=5'],
    ['proxy-connection', 'close'],
    ['te', 'gzip'],
    ['X-Upper', 'case'],
    [':path', '/admin'],
    [':unknown', 'x'],
    [':status', '200'],
  ])('with the field %s: %j reaches no app (RFC 9113 §8.2)', async (name, value) => {
    const client = await attack();
    client.socket.write(toHeaders(1, '/open', [[name, value]]));
    const ended = await client.next(({ type, stream }) => (type === FRAME.rstStream && stream === 1) || type === FRAME.goaway);
    expect(ended.type).toBe(FRAME.rstStream);
    expect(app.received).toHaveLength(0);
    client.socket.destroy();
  });

  test.each(['a\r\nsidegate-user: root', 'a\nb', 'a\0b'])('with the field value %j adds no field for the app', async (value) => {
    const client = await attack();
    client.socket.write(toHeaders(1, '/open', [['x-split', value]]));
    await client.next(({ stream }) => stream === 1);
    const names = app.received.flatMap(({ headers }) => Object.keys(headers));
    expect(names.filter((name) => name === 'x-split' || name === 'sidegate-user')).toEqual([]);
    client.socket.destroy();
  });

  test.each(['', 'x y', 'x-a\0', 'x-a\r', 'x-\xe9', 'x-a:', ' x-a'])(
    'with the field name %j adds no field for the app',
    async (name) => {
      const client = await attack();
      client.socket.write(toHeaders(1, '/open', [[name, 'forbidden']]));
      await client.next(({ stream }) => stream === 1);
      expect(app.received.flatMap(({ headers }) => Object.values(headers))).not.toContain('forbidden');
      client.socket.destroy();
    },
  );

  test.each([
    ['a Host beside another authority', '/open', [['host', 'elsewhere.example']]],
    [
      'two Hosts',
      '/open',
      [
        ['host', 'localhost'],
        ['host', 'elsewhere.example'],
      ],
    ],
    [
      'two Authorization fields',
      '/admin',
      [
        ['authorization', 'Basic eA=='],
        ['authorization', 'Basic eQ=='],
      ],
    ],
  ] as const)('with %s is rejected', async (_what, path, fields) => {
    const client = await attack();
    client.socket.write(toHeaders(1, path, fields));
    const head = await client.next(({ stream }) => stream === 1);
    // RST_STREAM, or the static table's index of `:status: 400` (RFC 7541, appendix A).
    expect([head.type, head.type === FRAME.headers ? head.payload[0] : 0x8c]).toEqual([head.type, 0x8c]);
    expect(app.received).toHaveLength(0);
    client.socket.destroy();
  });

  test.each([
    ['less', 'ab', FLAG.endStream],
    ['more', 'abcdefgh', 0],
  ])('of %s body bytes than the declared length is an error', async (_what, content, flags) => {
    const client = await attack();
    const fields: [string, string][] = [
      [':method', 'POST'],
      [':scheme', 'https'],
      [':path', '/hold'],
      [':authority', 'localhost'],
      ['content-length', '4'],
    ];
    client.socket.write(toFrame(FRAME.headers, FLAG.endHeaders, 1, toBlock(fields)));
    const taken: string[] = [];
    onRequest = (request) => request.on('end', () => taken.push('whole'));
    client.socket.write(toFrame(FRAME.data, flags, 1, Buffer.from(content)));
    await client.next(({ type }) => type === FRAME.rstStream || type === FRAME.goaway);
    await until(() => gate.log().some(({ msg }) => msg === 'request'));
    expect(taken).toEqual([]);
    client.socket.destroy();
  });

  test('of frames that violate the protocol ends the connection with GOAWAY', async () => {
    const client = await attack();
    client.socket.write(toFrame(FRAME.data, 0, 0, Buffer.from('x')));
    expect((await client.next(isGoaway)).payload.readUInt32BE(4)).toBe(constants.NGHTTP2_PROTOCOL_ERROR);
    await client.closed;
    await expectAlive();
  });
});

describe('the connection', () => {
  test('is closed when idle, regardless of pings, but not while a request is in progress', async () => {
    const clock = new FakeClock();
    fakeClock = clock;
    await start({}, clock, { keepAliveTimeout: '5s' });
    let answer: ServerResponse | undefined;
    app.handler = (_request, response) => {
      answer = response;
    };
    const client = await openFrames(gate.port, authority.ca);
    client.socket.write(toHeaders(1, '/open'));
    const response = await until(() => answer);
    await clock.advance(10_000);
    response.end('late');
    await client.next(({ type, stream }) => type === FRAME.data && stream === 1);
    client.socket.write(toFrame(FRAME.ping, 0, 0, Buffer.alloc(8)));
    await client.next(({ type }) => type === FRAME.ping);
    await clock.advance(4_000);
    expect(client.frames.some(isGoaway)).toBe(false);
    await clock.advance(2_000);
    await client.next(isGoaway);
    await client.closed;
  });

  test('uses HTTP/1.1 if the client prefers it, or if http2 is disabled', async () => {
    const chosen = (): Promise<string | false | null> =>
      new Promise((resolve, reject) => {
        const options = { port: gate.port, host: '127.0.0.1', servername: 'localhost', ca: readFileSync(authority.ca) };
        const socket = connectTls({ ...options, ALPNProtocols: ['h2', 'http/1.1'] }, () => {
          resolve(socket.alpnProtocol);
          socket.destroy();
        });
        socket.once('error', reject);
      });
    await start({ http2: false });
    expect(await chosen()).toBe('http/1.1');
    await gate.stop();
    await start();
    expect(await chosen()).toBe('h2');
  });

  test('serves requests during the grace period, and sends GOAWAY after it, as a client sends others until GOAWAY arrives', async () => {
    fakeClock = new FakeClock(Date.now());
    await start({}, fakeClock, {}, { shutdown: { grace: '5s', drain: '2s' } });
    const client = openSession();
    let isLeaving = false;
    client.once('goaway', () => {
      isLeaving = true;
    });
    const stopped = gate.gate.stop();
    for (let i = 0; i < 3; i++) {
      expect(await ask({ ':path': '/open' })).toMatchObject({ status: 200 });
      expect(isLeaving).toBe(false);
    }
    await fakeClock.advance(5_000);
    expect(await stopped).toBe(true);
    expect(isLeaving).toBe(true);
  });

  test('of a proxy has room for the bodies of all its streams at once: HAProxy 2.6 sends no more after it was full', async () => {
    await start({}, undefined, {}, {}, ['127.0.0.1']);
    const client = openSession();
    await until(() => (client.state.remoteWindowSize ?? 0) >= 1_024 * 65_536);
    await gate.stop();
    await start();
    const direct = openSession();
    await once(direct, 'remoteSettings');
    expect(direct.state.remoteWindowSize).toBe(65_535);
  });

  test.each([5, 0])(
    'ends before the app of the pod does, and after a proxy has learned of other pods: pause=%i',
    async (pause) => {
      fakeClock = new FakeClock(Date.now());
      await start({}, fakeClock);
      const client = openSession();
      let isLeaving = false;
      client.once('goaway', () => {
        isLeaving = true;
      });
      const hook = fetch(`http://127.0.0.1:${gate.adminPort}/prestop?pause=${pause}`);
      await until(() => gate.log().some(({ msg }) => msg === 'leaving'));
      await fakeClock.advance(3_900);
      expect(await ask({ ':path': '/open' })).toMatchObject({ status: 200 });
      expect(isLeaving).toBe(false);
      await fakeClock.advance(100);
      await until(() => isLeaving);
      await fakeClock.advance(1_000);
      expect((await hook).status).toBe(200);
    },
  );

  test('ends after its next request if it was opened later, and as a second call of the hook says', async () => {
    fakeClock = new FakeClock(Date.now());
    await start({}, fakeClock);
    const leave = (pause: number): Promise<Response> => fetch(`http://127.0.0.1:${gate.adminPort}/prestop?pause=${pause}`);
    const holding = leave(600);
    await until(() => gate.log().some(({ msg }) => msg === 'leaving'));
    expect((await leave(0)).status).toBe(200);
    const first = openSession();
    const isEnded = new Promise((resolve) => first.once('goaway', resolve));
    await once(first, 'connect');
    await fakeClock.advance(4_000);
    await isEnded;
    const later = openSession();
    const goaway = new Promise((resolve) => later.once('goaway', resolve));
    // Also those that arrive with the one that ends it.
    const requests = Array.from({ length: 10 }, () => ask({ ':path': '/open' }));
    expect((await Promise.all(requests)).map(({ status }) => status)).toEqual(Array.from({ length: 10 }, () => 200));
    await goaway;
    await fakeClock.advance(600_000);
    await holding;
  });

  test('finishes its requests when the gate stops, and accepts no more', async () => {
    await start();
    let answer: ServerResponse | undefined;
    app.handler = (_request, response) => {
      answer = response;
    };
    const client = openSession();
    const goaway = new Promise((resolve) => client.once('goaway', resolve));
    const reply = ask({ ':path': '/open' });
    const response = await until(() => answer);
    const stopped = gate.gate.stop();
    await goaway;
    response.end('finished');
    expect(await reply).toMatchObject({ status: 200, text: 'finished' });
    expect(await stopped).toBe(true);
  });
});
