/** Bodies in chunks, or HTTP/2 frames, of a byte or two: each takes 1.5 µs of the event loop, as much as hundreds of bytes of content. */
import { readFileSync } from 'node:fs';
import { request as requestHttp } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { toTlsFiles } from '../support/certificates.ts';
import { send, toStatuses } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useAuthority } from '../support/fixtures.ts';
import { flood } from '../support/floods.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { FLAG, FRAME, type FrameClient, openFrames, toBlock, toFrame } from '../support/h2-frames.ts';
import { startProxyGate } from '../support/proxy.ts';
import { makeEntry } from '../support/users.ts';

const OTHER = '127.0.0.66';
/** About as many as a read of Node may have. */
const FLOOD = 10_000;
const CHUNK = '1\r\nx\r\n';

const app = useApp();
const authority = useAuthority();
const files = { users: makeEntry('Aladdin', 'open sesame'), ...toTlsFiles(authority.issue('local', 'DNS:localhost')) };
let gate: TestGate;
afterEach(() => gate.stop());

const OPEN = { name: 'open', match: { pathPrefix: '/' }, allow: 'anyone' };
const BASIC = {
  name: 'basic',
  match: { pathPrefix: '/basic' },
  basic: { realm: 'r', users: { file: 'users' }, requireTls: false },
};
const toRoutes = (): Sections[] => [
  toRoute(app.port),
  ...[BASIC, OPEN].map((route) => ({ ...route, upstream: `http://127.0.0.1:${app.port}` })),
];
const start = async (sections: Sections = {}): Promise<void> => {
  gate = await startGate({ routes: toRoutes(), ...sections }, undefined, files);
};
const countHits = (): Promise<number> => gate.metric('sidegate_limit_hits_total{limit="small_chunks"}');

const toHead = (path: string, fields: Readonly<Record<string, string>> = {}): string => {
  const lines = Object.entries({ Host: 'localhost', ...fields, 'Transfer-Encoding': 'chunked' }).map((pair) => pair.join(': '));
  return [`POST ${path} HTTP/1.1`, ...lines, '', ''].join('\r\n');
};
const UNSIGNED = { ...makeDelivery({ body: 'other' }).headers };

/** Writes `parts`, and resolves with all that comes until the gate ends the connection. */
function exchange(port: number, ...parts: readonly string[]): Promise<string> {
  const socket = connect(port, '127.0.0.1').on('error', () => undefined);
  let text = '';
  socket.on('data', (chunk) => {
    text += String(chunk);
  });
  for (const part of parts) socket.write(part);
  return new Promise((resolve) => socket.once('close', () => resolve(text)));
}
const deliver = (from = '127.0.0.1'): ReturnType<typeof send> =>
  send(gate.port, { method: 'POST', path: '/hooks/billing', from, ...makeDelivery() });

