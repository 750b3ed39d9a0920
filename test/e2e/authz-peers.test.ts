import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { type Answer, send } from '../support/client.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { startGate, type TestGate } from '../support/gate.ts';
import { isInstalled, type Peer, readShownConfig, startCaddy, startNginx } from '../support/peers.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const ALADDIN = toBasic('Aladdin', 'open sesame');
const PEERS = [
  { name: 'nginx', language: 'nginx', start: startNginx },
  { name: 'caddy', language: 'caddyfile', start: startCaddy },
] as const;
/** What a client may say to be judged for another request, or as another client. */
const SPOOFS = [
  { 'X-Original-URI': '/healthz' },
  { 'X-Original-URL': 'https://app.example/healthz' },
  { 'X-Forwarded-Uri': '/healthz' },
  { 'X-Original-Method': 'OPTIONS' },
  { 'X-Forwarded-Method': 'OPTIONS' },
  { 'X-Original-Host': 'open.example' },
  { 'X-Forwarded-Host': 'open.example' },
  { 'X-Original-Proto': 'https' },
  { 'X-Forwarded-Proto': 'https' },
  { 'X-Forwarded-For': '203.0.113.9' },
  { Forwarded: 'for=203.0.113.9;host=open.example;proto=https' },
  { Connection: 'close, X-Original-URI, X-Forwarded-Uri' },
  { 'X-Original-URI': '/healthz', 'X-Forwarded-Uri': '/healthz', 'X-Forwarded-Method': 'GET', 'X-Original-Method': 'GET' },
];

/** By which common frameworks and libraries learn the client's address and the scheme. */
const STATED = [
  ...['X-Real-IP', 'True-Client-IP', 'X-Client-IP', 'Client-IP', 'CF-Connecting-IP', 'X-Cluster-Client-IP'],
  ...['X-Forwarded', 'Forwarded-For', 'X-Forwarded-Scheme', 'X-Forwarded-Protocol', 'X-Forwarded-Ssl', 'X-Scheme'],
  ...['X-Url-Scheme', 'Front-End-Https'],
];

const app = useApp();

const gate = useGate(() => {
  const upstream = `http://127.0.0.1:${app.port}`;
  const basic = { realm: 'admin', users: { file: 'users' }, requireTls: false, limit: 'off' };
  return startGate(
    {
      authz: { address: '127.0.0.1:0' },
      identity: { audience: 'app', key: { name: 'k', secret: { file: 'identity', encoding: 'utf8' } } },
      routes: [
        { name: 'admin', match: { pathPrefix: '/admin' }, upstream, basic },
        { name: 'open-host', match: { pathPrefix: '/admin', host: 'open.example' }, upstream, allow: 'anyone' },
        { name: 'preflight', match: { pathPrefix: '/admin', methods: ['PROPFIND'] }, upstream, allow: 'anyone' },
        { name: 'tls', match: { path: '/tls' }, upstream, basic: { realm: 'admin' } },
        { name: 'health', match: { path: '/healthz' }, upstream, allow: 'anyone' },
      ],
    },
    undefined,
    { users: makeEntry('Aladdin', 'open sesame'), identity: 'x'.repeat(32) },
  );
});

