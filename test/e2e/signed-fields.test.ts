/** Signatures in the body and in the query through a running gate: what the app gets, and what a captured signature is good for. */
import { createHmac, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute } from '../support/gate.ts';

const SECRET = 'key-3ax6xnjp29jd6fds4gc373sgvjxteol0';

const app = useApp();

function start(webhook: Sections, route: Sections = {}): Promise<TestGate> {
  return startGate({ routes: [toRoute(app.port, { webhook, route })] }, undefined, { secret: SECRET });
}

const hmac = (text: string): string => createHmac('sha256', SECRET).update(text).digest('hex');
const now = (): number => Math.floor(Date.now() / 1000);

function post(
  port: number,
  body: string,
  options: { path?: string; type?: string; headers?: Record<string, string> } = {},
): Promise<Answer> {
  const { path = '/hooks/billing', type = 'application/json', headers = {} } = options;
  return send(port, { path, headers: { 'Content-Type': type, ...headers }, body });
}

function toMailgun(event: object, token = randomBytes(25).toString('hex'), time = now()): string {
  const signature = { timestamp: String(time), token, signature: hmac(`${time}${token}`) };
  return JSON.stringify({ signature, 'event-data': event });
}

test('a signature over a nonce forwards one body: another body gets 503, as it is not signed, and a retry with a new nonce is a duplicate', async () => {
  const gate = await start({ scheme: 'mailgun' });
  const token = randomBytes(25).toString('hex');
  const time = now();
  const first = toMailgun({ id: 'a', event: 'opened' }, token, time);
  expect(await post(gate.port, first)).toMatchObject({ status: 200, text: 'handled' });
  expect(app.received.map(({ body }) => body.toString())).toEqual([first]);
  for (const forged of [{ id: 'b', event: 'delivered' }, { event: 'delivered' }, { id: 'a', event: 'delivered' }])
    expect(await post(gate.port, toMailgun(forged, token, time))).toMatchObject({ status: 503, code: 'event_conflict' });
  expect(await post(gate.port, first)).toMatchObject({ status: 200, code: 'duplicate' });
  expect(await post(gate.port, toMailgun({ id: 'a', event: 'opened' }))).toMatchObject({ status: 200, code: 'duplicate' });
  expect(await post(gate.port, toMailgun({ id: 'a', event: 'opened' }, token, time - 60))).toMatchObject({ code: 'duplicate' });
  expect(await post(gate.port, toMailgun({ id: 'a', event: 'failed' }))).toMatchObject({ status: 503, code: 'event_conflict' });
  expect(await post(gate.port, toMailgun({ id: 'c', event: 'opened' }))).toMatchObject({ text: 'handled' });
  expect(app.received).toHaveLength(2);
  await gate.stop();
});

