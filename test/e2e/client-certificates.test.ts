import { spawn } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2';
import { join } from 'node:path';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { checkConfig } from '../../src/app/check.ts';
import { systemClock } from '../../src/core/clock.ts';
import { makeAuthority, readPair, toTlsFiles } from '../support/certificates.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { startGate, type TestGate, until } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const folder = useFolder();
const authority = makeAuthority(folder, 'ca');
const local = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
const billing = authority.issue('billing', 'URI:spiffe://prod/billing,DNS:billing.example');
/** Its common name is the alternative name of another. */
const other = authority.issue('billing.example', 'DNS:other.example');
const expired = authority.issue('expired', 'URI:spiffe://prod/billing', -1);
const forged = makeAuthority(folder, 'stranger').issue('forged', 'URI:spiffe://prod/billing');
const app = useApp();
let gate: TestGate;
beforeEach(async () => {
  const upstream = `http://127.0.0.1:${app.port}`;
  const clientCertificate = { names: ['URI:spiffe://prod/billing', 'DNS:billing.example'], forward: true };
  gate = await startGate(
    {
      listen: {
        address: '127.0.0.1:0',
        trustedProxies: ['127.0.0.1'],
        tls: { certFile: 'tls.crt', keyFile: 'tls.key', clientCaFile: authority.ca, clientCertificate: 'request' },
      },
      routes: [
        { name: 'partner', match: { pathPrefix: '/partner' }, upstream, clientCertificate },
        { name: 'staff', match: { pathPrefix: '/staff' }, upstream, clientCertificate: {} },
        {
          name: 'both',
          match: { pathPrefix: '/both' },
          upstream,
          clientCertificate: {},
          basic: { realm: 'admin', users: { file: 'users' } },
        },
        { name: 'open', match: { pathPrefix: '/open' }, upstream, allow: 'anyone' },
      ],
    },
    undefined,
    { users: makeEntry('Aladdin', 'open sesame'), ...toTlsFiles(local) },
  );
});
afterEach(() => gate.stop());

const shake = (options: ConnectionOptions): Promise<TLSSocket> =>
  new Promise((resolve, reject) => {
    const base = { port: gate.port, host: '127.0.0.1', ca: readFileSync(authority.ca), servername: 'localhost' };
    const socket = connect({ ...base, ...options }, () => resolve(socket));
    socket.once('error', reject);
  });
const ask = async (path: string, options: ConnectionOptions = {}, more = ''): Promise<string> => {
  const socket = await shake(options);
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${more}\r\n`);
  let text = '';
  for await (const chunk of socket) text += String(chunk);
  return text;
};
const lastLine = (): Promise<Record<string, unknown>> =>
  until(() =>
    gate
      .log()
      .filter(({ msg }) => msg === 'request')
      .at(-1),
  );

test('a certificate with one of the names is accepted, and forwarded to the app', async () => {
  const forgery = 'Client-Cert: :Zm9yZ2Vk:\r\nClient_Cert: :Zm9yZ2Vk:\r\nClient-Cert-Chain: :Zm9yZ2Vk:\r\n';
  expect(await ask('/partner', readPair(billing), forgery)).toContain('200 OK');
  const { headers } = app.received[0] as (typeof app.received)[number];
  const der = new X509Certificate(readFileSync(billing.cert)).raw;
  expect(headers['client-cert']).toBe(`:${der.toString('base64')}:`);
  expect(Object.keys(headers).filter((name) => /client.cert/.test(name))).toEqual(['client-cert']);
  expect(await lastLine()).toMatchObject({ route: 'partner', certificate: 'URI:spiffe://prod/billing' });
});

test('a client with a certificate of an earlier CA of the same name is served like one without', async () => {
  const RSA = ['-newkey', 'rsa:2048'];
  const earlier = join(folder, 'earlier');
  mkdirSync(earlier);
  const pair = makeAuthority(earlier, 'rsa', RSA).issue('old', 'URI:spiffe://prod/billing');
  const later = makeAuthority(folder, 'rsa', RSA);
  const clientCrlFile = join(folder, 'rsa.crl');
  later.list(clientCrlFile);
  const tls = { certFile: 'tls.crt', keyFile: 'tls.key', clientCaFile: later.ca, clientCrlFile };
  const routes = [{ name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' }];
  const listen = { address: '127.0.0.1:0', tls: { ...tls, clientCertificate: 'request' } };
  const other = await startGate({ listen, routes }, undefined, toTlsFiles(local));
  onTestFinished(async () => void (await other.stop()));
  // A process of its own: in this one, its calls of OpenSSL would clear the errors that those of the gate leave.
  const client = spawn('openssl', [
    's_client',
    '-quiet',
    '-connect',
    `127.0.0.1:${other.port}`,
    '-cert',
    pair.cert,
    '-key',
    pair.key,
  ]);
  onTestFinished(() => void client.kill());
  let received = '';
  client.stdout.on('data', (chunk) => {
    received += String(chunk);
  });
  for (const count of [1, 2, 3]) {
    client.stdin.write('GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await until(() => received.split('HTTP/1.1 200').length - 1 === count);
  }
});

test('a certificate that the route does not accept does not reach the app, also where nothing is refused', async () => {
  const upstream = `http://127.0.0.1:${app.port}`;
  const tls = { certFile: 'tls.crt', keyFile: 'tls.key', clientCaFile: authority.ca, clientCertificate: 'request' };
  const clientCertificate = { names: ['URI:spiffe://prod/billing'], forward: true };
  const routes = [{ name: 'observed', match: { pathPrefix: '/' }, upstream, mode: 'observe', clientCertificate }];
  const observing = await startGate({ listen: { address: '127.0.0.1:0', tls }, routes }, undefined, toTlsFiles(local));
  onTestFinished(async () => void (await observing.stop()));
  for (const pair of [other, billing]) expect(await ask('/', { ...readPair(pair), port: observing.port })).toContain('200 OK');
  expect(app.received.map(({ headers }) => 'client-cert' in headers)).toEqual([false, true]);
});

