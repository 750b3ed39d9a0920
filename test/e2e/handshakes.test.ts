/** Handshakes, answered by a real gate before a real app that must see none of them. */
import { createHash, createHmac, generateKeyPairSync, type KeyObject, sign as signBytes } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { unixNow } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const SECRET = 'a-key-of-sixteen-bytes-and-more';
const TOKEN = 'a-verify-token-of-many-bytes';
const PATH = '/hooks/billing';

const app = useApp();
let gate: TestGate;

afterEach(async () => {
  app.received.length = 0;
  await gate.stop();
});

async function start(webhook: Sections, files: Readonly<Record<string, string>> = {}, route: Sections = {}): Promise<void> {
  const all = { secret: SECRET, token: TOKEN, ...files };
  gate = await startGate({ routes: [toRoute(app.port, { webhook, route })] }, undefined, all);
}

const JSON_TYPE = { 'Content-Type': 'application/json' };
const mac = (text: string, encoding: 'hex' | 'base64' = 'hex'): string =>
  createHmac('sha256', SECRET).update(text).digest(encoding);
const decisions = (decision: string, reason: string, scheme = 'custom'): Promise<number> =>
  gate.metric(`sidegate_auth_decisions_total{route="billing",scheme="${scheme}",decision="${decision}",reason="${reason}"}`);
const lastLine = (): Record<string, unknown> => gate.log().findLast(({ msg }) => msg === 'request') ?? {};

/** Signed as Slack and Zoom do: `v0:timestamp:body`. */
const V0 = {
  signature: { header: 'X-Signature', forms: [{ prefix: 'v0=' }] },
  signed: [{ text: 'v0' }, 'timestamp', 'body'],
  separator: ':',
  timestamp: { header: 'X-Timestamp' },
};
const CONTENT = {
  signature: { header: 'X-Signature', encoding: 'base64', forms: [{ prefix: 'sha256=' }] },
  signed: ['body'],
};

function postV0(body: string, { at = unixNow(), secret = SECRET, headers = {} } = {}): Promise<Answer> {
  const signature = createHmac('sha256', secret).update(`v0:${at}:${body}`).digest('hex');
  return send(gate.port, { headers: { ...JSON_TYPE, 'X-Timestamp': at, 'X-Signature': `v0=${signature}`, ...headers }, body });
}

describe('Slack', () => {
  const body = JSON.stringify({ token: 'x', challenge: 'abc123', type: 'url_verification' });

  test('gets its challenge back each time; events reach the app', async () => {
    await start({ scheme: 'custom', custom: V0, handshake: { type: 'slack' } });
    const at = unixNow();
    for (let i = 0; i < 3; i++) {
      const answer = await postV0(body, { at });
      expect(answer).toMatchObject({ status: 200, text: 'abc123' });
      expect(answer.headers).toMatchObject({
        'content-type': 'text/plain',
        'cache-control': 'no-store',
        'x-content-type-options': 'nosniff',
        'content-length': '6',
      });
    }
    expect(app.received).toEqual([]);
    expect(await decisions('allow', 'handshake')).toBe(3);
    expect(await gate.metric('sidegate_dedup_operations_total{outcome="new"}')).toBe(0);
    expect((await postV0('{"type":"event_callback"}')).text).toBe('handled');
    expect(app.received).toHaveLength(1);
    await gate.stop();
    expect(gate.log().find(({ code }) => code === 'handshake')).toMatchObject({
      detail: 'slack',
      key: 'current',
      status: 200,
      level: 'info',
    });
  });

  test('is rejected if forged, stale or malformed, without details', async () => {
    await start({ scheme: 'custom', custom: V0, handshake: { type: 'slack' } });
    expect(await postV0(body, { secret: 'another key of many bytes' })).toMatchObject({
      status: 401,
      code: 'signature_mismatch',
    });
    expect(await postV0(body, { at: unixNow() - 3_600 })).toMatchObject({ status: 401, code: 'timestamp_outside_tolerance' });
    const malformed = await postV0(body.replace('abc123', 'a b'));
    expect(malformed).toMatchObject({ status: 403, code: 'handshake_refused' });
    expect(malformed.text).not.toContain('challenge');
    expect(app.received).toEqual([]);
    expect(await decisions('deny', 'handshake_refused')).toBe(1);
    await gate.stop();
    expect(gate.log().find(({ code }) => code === 'handshake_refused')?.['detail']).toContain('challenge');
  });

  test('is forwarded to the app if the handshake is disabled', async () => {
    await start({ scheme: 'custom', custom: V0, handshake: 'off' });
    expect((await postV0(body)).text).toBe('handled');
    expect(app.received).toHaveLength(1);
  });
});

