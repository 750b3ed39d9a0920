import { readFileSync } from 'node:fs';
import type { IncomingHttpHeaders } from 'node:http';
import { connect } from 'node:http2';
import { request } from 'node:https';
import { afterEach, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { useApp, useAuthority } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate } from '../support/gate.ts';

const authority = useAuthority();
const pair = authority.issue('local', 'DNS:localhost');
const app = useApp();
let gate: TestGate;
afterEach(() => gate.stop());

const start = async (listen: Sections): Promise<void> => {
  const upstream = `http://127.0.0.1:${app.port}`;
  gate = await startGate({
    listen: { address: '127.0.0.1:0', ...listen },
    routes: [{ name: 'open', match: { path: '/open' }, upstream, allow: 'anyone' }],
  });
};
const TLS: Sections = { tls: { certFile: pair.cert, keyFile: pair.key } };
const readHeaders = (path: string): Promise<IncomingHttpHeaders> =>
  new Promise((resolve, reject) => {
    const ca = readFileSync(authority.ca);
    const outgoing = request({ host: 'localhost', port: gate.port, path, ca, agent: false }, (incoming) => {
      incoming.resume();
      resolve(incoming.headers);
    });
    outgoing.on('error', reject);
    outgoing.end();
  });
const ask = async (path: string): Promise<string | undefined> => (await readHeaders(path))['strict-transport-security'];

test('is set on every response over TLS, including rejections', async () => {
  await start({ ...TLS, hsts: {} });
  expect(await ask('/open')).toBe('max-age=31536000');
  expect(await ask('/nowhere')).toBe('max-age=31536000');
});

test('has the configured value, also over HTTP/2', async () => {
  await start({ ...TLS, hsts: { maxAge: '1d', includeSubDomains: true, preload: true } });
  expect(await ask('/open')).toBe('max-age=86400; includeSubDomains; preload');
  const session = connect(`https://localhost:${gate.port}`, { ca: readFileSync(authority.ca) });
  const stream = session.request({ ':path': '/open' });
  const headers = await new Promise<Record<string, unknown>>((resolve) => stream.once('response', resolve));
  expect(headers['strict-transport-security']).toBe('max-age=86400; includeSubDomains; preload');
  stream.resume();
  session.close();
});

test('does not change the value of the app, or other fields', async () => {
  await start({ ...TLS, hsts: {} });
  app.handler = (_request, response) => {
    response.setHeader('Strict-Transport-Security', 'max-age=1');
    response.setHeader('Set-Cookie', ['a=1', 'b=2']);
    response.end();
  };
  expect(await readHeaders('/open')).toMatchObject({ 'strict-transport-security': 'max-age=1', 'set-cookie': ['a=1', 'b=2'] });
});

test('is not set in clear text, except behind a trusted proxy that terminated TLS', async () => {
  await start({ hsts: {}, trustedProxies: ['127.0.0.1'] });
  const plain = await send(gate.port, { method: 'GET', path: '/open' });
  expect(plain.headers['strict-transport-security']).toBeUndefined();
  const proxied = await send(gate.port, { method: 'GET', path: '/open', headers: { 'X-Forwarded-Proto': 'https' } });
  expect(proxied.headers['strict-transport-security']).toBe('max-age=31536000');
});

test('is off by default', async () => {
  await start(TLS);
  expect(await ask('/open')).toBeUndefined();
});