test('a time in the body is checked, and a body that has two readings is rejected before the app sees it', async () => {
  const gate = await start({ scheme: 'mailgun' });
  expect(await post(gate.port, toMailgun({ id: 'a' }, 'aa', now() - 10 * 3_600))).toMatchObject({
    status: 401,
    code: 'timestamp_outside_tolerance',
  });
  const twice = toMailgun({ id: 'a' }).replace('"token"', '"token":"x","token"');
  expect(await post(gate.port, twice)).toMatchObject({ status: 401, code: 'malformed_signature' });
  expect(await post(gate.port, '{}')).toMatchObject({ status: 401, code: 'missing_signature' });
  expect(await post(gate.port, toMailgun({ id: 'a' }).replace(/"signature":"./, '"signature":"'))).toMatchObject({ status: 401 });
  expect(app.received).toHaveLength(0);
  await gate.stop();
});

test('a multipart form with a signed time and type is forwarded unchanged, and recognized with another boundary', async () => {
  const gate = await start({ scheme: 'dropbox-sign' });
  const time = String(now());
  const event = { event_type: 'signature_request_sent', event_time: time, event_hash: hmac(`${time}signature_request_sent`) };
  const body = `--xYz\r\nContent-Disposition: form-data; name="json"\r\n\r\n${JSON.stringify({ event })}\r\n--xYz--\r\n`;
  expect(await post(gate.port, body, { type: 'multipart/form-data; boundary=other' })).toMatchObject({ status: 415 });
  expect(await post(gate.port, body, { type: 'multipart/form-data; boundary=xYz' })).toMatchObject({ text: 'handled' });
  const retry = (changed = body): Promise<Answer> =>
    post(gate.port, changed.replaceAll('--xYz', '--other'), { type: 'multipart/form-data; boundary=other' });
  expect(await retry()).toMatchObject({ status: 200, text: 'Hello API Event Received' });
  expect(await retry(body.replace('"event_type"', '"note":1,"event_type"'))).toMatchObject({
    status: 503,
    code: 'event_conflict',
  });
  expect(app.received.map((request) => request.body.toString())).toEqual([body]);
  await gate.stop();
});

test('a TeXML callback of Telnyx is a form, and its retry a duplicate', async () => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const key = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32).toString('base64');
  const webhook = { scheme: 'telnyx', keys: [{ name: 'current', secret: { file: 'telnyx' } }] };
  const gate = await startGate({ routes: [toRoute(app.port, { webhook })] }, undefined, { telnyx: key });
  const body = 'CallSid=v3%3Aab&CallStatus=completed';
  const callback = (time = now()): Promise<Answer> => {
    const signature = sign(null, Buffer.from(`${time}|${body}`), privateKey).toString('base64');
    const headers = { 'Telnyx-Timestamp': String(time), 'Telnyx-Signature-Ed25519': signature };
    return post(gate.port, body, { type: 'application/x-www-form-urlencoded', headers });
  };
  const time = now();
  expect((await callback(time)).text).toBe('handled');
  expect(await callback(time)).toMatchObject({ status: 200, code: 'duplicate' });
  await gate.stop();
});

test('no response to Xero has content', async () => {
  const gate = await start({ scheme: 'xero' });
  const body = JSON.stringify({ events: [{ eventDateUtc: '2026-11-30T00:00:00' }] });
  const sign = (key: string): Record<string, string> => ({
    'X-Xero-Signature': createHmac('sha256', key).update(body).digest('base64'),
  });
  const toShape = ({ status, text, headers }: Answer): unknown => [status, text, headers['content-length']];
  expect(toShape(await post(gate.port, body, { headers: sign('another') }))).toEqual([401, '', '0']);
  expect((await post(gate.port, body, { headers: sign(SECRET) })).text).toBe('handled');
  expect(toShape(await post(gate.port, body, { headers: sign(SECRET) }))).toEqual([200, '', '0']);
  await gate.stop();
});

test('a repeat has the text without which its sender would send it again, and refusals do not', async () => {
  const alipay = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const key = alipay.publicKey.export({ format: 'der', type: 'spki' }).toString('base64');
  const gate = await startGate({ routes: [toRoute(app.port, { webhook: { scheme: 'alipay' } })] }, undefined, { secret: key });
  const toBody = (fields: Readonly<Record<string, string>>): string => {
    const names = Object.keys(fields).sort();
    const text = names.map((name) => `${name}=${fields[name]}`).join('&');
    const signature = sign('sha256', Buffer.from(text), alipay.privateKey).toString('base64');
    return new URLSearchParams({ ...fields, sign_type: 'RSA2', sign: signature }).toString();
  };
  const type = 'application/x-www-form-urlencoded; charset=utf-8';
  const body = toBody({ subject: 'Tee & Öl', notify_id: 'n1', total_amount: '0.10' });
  expect(await post(gate.port, body, { type })).toMatchObject({ status: 200, text: 'handled' });
  const repeat = await post(gate.port, toBody({ notify_id: 'n1', notify_time: '2026-01-01 00:00:00' }), { type });
  expect(repeat).toMatchObject({ status: 200, text: 'success' });
  expect(repeat.headers).toMatchObject({ 'content-type': 'text/plain', 'content-length': '7' });
  const forged = body.replace('0.10', '0.01').replace('n1', 'n2');
  expect(await post(gate.port, forged, { type })).toMatchObject({ status: 401, code: 'signature_mismatch' });
  const split = toBody({ notify_id: 'n3', subject: 'a&total_amount=9' });
  expect(await post(gate.port, split, { type })).toMatchObject({ status: 401, code: 'malformed_signature' });
  expect(app.received.map((request) => request.body.toString())).toEqual([body]);
  await gate.stop();
});

test('a signature in the query needs no other parameter, and the rest of the query is signed or rejected', async () => {
  const custom = { signature: { query: 'sig' }, signed: ['body'] };
  const gate = await start({ scheme: 'custom', custom });
  const body = '{"id":1}';
  const path = `/hooks/billing?sig=${hmac(body)}`;
  expect(await post(gate.port, body)).toMatchObject({ status: 401, code: 'missing_signature' });
  expect(await post(gate.port, body, { path: `${path}&admin=1` })).toMatchObject({ status: 400, code: 'malformed_request' });
  expect(await post(gate.port, body, { path: `${path}&sig=${hmac(body)}` })).toMatchObject({
    status: 401,
    code: 'malformed_signature',
  });
  expect(await post(gate.port, body, { path: `${path}&Sig=1` })).toMatchObject({ status: 401, code: 'malformed_signature' });
  expect(await post(gate.port, body, { path: `${path}%` })).toMatchObject({ status: 401, code: 'malformed_signature' });
  expect(await post(gate.port, body, { path })).toMatchObject({ text: 'handled' });
  expect(app.received.map(({ url }) => url)).toEqual([path]);
  await gate.stop();
});

test('a URL without its signature parameter is signed with the public URL', async () => {
  const custom = { signature: { query: 'sig' }, signed: ['urlWithoutSignature', { text: ' ' }, 'body'] };
  const gate = await start({ scheme: 'custom', custom, publicUrl: 'https://hooks.example.com' });
  const body = '{"id":1}';
  const toMac = (query: string): string => hmac(`https://hooks.example.com/hooks/billing${query} ${body}`);
  expect(await post(gate.port, body, { path: `/hooks/billing?a=1&sig=${toMac('?a=1')}` })).toMatchObject({ text: 'handled' });
  expect(await post(gate.port, body, { path: `/hooks/billing?a=2&sig=${toMac('?a=1')}` })).toMatchObject({ status: 401 });
  await gate.stop();
});

test('a token in the query or the body authenticates, and never reaches the log', async () => {
  const forms = [{ algorithm: 'token' }];
  const gate = await start({
    scheme: 'custom',
    custom: { signature: { query: 'token', encoding: 'text', forms }, signed: [], id: { json: '$.id' } },
  });
  expect(await post(gate.port, '{"id":"1"}', { path: `/hooks/billing?token=${SECRET}` })).toMatchObject({ text: 'handled' });
  expect(await post(gate.port, '{"id":"2"}', { path: `/hooks/billing?token=${SECRET}x` })).toMatchObject({ status: 401 });
  expect(JSON.stringify(gate.log())).not.toContain(SECRET);
  await gate.stop();
  const other = await start({
    scheme: 'custom',
    custom: { signature: { json: '$.token', encoding: 'text', forms }, signed: [], id: { json: '$.id' } },
  });
  expect(await post(other.port, JSON.stringify({ id: '1', token: SECRET }))).toMatchObject({ text: 'handled' });
  expect(await post(other.port, JSON.stringify({ id: '2', token: `${SECRET}x` }))).toMatchObject({ status: 401 });
  expect(await post(other.port, `{"id":"2","token":"x","token":"${SECRET}"}`)).toMatchObject({ status: 401 });
  await other.stop();
});

test('a header that the request lists as signed cannot be taken away from the app', async () => {
  const gate = await start({ scheme: 'contentful' });
  const time = String(Date.now());
  const names = 'x-contentful-signed-headers,x-contentful-timestamp,x-contentful-topic';
  const list = `x-contentful-signed-headers:${names};x-contentful-timestamp:${time};x-contentful-topic:Entry.publish`;
  const headers = {
    'X-Contentful-Signature': hmac(`POST\n/hooks/billing\n${list}\n{}`),
    'X-Contentful-Signed-Headers': names,
    'X-Contentful-Timestamp': time,
    'X-Contentful-Topic': 'Entry.publish',
  };
  expect(await post(gate.port, '{}', { headers: { ...headers, Connection: 'X-Contentful-Topic' } })).toMatchObject({
    status: 401,
  });
  expect(await post(gate.port, '{}', { headers: { ...headers, X_Contentful_Topic: 'other' } })).toMatchObject({ status: 401 });
  expect(await post(gate.port, '{}', { headers: { ...headers, 'X-Contentful-Topic': 'other' } })).toMatchObject({ status: 401 });
  expect(await post(gate.port, '{}', { headers })).toMatchObject({ text: 'handled' });
  await gate.stop();
});

test.each([
  [
    'XML',
    { id: { xml: 'note/id' }, contentTypes: ['application/xml'] },
    '<?xml version="1.0"?><note><id>e&#49;</id></note>',
    'application/xml',
  ],
  [
    'a form',
    { id: { form: 'id' }, contentTypes: ['application/x-www-form-urlencoded'] },
    'id=e1',
    'application/x-www-form-urlencoded',
  ],
])('an ID in %s identifies duplicates', async (_, webhook, body, type) => {
  const gate = await start({ scheme: 'custom', custom: { signature: { header: 'X-Signature' } }, ...webhook });
  const sign = (text: string): Promise<Answer> => post(gate.port, text, { type, headers: { 'X-Signature': hmac(text) } });
  expect(await sign(body)).toMatchObject({ text: 'handled' });
  // Other bytes with the same ID.
  expect(await sign(type.endsWith('xml') ? body.replace('<id>', '<id >') : `${body}&a=b`)).toMatchObject({ code: 'duplicate' });
  await gate.stop();
});

test('an ID in a part of a header, or in the query, identifies duplicates', async () => {
  const custom = { signature: { header: 'X-Signature' } };
  const gate = await start({ scheme: 'custom', custom, id: { header: 'X-Id', part: { separator: ':', index: 1 } } });
  const push = (id: string, body: string): Promise<Answer> =>
    post(gate.port, body, { headers: { 'X-Signature': hmac(body), 'X-Id': id } });
  expect(await push('attempt-1:e1', '{}')).toMatchObject({ text: 'handled' });
  expect(await push('attempt-2:e1', '{}')).toMatchObject({ code: 'duplicate' });
  expect(await push('attempt-2:e1', '{ }')).toMatchObject({ code: 'event_conflict' });
  await gate.stop();
});