test('Zoom gets the HMAC of its token with the key that verified it, and again after three days', async () => {
  const keys = [
    { name: 'new', secret: { file: 'new' } },
    { name: 'current', secret: { file: 'secret' } },
  ];
  await start({ scheme: 'custom', custom: V0, keys, handshake: { type: 'zoom' } }, { new: 'another-key-of-many-bytes' });
  const body = JSON.stringify({ event: 'endpoint.url_validation', payload: { plainToken: 'qgg8vlvZRS6UYooatFL8Aw' } });
  for (const secret of [SECRET, 'another-key-of-many-bytes', SECRET]) {
    const encryptedToken = createHmac('sha256', secret).update('qgg8vlvZRS6UYooatFL8Aw').digest('hex');
    const answer = await postV0(body, { secret });
    expect(JSON.parse(answer.text)).toEqual({ plainToken: 'qgg8vlvZRS6UYooatFL8Aw', encryptedToken });
    expect(answer.headers['content-type']).toBe('application/json');
  }
  expect(app.received).toEqual([]);
});

test('Smartcar gets the HMAC of its challenge only if it signed the request', async () => {
  await start({ scheme: 'smartcar' });
  const body = JSON.stringify({ eventType: 'VERIFY', data: { challenge: '3a5c8f72-e6d9-4b1a-9f2e-8c7d6a5b4e3f' } });
  const ask = (signature: object) => send(gate.port, { headers: { ...JSON_TYPE, ...signature }, body });
  const answer = await ask({ 'SC-Signature': mac(body) });
  expect([answer.status, JSON.parse(answer.text)]).toEqual([200, { challenge: mac('3a5c8f72-e6d9-4b1a-9f2e-8c7d6a5b4e3f') }]);
  for (const signature of [{}, { 'SC-Signature': 'a'.repeat(64) }]) {
    const denied = await ask(signature);
    expect(denied.status).toBe(401);
    expect(denied.text).not.toContain(mac('3a5c8f72-e6d9-4b1a-9f2e-8c7d6a5b4e3f'));
  }
  expect(app.received).toEqual([]);
});

test('Twitch gets its challenge back; notifications and revocations reach the app', async () => {
  await start({ scheme: 'custom', custom: V0, handshake: { type: 'twitch' } });
  const field = (type: string) => ({ headers: { 'Twitch-Eventsub-Message-Type': type } });
  const body = JSON.stringify({ challenge: 'pogchamp', subscription: { status: 'webhook_callback_verification_pending' } });
  expect(await postV0(body, field('webhook_callback_verification'))).toMatchObject({ status: 200, text: 'pogchamp' });
  expect(await postV0(body, field('notification'))).toMatchObject({ status: 403, code: 'handshake_refused' });
  expect(app.received).toEqual([]);
  const revoked = JSON.stringify({ subscription: { status: 'authorization_revoked' } });
  expect((await postV0(revoked, field('revocation'))).text).toBe('handled');
});

describe('Discord', () => {
  const custom = {
    signature: { header: 'X-Signature-Ed25519', forms: [{ algorithm: 'ed25519' }] },
    signed: ['timestamp', 'body'],
    timestamp: { header: 'X-Signature-Timestamp' },
    publicKey: { encoding: 'hex', format: 'raw' },
  };
  const pair = generateKeyPairSync('ed25519');
  const publicKey = pair.publicKey.export({ format: 'der', type: 'spki' }).subarray(-32).toString('hex');
  const post = (value: object, key: KeyObject = pair.privateKey): Promise<Answer> => {
    const body = JSON.stringify(value);
    const at = String(unixNow());
    const signature = signBytes(null, Buffer.from(at + body), key).toString('hex');
    return send(gate.port, { headers: { ...JSON_TYPE, 'X-Signature-Timestamp': at, 'X-Signature-Ed25519': signature }, body });
  };

  test('gets a PONG, and 204 without a body; forged requests get the 401 that it tests for', async () => {
    await start({ scheme: 'custom', custom, handshake: { type: 'discord' } }, { secret: publicKey });
    expect(await post({ type: 1, token: 'a' })).toMatchObject({ status: 200, text: '{"type":1}' });
    const events = await post({ type: 0, version: 1, application_id: '1' });
    expect([events.status, events.text, events.headers['content-length']]).toEqual([204, '', undefined]);
    expect((await post({ type: 1 }, generateKeyPairSync('ed25519').privateKey)).status).toBe(401);
    expect(app.received).toEqual([]);
    expect((await post({ type: 1, event: { type: 'ENTITLEMENT_CREATE' } })).text).toBe('handled');
  });
});

