import { createHash } from 'node:crypto';
import {
  Agent,
  createServer,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  request as openRequest,
  type ServerResponse,
} from 'node:http';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { toStatuses } from '../support/client.ts';
import { useGate, useServer } from '../support/fixtures.ts';
import { startGate } from '../support/gate.ts';
import { exchangeRaw, PROXY_AUTH, startProxyGate } from '../support/proxy.ts';
import { makeEntry, toBasic } from '../support/users.ts';

/** The two ways through a gate. */
const WAYS = ['a route with passwords', 'the forward proxy'] as const;

let agent: Agent;
let answer: (request: IncomingMessage, response: ServerResponse) => unknown;
/** Connections that the app was opened. */
let connections: number;

const server = createServer({ maxHeaderSize: 131_072 }, (request, response) => void answer(request, response));
server.on('connection', () => {
  connections++;
});
const app = useServer(server);
beforeEach(() => {
  connections = 0;
  agent = new Agent({ keepAlive: true, maxSockets: 1 });
  answer = (_request, response) => response.end('handled');
});
afterEach(() => agent.destroy());

const read = async (stream: IncomingMessage): Promise<Buffer> => Buffer.concat((await stream.toArray()) as Buffer[]);

describe.each(WAYS)('through %s', (way) => {
  const isProxy = way === 'the forward proxy';
  const gate = useGate(() => {
    const basic = { realm: 'r', users: { file: 'users' }, requireTls: false };
    const route = { name: 'a', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, basic };
    return isProxy
      ? startProxyGate({ allow: [`app.example:${app.port}`], names: { 'app.example': ['127.0.0.1'] } })
      : startGate({ routes: [route] }, undefined, { users: makeEntry('Aladdin', 'open sesame') });
  });

  const port = (): number => (isProxy ? gate.proxyPort : gate.port);
  const target = (path = '/x'): string => (isProxy ? `http://app.example:${app.port}${path}` : path);
  const AUTH: string = isProxy ? PROXY_AUTH : `Authorization: ${toBasic('Aladdin', 'open sesame').Authorization}\r\n`;
  const [authName = '', authValue = ''] = AUTH.trim().split(': ');
  const open = (method: string, headers: OutgoingHttpHeaders = {}, path = '/x') =>
    openRequest({
      host: '127.0.0.1',
      port: port(),
      method,
      path: target(path),
      headers: { [authName]: authValue, ...headers },
      agent,
      maxHeaderSize: 131_072,
    });
  const answered = (request: ReturnType<typeof open>): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => request.once('response', resolve).once('error', reject));
  const ask = async (method = 'GET', headers = {}, path = '/x') => {
    const incoming = await answered(open(method, headers, path).end());
    return { incoming, text: (await read(incoming)).toString() };
  };

  test('ten thousand small chunks arrive complete and in order, both ways', async () => {
    answer = async (request, response) => {
      for await (const chunk of request) response.write(chunk);
      response.end();
    };
    const request = open('POST');
    const got = answered(request);
    const sent = createHash('sha256');
    for (let i = 0; i < 10_000; i++) {
      const piece = `${i},`;
      sent.update(piece);
      if (!request.write(piece)) await new Promise((resolve) => request.once('drain', resolve));
    }
    request.end();
    expect(
      createHash('sha256')
        .update(await read(await got))
        .digest('hex'),
    ).toBe(sent.digest('hex'));
  });

  test('HEAD returns the length without a body, and the connection is kept', async () => {
    answer = (_request, response) => response.writeHead(200, { 'Content-Length': 1_000 }).end();
    for (let i = 0; i < 3; i++) {
      const { incoming, text } = await ask('HEAD');
      expect([incoming.headers['content-length'], text, incoming.headers.connection]).toEqual(['1000', '', 'keep-alive']);
    }
  });

  test.each([
    [204, {}],
    [304, { ETag: '"a"' }],
    [304, { ETag: '"a"', 'Content-Length': 1_000 }],
  ])('%i with %j has no body, and the next response is its own', async (status, fields) => {
    answer = (_request, response) => response.writeHead(status, fields).end();
    const { incoming, text } = await ask();
    expect([incoming.statusCode, text]).toEqual([status, '']);
    expect(incoming.headers['transfer-encoding']).toBeUndefined();
    answer = (_request, response) => response.end('next');
    expect((await ask()).text).toBe('next');
  });

  test('trailers reach only clients that accept them', async () => {
    answer = (_request, response) => {
      response.writeHead(200, { Trailer: 'X-Sum' });
      response.write('content');
      response.addTrailers({ 'X-Sum': '42', 'Content-Length': '1' });
      response.end();
    };
    const taken = await ask('GET', { TE: 'trailers', Connection: 'TE, keep-alive' });
    expect([taken.text, taken.incoming.trailers]).toEqual(['content', { 'x-sum': '42' }]);
    const dropped = await ask();
    expect([dropped.text, dropped.incoming.trailers]).toEqual(['content', {}]);
  });

  test('a Trailer field, and trailers of the client, do no harm and are not forwarded', async () => {
    let seen: unknown;
    answer = async (request, response) => {
      await read(request);
      seen = [request.headers.trailer, request.trailers];
      response.end();
    };
    const text = await exchangeRaw(
      port(),
      `GET ${target()} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTrailer: x-a\r\n${AUTH}\r\n`,
    );
    expect(toStatuses(text)).toEqual([200]);
    const request = open('POST', { Trailer: 'X-Sum', 'Transfer-Encoding': 'chunked' });
    const got = answered(request);
    request.write('a');
    request.addTrailers({ 'X-Sum': '42' });
    request.end();
    expect((await got).statusCode).toBe(200);
    expect(seen).toEqual([undefined, {}]);
  });

  test('early hints are passed on before the response, and other 1xx are not', async () => {
    answer = (_request, response) => {
      response.writeProcessing();
      response.writeEarlyHints({ link: '</a.css>; rel=preload; as=style' });
      response.end('handled');
    };
    const request = open('GET');
    const seen: unknown[] = [];
    request.on('information', ({ statusCode, headers }) => seen.push([statusCode, headers['link']]));
    expect((await read(await answered(request.end()))).toString()).toBe('handled');
    expect(seen).toEqual([[103, '</a.css>; rel=preload; as=style']]);
  });

  test('twenty requests use one connection of the client', async () => {
    await ask();
    connections = 0;
    const ports = new Set<number | undefined>();
    for (let i = 0; i < 20; i++) {
      const { incoming, text } = await ask();
      ports.add(incoming.socket?.localPort);
      expect(text).toBe('handled');
    }
    expect(ports.size).toBe(1);
    // A route's app is asked on the one that it has; a destination is left behind its answer, for another client may have the next.
    expect(connections).toBe(isProxy ? 20 : 0);
  });

  test('an app that closes after each response does not close the connection of the client', async () => {
    answer = (_request, response) => response.writeHead(200, { Connection: 'close' }).end('handled');
    await ask();
    connections = 0;
    const ports = new Set<number | undefined>();
    for (let i = 0; i < 3; i++) ports.add((await ask()).incoming.socket?.localPort);
    expect([ports.size, connections]).toEqual([1, 3]);
  });

  test('a body that ends with the connection arrives complete', async () => {
    answer = (_request, response) => {
      response.useChunkedEncodingByDefault = false;
      response.removeHeader('Transfer-Encoding');
      response.socket?.end('HTTP/1.1 200 OK\r\n\r\nuntil the end');
    };
    expect((await ask()).text).toBe('until the end');
  });

  test('large headers are passed on, both ways', async () => {
    let cookie = '';
    answer = (request, response) => {
      cookie = request.headers.cookie ?? '';
      response.writeHead(200, { 'X-Large': 'y'.repeat(60_000) }).end();
    };
    const { incoming } = await ask('GET', { Cookie: `a=${'x'.repeat(15_000)}` });
    expect([cookie.length, String(incoming.headers['x-large']).length]).toEqual([15_002, 60_000]);
  });

  test('fields keep their order, repetition, case and bytes; status and reason are those of the app', async () => {
    answer = (_request, response) => {
      response.writeHead(299, 'Quite fine', ['Set-Cookie', 'a=1', 'X-Odd', 'd\xe9j\xe0', 'Set-Cookie', 'b=2', 'x-LOWER', '']);
      response.end();
    };
    const { incoming } = await ask();
    expect([incoming.statusCode, incoming.statusMessage]).toEqual([299, 'Quite fine']);
    expect(incoming.rawHeaders.slice(0, 8)).toEqual([
      'Set-Cookie',
      'a=1',
      'X-Odd',
      'd\xe9j\xe0',
      'Set-Cookie',
      'b=2',
      'x-LOWER',
      '',
    ]);
  });

  test('Location and challenges of the app are passed on unchanged', async () => {
    answer = (_request, response) =>
      response.writeHead(401, { Location: 'http://elsewhere/', 'WWW-Authenticate': 'Digest realm="app"' }).end();
    const { incoming } = await ask();
    expect([incoming.headers.location, incoming.headers['www-authenticate']]).toEqual([
      'http://elsewhere/',
      'Digest realm="app"',
    ]);
  });

  test.each(['GET', 'DELETE', 'OPTIONS', 'PATCH', 'PUT', 'POST'])(
    '%s is forwarded with its body, with a length and in chunks',
    async (method) => {
      answer = async (request, response) => {
        const content = await read(request);
        response.end(`${request.method} ${request.headers['content-length'] ?? request.headers['transfer-encoding']} ${content}`);
      };
      for (const [fields, framing] of [
        [{ 'Content-Length': 5 }, '5'],
        [{ 'Transfer-Encoding': 'chunked' }, 'chunked'],
      ] as const) {
        const request = open(method, fields);
        const got = answered(request);
        request.end('hello');
        expect((await read(await got)).toString()).toBe(`${method} ${framing} hello`);
      }
    },
  );

  test('a client with HTTP/1.0 gets no chunks, and its connection is closed', async () => {
    answer = (_request, response) => {
      response.write('one ');
      response.end('two');
    };
    const text = await exchangeRaw(port(), `GET ${target()} HTTP/1.0\r\n${AUTH}\r\n`);
    expect(text).toMatch(/\r\n\r\none two$/);
    expect(text).not.toMatch(/transfer-encoding/i);
  });

  test('fifty pipelined requests are answered in order', async () => {
    answer = (request, response) => {
      // Later ones would be ready first.
      const number = Number(request.url?.slice(1));
      const turn = (left: number): unknown => (left === 0 ? response.end(`${number};`) : setImmediate(() => turn(left - 1)));
      turn(50 - number);
    };
    const heads = Array.from({ length: 50 }, (_, i) => `GET ${target(`/${i}`)} HTTP/1.1\r\nHost: a\r\n${AUTH}\r\n`);
    const text = await exchangeRaw(port(), ...heads, `GET ${target('/x')} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n`);
    expect(toStatuses(text)).toEqual([...Array<number>(50).fill(200), 400]);
    expect([...text.matchAll(/(\d+);/g)].map(([, number]) => Number(number))).toEqual(Array.from({ length: 50 }, (_, i) => i));
  });

  test('clients that disconnect repeatedly leak nothing', async () => {
    answer = (_request, response) => {
      response.writeHead(200).write('first');
    };
    for (let i = 0; i < 50; i++) {
      const socket = connect(port(), '127.0.0.1');
      socket.on('error', () => undefined);
      socket.write(`GET ${target()} HTTP/1.1\r\nHost: a\r\n${AUTH}\r\n`);
      if (i % 2 === 0) await new Promise((resolve) => socket.once('data', resolve));
      socket.resetAndDestroy();
    }
    answer = (_request, response) => response.end('still here');
    expect((await ask()).text).toBe('still here');
    agent.destroy();
    await expect.poll(() => gate.metric('sidegate_connections')).toBe(0);
    expect(await gate.metric('sidegate_http_requests_in_flight')).toBe(0);
  });
});
