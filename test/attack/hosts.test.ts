import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { startGate, type TestGate } from '../support/gate.ts';
import { makeEntry } from '../support/users.ts';

const BASIC = { realm: 'admin', users: { file: 'users' }, requireTls: false };

const app = useApp();
const gate = useGate(() => {
  const upstream = `http://127.0.0.1:${app.port}`;
  return startGate(
    {
      routes: [
        { name: 'all', match: { pathPrefix: '/' }, upstream, allow: 'anyone' },
        { name: 'static', match: { path: '/deep/down' }, upstream, allow: 'anyone' },
        { name: 'hosted', match: { host: 'Admin.example.', pathPrefix: '/' }, upstream, basic: BASIC },
        { name: 'narrow', match: { host: 'shop.example', pathPrefix: '/admin', methods: ['GET'] }, upstream, basic: BASIC },
      ],
    },
    undefined,
    { users: makeEntry('Aladdin', 'open sesame') },
  );
});

const ask = async (host: string, path = '/', method = 'GET'): Promise<number | undefined> => {
  const lines = [`${method} ${path} HTTP/1.1`, ...host.split('\n').map((each) => `Host: ${each}`), 'Connection: close'];
  return toStatuses(await sendRaw(gate.port, toRequestText(lines)))[0];
};

describe('a route that names a host', () => {
  test.each([
    'admin.example',
    'ADMIN.EXAMPLE',
    'Admin.Example',
    'admin.example.',
    'admin.example..',
    'admin.example:80',
    'admin.example:',
    'admin.example.:443',
    'ADMIN.example.:65535',
  ])('matches the Host %j', async (host) => {
    expect(await ask(host)).toBe(401);
    expect(app.received).toHaveLength(0);
  });

  test('goes before a longer or exact path of a route without a host', async () => {
    expect(await ask('other.example', '/deep/down')).toBe(200);
    expect(await ask('admin.example', '/deep/down')).toBe(401);
  });

  test('owns all methods of its path: none falls to a route without a host', async () => {
    expect(await ask('shop.example', '/admin', 'POST')).toBe(405);
    expect(await ask('shop.example', '/admin', 'GET')).toBe(401);
  });

  test('owns every path that an app may interpret as its own', async () => {
    expect(await ask('shop.example', '/%61dmin')).toBe(400);
    expect(await ask('SHOP.example:80', '/ADMIN/x')).toBe(400);
    expect(app.received).toHaveLength(0);
  });

  test('leaves other paths of its host to routes without one', async () => {
    expect(await ask('shop.example', '/other')).toBe(200);
  });
});

describe('a Host that two parsers may interpret differently', () => {
  test.each([
    'other.example\nadmin.example',
    'admin.example\nadmin.example',
    'admin.example@other.example',
    'other.example, admin.example',
    'admin.example:80:80',
    'admin.example:x',
    'admin.example/',
    'admin.example\\x',
    'admin%2eexample',
    'admin.example#x',
    ' ',
    '[::1',
    '[admin.example]',
  ])('is rejected: %j', async (host) => {
    expect(await ask(host)).toBe(400);
    expect(app.received).toHaveLength(0);
  });

  test.each(['http://admin.example/', 'http://other.example/', '//admin.example/'])(
    'is rejected in the target: %s',
    async (target) => {
      expect(await ask('other.example', target)).toBe(400);
    },
  );
});

test.each(['other.example:8080', 'OTHER.example.', '[::1]:80', '127.0.0.1'])(
  'forwards the Host that was matched: %s',
  async (host) => {
    expect(await ask(host)).toBe(200);
    expect(app.received[0]?.headers.host).toBe(host);
    expect(app.received[0]?.rawHeaders.filter((name) => name.toLowerCase() === 'host')).toHaveLength(1);
  },
);

describe('behind a trusted proxy that passes on X-Forwarded-Host, a route that names a host', () => {
  let behind: TestGate;
  beforeAll(async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    behind = await startGate(
      {
        listen: { address: '127.0.0.1:0', trustedProxies: ['127.0.0.1'] },
        routes: [
          { name: 'all', match: { pathPrefix: '/' }, upstream, allow: 'anyone' },
          { name: 'hosted', match: { host: 'admin.example', pathPrefix: '/' }, upstream, basic: BASIC },
        ],
      },
      undefined,
      { users: makeEntry('Aladdin', 'open sesame') },
    );
  });
  afterAll(() => behind.stop());

  const askBehind = async (host: string, ...forwarded: string[]): Promise<number | undefined> => {
    const fields = forwarded.map((value) => `X-Forwarded-Host: ${value}`);
    const lines = ['GET /x HTTP/1.1', `Host: ${host}`, ...fields, 'Connection: close'];
    return toStatuses(await sendRaw(behind.port, toRequestText(lines)))[0];
  };

  test.each(['admin.example', 'ADMIN.example.:443', 'public.example, admin.example', 'admin.example,public.example'])(
    'is not bypassed if the app trusts X-Forwarded-Host: %s',
    async (forwarded) => {
      expect(await askBehind('public.example', forwarded)).toBe(400);
      expect(await askBehind('public.example', 'other.example', forwarded)).toBe(400);
      expect(app.received).toHaveLength(0);
    },
  );

  test('rejects a list of several names', async () => {
    expect(await askBehind('public.example', Array.from({ length: 9 }, () => 'a').join())).toBe(400);
    expect(await askBehind('public.example', Array.from({ length: 8 }, () => 'a').join())).toBe(200);
  });

  test('does not affect other names, or its own', async () => {
    expect(await askBehind('public.example', 'other.example')).toBe(200);
    expect(await askBehind('admin.example', 'admin.example')).toBe(401);
  });
});