describe('Meta', () => {
  const ask = (token: string): string => `${PATH}?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=${token}`;
  const meta = (more: Sections = {}): Sections => ({
    scheme: 'custom',
    custom: CONTENT,
    handshake: { type: 'meta', verifyToken: { file: 'token' }, ...more },
  });

  test('gets its challenge back with the correct token, and no other GET is forwarded', async () => {
    await start(meta());
    expect(await send(gate.port, { method: 'GET', path: ask(TOKEN) })).toMatchObject({ status: 200, text: '1158201444' });
    expect(await send(gate.port, { method: 'GET', path: ask('wrong') })).toMatchObject({
      status: 403,
      code: 'handshake_refused',
    });
    for (const path of [PATH, `${PATH}?a=1`]) {
      const other = await send(gate.port, { method: 'GET', path });
      expect([other.status, other.code, other.headers.allow]).toEqual([405, 'method_not_allowed', 'POST']);
    }
    const chunked = { 'Transfer-Encoding': 'chunked' };
    for (const headers of [chunked, { 'Content-Length': 7 }])
      expect((await send(gate.port, { method: 'GET', path: ask(TOKEN), headers, body: 'content' })).code).toBe(
        'handshake_refused',
      );
    const oneByte = await send(gate.port, { method: 'GET', path: ask(TOKEN), headers: chunked, body: 'x' });
    expect(oneByte.code).toBe('handshake_refused');
    expect((await send(gate.port, { method: 'GET', path: ask(TOKEN), headers: chunked })).text).toBe('1158201444');
    expect(app.received).toEqual([]);
    expect(await decisions('allow', 'handshake')).toBe(2);
    expect(await decisions('deny', 'handshake_refused')).toBe(4);
    expect(gate.logText()).not.toContain(TOKEN);
    const headers = { ...JSON_TYPE, 'X-Signature': `sha256=${mac('{}', 'base64')}` };
    expect((await send(gate.port, { headers, body: '{}' })).text).toBe('handled');
    expect((await send(gate.port, { headers, body: '{}', path: `${PATH}?a=1` })).code).toBe('malformed_request');
  });

  test('can also verify a route with one configured method', async () => {
    await startWithMethods();
    expect((await send(gate.port, { method: 'GET', path: ask(TOKEN) })).text).toBe('1158201444');
    // The route's own GET: like any delivery it needs a signature.
    expect((await send(gate.port, { method: 'GET' })).status).toBe(415);
    expect(app.received).toEqual([]);
  });

  async function startWithMethods(): Promise<void> {
    const match = { path: PATH, methods: ['POST', 'GET'] };
    gate = await startGate({ routes: [toRoute(app.port, { match, webhook: meta() })] }, undefined, {
      secret: SECRET,
      token: TOKEN,
    });
  }

  test('gets 503 while the token is missing, and deliveries are not affected', async () => {
    await start(meta());
    rmSync(join(gate.folder, 'token'));
    await until(async () => (await send(gate.port, { method: 'GET', path: ask(TOKEN) })).status === 503);
    const headers = { ...JSON_TYPE, 'X-Signature': `sha256=${mac('{}', 'base64')}` };
    expect((await send(gate.port, { headers, body: '{}' })).text).toBe('handled');
    const ready = 'sidegate_route_ready{route="billing"}';
    expect(await gate.metric(ready)).toBe(0);
    writeFileSync(join(gate.folder, 'token'), 'the-next\n');
    await until(async () => (await send(gate.port, { method: 'GET', path: ask('the-next') })).status === 200);
    expect(await gate.metric(ready)).toBe(1);
    const lines = (msg: string) => gate.log().filter((line) => line['msg'] === msg);
    expect(lines('secret_unavailable')).toMatchObject([{ level: 'error', key: 'handshake' }]);
    // A token that works but is weak is no secret that is missing.
    expect(lines('secret_warning')).toMatchObject([{ level: 'warn', message: expect.stringContaining('has 8 bytes') }]);
    expect((await send(gate.port, { method: 'GET', path: ask(TOKEN) })).status).toBe(403);
  });
});

