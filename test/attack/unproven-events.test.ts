/** An attacker who captured deliveries must not be able to make the gate answer 2xx to a genuine event that the app never got. */
import { createHmac, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { type Answer, send } from '../support/client.ts';
import { makeFolder, useApp, useRedis } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const SECRET = "It's a Secret to Everybody";

const app = useApp();
const redis = useRedis();
const stops: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

type StoreName = 'memory' | 'redis';

async function start(store: StoreName, webhook: Sections, match?: Sections): Promise<TestGate> {
  const sections = store === 'memory' ? {} : { store: { redis: { url: `redis://127.0.0.1:${redis.port}` } } };
  const gate = await startGate({ ...sections, routes: [toRoute(app.port, { webhook, ...(match && { match }) })] }, undefined, {
    secret: SECRET,
  });
  stops.push(gate.stop);
  if (store === 'redis') await until(() => gate.log().some(({ msg }) => msg === 'store_up'));
  return gate;
}

const toBody = (): string => JSON.stringify({ id: randomUUID() });
const sign = (text: string): Buffer => createHmac('sha256', SECRET).update(text).digest();

function post(port: number, headers: Record<string, string>, body: string): Promise<Answer> {
  return send(port, { path: '/hooks/billing', headers: { 'Content-Type': 'application/json', ...headers }, body });
}

function shopify(port: number, body: string, topic: string | undefined, id: string = randomUUID()): Promise<Answer> {
  const headers = { 'X-Shopify-Hmac-Sha256': sign(body).toString('base64'), 'X-Shopify-Webhook-Id': id };
  return post(port, { ...headers, ...(topic !== undefined && { 'X-Shopify-Topic': topic }) }, body);
}

/** The ID of an event: the same in each attempt to deliver it. */
function toId(body: string, topic: string): string {
  return sign(`${topic} ${body}`).toString('hex');
}

function github(port: number, body: string, id: string): Promise<Answer> {
  return post(port, { 'X-GitHub-Delivery': id, 'X-Hub-Signature-256': `sha256=${sign(body).toString('hex')}` }, body);
}

const failing = (): void => {
  app.handler = (_request, response) => response.writeHead(500).end('failed');
};
const working = (): void => {
  app.handler = (_request, response) => response.end('handled');
};

describe.each(['memory', 'redis'] as const)('with the store in %s', (store) => {
  test('invented kinds that use up maxKinds make the next kind wait, and warn', async () => {
    const gate = await start(store, { scheme: 'shopify', dedup: { maxKinds: 2 } });
    const body = toBody();
    for (const topic of ['orders/create', 'x/y'])
      expect((await shopify(gate.port, body, topic, toId(body, topic))).text).toBe('handled');
    const genuine = await shopify(gate.port, body, 'orders/paid');
    expect(genuine).toMatchObject({ status: 503, code: 'event_conflict', headers: { 'retry-after': '30' } });
    expect(gate.log().at(-1)).toMatchObject({
      level: 'warn',
      reason: 'kinds_exhausted',
      detail: expect.stringContaining('webhook.kinds'),
    });
    expect(await gate.metric('sidegate_dedup_operations_total{outcome="kinds_exhausted"}')).toBe(1);
    // What was handled is still a duplicate, by each of its kinds.
    for (const topic of ['orders/create', 'x/y'])
      expect(await shopify(gate.port, body, topic, toId(body, topic))).toMatchObject({ status: 200, code: 'duplicate' });
    // Under another ID it may be another event.
    expect(await shopify(gate.port, body, 'orders/create')).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(app.received).toHaveLength(2);
  });

  test('many concurrent kinds get 2xx only if the app got them', async () => {
    const gate = await start(store, { scheme: 'shopify', dedup: { maxKinds: 2 } });
    const body = toBody();
    const answers = await Promise.all(Array.from({ length: 12 }, (_, i) => shopify(gate.port, body, `kind/${i}`)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(2);
    expect(answers.filter(({ status }) => status === 503)).toHaveLength(10);
    expect(app.received).toHaveLength(2);
  });

  test('a route that lists its kinds rejects others before they claim anything, and forwards each listed one', async () => {
    const gate = await start(store, { scheme: 'shopify', kinds: ['orders/create', 'ORDERS_PAID', 'orders/updated'] });
    const body = toBody();
    for (const topic of ['x/y', 'orders/create2', 'orders', undefined]) {
      expect(await shopify(gate.port, body, topic)).toMatchObject({ status: 422, code: 'kind_not_listed' });
      expect(gate.log().at(-1)).toMatchObject({ level: 'warn', reason: 'kind_not_listed' });
    }
    expect(await gate.metric('sidegate_dedup_operations_total{outcome="new"}')).toBe(0);
    for (const topic of ['orders/create', 'orders.paid', 'Orders/Updated'])
      expect((await shopify(gate.port, body, topic, toId(body, topic))).text).toBe('handled');
    expect(await shopify(gate.port, body, 'orders.paid', toId(body, 'orders.paid'))).toMatchObject({
      status: 200,
      code: 'duplicate',
    });
    // Not the spelling that the app got.
    expect(await shopify(gate.port, body, 'orders/paid')).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(app.received).toHaveLength(3);
    // An unsigned request learns nothing about the list.
    const forged = { 'X-Shopify-Hmac-Sha256': sign('other').toString('base64'), 'X-Shopify-Topic': 'x/y' };
    expect(await post(gate.port, forged, body)).toMatchObject({ status: 401 });
  });

  describe.each(['check', 'trust'])('with unsignedId: %s', (unsignedId) => {
    test('an ID that was used up by other content is no reason to drop an event', async () => {
      const gate = await start(store, { scheme: 'github', dedup: { unsignedId } });
      const [captured, genuine, id] = [toBody(), toBody(), randomUUID()];
      // The app could handle neither event, so that the sender will retry both.
      failing();
      expect((await github(gate.port, captured, randomUUID())).status).toBe(500);
      expect((await github(gate.port, genuine, id)).status).toBe(500);
      working();
      // The attacker is faster, and sends the content of one under the ID of the other.
      expect((await github(gate.port, captured, id)).text).toBe('handled');
      expect(await github(gate.port, genuine, id)).toMatchObject({ status: 503, code: 'event_conflict' });
      expect(gate.log().at(-1)).toMatchObject({ level: 'warn', reason: 'id_reused', detail: expect.stringContaining('forget') });
      expect(await gate.metric('sidegate_dedup_operations_total{outcome="id_reused"}')).toBe(1);
      // An operator forgets the ID, and the next retry is forwarded.
      const forget = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ id }) };
      expect((await fetch(`http://127.0.0.1:${gate.adminPort}/routes/billing/forget`, forget)).status).toBe(200);
      expect((await github(gate.port, genuine, id)).text).toBe('handled');
      expect(await github(gate.port, genuine, id)).toMatchObject({ status: 200, code: 'duplicate' });
    });
  });
});