describe.each(PEERS)('behind $name, with the config that the docs show,', ({ name, language, start }) => {
  if (!isInstalled(name)) {
    test.skip(`${name} is not on this machine (apt-get install ${name})`);
    return;
  }
  let peer: Peer;
  beforeAll(async () => {
    peer = await start(readShownConfig(language), { authzPort: gate.authzPort, appPort: app.port });
  });
  afterAll(() => peer.stop());
  const ask = (path: string, headers: Record<string, string> = {}, method = 'GET', body?: string): Promise<Answer> =>
    send(peer.port, {
      method,
      path,
      headers: { Host: 'app.example', ...headers },
      ...(body === undefined ? undefined : { body }),
    });

  test('a user is allowed, and the app gets the name but not the password', async () => {
    const answer = await ask('/admin/x?y=1&z=%2F', ALADDIN);
    expect([answer.status, answer.text]).toEqual([200, 'handled']);
    const [got] = app.received;
    expect(got?.url).toBe('/admin/x?y=1&z=%2F');
    expect(got?.headers).toMatchObject({
      'sidegate-user': 'Aladdin',
      'x-forwarded-user': 'Aladdin',
      'remote-user': 'Aladdin',
    });
    expect(got?.headers.authorization).toBeUndefined();
    expect(gate.log().at(-1)).toMatchObject({ port: 'authz', route: 'admin', method: 'GET', client: '127.0.0.1' });
  });

  test('a long URL is allowed, although the token of the user contains it', async () => {
    expect((await ask(`/admin/${'x'.repeat(8_000)}`, ALADDIN)).status).toBe(200);
  });

  test('the body reaches the app completely, and the method is the one that was checked', async () => {
    const answer = await ask('/admin/x', ALADDIN, 'POST', 'x'.repeat(100_000));
    expect([answer.status, app.received[0]?.method, app.received[0]?.body.length]).toEqual([200, 'POST', 100_000]);
    expect(gate.log().at(-1)).toMatchObject({ port: 'authz', method: 'POST' });
    expect((await ask('/admin/x', {}, 'PROPFIND')).status).toBe(200);
    expect((await ask('/admin/x', ALADDIN, 'MKCOL')).status).toBe(403);
  });

  test('a request without a password, or with a wrong one, gets a challenge', async () => {
    for (const headers of [{}, toBasic('Aladdin', 'wrong')]) {
      const answer = await ask('/admin', headers);
      expect(answer.status).toBe(401);
      expect(answer.headers['www-authenticate']).toBe('Basic realm="admin", charset="UTF-8"');
    }
    expect(app.received).toHaveLength(0);
  });

  test('a request without a route, or with an ambiguous one, is rejected', async () => {
    for (const path of ['/nowhere', '/healthz/%2e%2e/admin', '/healthz%2f..%2fadmin', '/admin;x'])
      expect([path, (await ask(path, ALADDIN)).status]).toEqual([path, 403]);
    expect(app.received).toHaveLength(0);
  });

  test('plain HTTP is rejected if the route requires TLS, whatever headers the client sends', async () => {
    for (const headers of [{}, { 'X-Forwarded-Proto': 'https' }, { 'X-Original-Proto': 'https' }])
      expect((await ask('/tls', { ...ALADDIN, ...headers })).status).toBe(403);
  });

  test.each(SPOOFS)('a client cannot be checked as another request with %j', async (spoof) => {
    const answer = await ask('/admin/x', { ...spoof });
    expect(answer.status).toBe(401);
    expect(app.received).toHaveLength(0);
    expect((await ask('/admin/x', { ...spoof, ...ALADDIN })).status).toBe(200);
    expect(gate.log().at(-1)).toMatchObject({ route: 'admin', client: '127.0.0.1', method: 'GET' });
  });

  test.each(['X-Original-URL', 'X-Original-URI', 'X-Original-Method', 'X-Forwarded-Uri', 'X-Forwarded-Method'])(
    'a client cannot name another path or method to the app by %s',
    async (name) => {
      const { status } = await ask('/healthz', { [name]: '/admin' });
      expect([200, 403]).toContain(status);
      const names = app.received.flatMap(({ rawHeaders }) => rawHeaders.map((text) => text.toLowerCase()));
      expect(names).not.toContain('/admin');
    },
  );

  test('a user cannot remove the name by naming its headers in Connection', async () => {
    const Connection = 'Remote-User, Sidegate-User, X-Forwarded-User';
    expect((await ask('/admin', { ...ALADDIN, Connection })).status).toBe(200);
    for (const name of ['remote-user', 'sidegate-user', 'x-forwarded-user'])
      expect(app.received[0]?.headers[name]).toBe('Aladdin');
    await ask('/healthz', { Connection, 'Remote-User': 'root', 'Sidegate-User': 'root', 'X-Forwarded-User': 'root' });
    expect(JSON.stringify(app.received.at(-1)?.rawHeaders)).not.toContain('root');
  });

  test('a client cannot set the user or the groups that the app reads, even on an open route', async () => {
    const names = ['Sidegate-User', 'X-Forwarded-User', 'Remote-User', 'Sidegate_User'];
    const others = ['Remote-Groups', 'Remote-Email', 'Remote-Name'];
    const forwarded = ['X-Forwarded-Groups', 'X-Forwarded-Email', 'X-Forwarded-Preferred-Username'];
    const evil = Object.fromEntries([...names, ...others, ...forwarded].map((name) => [name, 'evil']));
    expect((await ask('/healthz', evil)).status).toBe(200);
    expect((await ask('/admin', { ...evil, ...ALADDIN })).status).toBe(200);
    expect(JSON.stringify(app.received.map(({ rawHeaders }) => rawHeaders))).not.toContain('evil');
  });

  test('the app reads no user if there is none', async () => {
    expect((await ask('/healthz')).status).toBe(200);
    const users = app.received.flatMap(({ headers }) => Object.entries(headers).filter(([name]) => name.includes('user')));
    expect(users.filter(([name, value]) => name !== 'user-agent' && value !== '')).toEqual([]);
  });

  test.each(['h2c', 'H2C', 'websocket, h2c', 'TLS/1.0', 'HTTP/2.0'])(
    'a client cannot send the app requests that nobody checks behind an upgrade to %s',
    async (protocol) => {
      const settings = { Connection: 'Upgrade, HTTP2-Settings', 'HTTP2-Settings': 'AAMAAABkAAQAAP__' };
      expect((await ask('/healthz', { ...settings, Upgrade: protocol })).status).toBe(403);
      expect(app.received).toHaveLength(0);
      expect((await ask('/healthz', { Connection: 'Upgrade', Upgrade: protocol })).status).toBe(403);
      expect(app.received).toHaveLength(0);
    },
  );

  test.each([
    'X-Forwarded-Host',
    'X-Forwarded-Proto',
    'X-Forwarded-For',
    'X-Forwarded-Port',
    'X-Forwarded-Prefix',
    'X-Original-Host',
    'X-Original-Proto',
    'Forwarded',
    ...STATED,
    'Sidegate-Identity',
    'Sidegate-Key',
    'sidegate-event-id',
  ])('a client cannot name another host, scheme or client to the app, nor speak for sidegate, by %s', async (name) => {
    for (const answer of [await ask('/healthz', { [name]: 'evil' }), await ask('/admin', { [name]: 'evil', ...ALADDIN })])
      expect(answer.status).toBe(/^sidegate/i.test(name) ? 403 : 200);
    expect(JSON.stringify(app.received.map(({ rawHeaders }) => rawHeaders))).not.toContain('evil');
  });
});

