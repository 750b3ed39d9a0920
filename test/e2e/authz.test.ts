import { readFileSync } from 'node:fs';
import { request as openTlsRequest } from 'node:https';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { makeAuthority } from '../support/certificates.ts';
import { type Answer, send, sendRaw, toRequestText } from '../support/client.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { makeFolder } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const APP = 'http://127.0.0.1:1';
const ALADDIN = toBasic('Aladdin', 'open sesame');
const USERS = [makeEntry('Aladdin', 'open sesame'), makeEntry('Amélie 100%', 'x')].join('\n');
const ROUTES = [
  { name: 'admin', match: { pathPrefix: '/admin' }, upstream: APP, basic: { realm: 'admin', users: { file: 'users' } } },
  {
    name: 'quiet',
    match: { path: '/quiet', methods: ['GET'] },
    upstream: APP,
    basic: { realm: 'admin', forwardUser: false, requireTls: false },
  },
  { name: 'other-host', match: { pathPrefix: '/admin', host: 'open.example' }, upstream: APP, allow: 'anyone' },
  { name: 'health', match: { path: '/healthz' }, upstream: APP, allow: 'anyone' },
  {
    name: 'hook',
    match: { path: '/hook' },
    upstream: APP,
    basic: { realm: 'admin' },
    webhook: { keys: [{ name: 'k', secret: { file: 'secret' } }] },
  },
];

let gate: TestGate;
let isStopped = false;
afterEach(async () => {
  if (!isStopped) await gate.stop();
});
beforeEach(() => {
  isStopped = false;
});

const start = async (authz: Sections = {}, sections: Sections = {}, clock: Clock = systemClock): Promise<void> => {
  gate = await startGate({ authz: { address: '127.0.0.1:0', ...authz }, routes: ROUTES, ...sections }, clock, { users: USERS });
};
/** As Caddy and Traefik ask. */
const toFields = (uri: string, over: Sections = {}): Record<string, string> => ({
  'X-Forwarded-Method': 'GET',
  'X-Forwarded-Proto': 'https',
  'X-Forwarded-Host': 'app.example',
  'X-Forwarded-Uri': uri,
  'X-Forwarded-For': '203.0.113.7',
  ...over,
});
const ask = (uri: string, over: Sections = {}): Promise<Answer> =>
  send(gate.authzPort, { method: 'GET', path: '/', headers: toFields(uri, over) });
const toAnswer = ({ status, headers }: Answer): unknown[] => [status, headers['sidegate-refusal']];