test('a warning tells of signed events that the config took for one event', async () => {
  const custom = { signature: { header: 'X-Signature' }, signed: ['body'], id: { json: '$.data.id' } };
  const gate = await start('memory', { scheme: 'custom', custom });
  const deliver = (type: string): Promise<Answer> => {
    const body = JSON.stringify({ type, data: { id: 'order-1' } });
    return post(gate.port, { 'X-Signature': sign(body).toString('hex') }, body);
  };
  expect((await deliver('order.created')).text).toBe('handled');
  expect(await deliver('order.created')).toMatchObject({ status: 200, code: 'duplicate' });
  expect(gate.log().at(-1)).toMatchObject({ level: 'info', reason: 'duplicate' });
  expect(await deliver('order.paid')).toMatchObject({ status: 200, code: 'duplicate' });
  expect(gate.log().at(-1)).toMatchObject({
    level: 'warn',
    reason: 'id_reused',
    detail: expect.stringContaining('of an object'),
  });
});

describe('a request of which not everything is signed gets no 2xx, although its signature was seen:', () => {
  const HOOKS = { pathPrefix: '/hooks', methods: ['POST', 'PUT', 'DELETE'] };

  test('another path, query or method', async () => {
    const gate = await start('memory', { scheme: 'github' }, HOOKS);
    const body = toBody();
    const headers = { 'Content-Type': 'application/json', 'X-Hub-Signature-256': `sha256=${sign(body).toString('hex')}` };
    const deliver = (method: string, path: string, id: string): Promise<Answer> =>
      send(gate.port, { method, path, headers: { ...headers, 'X-GitHub-Delivery': id }, body });
    expect((await deliver('POST', '/hooks/a', '1')).text).toBe('handled');
    for (const [method, path, id] of [
      ['POST', '/hooks/b', '1'],
      ['POST', '/hooks/b', '2'],
      ['PUT', '/hooks/a', '1'],
    ] as const)
      expect(await deliver(method, path, id)).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(await gate.metric('sidegate_dedup_operations_total{outcome="id_reused"}')).toBe(3);
    expect(await deliver('POST', '/hooks/a', '1')).toMatchObject({ status: 200, code: 'duplicate' });
    expect(app.received).toHaveLength(1);
  });

  test.each([
    ['github', 'a header that Connection removes', { Connection: 'close, X-GitHub-Event' }],
    ['github', 'the host', { Host: 'other.example' }],
    ['github', 'the port of the host', { Host: 'gate.example:9999' }],
    ['github', 'the spelling of the host', { Host: 'gate.example.' }],
    ['github', 'a parameter of the media type', { 'Content-Type': 'application/json; version=2' }],
    ['github', 'the spelling of the media type', { 'Content-Type': 'Application/JSON' }],
    ['github', 'a header of the type in another spelling', { 'X-GitHub-Event': undefined, X_GitHub_Event: 'push' }],
    ['gitea', 'the header of a related sender', { 'X-Gogs-Event': 'fork' }],
    ['hookdeck', 'a header of the sender that it forwards', { 'X-GitHub-Event': 'ping' }],
    ['shopify', 'the spelling of the kind', { 'X-Shopify-Topic': 'ORDERS_CREATE' }],
    ['shopify', 'a further kind', { 'X-Shopify-Sub-Topic': 'b' }],
    ['woocommerce', 'the resource', { 'X-WC-Webhook-Resource': 'product' }],
    ['sonarqube', 'the project', { 'X-SonarQube-Project': 'q' }],
  ])('%s: %s', async (scheme, _, changed) => {
    const gate = await start('memory', { scheme, dedup: { retention: '3d' } }, HOOKS);
    const body = toBody();
    const [hex, base64] = [sign(body).toString('hex'), sign(body).toString('base64')];
    const genuine = {
      Host: 'gate.example',
      'X-GitHub-Delivery': '1',
      'X-Hub-Signature-256': `sha256=${hex}`,
      'X-GitHub-Event': 'push',
      'X-Gitea-Delivery': '1',
      'X-Gitea-Signature': hex,
      'X-Gogs-Event': 'push',
      'X-Hookdeck-EventID': '1',
      'X-Hookdeck-Signature': base64,
      'X-Shopify-Hmac-Sha256': base64,
      'X-Shopify-Webhook-Id': '1',
      'X-Shopify-Topic': 'orders/create',
      'X-WC-Webhook-Signature': base64,
      'X-WC-Webhook-Topic': 'order.created',
      'X-WC-Webhook-Resource': 'order',
      'X-Sonar-Webhook-HMAC-SHA256': hex,
      'X-SonarQube-Project': 'p',
    };
    const entries = Object.entries({ ...genuine, ...changed }).filter(
      (entry): entry is [string, string] => entry[1] !== undefined,
    );
    expect((await post(gate.port, Object.fromEntries(entries), body)).text).toBe('handled');
    expect(await post(gate.port, genuine, body)).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(await post(gate.port, Object.fromEntries(entries), body)).toMatchObject({ status: 200, code: 'duplicate' });
    expect(app.received).toHaveLength(1);
  });

  test.each([
    'multipart/form-data; xboundary=b; boundary=a',
    'multipart/form-data; x="boundary=b"; boundary=a',
    'multipart/form-data; BOUNDARY=a',
    'multipart/form-data; boundary="a=b"',
    'multipart/form-data; boundary=--',
    'multipart/form-data;boundary=a',
    'Multipart/form-data; boundary=a',
  ])('a multipart form whose boundary some parsers do not find: %s', async (type) => {
    const gate = await start('memory', { scheme: 'dropbox-sign' });
    const time = String(Math.floor(systemClock.now() / 1_000));
    const event = { event_time: time, event_type: 'signed', event_hash: sign(`${time}signed`).toString('hex') };
    const toForm = (boundary: string): string =>
      `--${boundary}\r\nContent-Disposition: form-data; name="json"\r\n\r\n${JSON.stringify({ event })}\r\n--${boundary}--\r\n`;
    const boundary = /(?:^|[ ;])boundary="?([^"]+)/i.exec(type)?.[1] ?? '';
    const used = type.includes('x="') ? 'a' : boundary;
    expect((await post(gate.port, { 'Content-Type': type }, toForm(used))).text).toBe('handled');
    const deliver = (other: string): Promise<Answer> =>
      post(gate.port, { 'Content-Type': `multipart/form-data; boundary=${other}` }, toForm(other));
    expect(await deliver('----WebKitFormBoundaryx1')).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(app.received).toHaveLength(1);
  });

  test('another method or kind with a signed ID', async () => {
    const custom = {
      signature: { header: 'X-Signature', encoding: 'hex' },
      signed: ['id', 'body'],
      separator: '.',
      id: { header: 'X-Id' },
      kind: ['X-Kind'],
    };
    const gate = await start('memory', { scheme: 'custom', custom }, HOOKS);
    const body = toBody();
    const headers = { 'Content-Type': 'application/json', 'X-Id': 'e1', 'X-Signature': sign(`e1.${body}`).toString('hex') };
    const deliver = (method: string, kind: string): Promise<Answer> =>
      send(gate.port, { method, path: '/hooks/a', headers: { ...headers, 'X-Kind': kind }, body });
    expect((await deliver('POST', 'created')).text).toBe('handled');
    expect(await deliver('POST', 'deleted')).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(await deliver('PUT', 'created')).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(await deliver('POST', 'created')).toMatchObject({ status: 200, code: 'duplicate' });
  });

  test('a HEAD request is no delivery of a sender of GET requests', async () => {
    const publicUrl = 'https://hooks.example.com';
    const gate = await start('memory', { scheme: 'twilio', publicUrl }, { path: '/hooks/billing', methods: ['GET', 'POST'] });
    const path = '/hooks/billing?CallSid=CA1';
    const signature = createHmac('sha1', SECRET)
      .update(publicUrl + path)
      .digest('base64');
    const deliver = (method: string): Promise<Answer> =>
      send(gate.port, { method, path, headers: { 'X-Twilio-Signature': signature } });
    expect((await deliver('HEAD')).status).toBeGreaterThanOrEqual(400);
    expect((await deliver('GET')).text).toBe('handled');
  });

  test('an empty body, if nothing else is signed: all of them have one signature', async () => {
    const gate = await start('memory', { scheme: 'hookdeck' }, HOOKS);
    const headers = { 'X-Hookdeck-Signature': sign('').toString('base64'), 'X-Hookdeck-EventID': '1' };
    expect((await send(gate.port, { method: 'DELETE', path: '/hooks/customers/1', headers })).status).toBe(415);
    expect(app.received).toHaveLength(0);
  });
});

