import { describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import { Secret } from '../../../../src/core/secret.ts';
import type { Identified } from '../../../../src/verify/schemes/scheme.ts';
import { hmac, judgeParts, NOW, PUBLIC_URL, SECRET, toSecretCase } from '../../../support/preset-cases.ts';

const SECONDS = String(NOW / 1000);
const MILLISECONDS = String(NOW);

/** The identity of a delivery with this content, signed by the preset itself. */
function identify(name: string, content: unknown, headers: Readonly<Record<string, string>> = {}): Identified {
  const { scheme, key } = toSecretCase(name);
  const message = { method: 'POST', url: `${PUBLIC_URL}/hook`, body: Buffer.from(JSON.stringify(content)) };
  const signed = scheme.sign({ ...message, id: 'evt_1', timestamp: NOW }, new Secret(Buffer.from(SECRET)), undefined);
  const fields = new HeaderFields([...signed.flat(), ...Object.entries(headers).flat()]);
  const head = scheme.readHead(fields, { allowDotInId: false });
  if ('code' in head || scheme.verify(head, message, [key]) === undefined) throw new Error(`${name} is not verified`);
  return scheme.identify(head, message);
}

describe('Persona', () => {
  const right = `v1=${hmac('sha256', 'hex', `${SECONDS}.{}`)}`;
  const wrong = `v1=${'0'.repeat(64)}`;

  test.each([
    ['alone', right, 'ok'],
    ['as the last one during a rotation', `${wrong} t=${SECONDS},${right}`, 'ok'],
    ['but not as the first one', `${right} t=${SECONDS},${wrong}`, 'mismatch'],
  ])('compares a signature %s', (_title, signature, result) => {
    expect(judgeParts('persona', { timestamp: SECONDS, signature })).toBe(result);
  });
});

describe('Recurly', () => {
  const right = hmac('sha256', 'hex', `${MILLISECONDS}.{}`);
  const wrong = '0'.repeat(64);

  test.each([
    ['accepts the signature of either key after a rotation', `${wrong},${right}`, 'ok'],
    ['and in either order', `${right},${wrong}`, 'ok'],
    ['rejects two signatures of other keys', `${wrong},${wrong}`, 'mismatch'],
    ['rejects a time without a signature', '', 'malformed_signature'],
    ['takes no second entry for the time', `${MILLISECONDS},${right}`, 'ok'],
  ])('%s', (_title, signature, result) => {
    expect(judgeParts('recurly', { timestamp: MILLISECONDS, signature })).toBe(result);
  });

  test.each([
    ['a signature in the place of the time', right],
    ['a time with a sign', `+${MILLISECONDS}`],
    ['a time in seconds, as its document writes it', SECONDS],
    ['no time', ''],
  ])('rejects %s', (_title, timestamp) => {
    expect(judgeParts('recurly', { timestamp, signature: `${MILLISECONDS},${right}` })).not.toBe('ok');
  });
});

describe('a time next to the body, with nothing between them,', () => {
  test('of Airwallex and Cashfree has 13 digits, so that none moves into the body or out of it', () => {
    const body = Buffer.from('5 apples');
    const toSignature = (name: string): string =>
      hmac('sha256', name === 'cashfree' ? 'base64' : 'hex', MILLISECONDS, String(body));
    for (const name of ['airwallex', 'cashfree']) {
      const genuine = { timestamp: MILLISECONDS, body, signature: toSignature(name) };
      expect(judgeParts(name, genuine)).toBe('ok');
      const longer = { ...genuine, timestamp: `${MILLISECONDS}5`, body: body.subarray(1) };
      const shorter = { ...genuine, timestamp: MILLISECONDS.slice(0, -1), body: Buffer.from(`0${body}`) };
      expect([judgeParts(name, longer), judgeParts(name, shorter)]).toEqual(['malformed_signature', 'malformed_signature']);
    }
  });

  test('of Klaviyo is the last 29 characters, even if the body ends with another one', () => {
    const time = new Date(NOW).toUTCString();
    const body = Buffer.from(`{"a":"${time}"}`);
    const genuine = { timestamp: time, body, signature: hmac('sha256', 'hex', String(body), time) };
    expect(judgeParts('klaviyo', genuine)).toBe('ok');
    expect(judgeParts('klaviyo', { ...genuine, timestamp: time.slice(1), body: Buffer.from(`${body}${time[0]}`) })).toBe(
      'malformed_signature',
    );
  });

  test('of Klaviyo may be hours ahead, because its clock is not the one of GMT, and no more', () => {
    const judgeAhead = (hours: number): string => {
      const time = new Date(NOW + hours * 3_600_000).toUTCString();
      return judgeParts('klaviyo', { timestamp: time, signature: hmac('sha256', 'hex', '{}', time) });
    };
    expect([5, 6, 8, -24, -26].map(judgeAhead)).toEqual([
      'ok',
      'ok',
      'timestamp_outside_tolerance',
      'ok',
      'timestamp_outside_tolerance',
    ]);
  });

  test('of Zendesk ends with its Z', () => {
    const time = new Date(NOW).toISOString();
    const genuine = { timestamp: time, body: Buffer.from('Z{}'), signature: hmac('sha256', 'base64', time, 'Z{}') };
    expect(judgeParts('zendesk', genuine)).toBe('ok');
    expect(judgeParts('zendesk', { ...genuine, timestamp: `${time}Z`, body: Buffer.from('{}') })).toBe('malformed_signature');
  });
});

describe('a header that two schemes use', () => {
  test("of Front has SHA-256 and a time for applications, SHA-1 for rules, and neither accepts the other's", () => {
    const application = hmac('sha256', 'base64', `${MILLISECONDS}:{}`);
    const rule = hmac('sha1', 'base64', '{}');
    expect(judgeParts('front', { timestamp: MILLISECONDS, signature: application })).toBe('ok');
    expect(judgeParts('front', { timestamp: MILLISECONDS, signature: rule })).toBe('malformed_signature');
    expect(judgeParts('front-rules', { signature: rule })).toBe('ok');
    expect(judgeParts('front-rules', { signature: application })).toBe('malformed_signature');
  });

  test('of Intercom has SHA-1 and its prefix', () => {
    const signature = hmac('sha1', 'hex', '{}');
    expect(judgeParts('intercom', { signature: `sha1=${signature}` })).toBe('ok');
    expect(judgeParts('intercom', { signature })).toBe('malformed_signature');
    expect(judgeParts('intercom', { signature: `sha256=${hmac('sha256', 'hex', '{}')}` })).toBe('malformed_signature');
  });
});

test('Cal.com without a secret sends no signature', () => {
  expect(judgeParts('cal-com', { signature: 'no-secret-provided' })).toBe('malformed_signature');
});

test('Paystack and Revolut have keys that start in their own ways', () => {
  const weakness = (name: string, secret: string): string | undefined => {
    const parsed = toSecretCase(name).scheme.parseKey('k', new Secret(Buffer.from(secret)), undefined);
    return 'problem' in parsed ? parsed.problem : parsed.warning;
  };
  expect(weakness('paystack', 'sk_test_0123456789abcdef')).toBeUndefined();
  expect(weakness('paystack', 'pk_test_0123456789abcdef')).toContain('does not start with sk_');
  expect(weakness('revolut', 'sk_0123456789abcdef')).toContain('does not start with wsk_');
});

describe('a further attempt with another body', () => {
  test.each([
    ['intercom', { id: 'notif_1', delivery_attempts: 1 }, { id: 'notif_1', delivery_attempts: 2 }],
    ['coinbase-commerce', { attempt_number: 1, event: { id: 'e1' } }, { attempt_number: 2, event: { id: 'e1' } }],
  ])('of %s is the same event', (name, first, second) => {
    expect(identify(name, first)).toEqual(identify(name, second));
  });
});

describe('a delivery with several events', () => {
  const ids = { gocardless: 'events', fastspring: 'events', klaviyo: 'data' } as const;
  test.each(Object.entries(ids))('of %s is identified by all of them', (name, list) => {
    const member = name === 'klaviyo' ? 'external_id' : 'id';
    const toContent = (...values: string[]): object => ({ [list]: values.map((value) => ({ [member]: value })) });
    expect(identify(name, toContent('a', 'b'))).toEqual(identify(name, toContent('a', 'b')));
    expect(identify(name, toContent('a', 'b'))).not.toEqual(identify(name, toContent('a', 'c')));
    expect(identify(name, toContent('a'))).toMatchObject({ id: 'a' });
  });

  test('of QuickBooks has IDs in the CloudEvents format, and a digest before', () => {
    expect(identify('quickbooks', [{ id: '88cd52aa' }])).toMatchObject({ id: '88cd52aa' });
    expect(identify('quickbooks', { eventNotifications: [{ realmId: '1' }] })).toHaveProperty('digest');
  });
});

describe('a header beside the signed body', () => {
  test('of Commerce Layer makes another event, because the body does not name it', () => {
    const [place, approve] = ['orders.place', 'orders.approve'].map((topic) =>
      identify('commerce-layer', { data: {} }, { 'X-CommerceLayer-Topic': topic }),
    );
    expect(place).not.toEqual(approve);
    expect(place).toMatchObject({ contentDigest: (approve as { contentDigest?: string }).contentDigest });
  });

  test('of Lemon Squeezy makes none', () => {
    const [order, refund] = ['order_created', 'order_refunded'].map((event) =>
      identify('lemon-squeezy', {}, { 'X-Event-Name': event }),
    );
    expect(order).toEqual(refund);
  });
});
