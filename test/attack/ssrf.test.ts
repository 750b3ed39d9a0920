import { networkInterfaces } from 'node:os';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { toStatuses } from '../support/client.ts';
import { useApp } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import type { Sections, TestGate } from '../support/gate.ts';
import { exchangeRaw, openTunnel, PROXY_AUTH, readToEnd, startProxyGate } from '../support/proxy.ts';
import { NAMES_OF_PRIVATE_HOSTS, PRIVATE_HOSTS } from './private-hosts.ts';

const app = useApp();
let gate: TestGate;

const NAMES = { 'app.example': ['127.0.0.1'] };
const start = async (proxy: Sections = {}, sections: Sections = {}, names: Record<string, readonly string[]> = NAMES) => {
  gate = await startProxyGate({ allow: [`app.example:${app.port}`], names, proxy, sections });
};
const ask = async (...parts: readonly string[]): Promise<number[]> => toStatuses(await exchangeRaw(gate.proxyPort, ...parts));
const url = (path = '/x'): string => `http://app.example:${app.port}${path}`;
const get = (target: string, fields = PROXY_AUTH): string =>
  `GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${fields}\r\n`;
const connectTo = (target: string): string => `CONNECT ${target} HTTP/1.1\r\nHost: x\r\n${PROXY_AUTH}\r\n`;

describe('a destination that is not public', () => {
  beforeAll(() =>
    start(
      { denyPrivate: true, allow: [...PRIVATE_HOSTS.map((host) => `${host}:${app.port}`), `*.ssrf.example:${app.port}`] },
      {},
      {
        localhost: ['127.0.0.1', '::1'],
        ...NAMES_OF_PRIVATE_HOSTS,
      },
    ),
  );
  afterAll(() => gate.stop());

  test.each([
    ...PRIVATE_HOSTS,
    'localhost.',
    'LOCALHOST',
    'inner.ssrf.example',
    'mixed.ssrf.example',
    'behind.ssrf.example',
    'odd.ssrf.example',
    'Inner.SSRF.example.',
  ])('cannot be reached as %s, even if it is listed', async (host) => {
    expect(await ask(connectTo(`${host}:${app.port}`))).toEqual([403]);
    expect(await ask(get(`http://${host}:${app.port}/x`))).toEqual([403]);
    expect(gate.log().at(-1)).toMatchObject({ code: 'destination_denied', reason: 'destination_not_public' });
    expect(app.received).toHaveLength(0);
  });
});

describe('names', () => {
  afterEach(() => gate.stop());

  test('are resolved once per request, so that no second, unchecked address is used', async () => {
    let lookUps = 0;
    const names = {
      get 'app.example'(): readonly string[] {
        lookUps++;
        return [lookUps % 2 === 1 ? '127.0.0.1' : '127.0.0.9'];
      },
    };
    await start({}, {}, names);
    expect(await ask(get(url()))).toEqual([200]);
    expect(lookUps).toBe(1);
    lookUps = 0;
    const socket = await openTunnel(gate.proxyPort, `app.example:${app.port}`);
    socket.write('GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
    expect(toStatuses(await readToEnd(socket))).toEqual([200]);
    expect(lookUps).toBe(1);
  });

  test('are not resolved for unauthenticated clients, or if they are not listed', async () => {
    let lookUps = 0;
    const names = {
      get 'app.example'(): readonly string[] {
        lookUps++;
        return ['127.0.0.1'];
      },
    };
    await start({}, {}, names);
    expect(await ask(get(url(), ''))).toEqual([407]);
    expect(await ask(connectTo('app.example:22'))).toEqual([403]);
    expect(lookUps).toBe(0);
  });

  test('that do not resolve are rejected with 502, and the response does not show them', async () => {
    await start({ allow: ['gone.example:80'] });
    const text = await exchangeRaw(gate.proxyPort, connectTo('gone.example:80'));
    expect(toStatuses(text)).toEqual([502]);
    expect(text).not.toContain('gone.example');
  });
});

test('the gate’s own ports cannot be reached through it, even if the list names them', async () => {
  // Free a moment ago: the list must name them before the gate has them.
  const ports = await Promise.all([findFreePort(), findFreePort(), findFreePort()]);
  const [data, admin, proxy] = ports.map((port) => `127.0.0.1:${port}`);
  const hosts = ['127.0.0.1', '127.1.2.3', 'localhost', 'name.example', '[::1]', '[::ffff:127.0.0.1]', '0.0.0.0', '[::]'];
  await start(
    { address: proxy, allow: ports.flatMap((port) => hosts.map((host) => `${host}:${port}`)) },
    { listen: { address: data }, admin: { address: admin } },
    { localhost: ['127.0.0.1'], 'name.example': [Object.values(networkInterfaces()).flat()[0]?.address ?? '127.0.0.1'] },
  );
  for (const port of ports)
    for (const host of hosts) {
      expect(await ask(connectTo(`${host}:${port}`))).toEqual([403]);
      expect(await ask(get(`http://${host}:${port}/metrics`))).toEqual([403]);
    }
  await gate.stop();
});