interface ShownIngress {
  readonly metadata: { readonly annotations: Readonly<Record<string, string>> };
}
interface ShownTraefik {
  readonly http: {
    readonly middlewares: { readonly sidegate: { readonly forwardAuth: { readonly authResponseHeaders: readonly string[] } } };
  };
}

const { annotations } = (parse(readShownConfig('yaml', 'auth-response-headers')) as ShownIngress).metadata;
const RESPONSE_HEADERS = annotations['nginx.ingress.kubernetes.io/auth-response-headers']?.split(/, */) ?? [];
const BUFFER_SIZE = annotations['nginx.ingress.kubernetes.io/proxy-buffer-size'] ?? '4k';

const { data: REQUEST_HEADERS } = parse(readShownConfig('yaml', 'kind: ConfigMap')) as {
  readonly data: Readonly<Record<string, string>>;
};

test('the docs name the same headers of the response for ingress-nginx and for Traefik', () => {
  const { http } = parse(readShownConfig('yaml', 'forwardAuth')) as ShownTraefik;
  expect(http.middlewares.sidegate.forwardAuth.authResponseHeaders).toEqual(RESPONSE_HEADERS);
});

/** What the controller's template sets of the fields in question, for the annotations and the ConfigMap that the docs show. */
const INGRESS = `
server {
    listen 127.0.0.1:8000;
    location / {
        auth_request /_external-auth;
        ${RESPONSE_HEADERS.map(
          (name, i) => `auth_request_set $authHeader${i} $upstream_http_${name.toLowerCase().replaceAll('-', '_')};
        proxy_set_header '${name}' $authHeader${i};`,
        ).join('\n')}
        proxy_set_header Host $http_host;
        proxy_set_header X-Real-IP $remote_addr;
        proxy_set_header X-Forwarded-For $remote_addr;
        proxy_set_header X-Forwarded-Host $http_host;
        proxy_set_header X-Forwarded-Port $server_port;
        proxy_set_header X-Forwarded-Proto $scheme;
        proxy_set_header X-Forwarded-Scheme $scheme;
        proxy_set_header X-Scheme $scheme;
        proxy_pass http://127.0.0.1:3000;
    }
    location = /_external-auth {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_set_header X-Forwarded-Proto "";
        proxy_set_header Host sidegate.example;
        proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
        proxy_set_header X-Original-Method $request_method;
        proxy_set_header X-Sent-From nginx-ingress-controller;
        proxy_set_header X-Real-IP $remote_addr;
        proxy_set_header X-Forwarded-For $remote_addr;
        proxy_set_header X-Auth-Request-Redirect $request_uri;
        proxy_buffer_size ${BUFFER_SIZE};
        proxy_buffers 4 ${BUFFER_SIZE};
        ${Object.entries(REQUEST_HEADERS)
          .map(([name, value]) => `proxy_set_header "${name}" "${value}";`)
          .join('\n')}
        proxy_pass http://127.0.0.1:9091/;
    }
}`;

