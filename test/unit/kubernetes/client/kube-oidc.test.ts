/** The auth-provider `oidc`, against an OpenID provider that answers over real TLS. */
import { chmodSync, lstatSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { type Clock, systemClock } from '../../../../src/core/clock.ts';
import { SidegateError } from '../../../../src/core/errors.ts';
import { KubeClient } from '../../../../src/kubernetes/client/client.ts';
import { findCluster } from '../../../../src/kubernetes/client/kubeconfig.ts';
import { type ApiServer, type Asked, answerJson, toStatus } from '../../../support/api-server.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { makeFolder, startServer, useApiServer } from '../../../support/fixtures.ts';

const SECRET = 'client-secret-that-nobody-may-see';
const REFRESH = 'refresh-token-that-nobody-may-see';
const HOUR = 3_600;
/** One time for all tokens, so that two calls make the same one. */
const NOW = Math.floor(Date.now() / 1_000);
let folder: string;
let file: string;
let told: string[];
/** What the token endpoint answers. */
let grant: (asked: Asked, response: ServerResponse) => void;
let metadata: Record<string, unknown>;

const api = useApiServer(({ headers }, response) => {
  if (headers.authorization?.endsWith('.revoked') === true) answerJson(response, 401, toStatus(401, 'Unauthorized', 'no'));
  else answerJson(response, 200, {});
});
const provider: ApiServer = useApiServer((asked, response) => {
  if (asked.url === '/.well-known/openid-configuration') {
    const issuer = provider.url.origin;
    answerJson(response, 200, { issuer, token_endpoint: `${issuer}/token`, jwks_uri: `${issuer}/jwks`, ...metadata });
  } else grant(asked, response);
});
beforeEach(() => {
  folder = makeFolder();
  file = join(folder, 'config');
  told = [];
  metadata = {};
  grant = (_, response) => answerTokens(response, { id_token: toIdToken('renewed') });
});

type Fields = Record<string, unknown>;
const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');

/** Nobody but the API server verifies its signature. */
function toIdToken(signature: string, exp = NOW + HOUR): string {
  const claims = { iss: provider.url.origin, aud: 'kubernetes', sub: 'alice', iat: exp - HOUR, exp };
  return `${encode({ alg: 'RS256' })}.${encode(claims)}.${signature}`;
}

const EXPIRED = (): string => toIdToken('expired', NOW - 1);

function answerTokens(response: ServerResponse, tokens: Fields): void {
  answerJson(response, 200, { access_token: 'unused', token_type: 'Bearer', expires_in: HOUR, ...tokens });
}

function writeConfig(fields: Fields = {}, user: Fields = {}): void {
  const config = {
    'idp-issuer-url': provider.url.origin,
    'client-id': 'kubernetes',
    'client-secret': SECRET,
    'id-token': EXPIRED(),
    'refresh-token': REFRESH,
    'idp-certificate-authority-data': Buffer.from(provider.ca).toString('base64'),
    ...fields,
  };
  const cluster = { server: api.url.href, 'certificate-authority-data': Buffer.from(api.ca).toString('base64') };
  const text = stringify({
    'current-context': 'one',
    clusters: [{ name: 'one', cluster }],
    contexts: [{ name: 'one', context: { cluster: 'one', user: 'alice' } }],
    users: [
      { name: 'bob', user: { 'auth-provider': { name: 'oidc', config: { 'refresh-token': 'of bob' } } } },
      { name: 'alice', user: { 'auth-provider': { name: 'oidc', config }, ...user } },
    ],
  });
  writeFileSync(file, text, { mode: 0o600 });
}

const find = (clock: Clock = systemClock, env: Record<string, string> = {}) =>
  findCluster({ file, env, clock, onMessage: (text) => void told.push(text) });

/** The `Authorization` of the last of some requests. */
async function ask(times = 1, env: Record<string, string> = {}): Promise<string | undefined> {
  const { access } = await find(systemClock, env);
  const client = new KubeClient(access, systemClock);
  try {
    for (let i = 0; i < times; i++) await client.request('GET', '/x');
  } finally {
    client.close();
  }
  return api.asked.at(-1)?.headers.authorization;
}

const requests = (): string[] => provider.asked.map(({ method, url }) => `${method} ${url}`);
const GRANT = ['GET /.well-known/openid-configuration', 'POST /token'];

async function troubleOf(promise: Promise<unknown>): Promise<string> {
  const thrown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(thrown instanceof Error)) throw new Error('nothing was thrown');
  for (const secret of [SECRET, REFRESH, 'eyJ']) expect(thrown.message).not.toContain(secret);
  return thrown.message;
}

