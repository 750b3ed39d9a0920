import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { constants } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { toTlsFiles } from '../support/certificates.ts';
import { send, toRequestText } from '../support/client.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useAuthority, useServer } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, until } from '../support/gate.ts';
import { FLAG, FRAME, type Frame, type FrameClient, openFrames, toBlock, toFrame } from '../support/h2-frames.ts';

const MEBIBYTE = 1024 * 1024;
const LINGER_MS = 1_000;
const WINDOW = 65_535;

const authority = useAuthority();
const pair = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
let answer: (response: ServerResponse) => void;
/** An app that responds by the head, and reads nothing of the body. */
const app = useServer(createServer((_request, response) => answer(response)));
let gate: TestGate;
let clock: FakeClock | undefined;
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  const stopped = gate.stop();
  await clock?.advance(10_000);
  clock = undefined;
  await stopped;
});

async function start({ isTls = false, limits = {} }: { isTls?: boolean; limits?: Sections } = {}): Promise<void> {
  const tls = isTls ? { tls: { certFile: 'tls.crt', keyFile: 'tls.key' } } : {};
  const sections = {
    listen: { address: '127.0.0.1:0', ...tls },
    authz: { address: '127.0.0.1:0', trustedCallers: ['127.0.0.1/32'] },
    limits,
    shutdown: { grace: '0ms', drain: '100ms' },
    routes: [{ name: 'open', match: { pathPrefix: '/open' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' }],
  };
  gate = await startGate(sections, clock, toTlsFiles(pair));
}

describe('a client of HTTP/1.1 that still sends its body gets', () => {
  async function open(port: number, isTls: boolean): Promise<Socket> {
    const to = { port, host: '127.0.0.1', allowHalfOpen: true };
    const socket = isTls ? connectTls({ ...to, servername: 'localhost', ca: readFileSync(authority.ca) }) : connect(to);
    sockets.push(socket);
    await once(socket, isTls ? 'secureConnect' : 'connect');
    return socket;
  }

  /** Sends the head and the beginning of the body, and the rest after the response: if the connection is closed by then, writing fails. */
  async function upload(socket: Socket, head: readonly string[], length: number): Promise<string> {
    let text = '';
    socket.on('data', (chunk: Buffer) => {
      text += String(chunk);
    });
    const failed = new Promise<never>((_, reject) => socket.once('error', reject));
    const ended = Promise.race([once(socket, 'end'), failed]);
    socket.write(toRequestText([...head, 'Host: a', `Content-Length: ${length}`]));
    socket.write(Buffer.alloc(length / 2));
    await ended;
    for (let sent = length / 2; sent < length; sent += length / 8)
      await Promise.race([failed, new Promise<void>((resolve) => socket.write(Buffer.alloc(length / 8), () => resolve()))]);
    const closed = once(socket, 'close');
    socket.end();
    await Promise.race([closed, failed]);
    return text;
  }

  const whole = (response: ServerResponse): unknown => response.writeHead(413, { 'Content-Length': '5' }).end('large');
  const chunked = (response: ServerResponse): unknown => response.writeHead(200).end('x'.repeat(100_000));
  test.each([
    ['the early response of the app', 'POST /open HTTP/1.1', 4 * MEBIBYTE, whole, 413],
    ['one of the app to a small body', 'POST /open HTTP/1.1', 40_000, whole, 413],
    ['one of the app in chunks', 'POST /open HTTP/1.1', 4 * MEBIBYTE, chunked, 200],
    ['one of the app without content', 'POST /open HTTP/1.1', 40_000, (response) => response.writeHead(204).end(), 204],
    ['a refusal', 'POST /none HTTP/1.1', 4 * MEBIBYTE, whole, 404],
    ['a refusal that ends the connection of a small body', 'POST /open//x HTTP/1.1', 40_000, whole, 400],
    ['a refusal of an older version of HTTP', 'POST /none HTTP/1.0', 40_000, whole, 404],
    ['a refusal after which it wanted no more', 'POST /none HTTP/1.1\r\nConnection: close', 40_000, whole, 404],
  ] as [string, string, number, typeof answer, number][])('%s', async (_what, head, length, handler, status) => {
    answer = handler;
    for (const isTls of [false, true]) {
      await start({ isTls });
      const text = await upload(await open(gate.port, isTls), head.split('\r\n'), length);
      expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
      await until(async () => (await gate.metric('sidegate_connections')) === 0);
      if (!isTls) await gate.stop();
    }
  });

  test.each([
    ['admin port', 'adminPort', 'POST /none HTTP/1.1', 404],
    ['forward-auth endpoint', 'authzPort', 'GET /auth HTTP/1.1\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /open', 200],
  ] as const)('the response of the %s', async (_what, port, head, status) => {
    await start();
    const more = status === 200 ? ['X-Forwarded-Host: a', 'X-Forwarded-Proto: https', 'X-Forwarded-For: 192.0.2.1'] : [];
    const text = await upload(await open(gate[port], false), [...head.split('\r\n'), ...more], MEBIBYTE);
    expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
  });

  test('no more than a second for the rest, and no slot', async () => {
    clock = new FakeClock();
    await start({ limits: { maxConnections: 2, maxRequestsPerClient: 2 } });
    answer = whole as typeof answer;
    for (let i = 0; i < 5; i++) {
      const socket = await open(gate.port, false);
      socket.write(`${toRequestText(['POST /open HTTP/1.1', 'Host: a', 'Content-Length: 1000000'])}begin`);
      socket.on('error', () => undefined).resume();
      await once(socket, 'end');
    }
    // Those of the first ones were replaced.
    expect(await gate.metric('sidegate_connections')).toBe(2);
    expect((await send(gate.port, { method: 'GET', path: '/open' })).status).toBe(413);
    await until(async () => (await gate.metric('sidegate_connections')) === 1);
    await clock.advance(LINGER_MS - 1);
    expect(await gate.metric('sidegate_connections')).toBe(1);
    await clock.advance(1);
    await until(async () => (await gate.metric('sidegate_connections')) === 0);
  });
});

describe('a response over HTTP/2 ends with END_STREAM, and only then is the unread request reset without an error', () => {
  const post = [
    [':method', 'POST'],
    [':scheme', 'https'],
    [':authority', 'localhost'],
  ] as const;

  async function request(path: string, method = 'POST', more: readonly (readonly [string, string])[] = []): Promise<FrameClient> {
    const client = await openFrames(gate.port, authority.ca);
    sockets.push(client.socket);
    const fields = [[':method', method], ...post.slice(1), [':path', path], ...more] as const;
    client.socket.write(toFrame(FRAME.headers, FLAG.endHeaders, 1, toBlock(fields)));
    client.socket.write(toFrame(FRAME.data, 0, 1, Buffer.alloc(1_000)));
    return client;
  }

  function openWindow({ socket }: FrameClient, streams: readonly number[]): void {
    const increment = Buffer.alloc(4);
    increment.writeUInt32BE(MEBIBYTE);
    for (const stream of streams) socket.write(toFrame(FRAME.windowUpdate, 0, stream, increment));
  }

  const isReset = ({ type, stream }: Frame): boolean => type === FRAME.rstStream && stream === 1;
  const isOfResponse = ({ type, stream }: Frame): boolean => stream === 1 && (type === FRAME.headers || type === FRAME.data);

  async function expectEnd(client: FrameClient): Promise<readonly Frame[]> {
    const reset = await client.next(isReset);
    expect(reset.payload.readUInt32BE()).toBe(constants.NGHTTP2_NO_ERROR);
    const before = client.frames.slice(0, client.frames.indexOf(reset)).filter(isOfResponse);
    expect(before.map(({ flags }) => (flags & FLAG.endStream) !== 0)).toEqual(before.map((_, i) => i === before.length - 1));
    return before;
  }

  const byHead = (status: number, fields: Record<string, string>, content?: string) => (response: ServerResponse) =>
    response.writeHead(status, fields).end(content);
  const withTrailers = (response: ServerResponse): void => {
    response.writeHead(200, { Trailer: 'X-Sum' });
    response.write('content');
    response.addTrailers({ 'X-Sum': '42' });
    response.end();
  };
  const cases = [
    ['a refusal', '/none', 'POST', byHead(200, {}), 404],
    ['a refusal of HEAD', '/none', 'HEAD', byHead(200, {}), 404],
    ['one with its length', '/open', 'POST', byHead(413, { 'Content-Length': '5' }, 'large'), 413],
    ['one in chunks', '/open', 'POST', byHead(200, {}, 'content'), 200],
    ['an empty one in chunks', '/open', 'POST', byHead(200, { 'Transfer-Encoding': 'chunked' }), 200],
    ['one of length 0', '/open', 'POST', byHead(413, { 'Content-Length': '0' }), 413],
    ['a large one with its length', '/open', 'POST', byHead(413, { 'Content-Length': '400000' }, 'x'.repeat(400_000)), 413],
    ['a large one in chunks', '/open', 'POST', byHead(200, {}, 'x'.repeat(400_000)), 200],
    ['one to HEAD', '/open', 'HEAD', byHead(200, { 'Content-Length': '5' }), 200],
    ['204', '/open', 'POST', byHead(204, {}), 204],
    ['205', '/open', 'POST', byHead(205, {}), 205],
    ['one with trailers', '/open', 'POST', withTrailers, 200],
  ] as [string, string, string, typeof answer, number][];
  test.each(
    cases.flatMap(([what, ...rest]) => [
      [what, false, ...rest] as const,
      [`${what}, to a client of trailers`, true, ...rest] as const,
    ]),
  )('%s', async (_what, acceptsTrailers, path, method, handler, status) => {
    await start({ isTls: true });
    answer = handler;
    const client = await request(path, method, acceptsTrailers ? [['te', 'trailers']] : []);
    openWindow(client, [0, 1]);
    const [, ...rest] = await expectEnd(client);
    expect(gate.log().find(({ msg }) => msg === 'request')).toMatchObject({ status });
    const isSum = acceptsTrailers && handler === withTrailers;
    expect(rest.filter(({ type }) => type === FRAME.headers)).toHaveLength(isSum ? 1 : 0);
  });

  test.each([
    ['also if its end waits for the window of the client', []],
    ['also if the end waits, and the client accepts trailers', [['te', 'trailers']]],
  ] as [string, [string, string][]][])('%s', async (_what, more) => {
    await start({ isTls: true });
    let end: () => void = () => undefined;
    answer = (response) => {
      response.writeHead(200).write('x'.repeat(WINDOW));
      end = () => response.end();
    };
    const client = await request('/open', 'POST', more);
    openWindow(client, [0]);
    const received = (): number =>
      client.frames
        .filter(isOfResponse)
        .reduce((bytes, { type, payload }) => bytes + (type === FRAME.data ? payload.length : 0), 0);
    await until(() => received() === WINDOW);
    end();
    await until(() => gate.log().some(({ msg }) => msg === 'request'));
    expect(client.frames.some(isReset)).toBe(false);
    openWindow(client, [1]);
    await expectEnd(client);
  });
});
