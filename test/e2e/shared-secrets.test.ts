import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { checkConfig } from '../../src/app/check.ts';
import { systemClock } from '../../src/core/clock.ts';
import { formatProblem } from '../../src/core/problem.ts';
import { send } from '../support/client.ts';
import { makeDelivery, SECRET } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const OTHER = 'whsec_c2lkZWdhdGUgdGVzdCBzZWNyZXQgbnVtYmVyIHR3bw==';
const app = useApp();
let gate: TestGate | undefined;
let folder: string | undefined;

afterEach(async () => {
  await gate?.stop();
  if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  gate = undefined;
  folder = undefined;
});

const key = (file = 'secret', encoding?: string): Sections => ({
  name: 'current',
  secret: { file, ...(encoding && { encoding }) },
});
const route = (name: string, webhook: Sections = {}): Sections => ({
  name,
  match: { path: `/hooks/${name}` },
  upstream: 'http://127.0.0.1:3000',
  webhook: { keys: [key()], ...webhook },
});
const X = { scheme: 'x', dedup: { retention: '30d' } };
const TIME_NONCE_DIGEST = {
  scheme: 'custom',
  custom: {
    signature: { header: 'x-sig' },
    signed: ['timestamp', { header: 'x-nonce' }, { bodySha256: 'hex' }],
    separator: '.',
    timestamp: { header: 'x-time' },
  },
};

/** The problems about shared secrets, as `sidegate check` shows them. */
const check = async (sections: Sections, files: Readonly<Record<string, string>> = {}): Promise<string[]> => {
  folder ??= mkdtempSync(join(tmpdir(), 'sidegate-test-'));
  const file = join(folder, 'gate.yaml');
  const all = { secret: SECRET, other: OTHER, ...files };
  for (const [name, text] of Object.entries(all)) writeFileSync(join(folder, name), text);
  writeFileSync(file, stringify(sections));
  const problems = await checkConfig(file, systemClock);
  for (const text of Object.values(all)) expect(problems.map(formatProblem).join('\n')).not.toContain(text);
  return problems
    .filter(({ message }) => message.startsWith('the secret is also'))
    .map(({ severity, path, message }) => `${severity} ${path}: ${message}`);
};