describe('a retry with a new timestamp, of a sender that does not sign the ID,', () => {
  const deliver = (port: number, scheme: string, body: string, at: number, id: string): Promise<Answer> => {
    if (scheme === 'linear') {
      const text = JSON.stringify({ ...(JSON.parse(body) as object), webhookTimestamp: at });
      return post(port, { 'Linear-Signature': sign(text).toString('hex'), 'Linear-Delivery': id }, text);
    }
    const time = new Date(at).toISOString();
    const headers = { 'X-Zendesk-Webhook-Signature-Timestamp': time, 'X-Zendesk-Webhook-Invocation-Id': id };
    return post(port, { ...headers, 'X-Zendesk-Webhook-Signature': sign(`${time}${body}`).toString('base64') }, body);
  };

  test.each(['linear', 'zendesk'])('is a duplicate: %s', async (scheme) => {
    const gate = await start('memory', { scheme });
    const [body, id, now] = [toBody(), randomUUID(), Date.now()];
    expect((await deliver(gate.port, scheme, body, now - 20_000, id)).text).toBe('handled');
    expect(await deliver(gate.port, scheme, body, now, id)).toMatchObject({ status: 200, code: 'duplicate' });
    expect(await deliver(gate.port, scheme, toBody(), now, id)).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(app.received).toHaveLength(1);
    // The ID leads to the signed content as well.
    const forget = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ id }) };
    expect((await fetch(`http://127.0.0.1:${gate.adminPort}/routes/billing/forget`, forget)).status).toBe(200);
    expect((await deliver(gate.port, scheme, body, now - 20_000, id)).text).toBe('handled');
  });
});