describe('the response to an auth request has', () => {
  test('the user, if the password is correct', async () => {
    await start();
    const answer = await ask('/admin/x?y=1', ALADDIN);
    expect([answer.status, answer.text]).toEqual([200, '']);
    expect(answer.headers).toMatchObject({
      'sidegate-user': 'Aladdin',
      'x-forwarded-user': 'Aladdin',
      'remote-user': 'Aladdin',
      'sidegate-route': 'admin',
      'cache-control': 'no-store',
      'content-length': '0',
    });
    expect(gate.log().at(-1)).toMatchObject({
      port: 'authz',
      route: 'admin',
      method: 'GET',
      status: 200,
      code: 'allowed',
      client: '203.0.113.7',
      user: 'Aladdin',
      requestId: answer.headers['sidegate-request-id'],
    });
    expect(gate.logText()).not.toContain('sesame');
  });

  test('non-ASCII names percent-encoded', async () => {
    await start();
    expect((await ask('/admin', toBasic('Amélie 100%', 'x'))).headers['remote-user']).toBe('Am%C3%A9lie%20100%25');
  });

  test('401 with the challenge of the data port, the same for every cause', async () => {
    await start({}, { listen: { address: '127.0.0.1:0', trustedProxies: ['127.0.0.1'] } });
    const toBytes = ({ status, rawHeaders, text }: Answer): unknown => [
      status,
      rawHeaders.filter((_, i) => rawHeaders[i - (i % 2)] !== 'Date'),
      text.replace(/[0-9a-f-]{36}/, ''),
    ];
    const [none, wrong] = await Promise.all([ask('/admin'), ask('/admin', toBasic('nobody', 'x'))]);
    const data = await send(gate.port, { method: 'GET', path: '/admin', headers: { 'X-Forwarded-Proto': 'https' } });
    expect(none.status).toBe(401);
    expect(none.headers['www-authenticate']).toBe('Basic realm="admin", charset="UTF-8"');
    expect(none.headers['www-authenticate']).toBe(data.headers['www-authenticate']);
    expect(toBytes(wrong)).toEqual(toBytes(none));
    expect(none.code).toBe(data.code);
  });

  test('the route but no user, if the route is open or does not forward users', async () => {
    await start();
    const [open, quiet] = [await ask('/healthz'), await ask('/quiet', ALADDIN)];
    for (const { status, headers } of [open, quiet]) {
      expect(status).toBe(200);
      expect([headers['sidegate-user'], headers['x-forwarded-user'], headers['remote-user']]).toEqual(['', '', '']);
    }
    expect(open.headers['sidegate-route']).toBe('health');
  });

  test.each([
    ['no route takes the path', '/nowhere', {}, 'route_not_found'],
    ['no route takes the method', '/quiet', { 'X-Forwarded-Method': 'DELETE' }, 'method_not_allowed'],
    ['the path is ambiguous', '/healthz//x', {}, 'malformed_request'],
    ['the path has dot segments', '/healthz/../admin', {}, 'malformed_request'],
    ['the client used plain HTTP', '/admin', { ...ALADDIN, 'X-Forwarded-Proto': 'http' }, 'tls_required'],
    ['the route verifies the body', '/hook', { ...ALADDIN, 'X-Forwarded-Method': 'POST' }, 'content_needed'],
    ['two values contradict each other', '/admin', { ...ALADDIN, 'X-Original-URI': '/healthz' }, 'original_request_unclear'],
    ['the client address is missing', '/healthz', { 'X-Forwarded-For': undefined }, 'original_request_unclear'],
    ['the client address is invalid', '/healthz', { 'X-Forwarded-For': '1.2.3.4, unknown' }, 'original_request_unclear'],
    ['the URI is too long', `/healthz?${'x'.repeat(9_000)}`, {}, 'target_too_long'],
    ['Authorization is repeated', '/admin', { Authorization: ['Basic YTpi', 'Basic YTpi'] }, 'malformed_request'],
  ])('403 and the reason, if %s', async (_, uri, over, code) => {
    await start();
    const fields = Object.fromEntries(Object.entries(toFields(uri, over)).filter(([, value]) => value !== undefined));
    const answer = await send(gate.authzPort, { method: 'GET', path: '/', headers: fields });
    expect(toAnswer(answer)).toEqual([403, code]);
    expect(JSON.parse(answer.text)).toMatchObject({ status: 403, code });
    expect(answer.headers['www-authenticate']).toBeUndefined();
    expect(gate.log().at(-1)).toMatchObject({ port: 'authz', status: 403, code });
  });

  test.each(['SCRIPT_NAME', 'Path-Info', 'X-Rewrite-URL', 'X_Original_URI', 'X-Middleware-Subrequest', 'X-Forwarded-Path'])(
    '403, if %s could replace the path, as the proxy passes it to the app',
    async (name) => {
      await start();
      expect(toAnswer(await ask('/healthz', { [name]: '/admin' }))).toEqual([403, 'original_request_unclear']);
    },
  );

  test('403 with Retry-After after too many wrong passwords, with the same counters as the data port', async () => {
    const limit = { failures: 3, by: ['user'] };
    const [first] = ROUTES;
    const routes = [{ ...first, basic: { realm: 'admin', users: { file: 'users' }, requireTls: false, limit } }];
    await start({}, { routes });
    const wrong = toBasic('Aladdin', 'wrong');
    for (const client of ['203.0.113.1', '203.0.113.2'])
      expect((await ask('/admin', { ...wrong, 'X-Forwarded-For': client })).status).toBe(401);
    expect((await send(gate.port, { method: 'GET', path: '/admin', headers: wrong })).status).toBe(401);
    const banned = await ask('/admin', ALADDIN);
    expect(toAnswer(banned)).toEqual([403, 'too_many_attempts']);
    expect(Number(banned.headers['retry-after'])).toBeGreaterThan(0);
    expect((await send(gate.port, { method: 'GET', path: '/admin', headers: ALADDIN })).status).toBe(429);
  });
});