describe('sidegate check', () => {
  test('rejects a key that the handshake of another route signs any token with, in either order of the routes', async () => {
    const message =
      'the secret is also a key of route x, whose handshake (x) signs any token for anyone: requests that are signed so would be accepted here';
    const routes = [route('x', X), route('internal', TIME_NONCE_DIGEST)];
    expect(await check({ routes })).toEqual([`error routes.1.webhook.keys.0.secret: ${message}`]);
    expect(await check({ routes: routes.toReversed() })).toEqual([`error routes.0.webhook.keys.0.secret: ${message}`]);
    const separate = route('internal', { ...TIME_NONCE_DIGEST, keys: [key('other')] });
    expect(await check({ routes: [route('x', X), separate] })).toEqual([]);
  });

  test('compares thousands of routes that have one secret', async () => {
    const routes = Array.from({ length: 3_000 }, (_, i) => route(`r${i}`));
    const problems = await check({ routes: [...routes, route('x', X)] });
    expect(problems).toHaveLength(3_000);
    expect(new Set(problems.map((text) => text.split(' ')[0]))).toEqual(new Set(['error']));
  });

  test('warns about two routes that accept the deliveries of each other, and about each further one', async () => {
    const toText = (name: string, position: number, other = 0): string =>
      `warning routes.${position}.webhook.keys.${other}.secret: the secret is also a key of route ${name}: a captured delivery of that route is accepted here as well, so an app may handle it twice`;
    const rotating = { keys: [{ name: 'next', secret: { file: 'other' } }, key()] };
    expect(await check({ routes: [route('a'), route('b'), route('c', rotating)] })).toEqual([toText('a', 1), toText('a', 2, 1)]);
    expect(await check({ routes: [route('x', X), route('y', X)] })).toEqual([toText('x', 1)]);
  });

  test('accepts a secret in both keys of one route, and on routes whose scheme signs the URL', async () => {
    expect(await check({ routes: [route('a', { keys: [key(), { name: 'next', secret: { file: 'secret' } }] })] })).toEqual([]);
    const twilio = (name: string): Sections => route(name, { scheme: 'twilio', publicUrl: `https://${name}.example` });
    expect(await check({ routes: [twilio('a'), twilio('b')] })).toEqual([]);
  });

  test('compares the bytes of the keys, whatever their files and encodings', async () => {
    const copy = route('b', { scheme: 'github', keys: [key('copy', 'hex')] });
    const hex = Buffer.from(SECRET.slice(6), 'base64').toString('hex');
    expect(await check({ routes: [route('a'), copy] }, { copy: hex })).toHaveLength(1);
  });

  test('warns about a public key on two routes of the same form only', async () => {
    const { publicKey } = generateKeyPairSync('ed25519');
    const pem = publicKey.export({ type: 'spki', format: 'pem' }) as string;
    const routes = [route('a', { keys: [key('pem')] }), route('b', { keys: [key('pem')] })];
    expect(await check({ routes }, { pem })).toHaveLength(1);
    const discord = route('b', { scheme: 'discord', keys: [key('pem')] });
    expect(await check({ routes: [route('a', { keys: [key('pem')] }), discord] }, { pem })).toEqual([]);
  });

  test('reports the secret of an endpoint as key of a route or as another secret, but not as that of its rotation', async () => {
    const endpoint = {
      name: 'partner',
      url: 'https://partner.example/in',
      secret: { file: 'secret' },
      previousSecret: { file: 'secret' },
    };
    const provider = { endpoints: [endpoint] };
    expect(await check({ routes: [route('in')], provider })).toEqual([
      'warning routes.0.webhook.keys.0.secret: the secret is also the secret of the endpoint partner: the owner of the endpoint could send the deliveries that it receives, and others, to this route',
    ]);
    expect(await check({ routes: [], provider, admin: { token: { secret: { file: 'secret' } } } })).toContain(
      'error provider.endpoints.0.secret: the secret is also the token of the admin port, and the owner of the endpoint knows it',
    );
    const own = { ...endpoint, url: 'http://127.0.0.1:8080/hooks/in' };
    const loop = { egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] }, endpoints: [own] };
    expect(await check({ listen: { address: '127.0.0.1:8080' }, routes: [route('in')], provider: loop })).toEqual([]);
    const second = { ...endpoint, name: 'second' };
    expect(await check({ routes: [], provider: { endpoints: [endpoint, second] } })).toEqual(
      ['secret', 'previousSecret'].map(
        (each) =>
          `warning provider.endpoints.1.${each}: the secret is also the secret of the endpoint partner, so who learns one of them can use it as the other`,
      ),
    );
  });

  test("reports an endpoint's private key whose public key is that of a route", async () => {
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    const seed = privateKey.export({ format: 'der', type: 'pkcs8' }).subarray(-32);
    const files = { seed: `whsk_${seed.toString('base64')}`, pem: publicKey.export({ type: 'spki', format: 'pem' }) as string };
    const provider = { endpoints: [{ name: 'partner', url: 'https://partner.example/in', secret: { file: 'seed' } }] };
    expect(await check({ routes: [route('in', { keys: [key('pem')] })], provider }, files)).toHaveLength(1);
  });

  test('warns about one secret for tokens, identity and a route, and rejects it beside a handshake that signs any token', async () => {
    const others = {
      identity: { audience: 'app', key: { name: 'identity', secret: { file: 'secret' } } },
      admin: { token: { secret: { file: 'secret' } } },
    };
    const meta = route('meta', { scheme: 'meta', handshake: { verifyToken: { file: 'secret' } } });
    expect(await check({ routes: [meta], ...others })).toEqual([
      'warning routes.0.webhook.handshake.verifyToken: the secret is also a key of route meta, so who learns one of them can use it as the other',
      'warning identity.key.secret: the secret is also a key of route meta, so who learns one of them can use it as the other',
      'warning admin.token.secret: the secret is also a key of route meta, so who learns one of them can use it as the other',
    ]);
    expect(await check({ routes: [route('x', X)], identity: others.identity })).toEqual([
      'error routes.0.webhook.keys.0.secret: the secret is also the key of identity, and the handshake of x signs any token with it, for anyone',
    ]);
  });
});