describe.runIf(isInstalled('nginx'))('behind nginx, with the fields that ingress-nginx sets,', () => {
  let peer: Peer;
  beforeAll(async () => {
    peer = await startNginx(INGRESS, { authzPort: gate.authzPort, appPort: app.port });
  });
  afterAll(() => peer.stop());
  const ask = async (headers: Record<string, string>, path = '/admin/x?y=1'): Promise<number> =>
    (await send(peer.port, { method: 'GET', path, headers: { Host: 'app.example:8443', ...headers } })).status;

  test('only an authenticated user is allowed', async () => {
    expect(await ask(ALADDIN)).toBe(200);
    expect(gate.log().at(-1)).toMatchObject({ port: 'authz', route: 'admin', client: '127.0.0.1', method: 'GET' });
    expect(await ask({})).toBe(401);
    expect(await ask({ ...ALADDIN, 'X-Forwarded-Host': 'app.example:8443' })).toBe(200);
    // The controller relays upgrades, and does not show them in the auth request.
    expect(await ask({ ...ALADDIN, Upgrade: 'h2c', 'HTTP2-Settings': 'AAMAAABkAAQAAP__' })).toBe(403);
  });

  test('a long URL is allowed, although the token of the user contains it', async () => {
    expect(await ask(ALADDIN, `/admin/${'x'.repeat(4_000)}`)).toBe(200);
  });

  test.each(SPOOFS)('a client cannot be checked as another request with %j', async (spoof) => {
    expect([401, 403]).toContain(await ask({ ...spoof }));
    expect(app.received).toHaveLength(0);
  });

  test('a client cannot be checked by its Host and be served by the app of the host in its request line', async () => {
    const path = 'http://grafana.example/admin/x';
    for (const spoof of [{}, { 'X-Forwarded-Host': 'app.example' }, { 'X-Original-Host': 'app.example' }]) {
      const headers = { ...ALADDIN, ...spoof, Host: 'app.example' };
      expect([spoof, (await send(peer.port, { method: 'GET', path, headers })).status]).toEqual([spoof, 403]);
    }
    expect(app.received).toHaveLength(0);
    expect(gate.log().at(-1)).toMatchObject({ code: 'original_request_unclear' });
    expect((await send(peer.port, { method: 'GET', path, headers: { ...ALADDIN, Host: 'grafana.example' } })).status).toBe(200);
  });

  test('a client cannot name another host or scheme to the app by Forwarded', async () => {
    for (const Forwarded of ['host=open.example', 'for=192.0.2.1, host=open.example', 'proto=https', 'x="host=open.example"'])
      expect([Forwarded, await ask({ ...ALADDIN, Forwarded })]).toEqual([Forwarded, 403]);
    expect(app.received).toHaveLength(0);
    expect(gate.log().at(-1)).toMatchObject({ code: 'original_request_unclear', detail: 'forwarded is ambiguous' });
  });

  test.each(STATED)('a client cannot name another client or scheme to the app by %s', async (name) => {
    expect(await ask({ ...ALADDIN, [name]: 'evil' })).toBe(200);
    const [got] = app.received;
    expect(JSON.stringify(got?.rawHeaders)).not.toContain('evil');
    expect(got?.headers).toMatchObject({ 'x-real-ip': '127.0.0.1', 'x-forwarded-scheme': 'http', 'x-scheme': 'http' });
  });

  test('a Forwarded that another proxy wrote is accepted, and the app gets neither it nor the password', async () => {
    const Forwarded = 'for=203.0.113.9;host="app.example:8443";proto=http';
    expect(await ask({ ...ALADDIN, Forwarded, 'X-Forwarded-Prefix': '/evil', 'Remote-Groups': 'evil' })).toBe(200);
    const [got] = app.received;
    expect(got?.headers).toMatchObject({ 'sidegate-user': 'Aladdin', 'x-forwarded-host': 'app.example:8443' });
    for (const name of ['forwarded', 'authorization', 'x-forwarded-prefix', 'remote-groups'])
      expect(got?.headers).not.toHaveProperty(name);
  });
});

