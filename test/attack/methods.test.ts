import { describe, expect, test } from 'vitest';
import { type Answer, send, sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { type Sections, startGate } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const USERS = makeEntry('Aladdin', 'open sesame');
const ALADDIN = toBasic('Aladdin', 'open sesame');
const BASIC = { realm: 'admin', users: { file: 'users' }, requireTls: false };
const WEBHOOK = { keys: [{ name: 'current', secret: { file: 'secret' } }] };
const OVERRIDES = ['X-HTTP-Method-Override', 'X-HTTP-Method', 'X-Method-Override'];
const SPELLINGS = OVERRIDES.flatMap((name) => [
  name,
  name.toLowerCase(),
  name.toUpperCase(),
  name.replaceAll('-', '_'),
  name.replace('-', '.'),
]);

const app = useApp();
const gate = useGate(() => {
  const upstream = `http://127.0.0.1:${app.port}`;
  return startGate(
    {
      authz: { address: '127.0.0.1:0' },
      routes: [
        { name: 'billing', match: { path: '/hooks/billing' }, upstream, webhook: WEBHOOK },
        { name: 'admin', match: { pathPrefix: '/admin', methods: ['GET'] }, upstream, basic: BASIC },
        { name: 'read', match: { path: '/account', methods: ['GET'] }, upstream, allow: 'anyone' },
        { name: 'write', match: { path: '/account', methods: ['POST'] }, upstream, basic: BASIC },
        { name: 'legacy', match: { path: '/legacy' }, upstream, allow: 'anyone', forwardMethodOverride: true },
        { name: 'rest', match: { pathPrefix: '/' }, upstream, allow: 'anyone' },
      ],
    },
    undefined,
    { users: USERS },
  );
});

const ask = (method: string, path: string, headers: Sections = {}): Promise<Answer> =>
  send(gate.port, { method, path, headers: headers as Record<string, string> });

describe('a method that the most specific route does not allow', () => {
  test.each([
    ['GET', '/hooks/billing', 'POST'],
    ['HEAD', '/hooks/billing', 'POST'],
    ['PUT', '/hooks/billing', 'POST'],
    ['PATCH', '/hooks/billing', 'POST'],
    ['DELETE', '/hooks/billing', 'POST'],
    ['OPTIONS', '/hooks/billing', 'POST'],
    ['PROPFIND', '/hooks/billing', 'POST'],
    ['POST', '/admin', 'GET, HEAD'],
    ['DELETE', '/admin/users/1', 'GET, HEAD'],
    ['OPTIONS', '/admin', 'GET, HEAD'],
    ['TRACE', '/admin', 'GET, HEAD'],
    ['DELETE', '/account', 'GET, HEAD, POST'],
  ])('is rejected with 405 and Allow, and no wider route gets it: %s %s', async (method, path, allow) => {
    const answer = await ask(method, path);
    expect([answer.status, answer.headers['allow']]).toEqual([405, allow]);
    expect(app.received).toHaveLength(0);
  });

  test.each(['get', 'Post', 'pOST', 'PROPFIND', 'MKCOL', 'M-SEARCH', 'QUERY', 'PURGE', 'LINK'])(
    'is rejected in another spelling, also on an open route: %s',
    async (method) => {
      for (const path of ['/hooks/billing', '/admin', '/']) {
        const lines = [`${method} ${path} HTTP/1.1`, 'Host: a', 'Connection: close', 'Content-Length: 0'];
        const [status] = toStatuses(await sendRaw(gate.port, toRequestText(lines)));
        expect([400, 405]).toContain(status);
      }
      expect(app.received).toHaveLength(0);
    },
  );
});

describe('routes of one path', () => {
  test('share its methods, each with its own gates', async () => {
    expect((await ask('GET', '/account')).status).toBe(200);
    expect((await ask('POST', '/account')).status).toBe(401);
    expect((await ask('POST', '/account', ALADDIN)).status).toBe(200);
  });

  test('accept HEAD through the gates of GET', async () => {
    expect((await ask('HEAD', '/account')).status).toBe(200);
    expect((await ask('HEAD', '/admin')).status).toBe(401);
    expect((await ask('HEAD', '/admin', ALADDIN)).status).toBe(200);
    expect(app.received.map(({ method }) => method)).toEqual(['HEAD', 'HEAD']);
  });
});

describe('a field that overrides the method', () => {
  test.each(SPELLINGS)('is dropped: %s', async (name) => {
    await ask('POST', '/rest', { [name]: 'DELETE' });
    const { body, headers } = makeDelivery();
    await send(gate.port, { body, headers: { ...headers, [name]: 'DELETE' } });
    expect(app.received).toHaveLength(2);
    for (const { rawHeaders } of app.received) expect(rawHeaders).not.toContain('DELETE');
  });

  test.each(OVERRIDES)('is passed on if the route allows it: %s', async (name) => {
    await ask('POST', '/legacy', { [name]: 'DELETE' });
    expect(app.received[0]?.headers[name.toLowerCase()]).toBe('DELETE');
  });

  test.each(SPELLINGS)('is rejected by forward-auth, whose proxy would pass it on: %s', async (name) => {
    const about = (uri: string): Promise<Answer> =>
      send(gate.authzPort, {
        method: 'GET',
        path: '/',
        headers: {
          ...{ 'X-Forwarded-Method': 'POST', 'X-Forwarded-Proto': 'https', 'X-Forwarded-Host': 'a', 'X-Forwarded-Uri': uri },
          ...{ 'X-Forwarded-For': '203.0.113.7', [name]: 'DELETE' },
        },
      });
    const { status, headers } = await about('/rest');
    expect([status, headers['sidegate-refusal']]).toEqual([403, 'original_request_unclear']);
    expect((await about('/legacy')).status).toBe(200);
  });
});
