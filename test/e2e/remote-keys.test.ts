/** Public keys that the sender publishes: fetched from a real https server, rotated there, and lost. */
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { beforeEach, describe, expect, test } from 'vitest';
import { readPair } from '../support/certificates.ts';
import { type Answer, send } from '../support/client.ts';
import { makeDelivery, unixNow } from '../support/deliveries.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp, useAuthority, useServer } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const HOST = 'keys.example.com';
const URL_TEXT = `https://${HOST}/jwks.json`;

interface Pair {
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
}

const app = useApp();
const authority = useAuthority();
const ca = readFileSync(authority.ca);
let published: object[] = [];
let answerWith = 200;
let asked = 0;
const server = createServer(readPair(authority.issue('keys', `DNS:${HOST}`)), (_request, response) => {
  asked++;
  response.writeHead(answerWith, answerWith === 302 ? { Location: 'https://elsewhere.example/' } : {});
  response.end(JSON.stringify({ keys: published }));
});
const sender = useServer(server);
beforeEach(() => {
  published = [];
  answerWith = 200;
  asked = 0;
});

function makePair(): Pair {
  return generateKeyPairSync('ed25519');
}

function toJwk({ publicKey }: Pair, more: object = {}): object {
  return { ...publicKey.export({ format: 'jwk' }), use: 'sig', ...more };
}

function start(webhook: Sections = {}, clock?: FakeClock): Promise<TestGate> {
  const connectOverride = { ca, reach: () => ({ host: '127.0.0.1', port: sender.port }) };
  const route = toRoute(app.port, { webhook: { keys: [], jwks: [{ name: 'sender', url: URL_TEXT }], ...webhook } });
  return startGate({ routes: [route] }, clock, {}, {}, connectOverride);
}

/** Signed as `v1a`; `at` in unix seconds. */
function deliver(gate: TestGate, { privateKey }: Pair, at = unixNow()): Promise<Answer> {
  const { id, body, headers } = makeDelivery({ timestamp: at });
  const signed = Buffer.concat([Buffer.from(`${id}.${at}.`), body]);
  const signature = `v1a,${sign(null, signed, privateKey).toString('base64')}`;
  return send(gate.port, { headers: { ...headers, 'Webhook-Signature': signature }, body });
}

const isLoaded = (gate: TestGate) => () => gate.log().some(({ msg }) => msg === 'remote_keys_loaded');

test('accepts a delivery signed with any of the published keys, under the name of the set', async () => {
  const [one, other, stranger] = [makePair(), makePair(), makePair()];
  published = [{ kty: 'oct', k: 'c2VjcmV0' }, toJwk(one), toJwk(makePair(), { use: 'enc' }), toJwk(other), { kty: 'junk' }];
  const gate = await start();
  await until(isLoaded(gate));
  expect((await deliver(gate, one)).text).toBe('handled');
  expect((await deliver(gate, other)).text).toBe('handled');
  expect((await deliver(gate, stranger)).code).toBe('signature_mismatch');
  expect(app.received.at(-1)?.headers['sidegate-key']).toBe('sender');
  expect(await gate.metric('sidegate_route_ready{route="billing"}')).toBe(1);
  await gate.stop();
});

describe('if the keys are unavailable', () => {
  test.each([
    ['the server fails', 500, 'responded with 500'],
    ['it redirects', 302, 'responded with 302'],
    ['there are none', 200, 'not a JWK Set with keys'],
  ])('because %s, the route responds with 503, and the log shows the cause', async (_title, status, message) => {
    answerWith = status;
    const gate = await start();
    await until(() => gate.log().some(({ msg }) => msg === 'remote_keys_failed'));
    expect(await deliver(gate, makePair())).toMatchObject({ status: 503, code: 'secret_unavailable' });
    expect(await gate.metric('sidegate_route_ready{route="billing"}')).toBe(0);
    await gate.stop();
    expect(gate.log().find(({ msg }) => msg === 'remote_keys_failed')).toMatchObject({
      message: expect.stringContaining(message),
    });
  });

  test('because none of them fits the scheme, the log reports it', async () => {
    published = [generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ format: 'jwk' })];
    const gate = await start();
    await until(() => gate.log().some(({ msg }) => msg === 'remote_keys_failed'));
    expect((await deliver(gate, makePair())).code).toBe('secret_unavailable');
    await gate.stop();
  });
});

test('finds a rotated key with the first delivery that needs it, and drops the old one', async () => {
  const clock = new FakeClock(unixNow() * 1000);
  const [old, fresh] = [makePair(), makePair()];
  published = [toJwk(old)];
  const gate = await start({}, clock);
  await until(isLoaded(gate));
  const now = (): number => Math.floor(clock.now() / 1000);
  expect((await deliver(gate, old, now())).text).toBe('handled');
  published = [toJwk(fresh)];
  expect((await deliver(gate, fresh, now())).code).toBe('signature_mismatch');
  expect(asked).toBe(1);
  // The minute that follows a fetch is over, and the delivery above has planned another.
  await clock.advance(60_000);
  await until(() => gate.log().filter(({ msg }) => msg === 'remote_keys_loaded').length === 2);
  expect((await deliver(gate, fresh, now())).text).toBe('handled');
  expect((await deliver(gate, old, now())).code).toBe('signature_mismatch');
  await Promise.all([gate.stop(), clock.advance(30_000)]);
});

