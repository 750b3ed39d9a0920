import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createLocalJWKSet, decodeJwt, decodeProtectedHeader, type JSONWebKeySet, jwtVerify } from 'jose';
import { afterEach, describe, expect, test } from 'vitest';
import { checkConfig } from '../../src/app/check.ts';
import { systemClock } from '../../src/core/clock.ts';
import { type Answer, send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const SHARED = randomBytes(32).toString('base64');
const app = useApp();
let gate: TestGate;

afterEach(() => gate.stop());

const makePem = (): string => generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }) as string;

const start = async (identity: Sections | undefined, files: Readonly<Record<string, string>> = {}): Promise<void> => {
  const upstream = `http://127.0.0.1:${app.port}`;
  gate = await startGate(
    {
      ...(identity === undefined ? {} : { identity }),
      authz: { address: '127.0.0.1:0' },
      routes: [
        {
          name: 'admin',
          match: { pathPrefix: '/admin' },
          upstream,
          basic: { realm: 'admin', users: { file: 'users' }, requireTls: false },
        },
        { name: 'open', match: { pathPrefix: '/open' }, upstream, allow: 'anyone' },
        toRoute(app.port),
      ],
    },
    undefined,
    { users: makeEntry('Zoë', 'secret'), shared: SHARED, ...files },
  );
};
const HMAC = { audience: 'billing', key: { name: 'shared', secret: { file: 'shared', encoding: 'base64' } } };
const ED25519 = { audience: 'billing', algorithm: 'ed25519', key: { name: 'signing', secret: { file: 'private.pem' } } };

const get = (path: string, headers: Record<string, string> = {}): Promise<Answer> =>
  send(gate.port, { method: 'GET', path, headers });
const token = (): string => String(app.received.at(-1)?.headers['sidegate-identity']);
const keySet = async (): Promise<JSONWebKeySet> =>
  (await (await fetch(`http://127.0.0.1:${gate.adminPort}/identity/jwks.json`)).json()) as JSONWebKeySet;

