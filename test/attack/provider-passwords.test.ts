/** Guessed, malformed, repeated and borrowed credentials on the port of the events API. */
import { rmSync, writeFileSync } from 'node:fs';
import { request as openHttps } from 'node:https';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { makeAuthority, toTlsFiles } from '../support/certificates.ts';
import { type Answer, send, sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { makeFolder } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, until } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const TOKEN = '0123456789abcdef0123456789abcdef';
const BEARER = { Authorization: `Bearer ${TOKEN}` };
const USERS = [makeEntry('ada', 'right'), makeEntry('bob', 'other')].join('\n');
const CHALLENGE = 'Basic realm="api", charset="UTF-8"';
const BEARER_CHALLENGE = 'Bearer realm="sidegate-provider"';
const LIMIT = { failures: 3, per: '1m', ban: '5m' };
const EVENT = '{"type":"invoice.paid","data":{}}';
const DENIED = 'sidegate_auth_decisions_total{route="_provider",scheme="basic",decision="deny",reason=';

let gate: TestGate;
afterEach(() => gate.stop());

const start = async (basic: Sections = {}, provider: Sections = {}, files: Record<string, string> = {}): Promise<void> => {
  const queue = { sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true } };
  const section = { address: '127.0.0.1:0', queue, basic: { realm: 'api', users: { file: 'users' }, ...basic }, ...provider };
  gate = await startGate({ provider: section }, undefined, { users: USERS, token: TOKEN, ...files });
};
const post = (headers: Record<string, string> | readonly string[] = {}): Promise<Answer> =>
  send(gate.providerPort, {
    path: '/v1/events',
    headers: Array.isArray(headers)
      ? ['Host', '127.0.0.1', 'Content-Type', 'application/json', 'Content-Length', String(EVENT.length), ...headers]
      : { 'Content-Type': 'application/json', ...headers },
    body: EVENT,
  });
const statusOf = async (user: string, password: string): Promise<number> => (await post(toBasic(user, password))).status;
const toChallenges = ({ rawHeaders }: Answer): string[] =>
  rawHeaders.filter((_, index) => index % 2 === 1 && rawHeaders[index - 1] === 'WWW-Authenticate');
const countEvents = (): Promise<number> => gate.metric('sidegate_provider_events_total{result="stored"}');

describe('the password', () => {
  test('is required for everything except the OpenAPI document, also on loopback', async () => {
    await start();
    for (const [method, path] of [
      ['POST', '/v1/events'],
      ['GET', '/v1/endpoints'],
      ['GET', '/none'],
      ['TRACE', '/v1/events'],
    ]) {
      const answer = await send(gate.providerPort, { method: method ?? '', path: path ?? '' });
      expect([answer.status, answer.code, toChallenges(answer)]).toEqual([401, 'unauthorized', [CHALLENGE]]);
    }
    expect((await send(gate.providerPort, { method: 'GET', path: '/openapi.json' })).status).toBe(200);
    expect((await post({ ...toBasic('ada', 'right'), Host: 'events.example' })).status).toBe(202);
    expect(await countEvents()).toBe(1);
  });

  test.each([
    ['a wrong password', toBasic('ada', 'wrong')],
    ['an unknown user', toBasic('eve', 'right')],
    ['the password of another user', toBasic('ada', 'other')],
    ['no password', toBasic('ada', '')],
    ['the stored hash', toBasic('ada', USERS.split(/[:\n]/)[1] ?? '')],
    ['a token', BEARER],
    ['another scheme', { Authorization: 'Digest username="ada"' }],
    ['no base64', { Authorization: 'Basic ???' }],
    ['a second word', { Authorization: `${toBasic('ada', 'right').Authorization} x` }],
    ['a NUL behind the password', toBasic('ada', 'right\0')],
    ['2 KiB', toBasic('ada', 'x'.repeat(2_048))],
    ['credentials of a proxy', { 'Proxy-Authorization': toBasic('ada', 'right').Authorization }],
  ])('gets the same 401 for %s', async (_, headers) => {
    await start();
    const { status, text, ...answer } = await post(headers);
    expect([status, JSON.parse(text), toChallenges({ status, text, ...answer })]).toEqual([
      401,
      {
        type: 'urn:sidegate:problem:unauthorized',
        title: 'Authentication required',
        status: 401,
        code: 'unauthorized',
        detail: 'send a user of provider.basic and the right password as Authorization: Basic',
      },
      [CHALLENGE],
    ]);
    expect(await countEvents()).toBe(0);
  });

  test('is not accepted in a repeated field, which two parsers could read differently', async () => {
    await start();
    const [right, wrong] = [toBasic('ada', 'right').Authorization, toBasic('ada', 'wrong').Authorization];
    for (const pair of [
      [right, wrong],
      [wrong, right],
      [right, right],
    ])
      expect((await post(pair.flatMap((value) => ['Authorization', value]))).status).toBe(400);
    expect(await countEvents()).toBe(0);
  });

  test('is checked before the body is asked for', async () => {
    await start();
    const lines = ['POST /v1/events HTTP/1.1', 'Host: a', 'Content-Type: application/json', 'Connection: close'];
    const text = await sendRaw(gate.providerPort, toRequestText([...lines, 'Expect: 100-continue', 'Content-Length: 33']));
    expect(toStatuses(text)).toEqual([401]);
  });

  test('and its user are in no log line', async () => {
    await start();
    expect(await statusOf('ada', 'right')).toBe(202);
    expect(await statusOf('eve', 'a guess')).toBe(401);
    const encoded = [toBasic('ada', 'right'), toBasic('eve', 'a guess')].map(({ Authorization }) => Authorization.slice(6));
    for (const text of ['a guess', ...encoded]) expect(gate.logText()).not.toContain(text);
  });
});

