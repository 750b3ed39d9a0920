/** Forged JSON Web Tokens before a real gate, and a key set that attackers try to have fetched over and over. */
import { createHash, generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import { Readable } from 'node:stream';
import { beforeEach, describe, expect, test } from 'vitest';
import { readPair } from '../support/certificates.ts';
import { type Answer, send } from '../support/client.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp, useAuthority, useServer } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { encodePart, makeToken, RSA_PAIR, toPem } from '../support/tokens.ts';

const HOST = 'www.googleapis.com';
const AUDIENCE = 'https://hooks.example.com/pubsub';
const EMAIL = 'push@my-project.iam.gserviceaccount.com';
const HEADER = { alg: 'RS256', kid: 'one', typ: 'JWT' };

const app = useApp();
const authority = useAuthority();
const ca = readFileSync(authority.ca);
const jwk = { ...RSA_PAIR.publicKey.export({ format: 'jwk' }), kid: 'one', alg: 'RS256', use: 'sig' };
let published: object[] = [];
let asked = 0;
const publish = (response: ServerResponse): void => void response.end(JSON.stringify({ keys: published }));
let respond = publish;
const server = createServer(readPair(authority.issue('google', `DNS:${HOST}`)), (_request, response) => {
  asked++;
  respond(response);
});
const google = useServer(server);
beforeEach(() => {
  published = [jwk];
  respond = publish;
  asked = 0;
});

async function start(webhook: Sections = {}, clock?: FakeClock): Promise<TestGate> {
  const section = { scheme: 'google-pubsub', keys: [], jwt: { audience: [AUDIENCE], claims: { email: [EMAIL] } }, ...webhook };
  const connectOverride = { ca, reach: () => ({ host: '127.0.0.1', port: google.port }) };
  const gate = await startGate({ routes: [toRoute(app.port, { webhook: section })] }, clock, {}, {}, connectOverride);
  if (webhook['keys'] === undefined) await until(() => gate.log().some(({ msg }) => msg === 'remote_keys_loaded'));
  return gate;
}

function toClaims(more: object = {}): object {
  const now = Math.floor(Date.now() / 1_000);
  const common = { iss: 'https://accounts.google.com', aud: AUDIENCE, email: EMAIL, email_verified: true };
  return { ...common, iat: now - 60, exp: now + 3_000, ...more };
}

function post(gate: TestGate, token: string | string[], messageId = '1'): Promise<Answer> {
  const body = JSON.stringify({ message: { messageId, data: 'aGVsbG8=' }, subscription: 's' });
  const headers = { 'Content-Type': 'application/json', Authorization: token };
  return send(gate.port, { path: '/hooks/billing', headers, body });
}

const bearer = (claims: object, header: object | string = HEADER): string =>
  `Bearer ${makeToken(header, claims, RSA_PAIR.privateKey)}`;

describe('Google Pub/Sub', () => {
  test('is accepted with the published keys, each message once, although a token serves for several', async () => {
    const gate = await start();
    const token = bearer(toClaims());
    expect((await post(gate, token, '1')).status).toBe(200);
    expect((await post(gate, token, '2')).status).toBe(200);
    expect((await post(gate, token.replace('Bearer', 'bearer'), '2')).code).toBe('duplicate');
    expect(app.received).toHaveLength(2);
    await gate.stop();
  });

  test.each<[string, object, string]>([
    ['of another subscription', { aud: `${AUDIENCE}/other` }, 'signature_mismatch'],
    ['of another customer', { email: 'push@evil.iam.gserviceaccount.com' }, 'signature_mismatch'],
    ['of an address that nobody verified', { email_verified: false }, 'signature_mismatch'],
    ['of another issuer', { iss: 'https://evil.example' }, 'signature_mismatch'],
    ['that has expired', { exp: 1_700_000_000 }, 'timestamp_outside_tolerance'],
    ['without an expiry', { exp: undefined }, 'malformed_signature'],
  ])('is rejected with a token %s', async (_title, claims, code) => {
    const gate = await start();
    expect((await post(gate, bearer(toClaims(claims)))).code).toBe(code);
    expect(app.received).toHaveLength(0);
    await gate.stop();
  });
});

describe('a forged token', () => {
  const stranger = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const publicPem = toPem(RSA_PAIR.publicKey);
  const claims = toClaims();
  const unsigned = (header: object): string => `Bearer ${encodePart(header)}.${encodePart(claims)}.`;
  const genuine = bearer(claims);

  test.each<[string, string | string[]]>([
    ['without a signature', unsigned({ alg: 'none' })],
    ['without an algorithm', unsigned({ typ: 'JWT' })],
    ['with the public key as an HMAC secret', `Bearer ${makeToken({ ...HEADER, alg: 'HS256' }, claims, publicPem, 'HS256')}`],
    ['with its own key', bearer(claims, { ...HEADER, jwk: stranger.publicKey.export({ format: 'jwk' }) })],
    ['with the URL of its own keys', bearer(claims, { ...HEADER, jku: 'https://evil.example/keys' })],
    ['with the URL of its own certificate', bearer(claims, { ...HEADER, x5u: 'https://evil.example/cert' })],
    ['with a critical parameter', bearer(claims, { ...HEADER, crit: ['b64'], b64: false })],
    ['with an algorithm twice', bearer(claims, '{"alg":"RS256","kid":"one","alg":"RS256"}')],
    ['beside another one', [genuine, genuine]],
    ['after another one', `${genuine}, ${genuine}`],
    ['with padding', `${genuine}==`],
    ['with a space at its end', `Bearer  ${genuine.slice('Bearer '.length)}`],
    ['under another name', genuine.replace('Bearer', 'Basic')],
  ])('is rejected %s', async (_title, token) => {
    const gate = await start();
    expect(await post(gate, token)).toMatchObject({ status: 401, code: 'malformed_signature' });
    expect(app.received).toHaveLength(0);
    await gate.stop();
  });

  test('is rejected if it is huge, and the gate goes on', async () => {
    const gate = await start();
    const huge = bearer({ ...claims, pad: 'x'.repeat(9_000) });
    expect((await post(gate, huge)).status).toBe(200);
    expect([400, 431]).toContain((await post(gate, bearer({ ...claims, pad: 'x'.repeat(60_000) }), '2')).status);
    expect((await post(gate, genuine, '3')).status).toBe(200);
    await gate.stop();
  });

  test('makes the gate fetch the keys at most once a minute, whatever key it names', async () => {
    const clock = new FakeClock(Date.now());
    const gate = await start({}, clock);
    expect(asked).toBe(1);
    const forge = (kid: string): string => `Bearer ${makeToken({ ...HEADER, kid }, claims, stranger.privateKey)}`;
    for (let i = 0; i < 20; i++) expect((await post(gate, forge(`k${i}`))).code).toBe('signature_mismatch');
    expect(asked).toBe(1);
    await clock.advance(61_000);
    for (let i = 0; i < 20; i++) await post(gate, forge(`k${i}`));
    expect(asked).toBe(2);
    await Promise.all([gate.stop(), clock.advance(30_000)]);
  });

  test('does not keep a key that the sender has rotated to from being fetched', async () => {
    const clock = new FakeClock(Date.now());
    const gate = await start({}, clock);
    published = [{ ...stranger.publicKey.export({ format: 'jwk' }), kid: 'two', alg: 'RS256' }];
    const rotated = `Bearer ${makeToken({ ...HEADER, kid: 'two' }, claims, stranger.privateKey)}`;
    await clock.advance(61_000);
    expect(await post(gate, rotated)).toMatchObject({ status: 503, code: 'secret_unavailable' });
    await until(() => gate.log().filter(({ msg }) => msg === 'remote_keys_loaded').length > 1);
    expect((await post(gate, rotated)).status).toBe(200);
    expect((await post(gate, genuine, '2')).code).toBe('signature_mismatch');
    await Promise.all([gate.stop(), clock.advance(30_000)]);
  });
});

describe('a server of keys that misbehaves', () => {
  const MEBIBYTE = Buffer.alloc(1_048_576, 0x20);
  const toPieces = function* (count: number): Iterable<Buffer> {
    for (let i = 0; i < count; i++) yield MEBIBYTE;
  };

  test.each<[string, (response: ServerResponse) => void, string]>([
    ['sends 10 MiB', (response) => void Readable.from(toPieces(10)).pipe(response), 'more than 65536 bytes'],
    ['sends 10,000 keys', (response) => void response.end(`{"keys":[${'{},'.repeat(9_999)}{}]}`), 'more than 20 keys'],
    ['redirects', (response) => void response.writeHead(302, { Location: 'https://evil.example/' }).end(), 'responded with 302'],
    ['starts a response that it never ends', (response) => void response.write('{"keys":['), 'the response stalled for 5000 ms'],
  ])('and %s cannot keep the gate from its other work, and its keys are used once it works again', async (_title, act, text) => {
    const clock = new FakeClock(Date.now());
    respond = act;
    const connectOverride = { ca, reach: () => ({ host: '127.0.0.1', port: google.port }) };
    const webhook = { scheme: 'google-pubsub', keys: [], jwt: { audience: [AUDIENCE], claims: { email: [EMAIL] } } };
    const gate = await startGate({ routes: [toRoute(app.port, { webhook })] }, clock, {}, {}, connectOverride);
    await until(() => asked > 0);
    expect(await post(gate, bearer(toClaims()))).toMatchObject({ status: 503, code: 'secret_unavailable' });
    respond = publish;
    const hasFailed = (): boolean =>
      gate.log().some(({ msg, message }) => msg === 'remote_keys_failed' && String(message).includes(text));
    if (text.includes('stalled')) await clock.advance(5_000);
    await until(hasFailed);
    await clock.advance(5_000);
    await until(() => gate.log().some(({ msg }) => msg === 'remote_keys_loaded'));
    expect((await post(gate, bearer(toClaims()))).status).toBe(200);
    await Promise.all([gate.stop(), clock.advance(30_000)]);
  });
});

test('a token with the digest of the body is rejected with any other body', async () => {
  process.env['TOKEN_SECRET'] = 'a secret of more than sixteen bytes';
  const gate = await start({ scheme: 'netlify', jwt: undefined, keys: [{ name: 'k', secret: { env: 'TOKEN_SECRET' } }] });
  const body = '{"id":"1","state":"ready"}';
  const sha256 = createHash('sha256').update(body).digest('hex');
  const token = makeToken({ alg: 'HS256' }, { iss: 'netlify', sha256 }, process.env['TOKEN_SECRET'], 'HS256');
  const sendBody = (text: string): Promise<Answer> =>
    send(gate.port, {
      path: '/hooks/billing',
      headers: { 'Content-Type': 'application/json', 'X-Webhook-Signature': token },
      body: text,
    });
  expect((await sendBody(`${body} `)).code).toBe('signature_mismatch');
  expect((await sendBody('')).code).toBe('signature_mismatch');
  expect((await sendBody(body)).status).toBe(200);
  expect((await sendBody(body)).code).toBe('duplicate');
  await gate.stop();
});