test('a duplicate of Adyen with other details is no reason to stop its queue', async () => {
  const hmacKey = 'ab'.repeat(32);
  const gate = await startGate({ routes: [toRoute(app.port, { webhook: { scheme: 'adyen-payments' } })] }, undefined, {
    secret: hmacKey,
  });
  stops.push(gate.stop);
  const signed = {
    pspReference: '7914073381342284',
    originalReference: '',
    merchantAccountCode: 'TestMerchant',
    merchantReference: 'r1',
    amount: { value: 1130, currency: 'EUR' },
    eventCode: 'AUTHORISATION',
    success: 'true',
  };
  const text = '7914073381342284::TestMerchant:r1:1130:EUR:AUTHORISATION:true';
  const hmacSignature = createHmac('sha256', Buffer.from(hmacKey, 'hex')).update(text).digest('base64');
  const deliver = (details: object, additional: object = {}): Promise<Answer> => {
    const item = { ...details, additionalData: { ...additional, hmacSignature }, ...signed };
    return post(gate.port, {}, JSON.stringify({ live: 'false', notificationItems: [{ NotificationRequestItem: item }] }));
  };
  expect((await deliver({ eventDate: '2026-11-25T10:00:00+01:00', operations: ['CANCEL'] })).text).toBe('handled');
  for (const [details, additional] of [
    [{ eventDate: '2026-11-25T10:00:05+01:00', operations: ['CANCEL', 'REFUND'] }],
    [
      { reason: 'x', paymentMethod: 'visa' },
      { authCode: '1234', nested: { list: [1] } },
    ],
    [{ reason: null, operations: {} }],
    [{}],
  ] as const)
    expect(await deliver(details, additional)).toMatchObject({ status: 200, code: 'duplicate' });
  // A detail that no duplicate changes.
  expect(await deliver({ eventdate: 'x' })).toMatchObject({ status: 503, code: 'event_conflict' });
  expect(app.received).toHaveLength(1);
});

