import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { readPair } from '../support/certificates.ts';
import { send } from '../support/client.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useAuthority, useServer } from '../support/fixtures.ts';
import { startGate, type TestGate, until } from '../support/gate.ts';
import { startGateProcess } from '../support/process.ts';
import { exchangeRaw } from '../support/proxy.ts';

const ROUTE = { name: 'open', match: { pathPrefix: '/' }, allow: 'anyone' };
const closers: (() => unknown)[] = [];
const seen: { method: string | undefined; url: string | undefined; rawHeaders: string[] }[] = [];
let answer: (request: IncomingMessage, response: ServerResponse) => void;

const server = createServer((request, response) => {
  seen.push({ method: request.method, url: request.url, rawHeaders: request.rawHeaders });
  answer(request, response);
});
const app = useServer(server);
beforeEach(() => {
  seen.length = 0;
  answer = (_request, response) => response.end('the database password is hunter2');
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

interface Probe {
  readonly kind: string;
  readonly url: string;
  readonly headers?: readonly { readonly name: string; readonly value: string }[];
}

async function start(probes: readonly Probe[], clock?: FakeClock): Promise<TestGate> {
  const admin = { address: '127.0.0.1:0', appProbes: probes.map((probe) => ({ container: 'app', ...probe })) };
  const gate = await startGate({ admin, upstream: `http://127.0.0.1:${app.port}`, routes: [ROUTE] }, clock);
  closers.push(async () => {
    const stopped = gate.stop();
    await clock?.advance(3_000);
    await stopped;
  });
  return gate;
}

const ask = (gate: { adminPort: number }, path = '/app-health/app/livez', method = 'GET') =>
  send(gate.adminPort, { method, path, headers: { Cookie: 'a=b', 'X-Caller': 'kubelet' } });
const url = (path = '/healthz'): string => `http://127.0.0.1:${app.port}${path}`;

describe('a probe of the app', () => {
  test('given on the command line requests its URL, with its own header fields and none of the caller', async () => {
    const headers = [
      { name: 'Host', value: 'shop.example' },
      { name: 'X-Probe', value: '1' },
      { name: 'X-Probe', value: '2' },
      { name: 'Accept', value: '' },
    ];
    const gate = await startGateProcess({ routes: [ROUTE] }, [
      '--upstream',
      `http://127.0.0.1:${app.port}`,
      '--app-probe',
      `app/livez=${url('/healthz?full=1')}`,
      '--app-probe',
      `app/readyz=${JSON.stringify({ url: url('/ready'), headers })}`,
    ]);
    closers.push(async () => {
      gate.child.kill('SIGKILL');
      await gate.exit;
    });
    expect(await ask(gate, '/app-health/app/livez?full=0&x=y')).toMatchObject({ status: 200, text: 'the app responded 200\n' });
    expect((await ask(gate, '/app-health/app/readyz')).status).toBe(200);
    expect(seen).toEqual([
      {
        method: 'GET',
        url: '/healthz?full=1',
        rawHeaders: ['Host', `127.0.0.1:${app.port}`, 'User-Agent', 'kube-probe/1.0', 'Accept', '*/*', 'Connection', 'close'],
      },
      {
        method: 'GET',
        url: '/ready',
        rawHeaders: [
          'User-Agent',
          'kube-probe/1.0',
          'Host',
          'shop.example',
          'X-Probe',
          '1',
          'X-Probe',
          '2',
          'Connection',
          'close',
        ],
      },
    ]);
    for (const path of [
      '/app-health/app/startupz',
      '/app-health/other/livez',
      '/app-health/app/livez/',
      '/app-health/app/%6civez',
    ])
      expect((await ask(gate, path)).status, path).toBe(404);
    expect((await ask(gate, '/app-health/app/livez', 'POST')).status).toBe(405);
    expect(seen).toHaveLength(2);
  });

  test.each([200, 201, 204, 301, 302, 304, 399, 400, 401, 404, 429, 500, 503])(
    'returns the status of the app, but not its body: %i',
    async (status) => {
      const gate = await start([{ kind: 'livez', url: url() }]);
      answer = (_request, response) =>
        response.writeHead(status, { Location: '/elsewhere', 'Set-Cookie': 'a=b' }).end(status === 204 ? undefined : 'hunter2');
      const reply = await ask(gate);
      expect(reply.status).toBe(status);
      expect(reply.text).toBe([204, 304].includes(status) ? '' : `the app responded ${status}\n`);
      expect(reply.rawHeaders.join()).not.toMatch(/elsewhere|a=b/);
      // A redirect is not followed.
      expect(seen).toHaveLength(1);
      expect((await ask(gate, '/app-health/app/livez', 'HEAD')).status).toBe(status);
    },
  );

  test('has no Content-Length if the status allows no body', async () => {
    const gate = await start([{ kind: 'livez', url: url() }]);
    answer = (_request, response) => response.writeHead(204).end();
    const text = await exchangeRaw(gate.adminPort, 'GET /app-health/app/livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
    expect(text).toMatch(/^HTTP\/1\.1 204 /);
    expect(text).not.toMatch(/content-length/i);
  });

  describe('over https', () => {
    const pair = useAuthority('nobody').issue('elsewhere', 'DNS:elsewhere.example');
    const secure = useServer(
      createTlsServer(readPair(pair), ({ url }, response) => response.writeHead(url === '/secure' ? 200 : 404).end()),
    );

    test('accepts any certificate', async () => {
      const gate = await start([{ kind: 'readyz', url: `https://127.0.0.1:${secure.port}/secure` }]);
      expect((await ask(gate, '/app-health/app/readyz')).status).toBe(200);
    });
  });

  test('over tcp only opens a connection', async () => {
    const gate = await start([
      { kind: 'livez', url: `tcp://127.0.0.1:${app.port}` },
      { kind: 'readyz', url: 'tcp://127.0.0.1:1' },
    ]);
    expect(await ask(gate)).toMatchObject({ status: 200, text: 'the app accepts connections\n' });
    expect(await ask(gate, '/app-health/app/readyz')).toMatchObject({
      status: 502,
      text: 'cannot reach the app: the connection failed (ECONNREFUSED)\n',
    });
    expect(seen).toHaveLength(0);
  });

  test.each([
    ['is not there', 'http://127.0.0.1:1/', undefined],
    ['cuts the connection', undefined, (request: IncomingMessage) => request.socket.destroy()],
    [
      'dies during its response',
      undefined,
      (request: IncomingMessage, response: ServerResponse) => {
        response.writeHead(200, { 'Content-Length': 100 }).write('a');
        setImmediate(() => request.socket.destroy());
      },
    ],
  ])('fails if the app %s', async (_, given, script) => {
    if (script !== undefined) answer = script;
    const gate = await start([{ kind: 'livez', url: given ?? url() }]);
    expect((await ask(gate)).status).toBe(502);
  });

  test('ends with the response head if the body never ends', async () => {
    const gate = await start([{ kind: 'livez', url: url() }]);
    let isGone = false;
    answer = (_request, response) => {
      response.on('close', () => {
        isGone = true;
      });
      const more = (): void => {
        while (response.write('x'.repeat(4_096)));
        response.once('drain', more);
      };
      more();
    };
    expect((await ask(gate)).status).toBe(200);
    await until(() => isGone);
  });

  test('ends after its timeout, whatever the app does', async () => {
    const clock = new FakeClock();
    const gate = await start([{ kind: 'livez', url: url() }], clock);
    answer = () => undefined;
    const reply = ask(gate);
    await until(() => seen.length === 1);
    await clock.advance(59_999);
    await clock.advance(1);
    expect(await reply).toMatchObject({ status: 504, text: 'the app did not respond within 60 s\n' });
  });

  test('answers all concurrent callers with one request to the app', async () => {
    const clock = new FakeClock();
    const probes = [
      { kind: 'livez', url: url() },
      { kind: 'readyz', url: url('/ready') },
    ];
    const gate = await start(probes, clock);
    const held: ServerResponse[] = [];
    answer = (request, response) => (request.url === '/ready' ? response.end() : held.push(response));
    const asked = Array.from({ length: 15 }, () => ask(gate));
    await until(() => held.length === 1);
    expect((await ask(gate, '/app-health/app/readyz')).status).toBe(200);
    for (const response of held) response.end();
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual(asked.map(() => 200));
    expect(held).toHaveLength(1);
  });

  describe('for which more callers wait than may', () => {
    const askFrom = async (gate: TestGate, host: number, count: number): Promise<number[]> => {
      const sent = Array.from({ length: count }, () =>
        send(gate.adminPort, { method: 'GET', path: '/app-health/app/livez', from: `127.0.0.${host}` }),
      );
      return (await Promise.all(sent)).map(({ status }) => status).sort();
    };
    const times = (count: number, status: number): number[] => Array.from({ length: count }, () => status);

    test('rejects those of the client with most, and the kubelet waits', async () => {
      const gate = await start([{ kind: 'livez', url: url() }], new FakeClock());
      const held: ServerResponse[] = [];
      answer = (_request, response) => void held.push(response);
      const flood = askFrom(gate, 2, 20);
      await until(() => held.length === 1);
      const kubelet = askFrom(gate, 3, 1);
      expect(await Promise.race([kubelet, askFrom(gate, 2, 1)])).toEqual([503]);
      held[0]?.end();
      expect(await kubelet).toEqual([200]);
      expect(await flood).toEqual([...times(15, 200), ...times(5, 503)]);
      expect(held).toHaveLength(1);
    });

    test('gives them the last result until it is 15 seconds old', async () => {
      const clock = new FakeClock();
      const gate = await start([{ kind: 'livez', url: url() }], clock);
      expect(await askFrom(gate, 2, 1)).toEqual([200]);
      const held: ServerResponse[] = [];
      answer = (_request, response) => void held.push(response);
      const flood = askFrom(gate, 2, 16);
      await until(() => held.length === 1);
      const recent = askFrom(gate, 2, 5);
      await clock.advance(14_999);
      expect(await recent).toEqual(times(5, 200));
      await clock.advance(1);
      expect(await askFrom(gate, 2, 5)).toEqual(times(5, 503));
      held[0]?.writeHead(500).end();
      expect(await flood).toEqual(times(16, 500));
    });
  });

  test('sends a new request if the one in progress is a second old, so that a hanging one does not affect later callers', async () => {
    const clock = new FakeClock();
    const gate = await start([{ kind: 'livez', url: url() }], clock);
    const held: ServerResponse[] = [];
    answer = (_request, response) => void held.push(response);
    const first = ask(gate);
    await until(() => held.length === 1);
    await clock.advance(1_000);
    answer = (_request, response) => response.end();
    expect((await ask(gate)).status).toBe(200);
    held[0]?.end();
    expect((await first).status).toBe(200);
  });

  test('ends a connection on which more pipelined requests wait than a client may have', async () => {
    const gate = await start([{ kind: 'livez', url: url() }]);
    answer = (_request, response) => void response.end();
    const one = 'GET /app-health/app/livez HTTP/1.1\r\nHost: a\r\n';
    const answered = await exchangeRaw(gate.adminPort, `${`${one}\r\n`.repeat(65)}${one}Connection: close\r\n\r\n`);
    expect(answered.match(/HTTP\/1\.1 \d+/g)).toHaveLength(32);
  });

  test('is aborted when the kubelet disconnects', async () => {
    const gate = await start([{ kind: 'livez', url: url() }]);
    let isGone = false;
    answer = (_request, response) =>
      response.on('close', () => {
        isGone = true;
      });
    const controller = new AbortController();
    const asked = fetch(`http://127.0.0.1:${gate.adminPort}/app-health/app/livez`, { signal: controller.signal });
    await until(() => seen.length === 1);
    controller.abort();
    await expect(asked).rejects.toThrow();
    await until(() => isGone);
  });

  test('needs no token, because the kubelet has none', async () => {
    const admin = {
      address: '127.0.0.1:0',
      token: { secret: { file: 'token' } },
      appProbes: [{ container: 'app', kind: 'livez', url: url() }],
    };
    const gate = await startGate({ admin, upstream: `http://127.0.0.1:${app.port}`, routes: [ROUTE] }, undefined, {
      token: '0123456789abcdef0123456789abcdef',
    });
    closers.push(() => gate.stop());
    expect((await ask(gate)).status).toBe(200);
    expect((await ask(gate, '/journal')).status).toBe(401);
  });
});