test.each([
  ['none', {}, 'no_certificate'],
  ['one of another CA', () => readPair(forged), 'no_certificate'],
  ['one that expired', () => readPair(expired), 'no_certificate'],
  ['one whose common name is another’s alternative name', () => readPair(other), 'certificate_not_allowed'],
])('%s is rejected', async (_what, options, reason) => {
  expect(await ask('/partner', typeof options === 'function' ? options() : options)).toContain('403 Forbidden');
  expect(app.received).toHaveLength(0);
  expect(await lastLine()).toMatchObject({ status: 403, code: 'certificate_required', reason });
});

test('a route without names accepts every certificate of the CA, and does not forward it', async () => {
  expect(await ask('/staff', readPair(other), 'Client-Cert: :Zm9yZ2Vk:\r\n')).toContain('200 OK');
  expect(app.received[0]?.headers['client-cert']).toBeUndefined();
  expect(await ask('/staff')).toContain('403 Forbidden');
});

test('a route with both requires the certificate and the password', async () => {
  const { Authorization } = toBasic('Aladdin', 'open sesame');
  expect(await ask('/both', readPair(other))).toContain('401 Unauthorized');
  expect(await ask('/both', {}, `Authorization: ${Authorization}\r\n`)).toContain('403 Forbidden');
  expect(await ask('/both', readPair(other), `Authorization: ${Authorization}\r\n`)).toContain('200 OK');
});

test('other routes require no certificate', async () => {
  expect(await ask('/open')).toContain('200 OK');
  expect(await ask('/open', readPair(forged))).toContain('200 OK');
});

test('a TLS session is not resumed, and is not accepted without the certificate', async () => {
  const first = await shake({ ...readPair(billing), maxVersion: 'TLSv1.2' });
  const session = first.getSession();
  first.destroy();
  const again = await shake({ session, maxVersion: 'TLSv1.2' });
  expect(again.isSessionReused()).toBe(false);
  again.destroy();
  expect(await ask('/partner', { session, maxVersion: 'TLSv1.2' })).toContain('403 Forbidden');
});

test('a certificate is also forwarded over HTTP/2', async () => {
  const get = (session: ClientHttp2Session): Promise<number> =>
    new Promise((resolve, reject) => {
      session.once('error', reject);
      const stream = session.request({ ':path': '/partner' });
      stream.once('response', (headers) => {
        stream.resume();
        resolve(Number(headers[':status']));
        session.close();
      });
    });
  const options = { ca: readFileSync(authority.ca) };
  expect(await get(connectHttp2(`https://localhost:${gate.port}`, { ...options, ...readPair(billing) }))).toBe(200);
  expect(await get(connectHttp2(`https://localhost:${gate.port}`, options))).toBe(403);
});

test('a route that requires certificates without a CA is reported before the gate starts', async () => {
  gate.writeConfig({
    routes: [
      { name: 'staff', match: { path: '/staff' }, upstream: 'http://127.0.0.1:3000', clientCertificate: { names: ['billing'] } },
    ],
  });
  expect(await checkConfig(gate.file, systemClock)).toMatchObject([
    { path: 'routes.0.clientCertificate.names.0', message: expect.stringContaining('with its type') },
  ]);
  gate.writeConfig({
    routes: [{ name: 'staff', match: { path: '/staff' }, upstream: 'http://127.0.0.1:3000', clientCertificate: {} }],
  });
  expect(await checkConfig(gate.file, systemClock)).toMatchObject([
    { path: 'routes.0.clientCertificate', severity: 'error', hint: 'set listen.tls.clientCaFile' },
  ]);
});
