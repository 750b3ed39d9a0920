/** Requests as senders really send them, with their own Content-Type and method, to a gate with the least config that `check` accepts. */
import { createHmac } from 'node:crypto';
import { describe, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { findPreset, PRESETS } from '../../src/verify/presets/catalogue.ts';
import { signsUrl } from '../../src/verify/schemes/coverage.ts';
import { type Answer, send } from '../support/client.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute } from '../support/gate.ts';
import type { ReceiverKey, SignedDelivery } from '../support/oracles/oracle.ts';
import { readAsymmetricVectors, readVectors, type Vector } from '../support/oracles/vectors.ts';
import { oracles } from '../support/oracles.ts';
import { hmac, SECRET, toPreset } from '../support/preset-cases.ts';
import { toSentTypes } from '../support/sent-heads.ts';

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
      ...(description.repeatsBytes === true && description.id === undefined && { dedup: 'off' }),
      ...(description.handshake === 'cloudevents' && { handshake: { allowedOrigins: ['eventgrid.azure.net'] } }),
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

/** Sends the delivery with each value of Content-Type, each to a new gate; the answers that are no success. */
async function sendAll(setting: Setting, signed: SignedDelivery): Promise<string[]> {
  const description = toPreset(setting.preset);
  const failed: string[] = [];
  const own = signed.headers['content-type'] ?? '';
  // Contentful signs it, and a boundary belongs to its body.
  const isOwn = own.startsWith('multipart/') || description.name === 'contentful';
  const types = isOwn ? [own] : toSentTypes(description, signed.body);
  expect(types.length).toBeGreaterThan(0);
  for (const type of types) {
    const { status, code } = await post(await open(setting), signed, type);
    if (status >= 300) failed.push(`${type}: ${status} ${code}`);
  }
  return failed;
}

describe('a delivery that is signed as its sender does is forwarded with the Content-Type that the sender sends', () => {
  test.each(oracles.map((oracle) => [`${oracle.preset} ${oracle.form ?? ''}`, oracle] as const))('%s', async (_title, oracle) => {
    const signed = await oracle.sign(oracle.sample(Math.floor(Date.now() / 1000) * 1000));
    const path = new URL(signed.url).pathname;
    expect(await sendAll({ preset: oracle.preset, secret: oracle.secret, path }, signed)).toEqual([]);
  });

  const known = new Set(oracles.map(({ preset }) => preset));
  const vectors = [...readVectors(), ...readAsymmetricVectors()].filter(
    ({ preset, verdict }) => verdict === 'ok' && !known.has(preset),
  );

  test.each(vectors.map((vector, index) => [`${vector.preset} (${index})`, vector] as const))('%s', async (_title, vector) => {
    const { preset, secret, signed, atEpochSeconds: at } = vector;
    expect(
      await sendAll({ preset, secret, path: new URL(signed.url).pathname, webhook: toSettings(vector), at }, signed),
    ).toEqual([]);
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
    const signed = {
      method: 'POST',
      url: '/hook',
      headers: { [signature?.header ?? '']: value },
      body: Buffer.from('{"id":"1"}'),
    };
    expect(await sendAll({ preset, secret: { text: SECRET }, path: '/hook' }, signed)).toEqual([]);
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

describe('a body in another format that its sender offers is forwarded', () => {
  const event = '{"id":"1","text":"a&b=c + é"}';
  const form = `payload=${encodeURIComponent(event).replaceAll('%20', '+')}`;
  const xml = '<?xml version="1.0"?><event id="1"/>';
  const time = new Date().toISOString().replace(/\.\d+/, '');
  const [hex, base64] = [(text: string) => hmac('sha256', 'hex', text), (text: string) => hmac('sha256', 'base64', text)];

  test.each([
    ['docusign', xml, { 'X-DocuSign-Signature-1': base64(xml) }],
    ['zendesk', xml, { 'X-Zendesk-Webhook-Signature': base64(`${time}${xml}`), 'X-Zendesk-Webhook-Signature-Timestamp': time }],
    ['shopify', xml, { 'X-Shopify-Hmac-Sha256': base64(xml), 'X-Shopify-Topic': 'orders/create' }],
    ['github', form, { 'X-Hub-Signature-256': `sha256=${hex(form)}`, 'X-Hub-Signature': `sha1=${hmac('sha1', 'hex', form)}` }],
    ['cal-com', 'trigger=BOOKING_CREATED&title=Tea', { 'X-Cal-Signature-256': hex('trigger=BOOKING_CREATED&title=Tea') }],
    // They sign the JSON of the only field.
    ['gitea', form, { 'X-Gitea-Signature': hex(event), 'X-Gitea-Delivery': '1', 'X-Hub-Signature-256': `sha256=${hex(event)}` }],
    ['forgejo', form, { 'X-Forgejo-Signature': hex(event), 'X-Gitea-Signature': hex(event), 'X-Forgejo-Delivery': '1' }],
    ['gogs', form, { 'X-Gogs-Signature': hex(event), 'X-Gogs-Delivery': '1' }],
  ])('%s: %s', async (preset, body, headers) => {
    const signed = { method: 'POST', url: '/hook', headers, body: Buffer.from(body) };
    const setting: Setting = { preset, secret: { text: SECRET }, path: '/hook' };
    expect(await sendAll(setting, signed)).toEqual([]);
    expect(app.received.at(-1)?.body.toString()).toBe(body);
    const isJson = await post(await open(setting), signed, 'application/json');
    expect(isJson.status).toBe(415);
  });

  test.each([
    ['a second field', `${form}&payload2=1`, 'application/x-www-form-urlencoded', 401],
    ['the field twice', `${form}&payload=%7B%7D`, 'application/x-www-form-urlencoded', 401],
    ['an empty second field', `${form}&`, 'application/x-www-form-urlencoded', 401],
    ['another value', form.replace('payload=', 'payload=+'), 'application/x-www-form-urlencoded', 401],
    ['another name', form.replace('payload', 'Payload'), 'application/x-www-form-urlencoded', 401],
    ['the signed JSON as a form', event, 'application/x-www-form-urlencoded', 415],
    ['the form as JSON', form, 'application/json', 415],
    ['the form as multipart', form, 'multipart/form-data; boundary=payload', 415],
  ])('but a form of Gitea is rejected with %s', async (_title, body, type, status) => {
    const gate = await open({ preset: 'gitea', secret: { text: SECRET }, path: '/hook' });
    const headers = { 'X-Gitea-Signature': hex(event), 'X-Gitea-Delivery': '1' };
    expect((await post(gate, { method: 'POST', url: '/hook', headers, body: Buffer.from(body) }, type)).status).toBe(status);
  });

  test('and counts as another delivery than its JSON, which an app may not read', async () => {
    const gate = await open({ preset: 'gitea', secret: { text: SECRET }, path: '/hook' });
    const headers = { 'X-Gitea-Signature': hex(event), 'X-Gitea-Delivery': '1' };
    const signed = { method: 'POST', url: '/hook', headers };
    const before = app.received.length;
    expect((await post(gate, { ...signed, body: Buffer.from(event) }, 'application/json')).status).toBe(200);
    expect((await post(gate, { ...signed, body: Buffer.from(form) }, 'application/x-www-form-urlencoded')).status).toBe(503);
    expect(app.received.length).toBe(before + 1);
  });
});

describe('a delivery by another method that its sender offers is forwarded', () => {
  const body = '{"id":"1","messageId":"1"}';
  const now = Date.now();
  const time = new Date(now).toISOString();
  const signers: Readonly<Record<string, (content: string) => Record<string, string>>> = {
    segment: (content) => ({ 'X-Signature': hmac('sha1', 'hex', content) }),
    hookdeck: (content) => ({ 'X-Hookdeck-Signature': hmac('sha256', 'base64', content) }),
    sanity: (content) => ({
      'Sanity-Webhook-Signature': `t=${now},v1=${createHmac('sha256', SECRET).update(`${now}.${content}`).digest('base64url')}`,
    }),
    zendesk: (content) => ({
      'X-Zendesk-Webhook-Signature': hmac('sha256', 'base64', time, content),
      'X-Zendesk-Webhook-Signature-Timestamp': time,
    }),
  };

  test.each([
    ['segment', 'PUT', body],
    ['segment', 'PATCH', body],
    ['hookdeck', 'PUT', body],
    ['hookdeck', 'DELETE', body],
    ['sanity', 'PATCH', body],
    ['sanity', 'DELETE', body],
    ['sanity', 'GET', ''],
    ['zendesk', 'PUT', body],
    ['zendesk', 'PATCH', body],
    ['zendesk', 'DELETE', ''],
    ['zendesk', 'GET', ''],
  ])('%s by %s: %s', async (preset, method, content) => {
    const methods = [...(toPreset(preset).methods ?? [])];
    const gate = await open({ preset, secret: { text: SECRET }, path: '/hook', methods });
    const headers = {
      ...signers[preset]?.(content),
      ...(content !== '' && { 'Content-Type': 'application/json', 'Content-Length': `${content.length}` }),
    };
    const { status, code } = await send(gate.port, { method, path: '/hook', headers, ...(content !== '' && { body: content }) });
    expect({ status, code }).toEqual({ status: 200, code: undefined });
    expect(app.received.at(-1)?.method).toBe(method);
  });
});

describe('a request without content', () => {
  const base64 = (text: string): string => createHmac('sha1', SECRET).update(text).digest('base64');

  test.each([
    ['GET', ['GET', 'POST']],
    ['GET', ['GET']],
  ])('of Twilio by %s passes if the route has the methods %s', async (method, methods) => {
    const setting: Setting = { preset: 'twilio', secret: { text: SECRET }, path: '/hook', methods };
    const gate = await open(setting);
    const path = '/hook?CallSid=CA12&Body=Gr%C3%BC%C3%9Fe+%26';
    const headers = { 'X-Twilio-Signature': base64(`${ORIGIN}${path}`) };
    expect((await send(gate.port, { method, path, headers })).status).toBe(200);
    const other = { method, path: `${path}x`, headers };
    expect((await send(gate.port, other)).status).toBe(401);
    const form = { ...headers, 'Content-Type': 'application/x-www-form-urlencoded' };
    expect((await send((await open(setting)).port, { method, path, headers: form })).status).toBe(200);
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