describe('a running gate', () => {
  const logged = (event: string): Record<string, unknown>[] => gate?.log().filter(({ msg }) => msg === event) ?? [];
  const deliver = async (secret: string): Promise<number | undefined> =>
    (await send(gate?.port ?? 0, { path: '/hooks/billing', ...makeDelivery({ secret }) })).status;

  test('closes a route whose key becomes that of a handshake which signs any token, until the secrets differ again', async () => {
    const x = { ...route('x', { ...X, keys: [key('x')] }), upstream: `http://127.0.0.1:${app.port}` };
    gate = await startGate({ routes: [toRoute(app.port), x] }, undefined, { x: OTHER });
    expect(await deliver(SECRET)).toBe(200);
    writeFileSync(join(gate.folder, 'x'), SECRET);
    await until(() => logged('secret_unavailable').length > 0);
    expect(logged('secret_unavailable')).toMatchObject([
      {
        route: 'billing',
        key: 'current',
        message: expect.stringMatching(/^the secret is also a key of route x, whose handshake/),
      },
    ]);
    expect(await deliver(SECRET)).toBe(503);
    writeFileSync(join(gate.folder, 'x'), OTHER);
    await until(() => logged('secret_reloaded').filter(({ route: name }) => name === 'billing').length === 2);
    expect(await deliver(SECRET)).toBe(200);
  });

  test('keeps the token of the admin port if the new one is the secret of an endpoint', async () => {
    folder = mkdtempSync(join(tmpdir(), 'sidegate-test-'));
    const endpoint = { name: 'partner', url: 'https://partner.example/in', secret: { file: 'secret' } };
    const provider = {
      address: '127.0.0.1:0',
      endpoints: [endpoint],
      queue: { sqlite: { path: join(folder, 'queue.db'), allowVolatile: true } },
    };
    const sections = { routes: [], provider, admin: { address: '127.0.0.1:0', token: { secret: { file: 'token' } } } };
    gate = await startGate(sections, undefined, { token: 'a'.repeat(32) });
    writeFileSync(join(gate.folder, 'token'), SECRET.slice(6));
    const [failed] = await until(() => logged('admin_token_reload_failed').length > 0 && logged('admin_token_reload_failed'));
    expect(failed).toMatchObject({
      message: 'the secret is also the token of the admin port, and the owner of the endpoint knows it',
    });
    expect(logged('admin_token_reloaded')).toEqual([]);
  });

  test('rejects an endpoint of the API with the secret of a route, new or rotated, and names the route', async () => {
    folder = mkdtempSync(join(tmpdir(), 'sidegate-test-'));
    const provider = { address: '127.0.0.1:0', queue: { sqlite: { path: join(folder, 'queue.db'), allowVolatile: true } } };
    gate = await startGate({ routes: [toRoute(app.port)], provider });
    const base = `http://127.0.0.1:${gate.providerPort}/v1/endpoints`;
    const post = async (url: string, body: object): Promise<{ status: number; text: string }> => {
      const headers = { 'Content-Type': 'application/json' };
      const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
      return { status: response.status, text: await response.text() };
    };
    const url = 'https://partner.example/in';
    const created = await post(base, { id: 'own', url });
    expect(created.status).toBe(201);
    for (const rejected of [
      await post(base, { url, secret: SECRET }),
      await post(`${base}/own/rotate-secret`, { secret: SECRET }),
    ]) {
      expect(rejected.status).toBe(422);
      expect(rejected.text).toContain(
        'route billing accepts deliveries with this secret; use another one, or omit it to get a new one',
      );
    }
    expect((await post(`${base}/own/rotate-secret`, { secret: OTHER })).status).toBe(200);
  });
});