test('rejects no delivery by a key that was published after the minute that follows a fetch', async () => {
  const clock = new FakeClock(unixNow() * 1000);
  const [old, fresh] = [makePair(), makePair()];
  published = [toJwk(old)];
  const gate = await start({}, clock);
  await until(isLoaded(gate));
  await clock.advance(60_000);
  published = [toJwk(fresh)];
  const now = Math.floor(clock.now() / 1000);
  // Not a 401, which some senders take as the end: it is our keys that may be old.
  expect(await deliver(gate, fresh, now)).toMatchObject({ status: 503, code: 'secret_unavailable' });
  await until(() => gate.log().filter(({ msg }) => msg === 'remote_keys_loaded').length === 2);
  expect((await deliver(gate, fresh, now)).text).toBe('handled');
  await Promise.all([gate.stop(), clock.advance(30_000)]);
});

test.each<[string, (seconds: number) => object]>([
  ['exp', (seconds) => ({ exp: seconds })],
  ['not_after', (seconds) => ({ not_after: new Date(seconds * 1000).toISOString() })],
])('rejects a delivery signed with a published key once its %s has passed', async (_name, toDates) => {
  const clock = new FakeClock(unixNow() * 1000);
  const now = (): number => Math.floor(clock.now() / 1000);
  const [old, other] = [makePair(), makePair()];
  published = [toJwk(old, toDates(now() + 10)), toJwk(other, { nbf: now() + 10 })];
  const gate = await start({}, clock);
  await until(isLoaded(gate));
  expect((await deliver(gate, old, now())).text).toBe('handled');
  expect((await deliver(gate, other, now())).code).toBe('signature_mismatch');
  await clock.advance(10_000);
  expect((await deliver(gate, old, now())).code).toBe('signature_mismatch');
  expect((await deliver(gate, other, now())).text).toBe('handled');
  await Promise.all([gate.stop(), clock.advance(30_000)]);
});

test('fetches the keys early if all of them have expired', async () => {
  const clock = new FakeClock(unixNow() * 1000);
  const now = (): number => Math.floor(clock.now() / 1000);
  const [old, fresh] = [makePair(), makePair()];
  published = [toJwk(old, { exp: now() + 60 })];
  const gate = await start({}, clock);
  await until(isLoaded(gate));
  published = [toJwk(fresh)];
  await clock.advance(60_000);
  expect(await deliver(gate, fresh, now())).toMatchObject({ status: 503, code: 'secret_unavailable' });
  await until(() => gate.log().filter(({ msg }) => msg === 'remote_keys_loaded').length === 2);
  expect((await deliver(gate, fresh, now())).text).toBe('handled');
  await Promise.all([gate.stop(), clock.advance(30_000)]);
});

test('a reload keeps the known keys, so that no delivery is lost', async () => {
  const pair = makePair();
  published = [toJwk(pair)];
  const gate = await start();
  await until(isLoaded(gate));
  answerWith = 500;
  const route = toRoute(app.port, { webhook: { keys: [], jwks: [{ name: 'renamed', url: URL_TEXT, keepFor: '24h' }] } });
  gate.writeConfig({ routes: [route] });
  await gate.gate.reload();
  expect((await deliver(gate, pair)).text).toBe('handled');
  expect(app.received.at(-1)?.headers['sidegate-key']).toBe('renamed');
  expect(asked).toBe(1);
  await gate.stop();
});

describe('a config', () => {
  test.each<[string, Sections, RegExp]>([
    ['of a scheme with secrets', { scheme: 'github' }, /github does not sign with a key pair/],
    ['with a URL in clear text', { jwks: [{ name: 'a', url: 'http://keys.example.com/' }] }, /is not an https URL/],
    ['that fetches the keys all the time', { jwks: [{ name: 'a', url: URL_TEXT, refresh: '0s' }] }, /0s allows no time at all/],
    [
      'that fetches them too often',
      { jwks: [{ name: 'a', url: URL_TEXT, refresh: '59s' }] },
      /59s is too short; write at least 1m/,
    ],
    ['that drops them at once', { jwks: [{ name: 'a', url: URL_TEXT, keepFor: '4m' }] }, /4m is too short; write at least 5m/],
    ['with a password in the URL', { jwks: [{ name: 'a', url: 'https://me@keys.example.com/' }] }, /is not an https URL/],
    [
      'with one name twice',
      {
        jwks: [
          { name: 'a', url: URL_TEXT },
          { name: 'a', url: URL_TEXT },
        ],
      },
      /two key sets are named a/,
    ],
    ['with a key of the same name', { keys: [{ name: 'sender', secret: { file: 'secret' } }] }, /two keys are named sender/],
  ])('%s is rejected', async (_title, webhook, message) => {
    await expect(start(webhook)).rejects.toThrow(message);
  });
});
