/** A gate as many have it: nine routes of several kinds and the forward proxy's, a forward-auth endpoint; and traffic of every sort for its metrics to tell of. */
import { createHmac } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Clock } from '../../src/core/clock.ts';
import { systemClock } from '../../src/core/clock.ts';
import { makeAuthority } from './certificates.ts';
import { send, sendRaw } from './client.ts';
import { type DeliveryOptions, makeDelivery } from './deliveries.ts';
import { type Sections, startGate, type TestGate } from './gate.ts';
import { makeEntry, toBasic } from './users.ts';

const GITHUB_SECRET = 'a secret that both know';
const USER = toBasic('Aladdin', 'open sesame');
const JSON_TYPE = { 'Content-Type': 'application/json' };
const HEX = '0123456789abcdef0123456789abcdef';

/** Its routes. */
export const MONITORED_ROUTES = [
  'billing',
  'orders',
  'trial',
  'github',
  'stripe',
  'shopify',
  'gitlab',
  'admin',
  'health',
] as const;
type RouteName = (typeof MONITORED_ROUTES)[number];

/** A trace that is sampled. */
export const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736';
const TRACED = { traceparent: `00-${TRACE_ID}-00f067aa0ba902b7-01` };

function toRoutes(appPort: number): Sections[] {
  const base = { upstream: `http://127.0.0.1:${appPort}`, trace: { trust: 'always' } };
  const key = (file: string): Sections => ({ keys: [{ name: 'current', secret: { file } }] });
  const hook = (name: RouteName, webhook: Sections, over: Sections = {}): Sections => ({
    name,
    match: { path: `/hooks/${name}` },
    ...base,
    webhook,
    ...over,
  });
  return [
    hook('billing', key('secret')),
    hook('orders', {
      maxBody: '1Ki',
      order: { key: '$.data.id', version: '$.created' },
      keys: [...(key('secret')['keys'] as []), { name: 'old', secret: { file: 'secret-old' } }],
    }),
    hook('trial', key('secret'), { mode: 'observe' }),
    hook('github', { scheme: 'github', ...key('secret-github') }),
    hook('stripe', { scheme: 'stripe', ...key('secret') }),
    hook('shopify', { scheme: 'shopify', ...key('secret-hex') }),
    hook('gitlab', { scheme: 'gitlab', ...key('secret-hex') }),
    {
      name: 'admin',
      match: { pathPrefix: '/admin' },
      ...base,
      basic: { realm: 'admin', users: { file: 'users' }, requireTls: false },
    },
    { name: 'health', match: { path: '/health', methods: ['GET'] }, ...base, allow: 'anyone' },
  ];
}

/** Starts it before an app. */
export function startMonitoredGate(appPort: number, clock: Clock = systemClock): Promise<TestGate> {
  return startGate(
    {
      routes: toRoutes(appPort),
      tracing: {},
      authz: { address: '127.0.0.1:0' },
      proxy: {
        address: '127.0.0.1:0',
        requireTls: false,
        denyPrivate: false,
        basic: { realm: 'egress', users: { file: 'users' } },
        allow: [`app.example:${appPort}`],
      },
    },
    clock,
    {
      users: makeEntry('Aladdin', 'open sesame'),
      'secret-old': 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD',
      'secret-github': GITHUB_SECRET,
      'secret-hex': HEX,
    },
    { 'app.example': ['127.0.0.1'] },
  );
}