describe('an ID token', () => {
  test('is sent unchanged while it is valid, without a request to the provider', async () => {
    const token = toIdToken('valid');
    writeConfig({ 'id-token': token });
    expect(await ask(2)).toBe(`Bearer ${token}`);
    expect(requests()).toEqual([]);
  });

  test('needs neither secret nor refresh token while it is valid', async () => {
    writeConfig({ 'id-token': toIdToken('valid'), 'client-secret': '', 'refresh-token': null });
    expect(await ask()).toMatch(/valid$/);
  });

  test('is renewed once when it has expired, and then kept', async () => {
    writeConfig();
    expect(await ask(3)).toBe(`Bearer ${toIdToken('renewed')}`);
    expect(requests()).toEqual(GRANT);
    expect(new URLSearchParams(provider.asked[1]?.body).get('grant_type')).toBe('refresh_token');
    expect(new URLSearchParams(provider.asked[1]?.body).get('refresh_token')).toBe(REFRESH);
  });

  test.each([
    ['is missing', { 'id-token': null }],
    ['is no JWT', { 'id-token': 'x.y' }],
    ['has no expiry', { 'id-token': `${encode({ alg: 'RS256' })}.${encode({})}.x` }],
  ])('is renewed when it %s', async (_, fields) => {
    writeConfig(fields);
    expect(await ask()).toMatch(/renewed$/);
  });

  test('is renewed ten seconds before its end', async () => {
    const end = NOW + 600;
    writeConfig({ 'id-token': toIdToken('first', end) });
    const clock = new FakeClock((end - 11) * 1_000);
    const { access } = await find(clock);
    expect((await access.credentials()).token).toMatch(/first$/);
    await clock.advance(1_000);
    expect((await access.credentials()).token).toMatch(/renewed$/);
  });

  test('is renewed once for all concurrent requests, because a refresh token may be valid only once', async () => {
    writeConfig();
    const { access } = await find();
    const all = await Promise.all(Array.from({ length: 5 }, () => access.credentials()));
    expect(new Set(all.map(({ token }) => token)).size).toBe(1);
    expect(requests()).toEqual(GRANT);
  });

  test('is renewed when the API server rejects it', async () => {
    writeConfig({ 'id-token': toIdToken('revoked') });
    expect(await ask()).toMatch(/renewed$/);
    expect(api.asked).toHaveLength(2);
  });

  test('that the API server rejects leads to the error of the API server if there is no refresh token', async () => {
    writeConfig({ 'id-token': toIdToken('revoked'), 'refresh-token': null });
    expect(await troubleOf(ask())).toMatch(/^GET \/x: no$/);
  });
});

describe('the client', () => {
  const secretOf = (asked: Asked | undefined) => ({
    basic: asked?.headers.authorization,
    post: new URLSearchParams(asked?.body).get('client_secret'),
  });
  const BASIC = `Basic ${Buffer.from(`kubernetes:${encodeURIComponent(SECRET).replaceAll('-', '%2D')}`).toString('base64')}`;

  test.each([
    ['by Basic where the provider names no method', {}, { basic: BASIC, post: null }],
    [
      'by Basic',
      { token_endpoint_auth_methods_supported: ['client_secret_post', 'client_secret_basic'] },
      { basic: BASIC, post: null },
    ],
    ['in the content', { token_endpoint_auth_methods_supported: ['client_secret_post'] }, { basic: undefined, post: SECRET }],
  ])('sends its secret %s', async (_, fields, expected) => {
    metadata = fields;
    writeConfig();
    await ask();
    expect(secretOf(provider.asked.at(-1))).toEqual(expected);
  });

  test('sends no secret if it is a public client', async () => {
    writeConfig({ 'client-secret': undefined });
    await ask();
    expect(secretOf(provider.asked.at(-1))).toEqual({ basic: undefined, post: null });
    expect(new URLSearchParams(provider.asked.at(-1)?.body).get('client_id')).toBe('kubernetes');
  });

  test('reaches the provider through the proxy of the environment', async () => {
    const asked: (string | undefined)[] = [];
    const proxy = createServer().on('connect', ({ url }, socket) => {
      asked.push(url);
      socket.end('HTTP/1.1 502 Bad Gateway\r\n\r\n');
    });
    const port = await startServer(proxy);
    writeConfig({ 'idp-issuer-url': 'https://idp.example' });
    expect(await troubleOf(ask(1, { HTTPS_PROXY: `http://127.0.0.1:${port}` }))).toMatch(/the request for a new token failed/);
    expect(asked).toEqual(['idp.example:443']);
  });
});

