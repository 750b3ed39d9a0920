/** Two sets of header names for one delivery (Svix): the app must never read an ID or a time from a header that the gate did not verify. */
import { beforeEach, describe, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { startGate, toRoute } from '../support/gate.ts';

const app = useApp();
const gate = useGate(() => startGate({ routes: [toRoute(app.port, { webhook: { scheme: 'svix' } })] }));

const { headers: signed, body } = makeDelivery();
let delivery = makeDelivery();
beforeEach(() => {
  delivery = makeDelivery();
});

function toNames(headers: Record<string, string>, kind: string): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.replace(/^Webhook-/, `${kind}-`), value]));
}

function post(headers: Record<string, string>): Promise<Answer> {
  return send(gate.port, { path: '/hooks/billing', headers, body: delivery.body });
}

describe('a delivery to a svix route', () => {
  test.each(['Svix', 'Webhook'])('reaches the app with its %s- headers alone', async (kind) => {
    expect((await post(toNames(delivery.headers, kind))).text).toBe('handled');
    const names = Object.keys(app.received[0]?.headers ?? {}).filter((name) => /^(?:svix|webhook)/.test(name));
    expect(names.sort()).toEqual(['id', 'signature', 'timestamp'].map((part) => `${kind.toLowerCase()}-${part}`));
    expect(app.received[0]?.headers[`${kind.toLowerCase()}-id`]).toBe(delivery.id);
  });

  test.each([
    ['Svix', 'Webhook'],
    ['Webhook', 'Svix'],
  ])('is a duplicate if it is replayed under the other names: %s, then %s', async (first, second) => {
    expect((await post(toNames(delivery.headers, first))).text).toBe('handled');
    expect((await post(toNames(delivery.headers, second))).status).toBe(200);
    expect(app.received).toHaveLength(1);
  });

  test.each(['Svix-Id', 'svix_id', 'SVIX-ID', 'svix.id', 'Svix-Timestamp', 'Svix-Signature'])(
    'never brings another value as %s beside its Webhook- headers',
    async (name) => {
      const answer = await post({ ...delivery.headers, [name]: 'other' });
      if (answer.status === 200) expect(app.received[0]?.headers).not.toHaveProperty(name.toLowerCase());
      else expect(answer.status).toBe(name.includes('-') ? 401 : 400);
    },
  );

  test('is rejected if one delivery has the other headers of another', async () => {
    expect((await post({ ...delivery.headers, ...toNames(signed, 'Svix') })).code).toBe('malformed_signature');
    expect((await post({ ...toNames(delivery.headers, 'Svix'), ...signed })).code).toBe('malformed_signature');
    expect(body).not.toEqual(delivery.body);
    expect(app.received).toHaveLength(0);
  });

  test.each(['webhook-id', 'webhook-signature'])(
    'is rejected if Connection names %s, which the app would not get',
    async (name) => {
      expect((await post({ ...delivery.headers, Connection: name })).status).toBe(400);
      expect(app.received).toHaveLength(0);
    },
  );
});
