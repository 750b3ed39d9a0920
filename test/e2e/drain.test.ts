import type { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { holdResponses } from '../support/app.ts';
import { FakeClock, settle } from '../support/fake-clock.ts';
import { useApp, useEcho } from '../support/fixtures.ts';
import { type TestGate, until } from '../support/gate.ts';
import { exchangeRaw, openSocket, openTunnel, PROXY_AUTH, readToEnd, startProxyGate } from '../support/proxy.ts';

const app = useApp();
const echo = useEcho();
let clock: FakeClock;
let gate: TestGate;
const target = (): string => `a.example:${echo.port}`;

const start = async (grace = '0ms'): Promise<void> => {
  clock = new FakeClock();
  gate = await startProxyGate({
    allow: [target(), `b.example:${app.port}`],
    names: { 'a.example': ['127.0.0.1'], 'b.example': ['127.0.0.1'] },
    sections: { shutdown: { grace, drain: '25s' } },
    clock,
  });
};
const toGet = (path = '/x', fields = ''): string =>
  `GET http://b.example:${app.port}${path} HTTP/1.1\r\nHost: b\r\n${PROXY_AUTH}${fields}\r\n`;
const next = async (socket: Socket): Promise<string> => String(await new Promise((resolve) => socket.once('data', resolve)));
const isRefused = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = openSocket(port);
    socket.once('connect', () => resolve(false));
    socket.once('close', () => resolve(true));
  });

describe('a tunnel that is open when the gate stops', () => {
  test('is kept open, while new connections are rejected', async () => {
    await start();
    const tunnel = await openTunnel(gate.proxyPort, target());
    const stopped = gate.stop();
    await clock.advance(0);
    expect(await isRefused(gate.proxyPort)).toBe(true);
    await clock.advance(24_000);
    tunnel.write('still here');
    expect(await next(tunnel)).toBe('still here');
    tunnel.end();
    expect(await stopped).toBe(true);
    expect(gate.logText()).not.toContain('drain_incomplete');
    expect(gate.log().at(-1)).toMatchObject({ method: 'CONNECT', status: 200 });
  });

  test('is closed after the drain time, and the log reports it', async () => {
    await start();
    const tunnel = await openTunnel(gate.proxyPort, target());
    const ended = readToEnd(tunnel);
    const stopped = gate.stop();
    await clock.advance(25_000);
    expect(await stopped).toBe(false);
    await ended;
    expect(gate.log().find(({ msg }) => msg === 'drain_incomplete')).toMatchObject({ requests: 0, tunnels: 1 });
    expect(gate.log().at(-1)).toMatchObject({ method: 'CONNECT', status: 200, user: 'Aladdin' });
  });
});

describe('a request on the proxy port when the gate stops', () => {
  test('is finished with Connection: close, and the connection ends', async () => {
    await start();
    const finish = holdResponses(app, 'late but whole');
    const answer = exchangeRaw(gate.proxyPort, toGet());
    await until(() => app.received.length === 1);
    const stopped = gate.stop();
    await clock.advance(5_000);
    finish();
    expect(await answer).toMatch(/^HTTP\/1\.1 200 [^]*\r\nConnection: close\r\n[^]*late but whole$/i);
    expect(await stopped).toBe(true);
  });

  test('is finished and its connection closed, even if its response announced keep-alive', async () => {
    await start();
    let finish = (): void => undefined;
    app.handler = (_request, response) => {
      response.writeHead(200, { 'Content-Length': 10 }).write('first');
      finish = () => void response.end('later');
    };
    const tunnel = await openTunnel(gate.proxyPort, target());
    const socket = openSocket(gate.proxyPort);
    socket.write(toGet());
    expect(await next(socket)).toMatch(/keep-alive[^]*first$/i);
    const rest = readToEnd(socket);
    const stopped = gate.stop();
    await clock.advance(0);
    finish();
    // While another still goes on.
    expect(await rest).toBe('later');
    tunnel.end();
    expect(await stopped).toBe(true);
  });

  test('is served during the grace period, and its connection is closed, also one that was idle', async () => {
    await start('5s');
    const [open, idle] = [openSocket(gate.proxyPort), openSocket(gate.proxyPort)];
    for (const socket of [open, idle]) {
      socket.write(toGet());
      expect(await next(socket)).toMatch(/\r\nConnection: keep-alive\r\n/i);
    }
    const stopped = gate.stop();
    const [rest, restOfIdle] = [readToEnd(open), readToEnd(idle)];
    open.write(toGet());
    for (const answer of [await rest, await exchangeRaw(gate.proxyPort, toGet())])
      expect(answer).toMatch(/^HTTP\/1\.1 200 [^]*\r\nConnection: close\r\n/i);
    await clock.advance(5_000);
    expect(await restOfIdle).toBe('');
    expect(await stopped).toBe(true);
  });

  test.each([
    ['a request', () => toGet()],
    ['CONNECT', () => `CONNECT ${target()} HTTP/1.1\r\nHost: a\r\n${PROXY_AUTH}\r\n`],
  ])('is rejected with 503 if its head is complete too late: %s', async (_, toHead) => {
    await start();
    const tunnel = await openTunnel(gate.proxyPort, target());
    const socket = openSocket(gate.proxyPort);
    const head = toHead();
    socket.write(head.slice(0, 20));
    await new Promise((resolve) => socket.once('connect', resolve));
    await settle();
    const stopped = gate.stop();
    await clock.advance(0);
    const answer = readToEnd(socket);
    socket.write(head.slice(20));
    expect(await answer).toMatch(/^HTTP\/1\.1 503 [^]*"code":"draining"/);
    expect(app.received).toHaveLength(0);
    tunnel.end();
    expect(await stopped).toBe(true);
  });
});