describe('a replaced refresh token', () => {
  const rotate = (): void => {
    grant = (_, response) => answerTokens(response, { id_token: toIdToken('renewed'), refresh_token: 'rotated: "1"' });
  };

  test('is written into the kubeconfig, and nothing else of it changes', async () => {
    rotate();
    writeConfig();
    const before = readFileSync(file, 'utf8');
    writeFileSync(file, `# of alice\n${before}# the end`);
    chmodSync(file, 0o640);
    await ask();
    const after = readFileSync(file, 'utf8');
    const [, idToken = ''] = /id-token: "?([^"\n]+expired)/.exec(before) ?? [];
    expect(after).toBe(
      `# of alice\n${before.replace(idToken, JSON.stringify(toIdToken('renewed'))).replace(REFRESH, '"rotated: \\"1\\""')}# the end`,
    );
    expect(statSync(file).mode & 0o777).toBe(0o640);
    expect(readdirSync(folder)).toEqual(['config']);
    expect(told).toEqual([]);
    // The next process starts with it.
    writeFileSync(file, after.replace(/id-token: .*/, 'id-token: x'));
    await ask();
    expect(new URLSearchParams(provider.asked.at(-1)?.body).get('refresh_token')).toBe('rotated: "1"');
  });

  test('is written even if the kubeconfig is JSON or a link', async () => {
    rotate();
    writeConfig();
    const real = join(folder, 'real');
    writeFileSync(real, JSON.stringify(parse(readFileSync(file, 'utf8'))));
    rmSync(file);
    symlinkSync('real', file);
    await ask();
    expect(lstatSync(file).isSymbolicLink()).toBe(true);
    expect(JSON.stringify(parse(readFileSync(real, 'utf8')))).toContain('rotated');
    expect(JSON.stringify(parse(readFileSync(real, 'utf8')))).toContain('of bob');
  });

  test('that cannot be written is reported, and the request is made', async () => {
    rotate();
    writeConfig();
    const before = readFileSync(file, 'utf8');
    writeFileSync(`${file}.lock`, '');
    expect(await ask()).toMatch(/renewed$/);
    expect(told.join('')).toMatch(
      /^the OIDC provider replaced the refresh token, but .*config could not be updated \(EEXIST\): kubectl may ask you to log in again\n$/,
    );
    expect(readFileSync(file, 'utf8')).toBe(before);
    expect(readdirSync(folder).toSorted()).toEqual(['config', 'config.lock']);
  });

  test.each([
    ['a block', '|\n            THE TOKEN'],
    ['an alias', '*token'],
  ])('leaves the file unchanged if it is written as %s', async (_, written) => {
    rotate();
    writeConfig();
    const text = readFileSync(file, 'utf8').replace('of bob', '&token refresh');
    writeFileSync(file, text.replace(REFRESH, written.replace('THE TOKEN', REFRESH)));
    const before = readFileSync(file, 'utf8');
    expect(await ask()).toMatch(/renewed$/);
    expect(told.join('')).toMatch(
      /could not be updated \(the kubeconfig (?:would no longer be valid YAML|has no such refresh-token)\)/,
    );
    expect(readFileSync(file, 'utf8')).toBe(before);
    expect(readdirSync(folder)).toEqual(['config']);
  });

  test('that equals the old one changes no file', async () => {
    grant = (_, response) => answerTokens(response, { id_token: toIdToken('renewed'), refresh_token: REFRESH });
    writeConfig();
    const before = readFileSync(file, 'utf8');
    await ask();
    expect(readFileSync(file, 'utf8')).toBe(before);
  });
});