const PASSING_ON = `
server {
  listen 127.0.0.1:8000;
  location / {
    proxy_pass http://127.0.0.1:9091;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Real-IP $remote_addr;
  }
}
`;

describe.runIf(isInstalled('nginx'))('behind an nginx that passes on what its clients send,', () => {
  let front: TestGate;
  let peer: Peer;
  beforeAll(async () => {
    front = await startGate({
      listen: { address: '127.0.0.1:0', trustedProxies: ['127.0.0.1'] },
      routes: [{ name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' }],
    });
    peer = await startNginx(PASSING_ON, { authzPort: front.port, appPort: app.port });
  });
  afterAll(async () => {
    await peer.stop();
    await front.stop();
  });

  test('drops the identity, the path and the address that a client claims, and keeps the address that nginx sets', async () => {
    app.received.length = 0;
    const forged = {
      'Remote-User': 'root',
      'X-Auth-Request-User': 'root',
      'X-Forwarded-User': 'root',
      'Cf-Access-Authenticated-User-Email': 'root',
      'X-Original-Url': '/admin',
      'True-Client-Ip': '203.0.113.66',
      Forwarded: 'for=203.0.113.66',
      Proxy: 'http://203.0.113.66',
    };
    expect((await send(peer.port, { method: 'GET', path: '/a', headers: { Host: 'app.example', ...forged } })).status).toBe(200);
    const { headers } = app.received[0] ?? { headers: {} };
    for (const name of Object.keys(forged)) expect(headers).not.toHaveProperty(name.toLowerCase());
    expect(headers).toMatchObject({ 'x-real-ip': '127.0.0.1', 'x-forwarded-for': '127.0.0.1, 127.0.0.1' });
  });
});