describe('guesses', () => {
  test('lead to a ban, whatever forwarded address they claim', async () => {
    await start({ limit: LIMIT });
    for (let i = 0; i < 3; i++)
      expect((await post({ ...toBasic(`nobody-${i}`, 'wrong'), 'X-Forwarded-For': `192.0.2.${i}` })).status).toBe(401);
    const { status, code, headers } = await post({ ...toBasic('ada', 'right'), 'X-Forwarded-For': '192.0.2.9' });
    expect([status, code]).toEqual([429, 'too_many_attempts']);
    expect(Number(headers['retry-after'])).toBeGreaterThan(290);
    expect(await gate.metric(`${DENIED}"bad_credentials"}`)).toBe(3);
    expect(await gate.metric(`${DENIED}"banned"}`)).toBe(1);
    expect(await gate.metric('sidegate_provider_rejected_requests_total{reason="unauthorized"}')).toBe(4);
  });

  test('are bounded even if they are all sent at once', async () => {
    await start({ limit: LIMIT });
    const guesses = Array.from({ length: 100 }, (_, i) => (i === 70 ? 'right' : `guess ${i}`));
    const statuses = await Promise.all(guesses.map((guess) => statusOf('ada', guess)));
    expect(statuses.filter((status) => status === 401)).toHaveLength(3);
    expect(statuses.filter((status) => status === 202)).toHaveLength(0);
  });

  test('do not lock out a client that logged in before', async () => {
    await start({ limit: LIMIT });
    expect(await statusOf('ada', 'right')).toBe(202);
    for (let i = 0; i < 4; i++) await statusOf('bob', `guess ${i}`);
    expect([await statusOf('ada', 'right'), await statusOf('bob', 'other')]).toEqual([202, 429]);
  });
});

describe('web pages', () => {
  test('cannot use the password that a browser remembers, nor cause a ban', async () => {
    await start({ limit: LIMIT });
    const right = toBasic('ada', 'right');
    expect((await post(right)).status).toBe(202);
    for (const mark of [{ Origin: 'https://evil.example' }, { Origin: 'null' }, { 'Sec-Fetch-Site': 'cross-site' }]) {
      const { status, headers } = await post({ ...right, ...mark });
      expect([status, headers['www-authenticate']]).toEqual([403, undefined]);
      expect((await post({ ...toBasic('ada', 'wrong'), ...mark })).status).toBe(403);
    }
    expect([await statusOf('bob', 'other'), await countEvents()]).toEqual([202, 2]);
  });
});

describe('a token beside the users', () => {
  const provider = { token: { secret: { file: 'token' } } };

  test('is as good as a password, and a wrong one is not a guess of a password', async () => {
    await start({ limit: LIMIT }, provider);
    const none = await post();
    expect([none.status, toChallenges(none)]).toEqual([401, [BEARER_CHALLENGE, CHALLENGE]]);
    for (let i = 0; i < 5; i++) {
      const wrong = await post({ Authorization: `Bearer ${i}` });
      expect([wrong.status, toChallenges(wrong)]).toEqual([401, [`${BEARER_CHALLENGE}, error="invalid_token"`, CHALLENGE]]);
    }
    expect([(await post(BEARER)).status, await statusOf('ada', 'right')]).toEqual([202, 202]);
    expect((await post({ ...BEARER, Origin: 'https://dashboard.example' })).status).toBe(202);
    expect((await post({ Authorization: toBasic('ada', 'right').Authorization.replace('Basic', 'bASIC') })).status).toBe(202);
  });

  test('is not accepted as a password, nor the password as a token', async () => {
    await start({}, provider);
    expect((await post({ Authorization: 'Bearer right' })).status).toBe(401);
    expect([await statusOf('ada', TOKEN), await statusOf('', TOKEN)]).toEqual([401, 401]);
  });
});

describe('the users file', () => {
  test('is watched: a removed user loses access at once, and without users nobody has access', async () => {
    await start();
    expect(await statusOf('ada', 'right')).toBe(202);
    const file = join(gate.folder, 'users');
    writeFileSync(file, makeEntry('bob', 'other'));
    await until(async () => (await statusOf('ada', 'right')) === 401);
    expect(await statusOf('bob', 'other')).toBe(202);
    rmSync(file);
    const { headers, code } = await until(async () => {
      const answer = await post(toBasic('bob', 'other'));
      return answer.status === 503 && answer;
    });
    expect([code, headers['retry-after']]).toEqual(['users_unavailable', '30']);
  });
});

test('the password is accepted over TLS on an address that is not loopback only', async () => {
  const authority = makeAuthority(makeFolder(), 'authority');
  const pair = authority.issue('api', 'DNS:localhost,IP:127.0.0.1');
  const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
  await start({}, { address: '0.0.0.0:0', tls }, toTlsFiles(pair));
  const ask = (password: string): Promise<number | undefined> =>
    new Promise((resolve, reject) => {
      const options = {
        port: gate.providerPort,
        path: '/v1/endpoints',
        headers: toBasic('ada', password),
        rejectUnauthorized: false,
      };
      openHttps(options, (response) => {
        response.resume();
        resolve(response.statusCode);
      })
        .on('error', reject)
        .end();
    });
  expect([await ask('right'), await ask('wrong')]).toEqual([200, 401]);
});