/** Sends `count` chunks by the client of Node, each as soon as the one before has been taken. */
function upload(chunk: string, count: number, path = '/x'): Promise<number> {
  return new Promise((resolve, reject) => {
    const request = requestHttp({ port: gate.port, host: '127.0.0.1', method: 'POST', path, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    request.on('error', reject);
    for (let i = 0; i < count; i++) request.write(chunk);
    request.end();
  });
}

describe('a connection ends whose body has too many small chunks', () => {
  test.each([
    ['that is streamed to the app', '/x', {}, 400],
    ['that is verified', '/hooks/billing', UNSIGNED, 400],
    ['that nobody reads', '/basic', {}, 401],
  ])('%s', async (_name, path, fields, status) => {
    await start();
    expect(toStatuses(await exchange(gate.port, toHead(path, fields), CHUNK.repeat(FLOOD)))).toEqual([status]);
    expect(await countHits()).toBe(1);
    expect(app.received).toHaveLength(0);
    expect((await deliver()).status).toBe(200);
  });

  test('with its reason in the log', async () => {
    await start();
    await exchange(gate.port, toHead('/x'), CHUNK.repeat(FLOOD));
    expect(gate.log()).toContainEqual(expect.objectContaining({ reason: 'small_chunks', status: 400 }));
  });

  test('with an extension in each of them', async () => {
    await start();
    const text = await exchange(gate.port, toHead('/x'), `1;${'e'.repeat(500)}\r\nx\r\n`.repeat(3_000));
    expect(toStatuses(text)).toEqual([400]);
    expect(await countHits()).toBe(1);
  });

  test('while requests wait on it', async () => {
    await start();
    app.handler = (_request, response) => void setTimeout(() => response.end(), 100);
    const first = 'GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n';
    expect(toStatuses(await exchange(gate.port, first + toHead('/x') + CHUNK.repeat(FLOOD)))[0]).toBe(200);
    expect(app.received.filter(({ method }) => method === 'POST')).toHaveLength(0);
  });

  test('over several requests', async () => {
    await start();
    const body = `${CHUNK.repeat(500)}0\r\n\r\n`;
    const socket = connect(gate.port, '127.0.0.1').on('error', () => undefined);
    let text = '';
    socket.on('data', (chunk) => {
      text += String(chunk);
    });
    for (let sent = 1; sent <= 10 && !socket.destroyed; sent++) {
      socket.write(toHead('/x') + body);
      await until(() => socket.destroyed || toStatuses(text).length === sent);
    }
    expect(toStatuses(text)).toEqual([200, 200, 400]);
  });

  test('on the ports for auth requests and for operators', async () => {
    const authz = { address: '127.0.0.1:0', trustedCallers: ['127.0.0.1'] };
    await start({ authz });
    for (const port of [gate.authzPort, gate.adminPort]) await exchange(port, toHead('/'), CHUNK.repeat(FLOOD));
    expect(await countHits()).toBe(1);
    expect((await send(gate.adminPort, { method: 'GET', path: '/healthz' })).status).toBe(200);
  });

  test('on the port of the forward proxy, before the password', async () => {
    gate = await startProxyGate({ allow: ['app.example:80'], names: {} });
    const text = await exchange(gate.proxyPort, toHead('http://app.example/'), CHUNK.repeat(FLOOD));
    expect(toStatuses(text)).toEqual([407]);
    expect(await countHits()).toBe(1);
  });
});

test('the parsers of such connections read the bodies of later ones', async () => {
  await start();
  await Promise.all(Array.from({ length: 20 }, () => exchange(gate.port, toHead('/x'), CHUNK.repeat(FLOOD))));
  await Promise.all(Array.from({ length: 40 }, () => deliver()));
  expect(app.received.map(({ body }) => body.length)).toEqual(Array.from({ length: 40 }, () => makeDelivery().body.length));
});

test('other clients are served during a flood', async () => {
  await start();
  const body = Buffer.from(toHead('/x') + CHUNK.repeat(FLOOD));
  const flooding = flood({
    port: gate.port,
    connections: 64,
    milliseconds: 3_000,
    request: function* () {
      for (;;) yield body;
    },
  });
  for (let i = 0; i < 5; i++) expect((await deliver(OTHER)).status).toBe(200);
  await flooding;
  expect(await countHits()).toBeGreaterThan(64);
});

describe('chunks of five bytes that arrive on many connections at once', () => {
  /** A body that Node reads at once. */
  const body = `${'5\r\nabcde\r\n'.repeat(6_000)}0\r\n\r\n`;
  /** Sends each body on its connection at the same moment; resolves with the statuses. */
  const uploadAtOnce = async (...bodies: readonly string[]): Promise<(number | undefined)[]> => {
    const sockets = await Promise.all(
      bodies.map(async () => {
        const socket = connect(gate.port, '127.0.0.1').on('error', () => undefined);
        await new Promise((resolve) => socket.once('connect', resolve));
        return socket;
      }),
    );
    // Node accepts one connection in a turn.
    await until(async () => (await gate.metric('sidegate_connections')) === bodies.length);
    return Promise.all(
      sockets.map(async (socket, i) => {
        let text = '';
        socket.on('data', (chunk) => {
          text += String(chunk);
        });
        socket.write(toHead('/x', { Connection: 'close' }) + bodies[i]);
        await new Promise((resolve) => socket.once('close', resolve));
        return toStatuses(text)[0];
      }),
    );
  };

  test('end most of these connections, and none that has few', async () => {
    await start();
    const statuses = await uploadAtOnce(...Array(20).fill(`${CHUNK.repeat(16)}0\r\n\r\n`), ...Array(60).fill(body));
    expect(new Set(statuses.slice(0, 20))).toEqual(new Set([200]));
    const ended = statuses.filter((status) => status === 503).length;
    expect(ended).toBeGreaterThan(40);
    expect(await countHits()).toBe(ended);
  });

  test('pass on four', async () => {
    await start();
    expect(await uploadAtOnce(...Array(4).fill(body))).toEqual([200, 200, 200, 200]);
    expect(app.received.map(({ body }) => body.length)).toEqual([30_000, 30_000, 30_000, 30_000]);
  });
});

describe('the bodies of common clients pass', () => {
  test.each([
    ['100,000 short lines', '12345678\n', 100_000],
    ['1,000 single characters', 'x', 1_000],
  ])('%s', async (_name, chunk, count) => {
    await start();
    expect(await upload(chunk, count)).toBe(200);
    expect(app.received.at(-1)?.body.length).toBe(chunk.length * count);
    expect(await countHits()).toBe(0);
  });

  test('a few small chunks in each of many requests on a connection', async () => {
    await start();
    const socket = connect(gate.port, '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    let text = '';
    socket.on('data', (chunk) => {
      text += String(chunk);
    });
    for (let sent = 1; sent <= 80; sent++) {
      socket.write(`${toHead('/x')}${CHUNK.repeat(16)}0\r\n\r\n`);
      await until(() => toStatuses(text).length === sent);
    }
    expect(new Set(toStatuses(text))).toEqual(new Set([200]));
  });

  test('a stream of events that lasts longer than its burst', async () => {
    await start();
    const request = requestHttp({ port: gate.port, host: '127.0.0.1', method: 'POST', path: '/x', agent: false });
    const response = new Promise<number>((resolve) => request.once('response', ({ statusCode = 0 }) => resolve(statusCode)));
    for (let turn = 0; turn < 30; turn++) {
      for (let i = 0; i < 40; i++) request.write('x\n');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    request.end();
    expect(await response).toBe(200);
  });
});

describe('in HTTP/2', () => {
  const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
  const open = async (listen: Sections = {}): Promise<FrameClient> => {
    await start({ listen: { address: '127.0.0.1:0', tls, ...listen } });
    const client = await openFrames(gate.port, authority.ca);
    onTestFinished(() => void client.socket.destroy());
    return client;
  };
  const toPost = (id: number, path = '/x'): Buffer => {
    const fields = { ':method': 'POST', ':scheme': 'https', ':authority': 'localhost', ':path': path };
    return toFrame(FRAME.headers, FLAG.endHeaders, id, toBlock(Object.entries(fields)));
  };
  const PADDED = 8;
  const ONE = Buffer.from('x');
  const toFlood = (id: number, frame = toFrame(FRAME.data, 0, id, ONE)): Buffer =>
    Buffer.concat(Array.from({ length: FLOOD }, () => frame));

  test('a session ends whose frames have a byte each', async () => {
    const client = await open();
    client.socket.write(Buffer.concat([toPost(1), toFlood(1)]));
    await client.closed;
    expect(await countHits()).toBe(1);
    expect(app.received).toHaveLength(0);
  });

  test('a session ends whose frames are mostly padding', async () => {
    const client = await open();
    const padded = toFrame(FRAME.data, PADDED, 1, Buffer.concat([Buffer.of(20), ONE, Buffer.alloc(20)]));
    client.socket.write(toPost(1));
    // The window of a stream is 64 KiB.
    client.socket.write(Buffer.concat(Array.from({ length: 2_500 }, () => padded)));
    await client.closed;
    expect(await countHits()).toBe(1);
  });

  test('on the connection of a proxy, only the stream is reset, and other clients have their own allowance', async () => {
    const client = await open({ trustedProxies: ['127.0.0.1'] });
    client.socket.write(Buffer.concat([toPost(1), toFlood(1)]));
    const { payload } = await client.next(({ type, stream }) => type === FRAME.rstStream && stream === 1);
    expect(payload.readUInt32BE(0)).toBe(11);
    const letters = Array.from({ length: 40 }, () => toFrame(FRAME.data, 0, 3, ONE));
    client.socket.write(Buffer.concat([toPost(3), ...letters, toFrame(FRAME.data, FLAG.endStream, 3, Buffer.from('hello'))]));
    await client.next(({ type, stream }) => type === FRAME.headers && stream === 3);
    expect(app.received.map(({ body }) => String(body))).toEqual([`${'x'.repeat(40)}hello`]);
  });

  test('short lines pass', async () => {
    await open();
    const session = connectHttp2(`https://localhost:${gate.port}`, { ca: readFileSync(authority.ca) });
    onTestFinished(() => session.destroy());
    const stream = session.request({ ':path': '/x', ':method': 'POST' });
    for (let i = 0; i < 20_000; i++) stream.write('12345678\n');
    stream.end();
    const status = await new Promise((resolve) => stream.once('response', (fields) => resolve(fields[':status'])));
    expect(status).toBe(200);
  });
});
