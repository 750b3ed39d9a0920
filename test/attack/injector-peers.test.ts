import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { connect as connectTcp, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { connect, type TLSSocket } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { answerJson, toStatus } from '../support/api-server.ts';
import { type Authority, makeAuthority } from '../support/certificates.ts';
import { useFolder } from '../support/fixtures.ts';
import { type Sections, until } from '../support/gate.ts';
import { startInjector, type TestInjector } from '../support/injector.ts';

const folder = useFolder();
const sockets: Socket[] = [];
let injector: TestInjector;
let authority: Authority;
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await injector.stop();
});

const API_SERVER = 'kube-apiserver';
const HEAD = 'POST /inject HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';
const STRANGER = '127.0.0.66';

function toReview(namespace = 'shop'): string {
  const metadata = {
    name: 'web',
    labels: { 'sidegate.dev/inject': 'true' },
    annotations: { 'sidegate.dev/config': 'does-this-exist' },
  };
  const object = { metadata, spec: { containers: [{ name: 'app', image: 'app:1', ports: [{ containerPort: 3000 }] }] } };
  const kind = { group: '', version: 'v1', kind: 'Pod' };
  const asked = { uid: 'u-1', kind, operation: 'CREATE', namespace, object };
  return JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', request: asked });
}

async function start(more: Sections = {}): Promise<void> {
  injector = await startInjector(
    ({ url }, response) => {
      if (url === '/version') answerJson(response, 200, { major: '1', minor: '34' });
      else if (url.startsWith('/api/v1/nodes')) answerJson(response, 403, toStatus(403, 'Forbidden', 'not allowed'));
      else answerJson(response, 404, toStatus(404, 'NotFound', 'not found'));
    },
    (own) => {
      authority = makeAuthority(own, 'root');
      const { cert, key } = authority.issue('server', 'DNS:injector.gate.svc');
      mkdirSync(join(own, 'tls'));
      renameSync(cert, join(own, 'tls', 'tls.crt'));
      renameSync(key, join(own, 'tls', 'tls.key'));
      return { certificate: { directory: join(own, 'tls') }, ...more };
    },
  );
  await until(async () => (await injector.ready()).status === 200);
}

/** A TLS connection from an address of its own; counts as open until the server closes it. */
function open(localAddress: string): Promise<TLSSocket> {
  return new Promise((done) => {
    const options = { host: '127.0.0.1', port: injector.port, localAddress, rejectUnauthorized: false };
    const socket = connect(options);
    sockets.push(socket);
    socket.on('error', () => done(socket)).once('close', () => done(socket));
    socket.once('secureConnect', () => done(socket));
  });
}

interface Caller {
  readonly cert?: Buffer;
  readonly key?: Buffer;
}

/** The status of one review on a connection of its own; undefined if the connection broke off. */
function review(
  localAddress: string,
  { content = toReview(), ...caller }: Caller & { readonly content?: string } = {},
): Promise<{ status: number; text: string } | undefined> {
  const agent = new Agent({ keepAlive: false });
  const options = { host: '127.0.0.1', port: injector.port, path: '/inject', method: 'POST', localAddress, agent };
  const headers = { 'Content-Type': 'application/json' };
  return new Promise((done) => {
    const outgoing = request({ ...options, headers, rejectUnauthorized: false, ...caller }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      response.once('end', () => done({ status: response.statusCode ?? 0, text }));
    });
    outgoing.once('error', () => done(undefined));
    outgoing.end(content);
  });
}

const warningsOf = (text = ''): string[] => (JSON.parse(text) as { response: { warnings?: string[] } }).response.warnings ?? [];
const toEvents = (): string[] => injector.api.asked.filter(({ url }) => url.endsWith('/events')).map(({ url }) => url);
const toLookups = (): string[] => injector.api.asked.filter(({ url }) => url.includes('/configmaps/')).map(({ url }) => url);

/** Sends a request that is no review on a connection that stays open, as the API server's do. */
async function useKept(socket: Writable & { once(event: 'data', listener: (data: Buffer) => void): unknown }): Promise<string> {
  const answered = new Promise<Buffer>((done) => socket.once('data', done));
  socket.write(`${HEAD}Content-Length: 2\r\n\r\n{}`);
  return String(await answered).split('\r\n')[0] ?? '';
}

/** Connections that never begin their TLS handshake. */
async function openSilent(localAddress: string, count: number): Promise<void> {
  const opened = Array.from({ length: count }, () => {
    const socket = connectTcp({ host: '127.0.0.1', port: injector.port, localAddress });
    sockets.push(socket);
    return new Promise((done) => socket.on('error', done).once('connect', done));
  });
  await Promise.all(opened);
}

