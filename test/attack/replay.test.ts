/** Replays of captured deliveries whose unsigned headers were changed: the app must not get the event again. */
import { createHmac, randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../src/config/load/load.ts';
import { systemClock } from '../../src/core/clock.ts';
import { formatProblem } from '../../src/core/problem.ts';
import { type Answer, send } from '../support/client.ts';
import { useApp, useRedis } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const SECRET = "It's a Secret to Everybody";

const app = useApp();
const redis = useRedis();

type StoreName = 'memory' | 'redis';

async function start(store: StoreName, webhook: Sections): Promise<TestGate> {
  const routes = [toRoute(app.port, { webhook })];
  if (store === 'memory') return startGate({ routes }, undefined, { secret: SECRET });
  const gate = await startGate({ routes, store: { redis: { url: `redis://127.0.0.1:${redis.port}` } } }, undefined, {
    secret: SECRET,
  });
  await until(() => gate.log().some(({ msg }) => msg === 'store_up'));
  return gate;
}

function toBody(): string {
  return JSON.stringify({ id: randomUUID() });
}

/** The ID of an event: the same in each attempt to deliver it. */
function toId(body: string, kind: string): string {
  return createHmac('sha256', kind).update(body).digest('hex');
}

interface Sender {
  readonly scheme: string;
  readonly signature: string;
  readonly kind: string;
  readonly id?: string;
}

const SENDERS: readonly Sender[] = [
  { scheme: 'shopify', signature: 'X-Shopify-Hmac-Sha256', kind: 'X-Shopify-Topic', id: 'X-Shopify-Webhook-Id' },
  { scheme: 'shopify-events', signature: 'Shopify-Hmac-Sha256', kind: 'Shopify-Topic', id: 'Shopify-Webhook-Id' },
  { scheme: 'woocommerce', signature: 'X-WC-Webhook-Signature', kind: 'X-WC-Webhook-Topic' },
];

function post(sender: Sender, port: number, body: string, kind: string | undefined, id: string = randomUUID()): Promise<Answer> {
  const signature = createHmac('sha256', SECRET).update(body).digest('base64');
  const headers = {
    'Content-Type': 'application/json',
    [sender.signature]: signature,
    ...(sender.id !== undefined && { [sender.id]: id }),
    ...(kind !== undefined && { [sender.kind]: kind }),
  };
  return send(port, { path: '/hooks/billing', headers, body });
}

/** What Shopify's own library makes ORDERS_CREATE of, and what other libraries fold alike. */
const SPELLINGS = [
  'Orders/create',
  'ORDERS/CREATE',
  'orders_create',
  'orders.create',
  'orders-create',
  'orders create',
  'orders:create',
  'orders//create',
  '/orders/create/',
  'orders/_create',
];
/** Folded by some languages, and in no sender's names. */
const FOREIGN = [
  'orders/create\u00a0',
  '\u00a0orders/create',
  'order\u00a0s/create',
  'orders%2Fcreate',
  'orders\\create',
  'orders,create',
  'orders/cre\u00e4te',
  'orders/create;x',
  'a'.repeat(129),
];

/** No default is right for a sender that can send the same bytes for different events. */
const dedup = { retention: '3d' };

describe.each(['memory', 'redis'] as const)('with the store in %s', (store) => {
  describe.each(SENDERS.map((sender) => [sender.scheme, sender] as const))('%s', (scheme, sender) => {
    test('forwards one of all spellings of a kind', async () => {
      const gate = await start(store, { scheme, dedup });
      const body = toBody();
      expect((await post(sender, gate.port, body, 'orders/create')).text).toBe('handled');
      // An app may not know the spelling that was handled.
      for (const kind of SPELLINGS) {
        const code = kind.trim() === 'orders/create' ? 'duplicate' : 'event_conflict';
        expect((await post(sender, gate.port, body, kind)).code, kind).toBe(code);
      }
      expect(app.received).toHaveLength(1);
      await gate.stop();
    });

    test('rejects kinds with characters that senders do not use', async () => {
      const gate = await start(store, { scheme, dedup });
      const body = toBody();
      for (const kind of FOREIGN) expect((await post(sender, gate.port, body, kind)).code, kind).toBe('malformed_signature');
      expect(app.received).toHaveLength(0);
      await gate.stop();
    });

    test('forwards the same content under at most two kinds, and reports how to allow more', async () => {
      const gate = await start(store, { scheme, dedup: { ...dedup, maxKinds: 2 } });
      const body = toBody();
      for (const kind of ['orders/create', 'orders/paid'])
        expect((await post(sender, gate.port, body, kind, toId(body, kind))).text).toBe('handled');
      for (const kind of ['orders/updated', undefined, 'x1', 'x2'])
        expect((await post(sender, gate.port, body, kind)).code).toBe('event_conflict');
      for (const kind of ['orders/create', 'orders/paid'])
        expect((await post(sender, gate.port, body, kind, toId(body, kind))).code).toBe('duplicate');
      expect(app.received).toHaveLength(2);
      expect(await gate.metric('sidegate_dedup_operations_total{outcome="kinds_exhausted"}')).toBe(4);
      await gate.stop();
      expect(gate.log().find(({ reason }) => reason === 'kinds_exhausted')).toMatchObject({
        detail: expect.stringContaining('dedup.maxKinds'),
      });
    });
  });

  const [shopify] = SENDERS as [Sender];

  test('forwards two of many concurrent kinds, across two replicas', async () => {
    const gates =
      store === 'redis'
        ? [
            await start(store, { scheme: 'shopify', dedup: { maxKinds: 2 } }),
            await start(store, { scheme: 'shopify', dedup: { maxKinds: 2 } }),
          ]
        : [await start(store, { scheme: 'shopify', dedup: { maxKinds: 2 } })];
    const bodies = Array.from({ length: 6 }, toBody);
    const answers = await Promise.all(
      bodies.flatMap((body) =>
        Array.from({ length: 12 }, (_, i) => post(shopify, gates[i % gates.length]?.port ?? 0, body, `kind/${i}`)),
      ),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(2 * bodies.length);
    for (const body of bodies) expect(app.received.filter((each) => each.body.toString() === body)).toHaveLength(2);
    for (const gate of gates) await gate.stop();
  });

  test('frees the place of a kind that the app failed to handle', async () => {
    const gate = await start(store, { scheme: 'shopify', dedup: { maxKinds: 2 } });
    const body = toBody();
    app.handler = (_request, response) => response.writeHead(500).end('failed');
    for (const kind of ['a', 'b', 'c', 'd']) expect((await post(shopify, gate.port, body, kind)).status).toBe(500);
    app.handler = (_request, response) => response.end('handled');
    expect((await post(shopify, gate.port, body, 'e')).text).toBe('handled');
    expect((await post(shopify, gate.port, body, 'a')).text).toBe('handled');
    expect((await post(shopify, gate.port, body, 'b')).code).toBe('event_conflict');
    await gate.stop();
  });

  test('forwards a forgotten event again although all places are occupied', async () => {
    const gate = await start(store, { scheme: 'shopify', dedup: { maxKinds: 2 } });
    const body = toBody();
    const id = randomUUID();
    expect((await post(shopify, gate.port, body, 'orders/create', id)).text).toBe('handled');
    expect((await post(shopify, gate.port, body, 'orders/paid')).text).toBe('handled');
    const headers = { 'Content-Type': 'application/json' };
    const forget = { method: 'POST', headers, body: JSON.stringify({ id }) };
    expect((await fetch(`http://127.0.0.1:${gate.adminPort}/routes/billing/forget`, forget)).status).toBe(200);
    expect((await post(shopify, gate.port, body, 'orders/create', id)).text).toBe('handled');
    expect((await post(shopify, gate.port, body, 'orders/updated')).code).toBe('event_conflict');
    await gate.stop();
  });

  test('forwards as many kinds as the route allows', async () => {
    const gate = await start(store, { scheme: 'shopify', dedup: { maxKinds: 3 } });
    const body = toBody();
    for (const kind of ['a', 'b', 'c']) expect((await post(shopify, gate.port, body, kind)).text).toBe('handled');
    expect((await post(shopify, gate.port, body, 'd')).code).toBe('event_conflict');
    await gate.stop();
  });
});

test('distinguishes two headers of a kind: no bytes can move from one to the other', async () => {
  const gate = await start('memory', { scheme: 'shopify-events', dedup: { maxKinds: 16 } });
  const body = toBody();
  const signature = createHmac('sha256', SECRET).update(body).digest('base64');
  const sendKinds = (topic: string, action: string): Promise<Answer> => {
    const kinds = { 'Shopify-Topic': topic, 'Shopify-Action': action };
    const headers = {
      'Content-Type': 'application/json',
      'Shopify-Hmac-Sha256': signature,
      'Shopify-Webhook-Id': toId(body, `${topic}/${action}`),
      ...kinds,
    };
    return send(gate.port, { path: '/hooks/billing', headers, body });
  };
  expect((await sendKinds('a b', 'c')).text).toBe('handled');
  expect((await sendKinds('a', 'b c')).text).toBe('handled');
  expect((await sendKinds('a b', 'c')).code).toBe('duplicate');
  expect((await sendKinds('A_b', 'C')).code).toBe('event_conflict');
  await gate.stop();
});

describe('a sender that signs no timestamp', () => {
  const load = (webhook: Sections, store: Sections = {}) => {
    const keys = [{ name: 'k', secret: { env: 'SECRET' } }];
    const routes = [{ name: 'r', match: { path: '/hook' }, upstream: 'http://127.0.0.1:3000', webhook: { keys, ...webhook } }];
    const { config, problems } = parseConfig('gate.yaml', stringify({ routes, store }), systemClock);
    const dedup = config?.routes[0]?.webhook?.dedup;
    return {
      days: typeof dedup === 'object' ? dedup.retention / 86_400_000 : undefined,
      text: problems.map(formatProblem).join('\n'),
    };
  };
  const REDIS = { redis: { url: 'redis://127.0.0.1:6379' } };

  test.each(['github', 'shopify', 'square', 'pagerduty', 'meta'])(
    'has its IDs kept for 30 days in Redis, with a warning: %s',
    (scheme) => {
      const publicUrl = scheme === 'square' ? { publicUrl: 'https://hooks.example.com' } : {};
      const inRedis = load({ scheme, ...publicUrl }, REDIS);
      expect(inRedis.days).toBe(30);
      expect(inRedis.text).toContain(
        `${scheme} signs no timestamp: a captured delivery can be replayed once its ID is forgotten, after 30 days`,
      );
      const inMemory = load({ scheme, ...publicUrl });
      expect(inMemory.days).toBe(3);
      expect(inMemory.text).toContain('after 3 days (in memory also after a restart)');
    },
  );

  test('has its IDs kept as long as the route says, without a warning', () => {
    const { days, text } = load({ scheme: 'github', dedup: { retention: '90d' } }, REDIS);
    expect(days).toBe(90);
    expect(text).toBe('');
  });

  describe.each(['clickup', 'bunny-stream'])('and sends the same bytes for different events: %s', (scheme) => {
    test('is an error that names both ways out, as the app would miss events', () => {
      const { days, text } = load({ scheme });
      expect(days).toBeUndefined();
      expect(text).toContain(`error routes.0.webhook.dedup: ${scheme} can send the same bytes for different events`);
      expect(text).toContain('dedup: off, if');
      expect(text).toContain('dedup: { retention: 10m }');
      expect(text).not.toContain('signs no timestamp');
    });

    test('is accepted with dedup: off, and a warning', () => {
      const { text } = load({ scheme, dedup: 'off' });
      expect(text).toContain('warning routes.0.webhook.dedup: duplicates');
      expect(text).toContain('hint: dedup: { retention: 10m }, if the app can miss events with the same bytes');
    });

    test.each([
      ['a retention', { dedup: { retention: '10m' } }],
      ['an ID', { id: { json: '$.id' }, dedup: { retention: '30d' } }],
    ])('has no warning with %s', (_title, webhook) => {
      expect(load({ scheme, ...webhook }, REDIS).text).toBe('');
    });
  });

  test.each(['standard-webhooks', 'stripe', 'linear', 'gitlab'])(
    'is distinguished from one that does, and from one that signs nothing: %s',
    (scheme) => {
      const { days, text } = load({ scheme }, REDIS);
      expect(days).toBe(3);
      expect(text).not.toContain('signs no timestamp');
    },
  );
});