describe('an unusable provider is reported with a fix:', () => {
  test.each<[string, Fields, RegExp]>([
    ['no issuer', { 'idp-issuer-url': null }, /idp-issuer-url must be a URL that starts with https:\/\//],
    ['an issuer without TLS', { 'idp-issuer-url': 'http://idp.example' }, /idp-issuer-url must be a URL that starts with https/],
    ['no client', { 'client-id': null }, /there is no client-id/],
    ['no refresh token', { 'refresh-token': null }, /the id-token has expired .* no refresh-token: log in again/],
    ['another type', { 'refresh-token': [REFRESH] }, /users\.1\.user\.auth-provider\.config\.refresh-token: .*expected string/],
    [
      'a missing CA',
      { 'idp-certificate-authority-data': null, 'idp-certificate-authority': 'none.crt' },
      /none\.crt does not exist/,
    ],
    [
      'another CA',
      { 'idp-certificate-authority-data': null },
      /the request for a new token failed: 127\.0\.0\.1:\d+: its certificate is not signed by/,
    ],
    [
      'a provider that is down',
      { 'idp-issuer-url': 'https://127.0.0.1:9' },
      /the request for a new token failed: 127\.0\.0\.1:9: connection refused/,
    ],
  ])('%s', async (_, fields, text) => {
    writeConfig(fields);
    expect(await troubleOf(ask())).toMatch(text);
    expect(api.asked).toEqual([]);
  });

  const answer =
    (status: number, body: string | Fields, type = 'application/json') =>
    (_: Asked, response: ServerResponse): void => {
      response.writeHead(status, { 'Content-Type': type, Location: 'https://elsewhere.example/' });
      response.end(typeof body === 'string' ? body : JSON.stringify(body));
    };

  test.each<[string, typeof grant, RegExp]>([
    [
      'a spent refresh token',
      answer(400, { error: 'invalid_grant', error_description: REFRESH }),
      /rejects the refresh token \(invalid_grant\): log in again/,
    ],
    ['a wrong secret', answer(401, { error: 'invalid_client' }), /rejects the refresh token \(invalid_client\)/],
    [
      'an error that repeats the request',
      answer(400, { error: `no such token ${REFRESH}` }),
      /did not respond like an OpenID provider/,
    ],
    [
      'no ID token',
      answer(200, { access_token: 'a', token_type: 'Bearer' }),
      /sent no ID token; log in again .*, with the scope openid/,
    ],
    ['a page', answer(200, `<html>${REFRESH}</html>`, 'text/html'), /did not respond like an OpenID provider/],
    ['a redirect', answer(302, ''), /did not respond like an OpenID provider/],
    ['nothing', answer(204, ''), /did not respond like an OpenID provider/],
    ['a huge answer', answer(200, 'x'.repeat(1_048_577)), /has more than 1048576 bytes/],
    ['a broken answer', (_, response) => response.destroy(), /the request for a new token failed: .*reset/],
    [
      'a token for another client',
      (_, response) =>
        answerTokens(response, {
          id_token: toIdToken('x').replace(/\.[^.]+\./, `.${encode({ iss: 'x', aud: 'y', sub: 'z', iat: 1, exp: 9e9 })}.`),
        }),
      /did not respond like an OpenID provider/,
    ],
  ])('%s', async (_, respond, text) => {
    grant = respond;
    writeConfig();
    expect(await troubleOf(ask())).toMatch(text);
    expect(api.asked).toEqual([]);
  });

  test('another issuer than the configured one', async () => {
    metadata = { issuer: 'https://elsewhere.example' };
    writeConfig();
    expect(await troubleOf(ask())).toMatch(/did not respond like an OpenID provider/);
    expect(requests()).toEqual([GRANT[0]]);
  });

  test('a token endpoint without TLS, which would get the secret', async () => {
    metadata = { token_endpoint: 'http://127.0.0.1:9/token' };
    writeConfig();
    expect(await troubleOf(ask())).toMatch(/did not respond like an OpenID provider/);
  });

  test('a provider that does not respond in time', async () => {
    const clock = new FakeClock(NOW * 1_000);
    const asked = new Promise<void>((resolve) => {
      grant = () => resolve();
    });
    writeConfig();
    const { access } = await find(clock);
    const trouble = troubleOf(access.credentials());
    await asked;
    await clock.advance(15_000);
    expect(await trouble).toMatch(/no complete response within 15 s/);
  });

  test('fails as an error of its user', async () => {
    writeConfig({ 'refresh-token': null });
    const { access } = await find();
    await expect(access.credentials()).rejects.toBeInstanceOf(SidegateError);
  });
});

test('a token has precedence over the auth-provider', async () => {
  writeConfig({}, { token: 'static' });
  expect(await ask()).toBe('Bearer static');
  expect(requests()).toEqual([]);
});
