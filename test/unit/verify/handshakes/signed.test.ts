import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { HandshakeName } from '../../../../src/verify/schemes/description.ts';
import { fc } from '../../../support/property.ts';
import { KEY, tell, toText } from './harness.ts';

const UNSAFE: readonly unknown[] = ['', 'a b', 'a\nb', 'é', 'x'.repeat(257), 7, null, undefined, {}, ['a']];

describe('Slack', () => {
  const ask = {
    token: 'Jhj5dZrVaK7ZwHHjRyZWjbDl',
    challenge: '3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P',
    type: 'url_verification',
  };

  test('reads its challenge again', () => {
    expect(toText(tell('slack', ask))).toBe(`200 text/plain ${ask.challenge}`);
    expect(toText(tell('slack', JSON.stringify(ask, undefined, 2)))).toBe(`200 text/plain ${ask.challenge}`);
  });

  test.each(UNSAFE)('is rejected if its challenge is %o', (challenge) => {
    expect(tell('slack', { ...ask, challenge })?.code).toBe('handshake_refused');
  });

  test.each([
    ['an event', { type: 'event_callback', event: { type: 'app_mention' } }],
    ['an event that speaks of it', { type: 'event_callback', event: { text: 'url_verification', challenge: 'a' } }],
    ['a form', 'payload=%7B%22type%22%3A%22url_verification%22%7D'],
    ['a list', [ask]],
    ['text that is no JSON', `${JSON.stringify(ask)}}`],
    ['content that is too long to be one', { ...ask, more: 'x'.repeat(20_000) }],
  ])('is not detected if it is %s', (_title, body) => {
    expect(tell('slack', body)).toBeUndefined();
  });

  test('is not detected if it is not UTF-8', () => {
    expect(tell('slack', Buffer.concat([Buffer.from(JSON.stringify(ask)), Buffer.from([0xff])]))).toBeUndefined();
  });
});

describe('Front', () => {
  const sync = { type: 'sync', authorization: { id: 'cmp_abc' } };
  const withChallenge = (...values: string[]): { headers: string[] } => ({
    headers: values.flatMap((value) => ['X-Front-Challenge', value]),
  });

  test('reads its challenge again', () => {
    expect(toText(tell('front', sync, withChallenge('abc123')))).toBe('200 application/json {"challenge":"abc123"}');
  });

  test.each([[], ['a', 'a'], ['a b'], [''], ['x'.repeat(257)]])('is rejected if its challenges are %j', (...values) => {
    expect(tell('front', sync, withChallenge(...values))?.code).toBe('handshake_refused');
  });

  test.each([
    ['an event, whatever header it has', { type: 'inbound_received', authorization: { id: 'cmp_abc' }, payload: {} }],
    ['an event that names itself so', { ...sync, payload: { id: 'evt_1' } }],
    ['without the account', { type: 'sync' }],
    ['a list', [sync]],
  ])('is not detected if it is %s', (_title, body) => {
    expect(tell('front', body, withChallenge('abc123'))).toBeUndefined();
  });
});

describe('Zoom', () => {
  const toAsk = (plainToken: unknown): object => ({
    payload: { plainToken },
    event_ts: 1_654_503_849_680,
    event: 'endpoint.url_validation',
  });

  test('gets the HMAC of its token with the key that verified it, the same each time', () => {
    const plainToken = 'qgg8vlvZRS6UYooatFL8Aw';
    const encryptedToken = createHmac('sha256', KEY).update(plainToken).digest('hex');
    for (let i = 0; i < 2; i++)
      expect(toText(tell('zoom', toAsk(plainToken)))).toBe(
        `200 application/json {"plainToken":"${plainToken}","encryptedToken":"${encryptedToken}"}`,
      );
  });

  test.each([...UNSAFE, 'v0:1654503849:{}', '{"event":"meeting.ended"}'])('is rejected if its token is %o', (plainToken) => {
    expect(tell('zoom', toAsk(plainToken))?.code).toBe('handshake_refused');
    expect(tell('zoom', { ...toAsk('a'), payload: plainToken })?.code).toBe('handshake_refused');
  });

  test('gets 503 if the key no longer exists', () => {
    expect(tell('zoom', toAsk('a'), { keys: [] })?.code).toBe('secret_unavailable');
  });

  test('is left alone with its events', () => {
    expect(
      tell('zoom', { event: 'meeting.started', payload: { topic: 'endpoint.url_validation', plainToken: 'a' } }),
    ).toBeUndefined();
  });
});

