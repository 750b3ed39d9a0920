/** Requests as senders really send them, with their own Content-Type and method, to a gate with the least config that `check` accepts. */
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { findPreset, PRESETS } from '../../src/auth/schemes/catalogue.ts';
import { signsUrl } from '../../src/auth/schemes/coverage.ts';
import type { SchemeDescription } from '../../src/auth/schemes/description.ts';
import { systemClock } from '../../src/core/clock.ts';
import { type Answer, send } from '../support/client.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import type { ReceiverKey, SignedDelivery } from '../support/oracles/oracle.ts';
import { readAsymmetricVectors, readVectors, type Vector } from '../support/oracles/vectors.ts';
import { oracles } from '../support/oracles.ts';
import { hmac, SECRET, toPreset } from '../support/preset-cases.ts';
import { toSentTypes } from '../support/sent-content-types.ts';

const app = useApp();
const ORIGIN = 'https://hooks.example.com';

interface Setting {
  readonly preset: string;
  readonly secret: ReceiverKey;
  readonly path: string;
  readonly webhook?: Sections;
  readonly methods?: readonly string[];
  readonly at?: number;
}

async function open({ preset, secret, path, webhook, methods, at }: Setting): Promise<TestGate> {
  const description = toPreset(preset);
  const key = { name: 'k', secret: { file: 'key', ...(secret.encoding && { encoding: secret.encoding }) } };
  const route = toRoute(app.port, {
    match: { path, ...(methods && { methods }) },
    webhook: {
      scheme: preset,
      keys: [key],
      ...(signsUrl(description) || description.signed.includes('target') ? { publicUrl: ORIGIN } : {}),
      ...(description.signed.length === 0 && description.id === undefined ? { id: { json: '$.id' } } : {}),
      ...webhook,
    },
  });
  const clock = at === undefined ? systemClock : { ...systemClock, now: () => at * 1000 };
  const gate = await startGate({ routes: [route] }, clock, { key: secret.text });
  onTestFinished(() => void gate.stop());
  return gate;
}

function post(gate: TestGate, { method, url, headers, body }: SignedDelivery, contentType: string): Promise<Answer> {
  const path = url.replace(/^https?:\/\/[^/]+/, '');
  const others = Object.entries(headers).filter(([name]) => name !== 'content-type');
  return send(gate.port, { method, path, headers: { ...Object.fromEntries(others), 'Content-Type': contentType }, body });
}

/** Sends the delivery with each value of Content-Type; the answers that are no success. */
async function sendAll(gate: TestGate, description: SchemeDescription, signed: SignedDelivery): Promise<string[]> {
  const failed: string[] = [];
  const own = signed.headers['content-type'] ?? '';
  // Contentful signs it, and a boundary belongs to its body.
  const isOwn = own.startsWith('multipart/') || description.name === 'contentful';
  const types = isOwn ? [own] : toSentTypes(description, signed.body);
  expect(types.length).toBeGreaterThan(0);
  for (const type of types) {
    const { status, code } = await post(gate, signed, type);
    if (status >= 300) failed.push(`${type}: ${status} ${code}`);
  }
  return failed;
}

describe('a delivery that is signed as its sender does is forwarded with the Content-Type that the sender sends', () => {
  test.each(oracles.map((oracle) => [`${oracle.preset} ${oracle.form ?? ''}`, oracle] as const))('%s', async (_title, oracle) => {
    const signed = await oracle.sign(oracle.sample(Math.floor(Date.now() / 1000) * 1000));
    const path = new URL(signed.url).pathname;
    const gate = await open({ preset: oracle.preset, secret: oracle.secret, path });
    expect(await sendAll(gate, toPreset(oracle.preset), signed)).toEqual([]);
  });

  const known = new Set(oracles.map(({ preset }) => preset));
  const vectors = [...readVectors(), ...readAsymmetricVectors()].filter(
    ({ preset, verdict }) => verdict === 'ok' && !known.has(preset),
  );

  test.each(vectors.map((vector, index) => [`${vector.preset} (${index})`, vector] as const))('%s', async (_title, vector) => {
    const { preset, secret, signed, atEpochSeconds: at } = vector;
    const gate = await open({ preset, secret, path: new URL(signed.url).pathname, webhook: toSettings(vector), at });
    expect(await sendAll(gate, toPreset(preset), signed)).toEqual([]);
  });

  const others = [
    'cloudflare-notifications',
    'huggingface',
    'okta',
    'ringcentral',
    'telegram',
    'vapi',
    'auth0',
    'bearer',
    'api-key',
  ];

  test.each(others)('%s, which sends the secret itself', async (preset) => {
    const { signature } = toPreset(preset);
    const value = `${signature?.forms[0]?.prefix ?? ''}${SECRET}`;
    const gate = await open({ preset, secret: { text: SECRET }, path: '/hook' });
    const signed = {
      method: 'POST',
      url: '/hook',
      headers: { [signature?.header ?? '']: value },
      body: Buffer.from('{"id":"1"}'),
    };
    expect(await sendAll(gate, toPreset(preset), signed)).toEqual([]);
  });

  test('all presets but those of one certificate or none are among them', () => {
    const tried = new Set([...known, ...vectors.map(({ preset }) => preset), ...others]);
    expect(PRESETS.map(({ name }) => name).filter((name) => !tried.has(name))).toEqual(['aws-sns', 'whatsapp', 'unsigned']);
  });
});