async function openUploads(localAddress: string, count: number): Promise<void> {
  for (let left = count; left > 0; left -= 100) {
    const opened = await Promise.all(Array.from({ length: Math.min(left, 100) }, () => open(localAddress)));
    for (const socket of opened) socket.write(`${HEAD}Content-Length: 1000\r\n\r\n{`);
  }
}

describe('slow clients of one address', () => {
  test.each([
    ['1,100 whose handshake never begins', (address: string) => openSilent(address, 1_100)],
    ['1,100 whose body never ends', (address: string) => openUploads(address, 1_100)],
  ])('%s: no admission of another client is denied', { timeout: 90_000 }, async (_title, flood) => {
    await start({ perClient: { connectionsPerSecond: 1_000 } });
    const kept = await open('127.0.0.1');
    expect(await useKept(kept)).toBe('HTTP/1.1 400 Bad Request');
    await flood(STRANGER);
    const statuses: unknown[] = [];
    for (let i = 0; i < 31; i++) statuses.push((await review('127.0.0.1'))?.status);
    expect(statuses).toEqual(Array.from({ length: 31 }, () => 200));
    // The API server keeps its connections, and may send on one of them at any time.
    expect(await useKept(kept)).toBe('HTTP/1.1 400 Bad Request');
  });

  test('at two addresses fill the port, and a third client is still served', async () => {
    await start({ perClient: { connectionsPerSecond: 1_000 } });
    const kept = await open('127.0.0.1');
    await useKept(kept);
    for (const address of [STRANGER, '127.0.0.67']) await openSilent(address, 600);
    for (let i = 0; i < 5; i++) expect((await review('127.0.0.1'))?.status).toBe(200);
    expect(await useKept(kept)).toBe('HTTP/1.1 400 Bad Request');
    for (const limit of ['client', 'total'])
      expect(await injector.metric(`sidegate_injector_connections_closed_total{limit="${limit}"}`)).toBeGreaterThan(0);
  });
});

describe('one client', () => {
  test('opens connections at its rate limit, without a handshake for the rest, and others keep theirs', async () => {
    await start({ perClient: { connectionsPerSecond: 10 } });
    const opened = await Promise.all(Array.from({ length: 60 }, () => open(STRANGER)));
    const refused = opened.filter(({ authorizationError, destroyed }) => destroyed || authorizationError === null);
    expect(refused.length).toBeGreaterThan(20);
    expect((await review('127.0.0.1'))?.status).toBe(200);
    expect(await injector.metric('sidegate_injector_connections_closed_total{limit="rate"}')).toBeGreaterThan(20);
  });

  test('sends requests at its rate limit, and gets 429 for the rest', async () => {
    await start({ perClient: { requestsPerSecond: 5 } });
    const statuses = await Promise.all(Array.from({ length: 40 }, () => review(STRANGER)));
    expect(statuses.filter((reply) => reply?.status === 429).length).toBeGreaterThan(20);
    expect((await review('127.0.0.1'))?.status).toBe(200);
  });

  test('can have only a few unfinished bodies, and a part of the buffer', async () => {
    await start({ perClient: { maxUploads: 4 } });
    for (let i = 0; i < 4; i++) (await open(STRANGER)).write(`${HEAD}Content-Length: 1000\r\n\r\n{`);
    await until(async () => (await review(STRANGER))?.status === 429);
    for (const socket of sockets.splice(0)) socket.destroy();
    await until(async () => (await review(STRANGER))?.status === 200);
    // Two of the largest: what one declares counts before it is there.
    for (let i = 0; i < 2; i++) (await open(STRANGER)).write(`${HEAD}Content-Length: 4194304\r\n\r\n{`);
    await until(async () => (await review(STRANGER))?.status === 429);
    expect((await review('127.0.0.1'))?.status).toBe(200);
  });

  test('must declare its length: three million chunks of one byte are not read', async () => {
    await start();
    const socket = await open(STRANGER);
    const ended = new Promise<string>((done) => {
      let text = '';
      socket.on('data', (chunk) => {
        text += String(chunk);
      });
      socket.once('close', () => done(text));
    });
    socket.write(`${HEAD}Transfer-Encoding: chunked\r\n\r\n`);
    const chunks = Buffer.from('1\r\na\r\n'.repeat(10_000));
    for (let i = 0; i < 300 && !socket.destroyed; i++)
      await new Promise((done) => (socket.write(chunks, done) ? undefined : socket.once('close', done)));
    socket.destroy();
    expect(await ended).toMatch(/^(?:HTTP\/1\.1 411 |$)/);
    expect(await injector.metric('sidegate_injector_requests_rejected_total{reason="length_required"}')).toBe(1);
    expect((await review('127.0.0.1'))?.status).toBe(200);
  });
});