describe('a sender that signs only some fields', () => {
  const scheme = {
    scheme: 'custom',
    custom: {
      signature: { header: 'X-Signature', encoding: 'hex' },
      signed: [{ json: '$.id' }, { json: '$.version' }],
      separator: '|',
      unsignedBody: true,
    },
  };
  const deliver = (port: number, content: { id: string; version: string; note: string }): Promise<Answer> =>
    post(port, { 'X-Signature': sign(`${content.id}|${content.version}`).toString('hex') }, JSON.stringify(content));

  test('gets no 2xx for a body that the app did not get, although the signature was seen with another one', async () => {
    const gate = await start('memory', scheme);
    const event = { id: randomUUID(), version: '1', note: 'genuine' };
    expect((await deliver(gate.port, { ...event, note: 'forged' })).text).toBe('handled');
    expect(await deliver(gate.port, event)).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(await deliver(gate.port, { ...event, note: 'forged' })).toMatchObject({ status: 200, code: 'duplicate' });
  });

  test.each([
    ['key', { key: '$.note', version: '$.version' }],
    ['version', { key: '$.id', version: '$.note' }],
  ])('cannot be ordered by an unsigned %s: an attacker could make newer events stale', async (setting, order) => {
    await expect(start('memory', { ...scheme, order })).rejects.toThrow(new RegExp(`order.${setting}: custom does not sign`));
    await expect(start('memory', { ...scheme, order: { ...order, onStale: 'forward' } })).resolves.toBeDefined();
  });

  test('can be ordered by signed values', async () => {
    const gate = await start('memory', { ...scheme, order: { key: '$.id', version: '$.version' } });
    const id = randomUUID();
    expect((await deliver(gate.port, { id, version: '2', note: '' })).text).toBe('handled');
    expect(await deliver(gate.port, { id, version: '1', note: '' })).toMatchObject({ status: 200, code: 'stale' });
  });
});

