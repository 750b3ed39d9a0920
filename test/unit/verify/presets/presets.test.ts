/** What is peculiar to single senders, and what their users do wrong. */
import { createHash, createHmac, generateKeyPairSync } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { SENDER_NOTES } from '../../../../src/cli/sender-page.ts';
import { toEssence } from '../../../../src/core/head.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { findPreset, PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SecretEncoding } from '../../../../src/verify/schemes/description.ts';
import { hmac, judgeParts, NOW, PUBLIC_URL, toPreset } from '../../../support/preset-cases.ts';
import { SENT_HEADS } from '../../../support/sent-heads.ts';

const SECONDS = String(NOW / 1000);

describe('an entry beside others', () => {
  const right = hmac('sha256', 'hex', `${SECONDS}.{}`);
  const wrong = '0'.repeat(64);

  test.each([
    ['a valid signature counts wherever it stands', `v1=${wrong},v1=${right}`, 'ok'],
    ['and so before an older key', `v1=${right},v1=${wrong}`, 'ok'],
    ["Stripe's test scheme never counts", `v0=${right}`, 'malformed_signature'],
    ['nor does it hide one that does', `v0=${wrong},v1=${right}`, 'ok'],
    ['a prefix is never optional', right, 'malformed_signature'],
    ['nor found further on', `xv1=${right}`, 'malformed_signature'],
    ['nor repeated', `v1=v1=${right}`, 'malformed_signature'],
  ])('of Stripe: %s', (_title, signature, verdict) => {
    expect(judgeParts('stripe', { timestamp: SECONDS, signature })).toBe(verdict);
  });

  test('may follow a space, as PagerDuty and WorkOS write them', () => {
    const signature = hmac('sha256', 'hex', '{}');
    expect(judgeParts('pagerduty', { signature: `v1=${wrong}, v1=${signature}` })).toBe('ok');
    const milliseconds = String(NOW);
    const workos = hmac('sha256', 'hex', `${milliseconds}.{}`);
    expect(judgeParts('workos', { timestamp: milliseconds, signature: ` v1=${workos}` })).toBe('ok');
  });

  test('may be the second of Paddle, which signs with the old and the new key during a rotation', () => {
    const signature = hmac('sha256', 'hex', `${SECONDS}:{}`);
    expect(judgeParts('paddle', { timestamp: SECONDS, signature: `h1=${wrong};h1=${signature}` })).toBe('ok');
  });
});

describe('X', () => {
  const sign = (body: string): string => `sha256=${hmac('sha256', 'base64', body)}`;

  test('signs any token on request, so only a JSON object is an event', () => {
    for (const token of ['9b4507b3-9040-4669-9ca3-6b94edb50553', '"a"', '[{"for_user_id":"1"}]', '12', 'null', '{'])
      expect(judgeParts('x', { body: Buffer.from(token), signature: sign(token) })).toBe('the body is not a JSON object');
    expect(judgeParts('x', { signature: sign('{}') })).toBe('ok');
  });
});

describe('Linear and Zoom', () => {
  const HOUR = 3_600_000;
  const linear = (ago: number): string => {
    const body = Buffer.from(JSON.stringify({ webhookTimestamp: NOW - ago }));
    return judgeParts('linear', { body, signature: hmac('sha256', 'hex', body) });
  };
  const zoom = (ago: number): string => {
    const timestamp = String((NOW - ago) / 1000);
    return judgeParts('zoom', { timestamp, signature: `v0=${hmac('sha256', 'hex', `v0:${timestamp}:{}`)}` });
  };

  test('may retry with the first timestamp: Linear for 7 hours in total, Zoom for 85 minutes', () => {
    expect([linear(7.1 * HOUR), linear(9 * HOUR), linear(-HOUR)]).toEqual([
      'ok',
      'timestamp_outside_tolerance',
      'timestamp_outside_tolerance',
    ]);
    expect([zoom(85 * 60_000), zoom(3 * HOUR), zoom(-HOUR)]).toEqual([
      'ok',
      'timestamp_outside_tolerance',
      'timestamp_outside_tolerance',
    ]);
  });

  test('are rejected if the time in the body is malformed', () => {
    for (const time of ['"x"', '1e3000', '{}', '1.5', '-1']) {
      const body = Buffer.from(`{"webhookTimestamp":${time}}`);
      expect(judgeParts('linear', { body, signature: hmac('sha256', 'hex', body) })).toBe(
        '$.webhookTimestamp in the body is not 1 to 15 digits without leading zeros',
      );
    }
  });
});