function toSettings({ preset, receiverId, audience, claims }: Vector): Sections {
  const { jwt } = findPreset(preset) ?? {};
  const own = { ...(audience && { audience }), ...(claims && { claims }) };
  return {
    ...(receiverId && { receiverId }),
    ...(preset.startsWith('paypal') && { allowWeakDigest: true }),
    ...(jwt && Object.keys(own).length > 0 && { jwt: own }),
  };
}

test('an XML body of Docusign and of Zendesk is forwarded', async () => {
  const body = '<?xml version="1.0"?><event id="1"/>';
  const time = new Date().toISOString().replace(/\.\d+/, '');
  const headers = {
    docusign: { 'X-DocuSign-Signature-1': hmac('sha256', 'base64', body) },
    zendesk: {
      'X-Zendesk-Webhook-Signature': hmac('sha256', 'base64', time, body),
      'X-Zendesk-Webhook-Signature-Timestamp': time,
    },
  };
  for (const [preset, signature] of Object.entries(headers)) {
    const gate = await open({ preset, secret: { text: SECRET }, path: '/hook' });
    const signed = { method: 'POST', url: '/hook', headers: signature, body: Buffer.from(body) };
    expect(await sendAll(gate, toPreset(preset), signed)).toEqual([]);
  }
});

describe('a request without content', () => {
  const base64 = (text: string): string => createHmac('sha1', SECRET).update(text).digest('base64');

  test.each([
    ['GET', ['GET', 'POST']],
    ['GET', ['GET']],
  ])('of Twilio by %s passes if the route has the methods %s', async (method, methods) => {
    const gate = await open({ preset: 'twilio', secret: { text: SECRET }, path: '/hook', methods });
    const path = '/hook?CallSid=CA12&Body=Gr%C3%BC%C3%9Fe+%26';
    const headers = { 'X-Twilio-Signature': base64(`${ORIGIN}${path}`) };
    expect((await send(gate.port, { method, path, headers })).status).toBe(200);
    const other = { method, path: `${path}x`, headers };
    expect((await send(gate.port, other)).status).toBe(401);
    const form = { ...headers, 'Content-Type': 'application/x-www-form-urlencoded' };
    expect((await send(gate.port, { method, path, headers: form })).status).toBe(200);
  });

  test.each(PRESETS.filter(({ methods = [] }) => methods.includes('GET')).map(({ name }) => name))(
    'of %s by GET and by DELETE is rejected for its Content-Type only if all such requests have one signature, or it has content',
    async (preset) => {
      const gate = await open({ preset, secret: { text: SECRET }, path: '/hook', methods: ['GET', 'DELETE'] });
      for (const method of ['GET', 'DELETE'].filter((each) => toPreset(preset).methods?.includes(each)))
        expect((await send(gate.port, { method, path: '/hook' })).code).toBe(
          preset === 'hookdeck' ? 'unsupported_media_type' : 'missing_signature',
        );
      const withContent = await send(gate.port, {
        method: 'DELETE',
        path: '/hook',
        headers: { 'Content-Length': '2' },
        body: '{}',
      });
      expect(withContent.status).toBe(415);
    },
  );

  test('by POST still needs a Content-Type', async () => {
    const gate = await open({ preset: 'github', secret: { text: SECRET }, path: '/hook' });
    const headers = { 'X-Hub-Signature-256': `sha256=${hmac('sha256', 'hex', '')}` };
    expect((await send(gate.port, { path: '/hook', headers })).status).toBe(415);
  });
});

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

describe('a check of the URL by the sender', () => {
  test.each([
    ['mandrill', '/hook'],
    ['mandrill', '/hook?key=1'],
    ['trello', '/hook?board=1'],
    ['intercom', '/hook'],
  ])('by HEAD gets 200 from a route with %s at %s', async (preset, path) => {
    const gate = await open({ preset, secret: { text: SECRET }, path: '/hook' });
    const before = app.received.length;
    expect((await send(gate.port, { method: 'HEAD', path })).status).toBe(200);
    expect(app.received.length).toBe(before);
  });

  test('of WooCommerce, a form with the ID of the webhook, gets 200 and does not reach the app', async () => {
    const gate = await open({ preset: 'woocommerce', secret: { text: SECRET }, path: '/hook' });
    const ping = (body: string, headers: Record<string, string> = {}) =>
      send(gate.port, { path: '/hook', headers: { 'Content-Type': 'application/x-www-form-urlencoded', ...headers }, body });
    const before = app.received.length;
    expect((await ping('webhook_id=15')).status).toBe(200);
    expect((await ping('webhook_id=15', { 'X-WC-Webhook-Signature': 'a' })).status).toBe(415);
    for (const body of ['webhook_id=15&a=1', 'webhook_id=', 'a=webhook_id=1']) expect((await ping(body)).status).toBe(415);
    expect(app.received.length).toBe(before);
  });
});
