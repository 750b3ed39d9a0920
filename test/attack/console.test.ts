import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createRequire } from 'node:module';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import type { PageData, RenderPage } from '../../src/admin/console/page.ts';
import type { DeliveryDetail } from '../../src/admin/console/schemas.ts';
import { provideBundle } from '../support/bundle.ts';
import { type Answer, send } from '../support/client.ts';
import { ADMIN, LOGIN, startConsoleGate } from '../support/console.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const OUTSIDE = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;
const PATHS = ['/overview', '/deliveries', '/deliveries/stream', '/deliveries/00000000-0000-4000-8000-000000000000', '/none'];

const app = useApp();
let gate: TestGate;
afterEach(() => gate.stop());

const ask = (path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> =>
  send(gate.adminPort, { method, path: `/api/v1${path}`, headers });

describe('the console rejects', () => {
  test('names that an attacker can make resolve to this machine (DNS rebinding), on every path', async () => {
    gate = await startGate({ routes: [toRoute(app.port)] });
    for (const path of PATHS)
      for (const Host of ['evil.example', 'localhost.evil.example', '127.0.0.1.evil.example:9090', '[::1].evil.example'])
        expect([path, Host, (await ask(path, { Host })).status]).toEqual([path, Host, 403]);
    expect((await ask('/overview', { Host: 'LOCALHOST:1' })).status).toBe(200);
  });

  test('requests that a page of another origin causes, on every path', async () => {
    gate = await startGate({ routes: [toRoute(app.port)] });
    const Host = `127.0.0.1:${gate.adminPort}`;
    for (const path of PATHS)
      for (const headers of [
        { 'Sec-Fetch-Site': 'cross-site' },
        { 'Sec-Fetch-Site': 'same-site' },
        { 'Sec-Fetch-Site': 'unknown' },
        { Origin: 'null' },
        { Origin: 'https://evil.example' },
        { Origin: `https://${Host}` },
        { Origin: 'http://127.0.0.1:1' },
      ])
        expect([path, headers, (await ask(path, { Host, ...headers })).status]).toEqual([path, headers, 403]);
    for (const headers of [{ Origin: `http://${Host}` }, { 'Sec-Fetch-Site': 'same-origin' }, { 'Sec-Fetch-Site': 'none' }])
      expect((await ask('/overview', { Host, ...headers })).status).toBe(200);
    expect(await gate.metric('sidegate_admin_denied_total{reason="cross_origin"}')).toBe(PATHS.length * 7);
  });

  test('every client without the token, if one is configured', async () => {
    const token = randomBytes(24).toString('hex');
    const admin = { address: '127.0.0.1:0', token: { secret: { file: 'token' } } };
    gate = await startGate({ admin, routes: [toRoute(app.port)] }, undefined, { token });
    for (const path of PATHS) {
      expect(await ask(path)).toMatchObject({ status: 401, headers: { 'www-authenticate': expect.stringContaining('Bearer') } });
      expect((await ask(path, { Authorization: `Bearer ${token}x` })).status).toBe(401);
    }
    expect((await ask('/overview', { Authorization: `Bearer ${token}` })).status).toBe(200);
  });

  test.skipIf(OUTSIDE === undefined)('clients of other machines without a token', async () => {
    gate = await startGate({ admin: { address: '0.0.0.0:0' }, routes: [toRoute(app.port)] });
    for (const path of PATHS) expect((await fetch(`http://${OUTSIDE}:${gate.adminPort}/api/v1${path}`)).status).toBe(403);
  });
});

const ACTION = '/outgoing/endpoints/acme/disable';
const isEnabled = async (): Promise<boolean> => !(await ask('/outgoing/endpoints/acme')).text.includes('"disabled"');

describe('an action', () => {
  test('does not exist for anyone without admin.basic, not even with the token', async () => {
    const token = { secret: { file: 'token' } };
    gate = await startConsoleGate(app.port, { admin: { address: '127.0.0.1:0', token } });
    const bearer = { Authorization: `Bearer ${'t'.repeat(32)}` };
    for (const headers of [{}, bearer, LOGIN]) expect((await ask(ACTION, headers, 'POST')).status).toBe(403);
    expect(await gate.metric('sidegate_admin_denied_total{reason="read_only"}')).toBe(3);
    expect((await ask('/outgoing/endpoints/acme', bearer)).text).not.toContain('"disabled"');
  });

  test('needs the right password, and guesses lead to a ban', async () => {
    gate = await startConsoleGate(app.port);
    for (const headers of [{}, toBasic('operator', 'wrong'), toBasic('nobody', ''), { Authorization: 'Bearer x' }])
      expect(await ask(ACTION, headers, 'POST')).toMatchObject({
        status: 401,
        headers: { 'www-authenticate': 'Basic realm="console", charset="UTF-8"' },
      });
    for (let i = 0; i < 9; i++) await ask(ACTION, toBasic('operator', `wrong ${i}`), 'POST');
    expect((await ask(ACTION, LOGIN, 'POST')).status).toBe(429);
    expect(await isEnabled()).toBe(true);
  });

  test('cannot be caused by a page of another origin, although the browser adds the password', async () => {
    gate = await startConsoleGate(app.port);
    const Host = `127.0.0.1:${gate.adminPort}`;
    for (const headers of [
      { Origin: 'https://evil.example' },
      { Origin: 'null' },
      { Origin: 'http://localhost:1' },
      { 'Sec-Fetch-Site': 'cross-site' },
      { 'Sec-Fetch-Site': 'same-site', Origin: `http://${Host}` },
      { Host: 'evil.example', Origin: 'http://evil.example', 'Sec-Fetch-Site': 'same-origin' },
    ])
      expect([headers, (await ask(ACTION, { Host, ...LOGIN, ...headers }, 'POST')).status]).toEqual([headers, 403]);
    expect(await isEnabled()).toBe(true);
    const own = { Host, Origin: `http://${Host}`, 'Sec-Fetch-Site': 'same-origin' };
    expect((await ask(ACTION, { ...LOGIN, ...own }, 'POST')).status).toBe(200);
    expect(await isEnabled()).toBe(false);
  });

  test.skipIf(OUTSIDE === undefined)(
    'is rejected over the network before the password is checked, as the port has no TLS',
    async () => {
      gate = await startConsoleGate(app.port, { admin: { ...ADMIN, address: '0.0.0.0:0' } });
      const response = await fetch(`http://${OUTSIDE}:${gate.adminPort}/api/v1${ACTION}`, { method: 'POST', headers: LOGIN });
      expect(response.status).toBe(403);
      expect(await gate.metric('sidegate_admin_denied_total{reason="tls_required"}')).toBe(1);
      expect(await isEnabled()).toBe(true);
    },
  );

  test('survives bodies that are too large, cut off, of another type or not JSON', async () => {
    gate = await startConsoleGate(app.port);
    const post = (body: string, type = 'application/json') =>
      send(gate.adminPort, {
        method: 'POST',
        path: '/api/v1/outgoing/repairs',
        headers: { ...LOGIN, 'Content-Type': type },
        body,
      });
    expect((await post('x'.repeat(100_000))).status).toBe(413);
    expect((await post('{')).status).toBe(400);
    expect((await post('{}', 'text/plain')).status).toBe(415);
    expect((await post('{"endpoint":"acme","__proto__":{}}')).status).toBe(422);
    const socket = connect(gate.adminPort, '127.0.0.1');
    socket.end(
      `POST /api/v1/outgoing/repairs HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${LOGIN.Authorization}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{`,
    );
    await new Promise((resolve) => socket.on('close', resolve).resume());
    expect((await ask('/overview')).status).toBe(200);
    expect(gate.logText()).not.toContain('internal_error');
  });
});

const PAGES = ['/', '/?outcome=rejected', '/login'];

describe('the page of the console rejects', () => {
  test('other names of this machine, pages of other origins, and clients without the token', async () => {
    gate = await startGate({ routes: [toRoute(app.port)] });
    const Host = `127.0.0.1:${gate.adminPort}`;
    const attempts = [
      { Host: 'evil.example' },
      { Host, 'Sec-Fetch-Site': 'cross-site' },
      { Host, 'Sec-Fetch-Site': 'same-site' },
      { Host, Origin: 'https://evil.example' },
    ];
    for (const path of PAGES)
      for (const headers of attempts) {
        const { status, text } = await send(gate.adminPort, { method: 'GET', path, headers });
        expect([path, headers, status]).toEqual([path, headers, 403]);
        expect(text).not.toMatch(/billing|<script/);
      }
    await gate.stop();
    const token = { secret: { file: 'token' } };
    gate = await startGate({ admin: { address: '127.0.0.1:0', token }, routes: [toRoute(app.port)] }, undefined, {
      token: 't'.repeat(32),
    });
    expect((await send(gate.adminPort, { method: 'GET', path: '/' })).status).toBe(401);
  });

  test('a password that a link of another page contains, before it is checked', async () => {
    gate = await startConsoleGate(app.port);
    const headers = { ...toBasic('operator', 'wrong'), 'Sec-Fetch-Site': 'cross-site' };
    for (const path of PAGES)
      for (let i = 0; i < 15; i++) expect((await send(gate.adminPort, { method: 'GET', path, headers })).status).toBe(403);
    expect((await ask(ACTION, LOGIN, 'POST')).status).toBe(200);
  });
});

test('the page of the console runs only its own files, in no frame', async () => {
  gate = await startGate({ routes: [toRoute(app.port)] });
  for (const path of ['/', '/?outcome=x', '/login', '/console/none'])
    expect((await send(gate.adminPort, { method: 'GET', path })).headers).toMatchObject({
      'content-security-policy': expect.stringMatching(
        /^default-src 'none'; script-src 'self'; style-src 'self'; .*frame-ancestors 'none'; require-trusted-types-for 'script'/,
      ),
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
    });
});

test('every other response of the admin port forbids scripts, frames and use by other origins', async () => {
  gate = await startGate({ routes: [toRoute(app.port)] });
  for (const path of ['/api/v1/overview', '/api/v1/none', '/api/v1/openapi.json', '/metrics', '/journal', '/none', '/healthz'])
    expect((await send(gate.adminPort, { method: 'GET', path })).headers).toMatchObject({
      'content-security-policy': "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      'x-content-type-options': 'nosniff',
      'cross-origin-resource-policy': 'same-origin',
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
    });
});

test('shows no secret: keys, passwords, tokens, cookies, queries, signatures, even if a sender puts a key in the wrong place', async () => {
  const [signing, password, guess, marked] = [0, 1, 2, 3].map(() => randomBytes(24).toString('hex')) as [
    string,
    string,
    string,
    string,
  ];
  const key = Buffer.from(signing).toString('base64');
  gate = await startGate(
    {
      routes: [
        toRoute(app.port, { webhook: { keys: [{ name: 'current', secret: { file: 'signing' } }] } }),
        {
          name: 'users',
          match: { pathPrefix: '/users' },
          upstream: `http://127.0.0.1:${app.port}`,
          basic: { realm: 'r', users: { file: 'users' }, requireTls: false },
        },
      ],
    },
    undefined,
    { signing: `whsec_${key}`, users: makeEntry('alice', password) },
  );
  const good = makeDelivery({ secret: `whsec_${key}` });
  const signature = good.headers['Webhook-Signature'] ?? '';
  await send(gate.port, { ...good, headers: { ...good.headers, Cookie: marked, 'X-Api-Key': marked } });
  await send(gate.port, {
    ...good,
    headers: { ...good.headers, 'User-Agent': `curl whsec_${key}`, 'Webhook-Id': `whsec_${key}` },
  });
  await send(gate.port, {
    method: 'GET',
    path: `/users/whsec_${encodeURIComponent(key)}?token=${marked}`,
    headers: toBasic('alice', password),
  });
  await send(gate.port, { method: 'GET', path: `/users/x?token=${marked}`, headers: toBasic('alice', guess) });
  await send(gate.port, { method: 'GET', path: `/x?${marked}`, headers: { Authorization: `Bearer ${marked}` } });
  const escaped = [...key].map((each) => `%${each.charCodeAt(0).toString(16)}`).join('');
  await send(gate.port, { method: 'GET', path: '/x', headers: { 'User-Agent': `${escaped}%ff` } });
  const list = JSON.parse((await ask('/deliveries')).text) as { data: { id: string }[] };
  expect(list.data).toHaveLength(6);
  const details = await Promise.all(list.data.map(async ({ id }) => (await ask(`/deliveries/${id}`)).text));
  const shown = [JSON.stringify(list), ...details, (await ask('/overview')).text].join('\n');
  expect(shown).toContain('[redacted]');
  const forms = [signing, password, guess, marked].flatMap((text) => [text, Buffer.from(text).toString('base64')]);
  for (const secret of [...forms, key, encodeURIComponent(key), escaped, signature.slice(3), signature.slice(3, 20)])
    expect(shown).not.toContain(secret);
});

test('keeps hostile IDs, paths, headers and methods as data, quoted in commands, in JSON of one type', async () => {
  gate = await startGate({ routes: [toRoute(app.port)] });
  const hostile = `<img/src=x/onerror=alert(1)>'";$(reboot)\`reboot\`&&`;
  const delivery = makeDelivery({ id: hostile });
  await send(gate.port, { ...delivery, headers: { ...delivery.headers, 'User-Agent': hostile, 'X-</script>': hostile } }).catch(
    () => undefined,
  );
  await send(gate.port, { ...delivery, headers: { ...delivery.headers, 'User-Agent': hostile } });
  await send(gate.port, { method: 'GET', path: `/'$(reboot)'/%3Cscript%3E` });
  const answer = await ask('/deliveries');
  expect(answer.headers['content-type']).toBe('application/json');
  const { data } = JSON.parse(answer.text) as { data: { id: string; event: string | null }[] };
  expect(data[1]?.event).toBe(hostile);
  const commands = await Promise.all(
    data.map(
      async ({ id }) => (JSON.parse((await ask(`/deliveries/${id}`)).text) as { commands: { repeat: string } }).commands.repeat,
    ),
  );
  // A quote ends the quoted text, is escaped by a backslash, and begins the next one.
  for (const command of commands) expect(command.replaceAll(`'\\''`, '').replaceAll(/'[^']*'/g, '')).toMatch(/^[\w .@-]*$/);
});

describe('the page shows hostile texts as texts', () => {
  /** Also a NUL, an override of the direction of text, and half of a surrogate pair. */
  const HOSTILE = `<img/src=x onerror=alert(1)>"'><!--</dd></script><script>alert(2)</script>&lt;\0\u202e\ud800\u2028 javascript:`;
  const toDetail = (text: string): DeliveryDetail => ({
    ...{ id: text, replica: text, at: '2026-01-01T00:00:00.000Z', route: text, method: text, path: text, client: text },
    ...{ status: 401, outcome: 'rejected', code: text, reason: text, stoppedBy: 'signature', observed: text, event: text },
    ...{ type: text, delivery: text, key: text, skewMs: 0, durationMs: 1, appMs: 1, bytesIn: 1, bytesOut: 1, port: 'data' },
    ...{ user: text, certificate: text, detail: text, isUnchecked: true, traceId: text, findings: [text] },
    stages: (['passed', 'stopped', 'answered'] as const).map((result) => ({ name: 'queued', result, detail: text })),
    headers: [{ name: text, value: text }],
    body: { text, bytes: 1, isTruncated: true, redactions: 1, absence: null, note: text },
    commands: { repeat: text.replaceAll(' ', ''), explain: text.replaceAll(' ', '') },
  });
  const toPages = (text: string): readonly (readonly [search: Readonly<Record<string, string>>, data: PageData])[] => {
    const detail = toDetail(text);
    const rows = [detail, { ...detail, route: null, delivery: null }];
    const names = [
      'route',
      'outcome',
      'reason',
      'status',
      'client',
      'type',
      'id',
      'last',
      'from',
      'to',
      'cursor',
      'tenant',
      text,
    ];
    const filters = Object.fromEntries(names.map((name) => [name, text]));
    const counts = { deliveries: 1, waiting: 0, failed: 0 };
    const event = { id: text, type: text, tenant: text, createdAt: detail.at, ...counts };
    return [
      [filters, { routes: [`${text}1`], deliveries: { data: rows, cursor: text } }],
      [{ ...filters, request: text }, { detail }],
      [
        { ...filters, view: text },
        { error: text, routes: [`${text}1`] },
      ],
      [{ ...filters, request: text }, { error: text }],
      [{ ...filters, view: 'events', iterator: text }, { events: { data: [event], iterator: text } }],
      [{ view: 'events' }, { error: text }],
      [{ ...filters, view: 'logins' }, {}],
    ];
  };
  /** The tags without the values of their attributes. */
  const listTags = (html: string): string[] => html.replaceAll(/"[^"]*"/g, '""').match(/<[^>]*>/g) ?? [];

  test('wherever they are: the tags are those of harmless texts', async () => {
    const { renderPage } = createRequire(await provideBundle())('./console-render.cjs') as { readonly renderPage: RenderPage };
    const render = (text: string): string[] =>
      toPages(text).map(([search, data]) => {
        const session = { version: text, replica: text, canLogIn: true, hasOutgoing: true, user: text };
        return renderPage(session, `?${new URLSearchParams(search)}`, data);
      });
    const harmless = render('x').map(listTags);
    expect(harmless.every(({ length }) => length > 20)).toBe(true);
    expect(render(HOSTILE).map(listTags)).toEqual(harmless);
    for (const html of render(HOSTILE)) {
      expect(html).not.toMatch(/<(?:img|script|!--)/);
      for (const [, address] of html.matchAll(/ (?:href|action)="([^"]*)"/g)) expect(address).toMatch(/^[/#](?:[^/\\]|$)/);
    }
  });

  test('of a sender, in the list and in a request', async () => {
    gate = await startConsoleGate(app.port);
    const text = `"'><img/src=x/onerror=alert(1)></dd></script><script>alert(2)</script>`;
    const delivery = makeDelivery({ id: text });
    const headers = { ...delivery.headers, 'User-Agent': text, 'X-GitHub-Event': text };
    await send(gate.port, { ...delivery, headers });
    await send(gate.port, { method: 'GET', path: `/"'><img/src=x>%00%E2%80%AE%ED%A0%80?"><script>` }).catch(() => undefined);
    const { data } = JSON.parse((await ask('/deliveries')).text) as { data: { id: string }[] };
    const query = encodeURIComponent(text);
    const paths = ['', `id=${query}`, `route=${query}`, `${query}=1`, ...data.map(({ id }) => `request=${id}&id=${query}`)];
    for (const path of [...paths, `view=events&type=${query}`, `view=${query}`]) {
      const page = await send(gate.adminPort, { method: 'GET', path: `/?${path}`, headers: LOGIN });
      expect(page.text).toContain('</footer>');
      expect([path, page.text.match(/<(?:img|script)[^>]*>/g)]).toEqual([
        path,
        ['<script type="module" src="/console/page.js">'],
      ]);
    }
  });
});

test('keeps at most as much as the journal may, whatever arrives', async () => {
  gate = await startGate({ journal: { size: 10_000, maxBytes: '256Ki' }, routes: [toRoute(app.port)] });
  const headers = Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`x-${'h'.repeat(60)}-${i}`, 'v']));
  for (let i = 0; i < 100; i++) await send(gate.port, { method: 'GET', path: `/${'p'.repeat(6_000)}`, headers });
  const { journal } = JSON.parse((await ask('/overview')).text) as { journal: { kept: number; bytes: number; recorded: number } };
  expect(journal.recorded).toBe(100);
  expect(journal.bytes).toBeLessThanOrEqual(262_144);
  expect(journal.kept).toBeLessThan(60);
});