describe('HubSpot', () => {
  /** The table of its document, escape by escape. */
  const DECODED = {
    '3A': ':',
    '2F': '/',
    '3F': '?',
    '40': '@',
    '21': '!',
    '24': '$',
    '27': "'",
    '28': '(',
    '29': ')',
    '2A': '*',
  };
  const MORE = { '2C': ',', '3B': ';' };
  const judgeUrl = (sent: string, signed: string): string => {
    const signature = hmac('sha256', 'base64', `POST${PUBLIC_URL}${signed}{}${NOW}`);
    return judgeParts('hubspot', { url: `${PUBLIC_URL}${sent}`, timestamp: String(NOW), signature });
  };

  test.each(Object.entries({ ...DECODED, ...MORE }))('signs %%%s decoded, in either case', (digits, character) => {
    expect(judgeUrl(`/hook?a=%${digits}b`, `/hook?a=${character}b`)).toBe('ok');
    expect(judgeUrl(`/hook?a=%${digits.toLowerCase()}b`, `/hook?a=${character}b`)).toBe('ok');
  });

  test.each(['20', '25', '26', '2B', '3D', '23', '5B', 'C3%A9'])('signs %%%s unchanged', (digits) => {
    expect(judgeUrl(`/hook?a=%${digits}`, `/hook?a=%${digits}`)).toBe('ok');
    expect(judgeUrl(`/hook?a=%${digits}`, `/hook?a=${decodeURIComponent(`%${digits}`)}`)).toBe('mismatch');
  });

  test('decodes once: the result of an escape is not decoded again', () => {
    expect(judgeUrl('/hook?a=%252F', '/hook?a=%252F')).toBe('ok');
    expect(judgeUrl('/hook?a=%252F', '/hook?a=/')).toBe('mismatch');
  });
});

describe('Twilio', () => {
  const judgeTwilio = (url: string, body: string | Buffer, signed: string | Buffer): string =>
    judgeParts('twilio', { url, body: Buffer.from(body), signature: hmac('sha1', 'base64', signed) });

  test('writes its default port or omits it', () => {
    for (const url of [`${PUBLIC_URL}/hook`, `${PUBLIC_URL}:443/hook`])
      expect(judgeTwilio(`${PUBLIC_URL}/hook`, 'A=1', `${url}A1`)).toBe('ok');
    expect(judgeTwilio(`${PUBLIC_URL}/hook`, 'A=1', `${PUBLIC_URL}:8443/hookA1`)).toBe('mismatch');
  });

  test('signs each different value of a name once, in order', () => {
    expect(judgeTwilio(`${PUBLIC_URL}/hook`, 'b=2&a=3&b=1&b=2', `${PUBLIC_URL}/hooka3b1b2`)).toBe('ok');
  });

  test('signs bytes: invalid UTF-8 never equals other bytes', () => {
    const url = `${PUBLIC_URL}/hook`;
    const signed = Buffer.concat([Buffer.from(`${url}A`), Buffer.from([0xff])]);
    expect(judgeTwilio(url, 'A=%FF', signed)).toBe('ok');
    expect(judgeTwilio(url, 'A=%FE', signed)).toBe('mismatch');
    expect(judgeTwilio(url, 'A=%EF%BF%BD', signed)).toBe('mismatch');
  });

  test('binds another body by its digest in the query, of which there must be one', () => {
    const digest = createHash('sha256').update('{}').digest('hex');
    const url = `${PUBLIC_URL}/hook?bodySHA256=${digest}`;
    expect(judgeTwilio(url, '{}', url)).toBe('ok');
    expect(judgeTwilio(url, '{ }', url)).toBe('mismatch');
    const twice = `${url}&bodySHA256=${createHash('sha256').update('{ }').digest('hex')}`;
    expect(judgeTwilio(twice, '{ }', twice)).toBe('mismatch');
    // Text of a form that was moved into the query never stands at its end.
    const within = `${url}&z=From`;
    expect(judgeTwilio(within, '{ }', within)).toBe('mismatch');
    const empty = `${PUBLIC_URL}/hook?bodySHA256=`;
    expect(judgeTwilio(empty, '{}', empty)).toBe('mismatch');
  });
});

describe('a batch', () => {
  const identify = (name: string, content: unknown): string | undefined => {
    const identity = compileScheme(toPreset(name)).identify(
      { id: undefined, timestampText: SECONDS, timestamp: NOW, signatures: [] },
      { method: 'POST', url: '', body: Buffer.from(JSON.stringify(content)) },
    );
    return 'problem' in identity ? identity.problem : identity.id;
  };

  test('of LINE is recognized by the IDs of its events, although a redelivery is marked as one', () => {
    const event = (webhookEventId: string, isRedelivery = false): object => ({
      webhookEventId,
      deliveryContext: { isRedelivery },
    });
    const first = identify('line', { events: [event('a'), event('b')] });
    expect(identify('line', { events: [event('a', true), event('b', true)] })).toBe(first);
    for (const events of [[event('a')], [event('b'), event('a')], [event('a'), event('b'), event('c')]])
      expect(identify('line', { events })).not.toBe(first);
    expect(identify('line', { events: [event('a')] })).toBe('a');
    // The button that checks the URL sends none: what was signed stands for it.
    expect(identify('line', { destination: 'x', events: [] })).toMatch(/^sha256-/);
  });

  test('of SendGrid is recognized by all of its IDs, or by the signed content if one has none', () => {
    const both = identify('sendgrid', [{ sg_event_id: 'a' }, { sg_event_id: 'b' }]);
    expect(identify('sendgrid', [{ sg_event_id: 'a', event: 'open' }, { sg_event_id: 'b' }])).toBe(both);
    expect(identify('sendgrid', [{ sg_event_id: 'a' }, { sg_event_id: 'c' }])).not.toBe(both);
    expect(identify('sendgrid', [{ sg_event_id: 'a' }, {}])).not.toBe(identify('sendgrid', [{ sg_event_id: 'a' }, { x: 1 }]));
  });
});

