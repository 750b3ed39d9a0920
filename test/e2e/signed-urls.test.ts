/** Senders that sign the URL: what they may sign in it, against the validators of their own libraries. */
import { createHash, createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import twilio from 'twilio';
import { describe, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { send } from '../support/client.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { SECRET } from '../support/preset-cases.ts';

const app = useApp();
const ORIGIN = 'https://hooks.example.com';

describe('a URL with user and password, which the sender signs', () => {
  const credentials = 'hook-user:s3cret%40pass!';
  const fields = new URLSearchParams({ CallSid: 'CA12', Body: 'Grüße & mehr' });
  const form = [...fields].sort().flat().join('');
  const headers = (signed: string, name: string): Record<string, string> => ({
    [name]: createHmac('sha1', SECRET).update(`${signed}${form}`).digest('base64'),
    'Content-Type': 'application/x-www-form-urlencoded',
    Authorization: `Basic ${Buffer.from('hook-user:s3cret@pass!').toString('base64')}`,
  });

  const openWith = async (scheme: string, over: Sections = {}, text = credentials): Promise<TestGate> => {
    const webhook = { scheme, publicUrl: ORIGIN, keys: [{ name: 'k', secret: { file: 'key' } }], ...over };
    const route = toRoute(app.port, { match: { path: '/hook' }, webhook });
    const gate = await startGate({ routes: [route] }, systemClock, { key: SECRET, credentials: text });
    onTestFinished(() => void gate.stop());
    return gate;
  };

  test.each([
    ['twilio', 'X-Twilio-Signature', `https://${credentials}@hooks.example.com/hook?a=1`],
    ['twilio', 'X-Twilio-Signature', `https://${credentials}@hooks.example.com:443/hook?a=1`],
    ['mandrill', 'X-Mandrill-Signature', `https://${credentials}@hooks.example.com/hook?a=1`],
  ])('of %s is verified with urlCredentials', async (scheme, name, url) => {
    const gate = await openWith(scheme, { urlCredentials: { file: 'credentials' } });
    const path = '/hook?a=1';
    expect((await send(gate.port, { path, headers: headers(url, name), body: `${fields}` })).status).toBe(200);
    const without = url.replace(`${credentials}@`, '');
    expect((await send(gate.port, { path, headers: headers(without, name), body: `${fields}` })).code).toBe('signature_mismatch');
    for (const part of [credentials, 's3cret']) expect(gate.logText()).not.toContain(part);
  });

  test('is explained without urlCredentials, and no line has the password', async () => {
    const gate = await openWith('mandrill');
    const path = '/hook?a=1';
    const url = 'https://hook-user:s3cret%40pass!@hooks.example.com/hook?a=1';
    expect((await send(gate.port, { path, headers: headers(url, 'X-Mandrill-Signature'), body: `${fields}` })).status).toBe(401);
    const line = await until(() => gate.log().find(({ msg }) => msg === 'signature_explained'));
    expect(line).toMatchObject({
      causes: ['url'],
      text: expect.stringContaining('user and password of the Authorization header'),
    });
    expect(line['fix']).toContain('urlCredentials');
    expect(gate.logText()).not.toContain('s3cret');
  });

  test('is rejected by the config if the text cannot be a part of a URL, without showing it', async () => {
    const error = await openWith('twilio', { urlCredentials: { file: 'credentials' } }, 'user:pass@host').catch(String);
    expect(error).toContain('urlCredentials: the text cannot be the user and password of a URL');
    expect(error).not.toContain('user:pass@');
  });

  test('gets 503 while the credentials cannot be read', async () => {
    const gate = await openWith('twilio', { urlCredentials: { file: 'credentials' } });
    const signed = headers(`https://${credentials}@hooks.example.com/hook`, 'X-Twilio-Signature');
    const ask = async (): Promise<number> =>
      (await send(gate.port, { path: '/hook', headers: signed, body: `${fields}` })).status;
    expect(await ask()).toBe(200);
    writeFileSync(join(gate.folder, 'credentials'), '');
    await until(async () => (await ask()) === 503);
    writeFileSync(join(gate.folder, 'credentials'), credentials);
    await until(async () => (await ask()) === 200);
    expect(gate.logText()).not.toContain('s3cret');
  });
});

describe('a form of the URL that the library of Twilio accepts', () => {
  const params = { CallSid: 'CA12', Body: 'Grüße & mehr' };

  test.each([
    ['https://hooks.example.com', 'https://hooks.example.com', true],
    ['https://hooks.example.com', 'https://hooks.example.com:443', true],
    ['https://hooks.example.com:443', 'https://hooks.example.com', true],
    ['https://hooks.example.com:8443', 'https://hooks.example.com:8443', true],
    ['https://hooks.example.com:8443', 'https://hooks.example.com', true],
    ['https://hooks.example.com:8443', 'https://hooks.example.com:443', false],
    ['https://hooks.example.com', 'https://hooks.example.com:8443', false],
    ['https://hooks.example.com', 'http://hooks.example.com', false],
    ['https://[2001:db8::1]:8443', 'https://[2001:db8::1]', true],
  ])('is accepted, and no other: publicUrl %s, signed %s', async (publicUrl, signed, isAccepted) => {
    const path = '/hook?a=it%27s&b=c+d';
    const route = toRoute(app.port, {
      match: { path: '/hook' },
      webhook: { scheme: 'twilio', publicUrl, keys: [{ name: 'k', secret: { file: 'key' } }] },
    });
    const gate = await startGate({ routes: [route] }, systemClock, { key: SECRET });
    onTestFinished(() => void gate.stop());
    const signature = twilio.getExpectedTwilioSignature(SECRET, `${signed}${path}`, params);
    expect(twilio.validateRequest(SECRET, signature, `${publicUrl}${path}`, params)).toBe(isAccepted);
    const headers = { 'X-Twilio-Signature': signature, 'Content-Type': 'application/x-www-form-urlencoded' };
    const { status } = await send(gate.port, { path, headers, body: `${new URLSearchParams(params)}` });
    expect(status).toBe(isAccepted ? 200 : 401);
  });
});

test('a request of Vonage by GET has the digest of its parameters in its token', async () => {
  const query = 'to=442079460000&from=447700900000&conversation_uuid=CON-1&note=Gr%C3%BC%C3%9Fe+%26%22';
  const parameters = JSON.stringify(Object.fromEntries(new URLSearchParams(query)));
  const toToken = async (text: string, jti: string): Promise<string> =>
    new SignJWT({ iss: 'Vonage', jti, payload_hash: createHash('sha256').update(text).digest('hex') })
      .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
      .setIssuedAt()
      .sign(Buffer.from(SECRET));
  const route = toRoute(app.port, {
    match: { path: '/hook', methods: ['GET', 'POST'] },
    webhook: { scheme: 'vonage', keys: [{ name: 'k', secret: { file: 'key' } }] },
  });
  const gate = await startGate({ routes: [route] }, systemClock, { key: SECRET });
  onTestFinished(() => void gate.stop());
  const get = async (path: string, token: string, more: object = {}) =>
    (await send(gate.port, { method: 'GET', path, headers: { Authorization: `Bearer ${token}` }, ...more })).status;
  const token = await toToken(parameters, '1');
  for (const changed of [`${query}x`, `${query}&a=1`, query.replace('to=', 'To='), '', query.split('&').reverse().join('&')])
    expect(await get(`/hook?${changed}`, token)).toBe(401);
  expect(await get('/hook', token)).toBe(401);
  const line = await until(() => gate.log().find(({ msg }) => msg === 'signature_explained'));
  expect(line).toMatchObject({ causes: ['url'], text: expect.stringContaining('other parameters than those of the query') });
  expect(await get(`/hook?${query}`, token)).toBe(200);
  expect(app.received.at(-1)).toMatchObject({ method: 'GET', url: `/hook?${query}` });
  expect(await get('/hook', await toToken('{}', '2'))).toBe(200);
  expect(await get(`/hook?${query}`, await toToken('', '3'))).toBe(401);
  const headers = { Authorization: `Bearer ${await toToken(parameters, '4')}`, 'Content-Type': 'application/json' };
  const posted = { method: 'POST', path: `/hook?${query}`, headers, body: parameters };
  expect((await send(gate.port, posted)).code).toBe('malformed_request');
  expect((await send(gate.port, { ...posted, path: '/hook' })).status).toBe(200);
  expect(
    (await send(gate.port, { ...posted, method: 'GET', headers: { ...headers, 'Content-Length': '2' }, body: '{}' })).status,
  ).toBe(401);
});