test('a full store never makes an event handled: deliveries get 503', async () => {
  const gate = await startGate(
    { store: { memory: { maxIds: 2 } }, routes: [toRoute(app.port, { webhook: { scheme: 'github' } })] },
    undefined,
    {
      secret: SECRET,
    },
  );
  stops.push(gate.stop);
  const [body, id] = [toBody(), randomUUID()];
  expect((await github(gate.port, body, id)).text).toBe('handled');
  expect(await github(gate.port, toBody(), randomUUID())).toMatchObject({ status: 503, code: 'store_unavailable' });
  expect(await github(gate.port, body, id)).toMatchObject({ status: 200, code: 'duplicate' });
});

test('the inbox stores the event of the sender, after a restart as well, if a body with the same signature is queued', async () => {
  const key = 'key-of-the-domain';
  const queue = { sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true } };
  const begin = (): Promise<TestGate> =>
    startGate(
      {
        provider: { address: '127.0.0.1:0', queue },
        routes: [toRoute(app.port, { webhook: { scheme: 'mailgun', ack: 'onAccept' } })],
      },
      undefined,
      { secret: key },
    );
  const timestamp = String(Math.floor(systemClock.now() / 1_000));
  const toEvent = (event: object, token = 'a'.repeat(50)): string => {
    const signature = createHmac('sha256', key).update(`${timestamp}${token}`).digest('hex');
    return JSON.stringify({ signature: { timestamp, token, signature }, 'event-data': event });
  };
  const first = await begin();
  expect((await post(first.port, {}, toEvent({ id: 'b', event: 'unsubscribed' }))).status).toBe(200);
  await first.stop();
  const second = await begin();
  // A retry of the stored event, with another token.
  expect((await post(second.port, {}, toEvent({ id: 'b', event: 'unsubscribed' }, 'b'.repeat(50)))).status).toBe(200);
  expect((await post(second.port, {}, toEvent({ id: 'a', event: 'opened' }))).status).toBe(200);
  await expect.poll(() => app.received.some(({ body }) => body.toString().includes('"opened"'))).toBe(true);
  expect(app.received.filter(({ body }) => body.toString().includes('"unsubscribed"'))).toHaveLength(1);
  await second.stop();
});