/** Starts a gate whose port asks for client certificates and has a revocation list of their CA. */
export function startCertificateGate(appPort: number): Promise<TestGate> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-monitored-'));
  try {
    const authority = makeAuthority(folder, 'ca');
    const { cert, key } = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
    const tls = { certFile: 'tls.crt', keyFile: 'tls.key', clientCaFile: 'ca.crt', clientCrlFile: 'ca.crl' };
    const read = (file: string): string => readFileSync(file, 'utf8');
    return startGate(
      {
        listen: { address: '127.0.0.1:0', tls: { ...tls, clientCertificate: 'request' } },
        routes: toRoutes(appPort).slice(0, 1),
      },
      systemClock,
      {
        'tls.crt': read(cert),
        'tls.key': read(key),
        'ca.crt': read(authority.ca),
        'ca.crl': authority.list(join(folder, 'ca.crl')),
      },
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Sends what genuine senders, mistaken ones and strangers send; each sort to each route that can tell it from others. */
export async function exercise(gate: TestGate, appPort: number, now: number): Promise<void> {
  const seconds = Math.floor(now / 1000);
  const deliver = (route: RouteName, options: DeliveryOptions, headers: Record<string, string> = {}): Promise<unknown> => {
    const { body, headers: signed } = makeDelivery({ timestamp: seconds, ...options });
    return send(gate.port, { path: `/hooks/${route}`, body, headers: { ...signed, ...headers } });
  };
  for (const route of ['billing', 'orders', 'trial'] as const) {
    await deliver(route, { id: `msg_${route}` }, TRACED);
    await deliver(route, { id: `msg_${route}` });
    await deliver(route, { secret: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oE' });
    await deliver(route, { timestamp: seconds - 3_000 });
    await deliver(route, { timestamp: seconds + 3_000 });
  }
  await sendGithub(gate.port);
  await deliver('orders', { body: 'x'.repeat(2048) });
  for (const route of MONITORED_ROUTES.slice(0, 7))
    await send(gate.port, { path: `/hooks/${route}`, body: '{}', headers: JSON_TYPE });
  for (const authorization of [USER, toBasic('Aladdin', 'wrong'), {}]) {
    await send(gate.port, { method: 'GET', path: '/admin', headers: authorization });
    await send(gate.authzPort, { method: 'GET', path: '/', headers: { ...authorization, ...toQuestion('/admin') } });
  }
  await send(gate.authzPort, { method: 'GET', path: '/', headers: toQuestion('/health') });
  await send(gate.port, { method: 'GET', path: '/health' });
  await send(gate.port, { method: 'GET', path: '/nowhere' });
  await exerciseProxy(gate.proxyPort, appPort);
  // A bucket shows its latest exemplar alone, and any of the requests above may have come into the same one.
  await deliver('billing', { id: 'msg_traced' }, TRACED);
}

function toQuestion(uri: string): Record<string, string> {
  return {
    'X-Forwarded-Method': 'GET',
    'X-Forwarded-Proto': 'https',
    'X-Forwarded-Host': 'app.example',
    'X-Forwarded-Uri': uri,
    'X-Forwarded-For': '203.0.113.7',
  };
}

async function sendGithub(port: number): Promise<void> {
  const body = JSON.stringify({ action: 'opened' });
  const signature = createHmac('sha256', GITHUB_SECRET).update(body).digest('hex');
  const headers = {
    'Content-Type': 'application/json',
    'X-GitHub-Event': 'issues',
    'X-GitHub-Delivery': '72d3162e-cc78-11e3-81ab-4c9367dc0958',
  };
  for (const each of [signature, signature.replace(/./g, '0')])
    await send(port, { path: '/hooks/github', body, headers: { ...headers, 'X-Hub-Signature-256': `sha256=${each}` } });
}

async function exerciseProxy(port: number, appPort: number): Promise<void> {
  const request = (authorization: string): string =>
    `GET http://app.example:${appPort}/x HTTP/1.1\r\nHost: app.example:${appPort}\r\n${authorization}Connection: close\r\n\r\n`;
  await sendRaw(port, request(`Proxy-Authorization: ${USER.Authorization}\r\n`));
  await sendRaw(port, request(''));
}

/** The series of an exposition: every line that is a sample, without its value. */
export function toSeries(exposition: string): string[] {
  return exposition
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.replace(/ # .*$/, '').replace(/ [^ ]+$/, ''));
}