describe('Sidegate-Identity', () => {
  test('names the user, the request and the route, signed with the shared secret', async () => {
    await start(HMAC);
    const before = Math.floor(Date.now() / 1000);
    await get('/admin/users?page=2', toBasic('Zoë', 'secret'));
    const { payload, protectedHeader } = await jwtVerify(token(), Buffer.from(SHARED, 'base64'), {
      issuer: 'sidegate',
      audience: 'billing',
    });
    expect(protectedHeader).toEqual({ alg: 'HS256', typ: 'JWT', kid: 'shared' });
    expect(payload).toMatchObject({ sub: 'Zoë', route: 'admin', method: 'GET', path: '/admin/users?page=2' });
    expect(payload.jti).toBe(app.received[0]?.headers['sidegate-request-id']);
    expect(payload.iat).toBeGreaterThanOrEqual(before);
    expect(Number(payload.exp) - Number(payload.iat)).toBe(60);
    expect(await keySet()).toEqual({ keys: [] });
  });

  test('can be verified with the published key if a private one signs', async () => {
    await start({ ...ED25519, ttl: '10s' }, { 'private.pem': makePem() });
    await get('/open/a');
    const { payload } = await jwtVerify(token(), createLocalJWKSet(await keySet()), { algorithms: ['EdDSA'] });
    expect(payload).toMatchObject({ route: 'open', path: '/open/a' });
    expect(payload).not.toHaveProperty('sub');
    expect(Number(payload.exp) - Number(payload.iat)).toBe(10);
    expect(JSON.stringify(await keySet())).not.toContain('"d"');
  });

  test('names the delivery and its key on a webhook route', async () => {
    await start(HMAC);
    const { id, headers, body } = makeDelivery();
    await send(gate.port, { headers, body });
    expect(decodeJwt(token())).toMatchObject({ webhook: { id, key: 'current' }, method: 'POST' });
  });

  test('is never the one that a client sent', async () => {
    await start(undefined);
    await get('/open', { 'Sidegate-Identity': 'forged', sidegate_identity: 'forged' });
    expect(Object.keys(app.received[0]?.headers ?? {}).filter((name) => /sidegate.identity/.test(name))).toEqual([]);
    await gate.stop();
    await start(HMAC);
    await get('/open', { 'Sidegate-Identity': 'forged', sidegate_identity: 'forged' });
    expect(token().split('.')).toHaveLength(3);
  });

  test('is rejected by another app that trusts the same key', async () => {
    await start(HMAC);
    await get('/open/a');
    const verify = (audience: string): Promise<unknown> => jwtVerify(token(), Buffer.from(SHARED, 'base64'), { audience });
    await expect(verify('billing')).resolves.toBeDefined();
    await expect(verify('payroll')).rejects.toThrow('unexpected "aud" claim value');
    expect(decodeJwt(token())).toMatchObject({ host: app.received.at(-1)?.headers.host });
  });

  test('is returned to a proxy with forward-auth, for the original request', async () => {
    await start(HMAC);
    const headers = {
      ...toBasic('Zoë', 'secret'),
      'X-Original-Method': 'DELETE',
      'X-Original-URI': '/admin/users/7',
      'X-Forwarded-Host': 'app.example',
      'X-Forwarded-Proto': 'https',
      'X-Forwarded-For': '192.0.2.7',
    };
    const answer = await send(gate.authzPort, { method: 'GET', path: '/', headers });
    expect(answer.status).toBe(200);
    expect(decodeJwt(String(answer.headers['sidegate-identity']))).toMatchObject({
      sub: 'Zoë',
      method: 'DELETE',
      host: 'app.example',
      path: '/admin/users/7',
    });
  });

  test('is signed with a rotated key at once, and both keys are published while tokens of the first are valid', async () => {
    await start(ED25519, { 'private.pem': makePem() });
    await get('/open');
    const first = token();
    writeFileSync(join(gate.folder, 'private.pem'), makePem());
    await until(() => gate.logText().includes('identity_reloaded'));
    await get('/open');
    expect(decodeProtectedHeader(token()).kid).not.toBe(decodeProtectedHeader(first).kid);
    const keys = createLocalJWKSet(await keySet());
    await expect(jwtVerify(first, keys)).resolves.toBeDefined();
    await expect(jwtVerify(token(), keys)).resolves.toBeDefined();
  });

  test('keeps the previous key if the new one is broken, with a log line', async () => {
    await start(ED25519, { 'private.pem': makePem() });
    await get('/open');
    const { kid } = decodeProtectedHeader(token());
    writeFileSync(join(gate.folder, 'private.pem'), 'not a key');
    await until(() => gate.logText().includes('identity_reload_failed'));
    await get('/open');
    expect(decodeProtectedHeader(token()).kid).toBe(kid);
  });
});

test.each([
  ['a short secret', HMAC, { shared: Buffer.alloc(16).toString('base64') }, 'the secret has 16 bytes'],
  ['a secret in another encoding', HMAC, { shared: 'not base64!' }, 'the secret is not base64'],
  ['a missing secret', { audience: 'a', key: { name: 'k', secret: { file: 'missing' } } }, {}, 'does not exist'],
  ['a file without a key', ED25519, { 'private.pem': 'nonsense' }, 'this is not a private key'],
  [
    'a key of another kind',
    ED25519,
    {
      'private.pem': generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({
        type: 'pkcs8',
        format: 'pem',
      }) as string,
    },
    'of type ec, not ed25519',
  ],
])('%s is reported before the gate starts', async (_what, identity, files, message) => {
  await start(undefined);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(gate.folder, name), text);
  gate.writeConfig({ identity, routes: [toRoute(app.port)] });
  const problems = await checkConfig(gate.file, systemClock);
  expect(problems).toMatchObject([{ severity: 'error', path: 'identity.key.secret', message: expect.stringContaining(message) }]);
  expect(JSON.stringify(problems)).not.toContain('nonsense');
});