describe('the client of the original request', () => {
  const limit = { failures: 1, by: ['client'] };
  const routes = [{ ...ROUTES[0], basic: { realm: 'admin', users: { file: 'users' }, limit } }];
  const guess = async (forwardedFor: string): Promise<unknown[]> =>
    toAnswer(await ask('/admin', { ...toBasic('Aladdin', 'wrong'), 'X-Forwarded-For': forwardedFor }));
  const REFUSED = [401, 'credentials_required'];
  const BANNED = [403, 'too_many_attempts'];

  test('is the hop before the caller, whatever it claims, even if it could be a caller itself', async () => {
    await start({ trustedCallers: ['127.0.0.1', '10.0.0.0/8'] }, { routes });
    expect(await guess('6.6.6.6, 10.0.0.1')).toEqual(REFUSED);
    expect(await guess('7.7.7.7, 10.0.0.1')).toEqual(BANNED);
    expect(await guess('8.8.8.8')).toEqual(REFUSED);
  });

  test('is the one before the trusted proxies of the data port', async () => {
    await start({}, { routes, listen: { address: '127.0.0.1:0', trustedProxies: ['10.0.0.0/8'] } });
    expect(await guess('6.6.6.6, 10.0.0.1')).toEqual(REFUSED);
    expect(await guess('7.7.7.7, 10.0.0.1')).toEqual(REFUSED);
    expect(await guess('6.6.6.6, 10.0.0.2')).toEqual(BANNED);
  });
});

test('shares the hash of a password with the data port', async () => {
  await start({}, { listen: { address: '127.0.0.1:0', trustedProxies: ['127.0.0.1'] } });
  await ask('/admin', ALADDIN);
  await send(gate.port, { method: 'GET', path: '/admin', headers: { ...ALADDIN, 'X-Forwarded-Proto': 'https' } });
  expect(await gate.metric('sidegate_password_checks_total{outcome="miss"}')).toBe(1);
  expect(await gate.metric('sidegate_password_checks_total{outcome="hit"}')).toBe(1);
});

test('matches the host of the original request, not that of the auth request', async () => {
  await start();
  expect((await ask('/admin', { Host: 'open.example' })).status).toBe(401);
  expect((await ask('/admin', { 'X-Forwarded-Host': 'open.example:8443', Host: 'app.example' })).status).toBe(200);
});

test('rejects callers that are not in trustedCallers, and counts them', async () => {
  await start({ trustedCallers: ['192.0.2.1'] });
  const answer = await ask('/healthz');
  expect(toAnswer(answer)).toEqual([403, 'caller_denied']);
  expect(await gate.metric(toSeries('_unmatched', 403, 'caller_not_trusted'))).toBe(1);
});

test('rejects by default what a mesh forwards from other pods, with 127.0.0.6 as the caller', async () => {
  await start();
  const answer = await send(gate.authzPort, { method: 'GET', path: '/', headers: toFields('/healthz'), from: '127.0.0.6' });
  expect(toAnswer(answer)).toEqual([403, 'caller_denied']);
});

test('is counted separately from the data port', async () => {
  await start();
  expect(await gate.metrics()).toContain(toSeries('admin', 200, 'ok'));
  await ask('/admin', ALADDIN);
  await ask('/admin');
  await ask('/nowhere');
  expect(await gate.metric(toSeries('admin', 200, 'ok'))).toBe(1);
  expect(await gate.metric(toSeries('admin', 401, 'no_credentials'))).toBe(1);
  expect(await gate.metric(toSeries('_unmatched', 403, 'route_not_found'))).toBe(1);
  expect(await gate.metric('sidegate_authz_request_duration_seconds_count{route="admin"}')).toBe(2);
  expect(await gate.metric('sidegate_http_requests_total{route="admin",method="GET",code="200"}')).toBe(0);
  gate.writeConfig({ authz: { address: '127.0.0.1:0' }, routes: ROUTES.slice(1, 2).map(withUsers) });
  await gate.gate.reload();
  expect(await gate.metrics()).not.toContain('route="admin"');
  expect((await ask('/quiet', ALADDIN)).status).toBe(200);
});