describe('a forged review', () => {
  test('reveals nothing about ConfigMaps', async () => {
    await start();
    const reply = await review(STRANGER);
    expect([reply?.status, warningsOf(reply?.text)]).toEqual([200, [expect.stringMatching(/^sidegate: native sidecar/)]]);
    expect(toLookups()).toEqual([]);
  });

  test('is rejected for a namespace that the API server never reviews, and leaves no Event there', async () => {
    await start({ excludedNamespaces: ['kube-system'] });
    expect((await review(STRANGER, { content: toReview('kube-system') }))?.status).toBe(403);
    expect((await review(STRANGER))?.status).toBe(200);
    await until(() => toEvents().length > 0);
    expect(toEvents()).toEqual(['/apis/events.k8s.io/v1/namespaces/shop/events']);
    expect(await injector.metric('sidegate_injector_requests_rejected_total{reason="excluded_namespace"}')).toBe(1);
  });
});

describe('with client certificates', () => {
  const callers = makeAuthority(folder, 'callers');
  const toCaller = (by: Authority, name: string): Caller => {
    const { cert, key } = by.issue(name, `DNS:${name}`);
    return { cert: readFileSync(cert), key: readFileSync(key) };
  };
  const clientAuth = { caFile: callers.ca, allowedNames: [API_SERVER] };

  test('only the API server gets a response', async () => {
    await start({ clientAuth });
    expect((await review('127.0.0.1', toCaller(callers, API_SERVER)))?.status).toBe(200);
    expect(await review(STRANGER)).toBeUndefined();
    expect(await review(STRANGER, toCaller(makeAuthority(folder, 'foreign'), API_SERVER))).toBeUndefined();
    // The CA of a cluster signs kubelets and users, too.
    expect((await review(STRANGER, toCaller(callers, 'system:node:a')))?.status).toBe(403);
    expect(await injector.metric('sidegate_injector_requests_rejected_total{reason="caller_unknown"}')).toBe(1);
  });

  test('that are optional, other clients get a response, but cause no look-up and no Event', async () => {
    await start({ clientAuth: { ...clientAuth, mode: 'optional' } });
    for (const caller of [{}, toCaller(callers, 'somebody'), toCaller(makeAuthority(folder, 'other'), API_SERVER)])
      expect((await review(STRANGER, caller))?.status).toBe(200);
    expect([toLookups(), toEvents()]).toEqual([[], []]);
    expect(await injector.metric('sidegate_injector_events_total{outcome="unverified"}')).toBeGreaterThan(2);
    const { text } = (await review('127.0.0.1', toCaller(callers, API_SERVER))) ?? {};
    expect(warningsOf(text)).toContain(
      'sidegate: the ConfigMap does-this-exist does not exist: the pod does not start before it is created',
    );
    await until(() => toEvents().length > 0);
  });

  test('the API server has no request limit, whatever others send from its address', async () => {
    await start({ clientAuth: { ...clientAuth, mode: 'optional' }, perClient: { requestsPerSecond: 1, maxUploads: 1 } });
    const apiServer = toCaller(callers, API_SERVER);
    await until(async () => (await review('127.0.0.1'))?.status === 429);
    for (let i = 0; i < 20; i++) expect((await review('127.0.0.1', apiServer))?.status).toBe(200);
  });

  test('a replaced CA applies at once, also on open connections; a broken file keeps the previous one', async () => {
    const caFile = join(folder, 'client-ca.crt');
    writeFileSync(caFile, readFileSync(callers.ca));
    await start({ clientAuth: { ...clientAuth, caFile } });
    const old = toCaller(callers, API_SERVER);
    const kept = connect({ host: '127.0.0.1', port: injector.port, rejectUnauthorized: false, ...old });
    sockets.push(kept);
    await new Promise((done) => kept.once('secureConnect', done));
    await useKept(kept);
    const closed = new Promise((done) => kept.once('close', done));
    const next = makeAuthority(folder, 'next-callers');
    writeFileSync(caFile, 'none');
    await until(() => injector.log().some(({ msg }) => msg === 'client_ca_reload_failed'));
    expect((await review('127.0.0.1', old))?.status).toBe(200);
    writeFileSync(caFile, readFileSync(next.ca));
    await until(() => injector.log().some(({ msg }) => msg === 'client_ca_reloaded'));
    await closed;
    expect(await review('127.0.0.1', old)).toBeUndefined();
    expect((await review('127.0.0.1', toCaller(next, API_SERVER)))?.status).toBe(200);
  });
});