test('keeps at most 8 streams, although the passwords of many clients are checked at once', async () => {
  gate = await startConsoleGate(app.port);
  let [open, opened, ended] = [0, 0, 0];
  const clients = Array.from({ length: 24 }, () => {
    const options = { port: gate.adminPort, path: '/api/v1/deliveries/stream', headers: LOGIN, agent: false };
    const client = request(options, (response) => {
      opened += response.statusCode === 200 ? 1 : 0;
      open++;
      response.resume().on('error', () => undefined);
      response.once('close', () => {
        open--;
        ended++;
      });
    });
    return client.on('error', () => undefined).end();
  });
  onTestFinished(() => {
    for (const client of clients) client.destroy();
  });
  await until(() => ended === clients.length - 8);
  expect([open, opened >= 8]).toEqual([8, true]);
  await send(gate.port, makeDelivery());
  expect((await ask('/deliveries/stream')).status).toBe(503);
});

describe('the stream ends', () => {
  test.each([
    ['the token is rotated', 'token', 'u'.repeat(32), { Authorization: `Bearer ${'t'.repeat(32)}` }],
    ['the user is removed', 'operators', makeEntry('other', 'password'), LOGIN],
  ])('when %s, and no other one', async (_, file, text, headers) => {
    const token = { secret: { file: 'token' } };
    gate = await startConsoleGate(app.port, { admin: { ...ADMIN, token } });
    const streams = [headers, file === 'token' ? LOGIN : { Authorization: `Bearer ${'t'.repeat(32)}` }].map((fields) => {
      const stream = { status: 0, isClosed: false };
      const options = { port: gate.adminPort, path: '/api/v1/deliveries/stream', headers: fields, agent: false };
      const client = request(options, (response) => {
        stream.status = response.statusCode ?? 0;
        response.resume().on('error', () => undefined);
        response.once('close', () => {
          stream.isClosed = true;
        });
      });
      client.on('error', () => undefined).end();
      onTestFinished(() => void client.destroy());
      return stream;
    });
    await until(() => streams.every(({ status }) => status === 200));
    writeFileSync(join(gate.folder, file), text);
    await until(() => streams[0]?.isClosed === true);
    expect(streams[1]?.isClosed).toBe(false);
    expect((await ask('/overview', headers)).status).toBe(401);
  });
});

test('disconnects a client that does not read the stream, and keeps serving others', async () => {
  gate = await startGate({ routes: [toRoute(app.port)] });
  const socket = connect(gate.adminPort, '127.0.0.1');
  socket.pause();
  socket.on('error', () => undefined);
  socket.write(`GET /api/v1/deliveries/stream HTTP/1.1\r\nHost: 127.0.0.1:${gate.adminPort}\r\n\r\n`);
  const path = `/${'p'.repeat(7_000)}`;
  await until(async () => {
    await Promise.all(Array.from({ length: 50 }, () => send(gate.port, { method: 'GET', path })));
    return (await gate.metric('sidegate_console_streams_dropped_total')) === 1;
  });
  socket.destroy();
  expect((await ask('/overview')).status).toBe(200);
}, 90_000);