test('uses the routes of a reloaded config, but changes its own settings only at a restart', async () => {
  await start();
  expect((await ask('/new')).status).toBe(403);
  const routes = [...ROUTES, { name: 'new', match: { path: '/new' }, upstream: APP, allow: 'anyone' }];
  gate.writeConfig({ authz: { address: '127.0.0.1:0' }, routes });
  await gate.gate.reload();
  expect((await ask('/new')).status).toBe(200);
  gate.writeConfig({ authz: { address: '127.0.0.1:0', trustedCallers: ['10.0.0.1'] }, routes: ROUTES });
  await gate.gate.reload();
  expect((await ask('/new')).status).toBe(200);
  expect(gate.logText()).toContain('changing authz requires a restart');
});

describe('an invalid auth request', () => {
  test.each([
    ['names its Host twice', ['GET / HTTP/1.1', 'Host: a', 'Host: a']],
    ['hides its length', ['GET / HTTP/1.1', 'Host: a', 'Content-Length: 1', 'Transfer-Encoding: chunked']],
    ['would remove a field', ['GET / HTTP/1.1', 'Host: a', 'Connection: X-Forwarded-Uri']],
  ])('that %s is rejected, and the connection is closed', async (_, lines) => {
    await start();
    const fields = Object.entries(toFields('/healthz')).map(([name, value]) => `${name}: ${value}`);
    const text = await sendRaw(gate.authzPort, toRequestText([...lines, ...fields]));
    expect(text).toMatch(/^HTTP\/1\.1 40[03] /);
    expect(text).toContain('"code":"malformed_request"');
  });

  test.each([
    ['is not HTTP', 'hello\r\n\r\n', 'malformed_request', 'framing'],
    [
      'has a head above maxHeaderBytes',
      `GET / HTTP/1.1\r\nHost: a\r\nCookie: ${'x'.repeat(20_000)}\r\n\r\n`,
      'header_too_large',
      'header_too_large',
    ],
  ])('that %s gets the 403 that proxies understand', async (_, bytes, code, reason) => {
    await start();
    const text = await sendRaw(gate.authzPort, bytes);
    expect(text).toMatch(/^HTTP\/1\.1 403 Forbidden\r\n/);
    expect(text).toContain(`Sidegate-Refusal: ${code}\r\n`);
    expect(text).toContain('"status":403');
    expect(
      await gate.metric(`sidegate_authz_requests_total{route="_unmatched",method="_OTHER",code="403",reason="${reason}"}`),
    ).toBe(1);
    expect(gate.log().at(-1)).toMatchObject({ port: 'authz', status: 403, code });
  });
});

test('keeps the connection of a caller after rejections, and answers auth requests with a body and for handshakes', async () => {
  await start();
  const toText = (line: string, uri: string, more: readonly string[] = [], body = ''): string =>
    toRequestText([line, 'Host: a', ...Object.entries(toFields(uri)).map(([name, value]) => `${name}: ${value}`), ...more], body);
  const text = await sendRaw(
    gate.authzPort,
    toText('GET / HTTP/1.1', '/a/../b'),
    toText('GET / HTTP/1.1', '/admin'),
    toText('POST / HTTP/1.1', '/healthz', ['Content-Length: 5'], 'hello'),
    toText('HEAD / HTTP/1.1', '/healthz'),
    toText('GET / HTTP/1.1', '/healthz', ['Connection: Upgrade', 'Upgrade: websocket']),
  );
  expect([...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => status)).toEqual(['403', '401', '200', '200', '200']);
});