describe('a key of the wrong kind', () => {
  const parse = (preset: string, secret: string, encoding?: SecretEncoding): string => {
    const parsed = compileScheme(toPreset(preset)).parseKey('k', new Secret(Buffer.from(secret)), encoding);
    return 'problem' in parsed ? `${parsed.problem}; ${parsed.hint}` : (parsed.warning ?? 'ok');
  };
  const spki = (pair: { publicKey: { export(options: { format: 'der'; type: 'spki' }): Buffer } }): string =>
    pair.publicKey.export({ format: 'der', type: 'spki' }).toString('base64');

  test.each([
    [
      'discord',
      'MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs',
      /not hex of 32 bytes.*Discord.*64 hex digits; not the bot's token/,
    ],
    ['discord', 'ab'.repeat(31), /^the key is not hex of 32 bytes; copy the whole public key/],
    ['standard-webhooks', 'whpk_AAAA', /^the text after whpk_ is not base64 of 32 bytes; copy the whole public key/],
    ['sendgrid', 'SG.ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf09kqeF8tAmbihYzrnopKc', /SendGrid.*not an API key/],
    ['sendgrid', spki(generateKeyPairSync('ed25519')), /not base64 of an ECDSA P-256 key in DER/],
    ['sendgrid', spki(generateKeyPairSync('ec', { namedCurve: 'secp384r1' })), /not base64 of an ECDSA P-256 key in DER/],
    ['stripe', 'sk_live_51H8abcdefghijklmnop', /does not start with whsec_.*signing secret.*not an API key/],
    ['stripe', '"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"', /^the secret is in quotation marks; remove them/],
    ['adyen-platforms', 'not hex at all, surely', /not hex.*Adyen.*64 hex digits/],
    ['svix', 'abcdefabcdefabcdefabcdef', /no whsec_ prefix.*Svix/],
    ['github', '', /empty.*GitHub/],
    ['twitch', 'short', /5 bytes; it should have at least 10/],
  ])('gets an error that names the right one: %s', (preset, secret, expected) => {
    expect(parse(preset, secret)).toMatch(expected);
  });

  test.each([
    ['stripe', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'],
    ['discord', 'ab'.repeat(32)],
    ['sendgrid', spki(generateKeyPairSync('ec', { namedCurve: 'prime256v1' }))],
    ['adyen-platforms', '44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056'],
    ['twitch', 's3cre77890'],
  ])('is not reported for a correct one: %s', (preset, secret) => {
    expect(parse(preset, secret)).toBe('ok');
  });

  test('is not guessed: the key of Polar is the text of its secret, and the decoded part only if the config says so', () => {
    const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
    const description = toPreset('polar');
    const scheme = compileScheme(description);
    const sign = (encoding?: SecretEncoding): string | undefined =>
      scheme.sign({ id: 'a', timestamp: NOW, body: Buffer.from('{}') }, new Secret(Buffer.from(secret)), encoding).at(-1)?.[1];
    const expected = (key: string | Buffer): string =>
      `v1,${createHmac('sha256', key).update(`a.${SECONDS}.{}`).digest('base64')}`;
    expect(sign()).toBe(expected(secret));
    expect(sign('base64')).toBe(expected(Buffer.from(secret.slice(6), 'base64')));
  });
});

describe('the head of each sender', () => {
  const senders = PRESETS.filter(({ from }) => from !== undefined);

  test('is known, or marked as not confirmed', () => {
    const marked = senders.filter(({ name }) => SENDER_NOTES[name]?.unconfirmed?.includes('the Content-Type') === true);
    const isMarked = new Set(marked.map(({ name }) => name));
    expect(senders.filter(({ name }) => (SENT_HEADS[name] !== undefined) === isMarked.has(name))).toEqual([]);
    expect(Object.keys(SENT_HEADS).filter((name) => findPreset(name)?.from === undefined)).toEqual([]);
  });

  test.each(Object.entries(SENT_HEADS))('of %s is one that its preset names', (name, { types, methods = ['POST'] }) => {
    const preset = toPreset(name);
    const accepted = new Set(preset.contentTypes.flatMap((type) => [type, toEssence(type)]));
    expect(types.filter((type) => !accepted.has(toEssence(type)))).toEqual([]);
    expect([...methods].sort()).toEqual([...(preset.methods ?? ['POST'])].sort());
  });
});