describe('X', () => {
  const x = { scheme: 'custom', custom: CONTENT, handshake: { type: 'x' } };
  const crc = (token: string, headers = {}): Promise<Answer> =>
    send(gate.port, { method: 'GET', path: `${PATH}?crc_token=${token}&nonce=a`, headers });

  test('gets the HMAC of its token, which is not the signature of any accepted delivery', async () => {
    await start(x);
    const token = '9b4507b3-9040-4669-9ca3-6b94edb50553';
    const answer = await crc(token);
    expect(JSON.parse(answer.text)).toEqual({ response_token: `sha256=${mac(token, 'base64')}` });
    const { response_token: signature } = JSON.parse(answer.text) as { response_token: string };
    const headers = { ...JSON_TYPE, 'X-Signature': signature };
    expect(await send(gate.port, { headers, body: token })).toMatchObject({ status: 403, code: 'handshake_refused' });
    expect((await crc('%7B%22id%22%3A1%7D')).code).toBe('handshake_refused');
    expect(app.received).toEqual([]);
    const body = '{"id":1}';
    expect(
      (await send(gate.port, { headers: { ...JSON_TYPE, 'X-Signature': `sha256=${mac(body, 'base64')}` }, body })).text,
    ).toBe('handled');
  });

  test('needs a valid signature if it signs the query', async () => {
    await start(x);
    const signature = `sha256=${mac('crc_token=abc&nonce=a', 'base64')}`;
    expect((await crc('abc', { 'X-Signature': signature })).status).toBe(200);
    expect((await crc('abd', { 'X-Signature': signature })).code).toBe('handshake_refused');
  });
});

describe('Microsoft Graph', () => {
  const graph = { scheme: 'microsoft-graph', handshake: { verifyToken: { file: 'token' } } };
  const url = `${PATH}?token=${TOKEN}`;
  const toBody = (states: readonly unknown[], id?: string): string =>
    JSON.stringify({ value: states.map((clientState) => ({ clientState, changeType: 'created', ...(id && { id }) })) });

  test('gets its token back, and delivers with the clientState of every item', async () => {
    await start(graph);
    const asked = await send(gate.port, {
      path: `${url}&validationToken=Validation%3a+Testing+client`,
      headers: { 'Content-Type': 'text/plain; charset=utf-8', 'Content-Length': '0' },
    });
    expect(asked).toMatchObject({ status: 200, text: 'Validation: Testing client' });
    expect(asked.headers['content-type']).toBe('text/plain');
    expect(app.received).toEqual([]);
    const post = (body: string, path = url): Promise<Answer> => send(gate.port, { path, headers: JSON_TYPE, body });
    expect((await post(toBody([SECRET], 'one'))).text).toBe('handled');
    expect((await post(toBody([SECRET], 'one'))).code).toBe('duplicate');
    expect((await post(toBody([SECRET, SECRET]), PATH)).text).toBe('handled');
    expect((await post(toBody([SECRET, 'x']))).code).toBe('signature_mismatch');
    expect((await post(toBody([SECRET]), `${PATH}?token=x`)).code).toBe('malformed_request');
    expect((await post(toBody([SECRET]), `${url}&validationToken=a`)).code).toBe('handshake_refused');
    expect(app.received).toHaveLength(2);
    expect(await decisions('allow', 'handshake', 'microsoft-graph')).toBe(1);
  });

  test('gets 503 for a delivery with the token while the token is missing, and for no other', async () => {
    await start(graph);
    const post = (body: string, path = url): Promise<Answer> => send(gate.port, { path, headers: JSON_TYPE, body });
    rmSync(join(gate.folder, 'token'));
    await until(async () => (await send(gate.port, { path: `${url}&validationToken=a` })).status === 503);
    expect(await post(toBody([SECRET], 'one'))).toMatchObject({ status: 503, code: 'secret_unavailable' });
    expect((await post(toBody([SECRET], 'two'), PATH)).text).toBe('handled');
    writeFileSync(join(gate.folder, 'token'), TOKEN);
    await until(async () => (await post(toBody([SECRET], 'one'))).text === 'handled');
  });

  test('is rejected without the token, in any form', async () => {
    await start(graph);
    for (const path of [`${PATH}?validationToken=a`, `${PATH}?token=x&validationToken=a`])
      expect(await send(gate.port, { path })).toMatchObject({ status: 403, code: 'handshake_refused' });
    expect(app.received).toEqual([]);
  });
});