test('closes the connection if a body is left unread', async () => {
  await start();
  const fields = Object.entries(toFields('/healthz')).map(([name, value]) => `${name}: ${value}`);
  const text = await sendRaw(
    gate.authzPort,
    toRequestText(['POST / HTTP/1.1', 'Host: a', 'Content-Length: 1000000', ...fields], 'x'),
  );
  expect(text).toMatch(/^HTTP\/1\.1 200 /);
  expect(text).toContain('Connection: close');
});

test('responds while the gate drains, closing each connection, and then stops', async () => {
  const clock = new FakeClock();
  await start({}, { shutdown: { grace: '5s', drain: '2s' } }, clock);
  const port = gate.authzPort;
  isStopped = true;
  const stopped = gate.stop();
  const answer = await ask('/healthz');
  expect([answer.status, answer.headers.connection]).toEqual([200, 'close']);
  await clock.advance(5_000);
  await stopped;
  await expect(openSocket(port)).rejects.toThrow('ECONNREFUSED');
});

test('uses TLS if it has a certificate', async () => {
  const authority = makeAuthority(makeFolder(), 'ca');
  const pair = authority.issue('authz', 'DNS:localhost');
  gate = await startGate(
    { authz: { address: '127.0.0.1:0', tls: { certFile: pair.cert, keyFile: pair.key } }, routes: ROUTES },
    undefined,
    { users: USERS },
  );
  const status = await new Promise<number | undefined>((resolve, reject) => {
    const options = { host: 'localhost', port: gate.authzPort, ca: readFileSync(authority.ca), headers: toFields('/healthz') };
    openTlsRequest({ ...options, agent: false }, (answer) => {
      answer.resume();
      resolve(answer.statusCode);
    })
      .on('error', reject)
      .end();
  });
  expect(status).toBe(200);
});

test('rejects auth requests for routes with clientCertificate, also in observe mode, as they contain no certificate', async () => {
  const authority = makeAuthority(makeFolder(), 'ca');
  const { cert, key } = authority.issue('authz', 'DNS:localhost');
  const tls = { certFile: cert, keyFile: key, clientCaFile: authority.ca };
  const routes = ['enforce', 'observe'].map((mode) => ({
    name: mode,
    match: { path: `/${mode}` },
    upstream: APP,
    mode,
    clientCertificate: {},
  }));
  await start({}, { listen: { address: '127.0.0.1:0', tls }, routes: [...routes, ROUTES[3]] });
  for (const path of ['/enforce', '/observe']) {
    expect(toAnswer(await ask(path))).toEqual([403, 'certificate_required']);
    expect(gate.log().at(-1)).toMatchObject({ detail: 'auth requests contain no certificate of the client' });
  }
  expect(await gate.metrics()).not.toContain(toSeries('enforce', 200, 'ok'));
  expect((await ask('/healthz')).status).toBe(200);
});

describe('the config', () => {
  test.each([
    [{ address: '127.0.0.1:0', trustedCallers: [] }, 'the list is empty, so every auth request would be rejected'],
    [{ address: '127.0.0.1:18080' }, 'another listener of sidegate uses this port'],
    [{ address: '127.0.0.1:0', trustedCallers: ['app.example'] }, 'is not an address range'],
    [{ address: '127.0.0.1:0', tls: { certFile: 'none.crt', keyFile: 'none.key' } }, 'does not exist'],
  ])('with %j is rejected: %s', async (authz, message) => {
    const sections = { authz, routes: ROUTES, admin: { address: '127.0.0.1:18080' } };
    await expect(startGate(sections, undefined, { users: USERS })).rejects.toThrow(message);
  });
});

function toSeries(route: string, code: number, reason: string): string {
  return `sidegate_authz_requests_total{route="${route}",method="GET",code="${code}",reason="${reason}"}`;
}

function withUsers(route: Sections): Sections {
  return { ...route, basic: { realm: 'admin', users: { file: 'users' }, requireTls: false } };
}

function openSocket(port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket: Socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve();
    });
    socket.on('error', reject);
  });
}