describe('Smartcar', () => {
  const toAsk = (challenge: unknown): object => ({
    eventId: '52f6e0bb-1369-45da-a61c-9e67d092d6db',
    eventType: 'VERIFY',
    data: { challenge },
    meta: { version: '4.0', deliveredAt: 1_761_896_351_529 },
  });

  test('gets the HMAC of its challenge with the key that verified it, the same each time', () => {
    const challenge = '3a5c8f72-e6d9-4b1a-9f2e-8c7d6a5b4e3f';
    const mac = createHmac('sha256', KEY).update(challenge).digest('hex');
    for (let i = 0; i < 2; i++)
      expect(toText(tell('smartcar', toAsk(challenge)))).toBe(`200 application/json {"challenge":"${mac}"}`);
  });

  test.each([...UNSAFE, '{"eventType":"VEHICLE_STATE"}', 'a'.repeat(65), 'a=b'])(
    'is rejected if its challenge is %o',
    (challenge) => {
      expect(tell('smartcar', toAsk(challenge))?.code).toBe('handshake_refused');
      expect(tell('smartcar', { ...toAsk('a'), data: challenge })?.code).toBe('handshake_refused');
    },
  );

  test('is rejected for a body that could be a challenge, whose HMAC a captured VERIFY gets again', () => {
    expect(tell('smartcar', '3a5c8f72-e6d9-4b1a-9f2e-8c7d6a5b4e3f')?.code).toBe('handshake_refused');
  });

  test('gets 503 if the key no longer exists', () => {
    expect(tell('smartcar', toAsk('a'), { keys: [] })?.code).toBe('secret_unavailable');
  });

  test('is left alone with its events', () => {
    const event = { eventType: 'VEHICLE_STATE', data: { challenge: 'a', text: 'VERIFY' } };
    expect(tell('smartcar', event)).toBeUndefined();
  });
});

describe('Twitch', () => {
  const ask = {
    challenge: 'pogchamp-kappa-360noscope-vohiyo',
    subscription: {
      id: 'f1c2a387-161a-49f9-a165-0f21d7a4e1c4',
      status: 'webhook_callback_verification_pending',
      type: 'channel.follow',
    },
  };
  const of = (type: string): readonly string[] => ['Twitch-Eventsub-Message-Type', type];
  const VERIFICATION = of('webhook_callback_verification');
  const { subscription } = ask;

  test('reads its challenge again', () => {
    expect(toText(tell('twitch', ask, { headers: VERIFICATION }))).toBe(`200 text/plain ${ask.challenge}`);
  });

  test.each([
    ['verification under another type', ask, of('notification')],
    ['verification without a type', ask, []],
    ['verification with two types', ask, [...VERIFICATION, ...of('notification')]],
    ['notification under the type of a verification', { subscription, event: { user_id: '1' } }, VERIFICATION],
    ['verification with an event', { ...ask, event: {} }, VERIFICATION],
    ['revocation under the type of a verification', { subscription }, VERIFICATION],
    ['verification that is no JSON', '"challenge"', VERIFICATION],
    ['verification with a challenge that must not be echoed', { ...ask, challenge: 'a b' }, VERIFICATION],
  ])('is rejected for a %s', (_title, body, headers) => {
    expect(tell('twitch', body, { headers })?.code).toBe('handshake_refused');
  });

  test('is not detected in notifications and revocations', () => {
    expect(tell('twitch', { subscription, event: { challenge: 'a' } }, { headers: of('notification') })).toBeUndefined();
    expect(tell('twitch', { subscription, event: {}, challenge: 'a' }, { headers: of('notification') })).toBeUndefined();
    expect(tell('twitch', { subscription }, { headers: of('revocation') })).toBeUndefined();
  });
});

describe('Discord', () => {
  test('gets a PONG for the PING of interactions, and 204 for that of events', () => {
    expect(toText(tell('discord', { application_id: '1', id: '2', token: 'a', type: 1, user: {}, version: 1 }))).toBe(
      '200 application/json {"type":1}',
    );
    expect(tell('discord', { version: 1, application_id: '1', type: 0 })?.reply).toMatchObject({ status: 204, body: '' });
  });

  test.each([
    ['an event', { version: 1, application_id: '1', type: 1, event: { type: 'APPLICATION_AUTHORIZED' } }],
    ['an interaction', { type: 2, data: { name: 'ping' } }],
    ['an interaction that has data', { type: 1, data: {} }],
    ['a type that is text', { type: '1' }],
    ['no type', { version: 1 }],
    ['a list', [{ type: 1 }]],
  ])('is not detected in %s', (_title, body) => {
    expect(tell('discord', body)).toBeUndefined();
  });
});

describe('X', () => {
  test.each(['9b4507b3-9040-4669-9ca3-6b94edb50553', '', 'YWJj==', '1234'])(
    'is rejected for a body that anyone could have had signed: %o',
    (body) => {
      expect(tell('x', body)?.code).toBe('handshake_refused');
    },
  );

  test('is left alone with its events', () => {
    for (const body of ['{}', '{"for_user_id":"1"}', 'a'.repeat(300)]) expect(tell('x', body)).toBeUndefined();
  });
});

test('for any signed body nothing throws, and only a valid challenge is echoed', () => {
  const kinds: readonly HandshakeName[] = ['slack', 'zoom', 'smartcar', 'twitch', 'discord', 'x'];
  const text = fc.oneof(fc.constantFrom('url_verification', 'endpoint.url_validation', 'VERIFY'), fc.string({ unit: 'binary' }));
  const leaf = fc.oneof(text, fc.integer({ min: 0, max: 2 }), fc.constant(null));
  const content = fc.dictionary(
    fc.constantFrom('type', 'event', 'eventType', 'challenge', 'payload', 'data'),
    fc.oneof(leaf, fc.record({ plainToken: leaf, challenge: leaf })),
  );
  const headers = fc.constantFrom([], ['Twitch-Eventsub-Message-Type', 'webhook_callback_verification']);
  fc.assert(
    fc.property(fc.constantFrom(...kinds), content, headers, (type, value, fields) => {
      const body = tell(type, value, { headers: fields })?.reply?.body;
      return body === undefined || /^[\x21-\x7e]*$/.test(body);
    }),
    { numRuns: 3_000 },
  );
});