describe('CloudEvents', () => {
  const webhook = {
    scheme: 'bearer',
    dedup: 'off',
    contentTypes: ['application/cloudevents+json'],
    handshake: { type: 'cloudevents', allowedOrigins: ['eventgrid.azure.net'], allowedRate: 120 },
  };

  test('is accepted from an allowed origin, and no other OPTIONS is forwarded', async () => {
    await start(webhook);
    const ask = (origin: string) => send(gate.port, { method: 'OPTIONS', headers: { 'WebHook-Request-Origin': origin } });
    const answer = await ask('eventgrid.azure.net');
    expect(answer).toMatchObject({ status: 200, text: '' });
    expect(answer.headers).toMatchObject({
      'webhook-allowed-origin': 'eventgrid.azure.net',
      'webhook-allowed-rate': '120',
      allow: 'POST',
    });
    const refused = await ask('evil.example');
    expect(refused).toMatchObject({ status: 403, code: 'handshake_refused' });
    expect(refused.headers).not.toHaveProperty('webhook-allowed-origin');
    expect((await send(gate.port, { method: 'OPTIONS' })).code).toBe('method_not_allowed');
    expect(app.received).toEqual([]);
  });
});

describe('a sender that does not authenticate its request', () => {
  const custom = (type: string, more: Sections = {}): Sections => ({
    scheme: 'custom',
    custom: CONTENT,
    handshake: { type, ...more },
  });
  const echo = { 'content-type': 'text/plain', 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' };
  const json = { ...echo, 'content-type': 'application/json' };

  test.each<[string, string, string, Record<string, string>, string, Record<string, string>]>([
    ['dropbox', 'GET', '?challenge=abc', {}, 'abc', echo],
    ['nylas', 'GET', '?challenge=abc', {}, 'abc', echo],
    ['okta', 'GET', '', { 'X-Okta-Verification-Challenge': 'abc' }, '{"verification":"abc"}', json],
    ['linkedin', 'GET', '?challengeCode=a-1', {}, `{"challengeCode":"a-1","challengeResponse":"${mac('a-1')}"}`, json],
    ['trello', 'HEAD', '', {}, '', echo],
    ['asana', 'POST', '', { 'X-Hook-Secret': 'abc' }, '', { ...echo, 'x-hook-secret': 'abc' }],
    ['ringcentral', 'POST', '', { 'Validation-Token': 'abc' }, '', { ...echo, 'validation-token': 'abc' }],
  ])(
    '%s gets its response, counted and logged, and the app sees nothing of it',
    async (type, method, query, headers, text, expected) => {
      await start(custom(type));
      const answer = await send(gate.port, { method, path: PATH + query, headers });
      expect([answer.status, answer.text]).toEqual([200, text]);
      expect(answer.headers).toMatchObject(expected);
      const signed = { ...JSON_TYPE, 'X-Signature': `sha256=${mac('{"a":1}', 'base64')}` };
      expect((await send(gate.port, { headers: signed, body: '{"a":1}' })).text).toBe('handled');
      expect((await send(gate.port, { headers: JSON_TYPE, body: '{"a":1}' })).code).toBe('missing_signature');
      expect(app.received).toHaveLength(1);
      expect(await decisions('allow', 'handshake')).toBe(1);
      await gate.stop();
      expect(gate.log().find(({ code }) => code === 'handshake')).toMatchObject({ detail: type, level: 'info', status: 200 });
    },
  );

  test('Braintree gets its response, which signs no delivery', async () => {
    const challenge = '20f9f8ed05f77439fe955c977e4c8a53';
    const sign = (text: string): string =>
      createHmac('sha1', createHash('sha1').update(SECRET).digest()).update(text).digest('hex');
    await start({ scheme: 'braintree', handshake: { publicKey: 'key_1' } });
    const answer = await send(gate.port, { method: 'GET', path: `${PATH}?bt_challenge=${challenge}` });
    expect([answer.status, answer.text]).toEqual([200, `key_1|${sign(challenge)}`]);
    const post = (payload: string): Promise<Answer> =>
      send(gate.port, {
        headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
        body: new URLSearchParams({ bt_signature: `key_1|${sign(payload)}`, bt_payload: payload }).toString(),
      });
    expect((await post(challenge)).code).toBe('handshake_refused');
    expect((await post('PG5vdGlmaWNhdGlvbj48L25vdGlmaWNhdGlvbj4=\n')).text).toBe('handled');
    expect((await send(gate.port, { method: 'GET' })).code).toBe('method_not_allowed');
    expect(app.received).toHaveLength(1);
  });

  test.each(['dropbox', 'okta', 'linkedin', 'trello'])(
    '%s leaves other requests with its method without an answer',
    async (type) => {
      await start(custom(type));
      const method = type === 'trello' ? 'GET' : 'PUT';
      for (const each of [method, 'DELETE']) expect((await send(gate.port, { method: each })).code).toBe('method_not_allowed');
      expect(app.received).toEqual([]);
    },
  );

  test('has a handshake with content rejected, or checked as a delivery', async () => {
    await start(custom('asana'));
    const headers = { ...JSON_TYPE, 'X-Hook-Secret': 'abc' };
    expect((await send(gate.port, { headers, body: '{}' })).headers['x-hook-secret']).toBe('abc');
    for (const body of ['{"events":[]}', 'x'.repeat(1_025), 'x'.repeat(70_000)]) {
      const answer = await send(gate.port, { headers, body });
      expect([answer.code, answer.headers['x-hook-secret']]).toEqual(['missing_signature', undefined]);
    }
    const chunked = await send(gate.port, { headers: { ...headers, 'Transfer-Encoding': 'chunked' }, body: '{}' });
    expect(chunked.code).toBe('missing_signature');
    // A valid delivery stays one, whatever handshake header somebody adds to it.
    const body = '{"events":[1]}';
    expect((await send(gate.port, { headers: { ...headers, 'X-Signature': `sha256=${mac(body, 'base64')}` }, body })).text).toBe(
      'handled',
    );
    expect(app.received).toHaveLength(1);
  });

  test('cannot make the gate trust the secret that it echoes', async () => {
    await start(custom('asana'));
    const secret = 'a-secret-that-an-attacker-chose';
    expect((await send(gate.port, { headers: { 'X-Hook-Secret': secret } })).headers['x-hook-secret']).toBe(secret);
    const body = '{"events":[]}';
    const signature = createHmac('sha256', secret).update(body).digest('base64');
    const forged = await send(gate.port, { headers: { ...JSON_TYPE, 'X-Signature': `sha256=${signature}` }, body });
    expect([forged.status, forged.code]).toEqual([401, 'signature_mismatch']);
    expect(gate.logText()).not.toContain(secret);
  });

  test('needs the token of its URL if the config asks for one', async () => {
    await start(custom('monday', { verifyToken: { file: 'token' } }));
    const body = '{"challenge":"abc"}';
    const post = (path: string): Promise<Answer> => send(gate.port, { path, headers: JSON_TYPE, body });
    expect(await post(`${PATH}?token=${TOKEN}`)).toMatchObject({ status: 200, text: body });
    expect((await post(PATH)).code).toBe('handshake_refused');
    expect((await post(`${PATH}?token=x`)).code).toBe('malformed_request');
    const event = '{"event":{}}';
    const headers = { ...JSON_TYPE, 'X-Signature': `sha256=${mac(event, 'base64')}` };
    expect((await send(gate.port, { path: `${PATH}?token=${TOKEN}`, headers, body: event })).text).toBe('handled');
    expect(app.received).toHaveLength(1);
  });
});

describe('Notion', () => {
  const notionToken = 'secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl';
  const notion = { scheme: 'custom', custom: CONTENT, handshake: { type: 'notion' } };
  const offer = (token: string): Promise<Answer> =>
    send(gate.port, { headers: JSON_TYPE, body: JSON.stringify({ verification_token: token }) });
  const list = async (): Promise<Record<string, unknown>[]> => {
    const { text } = await send(gate.adminPort, { method: 'GET', path: '/handshakes' });
    return (JSON.parse(text) as { tokens: Record<string, unknown>[] }).tokens;
  };

  test('offers its token to authorized operators alone, and it verifies nothing until it is configured', async () => {
    await start(notion);
    expect(await offer(notionToken)).toMatchObject({ status: 200, text: '{}' });
    expect(await list()).toEqual([
      { route: 'billing', at: expect.stringMatching(/^\d{4}-.*Z$/), client: '127.0.0.1', token: notionToken },
    ]);
    const body = '{"type":"page.created"}';
    const signature = createHmac('sha256', notionToken).update(body).digest('base64');
    const headers = { ...JSON_TYPE, 'X-Signature': `sha256=${signature}` };
    expect((await send(gate.port, { headers, body })).code).toBe('signature_mismatch');
    writeFileSync(join(gate.folder, 'secret'), notionToken);
    await until(async () => (await send(gate.port, { headers, body })).text === 'handled');
    expect(gate.logText()).not.toContain(notionToken);
    expect(await gate.metrics()).not.toContain(notionToken);
    const deleted = await send(gate.adminPort, { method: 'DELETE', path: '/handshakes' });
    expect(JSON.parse(deleted.text)).toEqual({ deleted: 1 });
    // Once it is a key, it is not offered again.
    await offer(notionToken);
    expect(await list()).toEqual([]);
  });

  test('cannot fill the memory with tokens, and the latest are kept', async () => {
    await start(notion);
    for (let i = 10; i < 30; i++) await offer(`secret_${'a'.repeat(20)}${i}`);
    expect((await list()).map(({ token }) => String(token).slice(-2))).toEqual(['29', '28', '27', '26', '25']);
    expect(app.received).toEqual([]);
  });
});

test('Intercom gets 200 for its HEAD, and its signed ping reaches the app', async () => {
  await start({ scheme: 'intercom' });
  expect((await send(gate.port, { method: 'HEAD' })).status).toBe(200);
  expect((await send(gate.port, { method: 'GET' })).code).toBe('method_not_allowed');
  expect(app.received).toEqual([]);
  const body = '{"type":"notification_event","topic":"ping","id":null}';
  const headers = { ...JSON_TYPE, 'X-Hub-Signature': `sha1=${createHmac('sha1', SECRET).update(body).digest('hex')}` };
  expect((await send(gate.port, { headers, body })).text).toBe('handled');
});

test('Azure Event Grid gets its code back if the route authenticates it, and only then', async () => {
  await start({ scheme: 'bearer', dedup: 'off', handshake: { type: 'event-grid' } });
  const eventType = 'Microsoft.EventGrid.SubscriptionValidationEvent';
  const body = JSON.stringify([{ id: '1', eventType, data: { validationCode: '512d38b6' } }]);
  const authorized = { ...JSON_TYPE, Authorization: `Bearer ${SECRET}` };
  expect(await send(gate.port, { headers: authorized, body })).toMatchObject({
    status: 200,
    text: '{"validationResponse":"512d38b6"}',
  });
  expect((await send(gate.port, { headers: JSON_TYPE, body })).status).toBe(401);
  expect(app.received).toEqual([]);
  expect((await send(gate.port, { headers: authorized, body: '[{"eventType":"a"}]' })).text).toBe('handled');
});

test('an observed route forwards handshakes, because the app still answers them, but accepts no more methods', async () => {
  const match = { path: PATH, methods: ['POST'] };
  const webhook = { scheme: 'custom', custom: CONTENT, handshake: { type: 'meta', verifyToken: { file: 'token' } } };
  const sections = { routes: [toRoute(app.port, { match, webhook, route: { mode: 'observe' } })] };
  gate = await startGate(sections, undefined, { secret: SECRET, token: TOKEN });
  const asked = `${PATH}?hub.mode=subscribe&hub.challenge=1&hub.verify_token=${TOKEN}`;
  expect((await send(gate.port, { method: 'GET', path: asked })).text).toBe('handled');
  expect(lastLine()).toMatchObject({ code: 'forwarded', observed: 'handshake' });
  expect((await send(gate.port, { method: 'GET' })).code).toBe('method_not_allowed');
  expect(app.received).toHaveLength(1);
});
