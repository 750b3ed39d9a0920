import { describe, expect, test } from 'vitest';
import { parseSnsMessage } from '../../../../src/verify/schemes/aws-sns.ts';
import { fc } from '../../../support/property.ts';

type Fields = Readonly<Record<string, unknown>>;

const HOST = 'https://sns.eu-central-1.amazonaws.com';
const NAMES = ['Message', 'MessageId', 'Subject', 'SubscribeURL', 'Timestamp', 'Token', 'TopicArn', 'Type'];
const NOTIFICATION: Fields = {
  Type: 'Notification',
  MessageId: 'real',
  TopicArn: 'arn:aws:sns:eu-central-1:123456789012:orders',
  Message: 'hello',
  Timestamp: '2026-01-02T03:04:05.678Z',
  SignatureVersion: '2',
  Signature: 'AAAA',
  SigningCertURL: `${HOST}/a.pem`,
};
const CONFIRMATION: Fields = {
  ...NOTIFICATION,
  Type: 'SubscriptionConfirmation',
  Token: 'abc',
  SubscribeURL: `${HOST}/?Action=ConfirmSubscription`,
};

/** What would be signed, or undefined where the message is refused. */
function toSigned(fields: Fields): string | undefined {
  const message = parseSnsMessage(Buffer.from(JSON.stringify(fields)));
  return 'problem' in message ? undefined : message.signed.toString();
}

test('a subject made of the fields beside it, and fields made of a subject, are not both accepted', () => {
  const genuine = { ...NOTIFICATION, Message: 'hello\nMessageId\nforged\nSubject\nworld' };
  const forged = { ...NOTIFICATION, MessageId: 'forged', Subject: 'world\nMessageId\nreal' };
  expect(toSigned(genuine)).toContain('Subject\nworld\nMessageId\nreal\n');
  expect(toSigned(forged)).toBeUndefined();
});

describe('a subject', () => {
  test.each(['', 'Größe', 'x'.repeat(100), '😀'.repeat(100), null])('is accepted: %j', (subject) => {
    expect(toSigned({ ...NOTIFICATION, Subject: subject })).toBeDefined();
  });

  test.each(['a\nb', 'a\n', 'a\rb', 'a\tb', '\u0000', '\u007f', '\u0085', 'x'.repeat(101), '\ud800', 5, ['a'], {}, false])(
    'is rejected: %j',
    (subject) => {
      expect(toSigned({ ...NOTIFICATION, Subject: subject })).toBeUndefined();
    },
  );
});

test.each(NAMES.filter((name) => name !== 'Message' && name !== 'Subject'))('no line end is accepted in %s', (name) => {
  expect(toSigned(CONFIRMATION)).toBeDefined();
  for (const end of ['\n', '\r']) expect(toSigned({ ...CONFIRMATION, [name]: `${CONFIRMATION[name]}${end}` })).toBeUndefined();
});

test('no half of a surrogate pair is accepted, as all of them are the same bytes', () => {
  expect(toSigned({ ...NOTIFICATION, Message: '\ud800' })).toBeUndefined();
  expect(toSigned({ ...NOTIFICATION, Message: '\ufffd' })).toBeDefined();
});

describe('two different messages that are accepted', () => {
  const word = fc.constantFrom('a', 'b', '', '\ufffd', ...NAMES, 'Notification', 'SubscriptionConfirmation');
  const toText = (words: fc.Arbitrary<string>, ends: readonly string[], maxLength: number): fc.Arbitrary<string> =>
    fc.array(fc.tuple(words, fc.constantFrom(...ends)), { maxLength }).map((parts) => parts.flat().join(''));
  const line = toText(word, [' ', ''], 4);
  const lines = toText(word, ['\n', '\n', ' ', ''], 9);
  /** Anything: with every kind of line end, and half of a surrogate pair. */
  const any = toText(fc.oneof(word, fc.constant('\ud800')), ['\n', '\n', '\r', ' ', ''], 9);
  const usually = (text: fc.Arbitrary<string>): fc.Arbitrary<string> => fc.oneof({ weight: 9, arbitrary: text }, any);
  const fields = fc.constantFrom(NOTIFICATION, CONFIRMATION).chain((base) => {
    const own = base === NOTIFICATION ? { Subject: usually(line) } : { Token: usually(line), SubscribeURL: usually(line) };
    const more = { Message: usually(lines), MessageId: usually(fc.constantFrom('a', 'b')), ...own };
    return fc.record<Fields>(more, { requiredKeys: [] }).map((changed): Fields => ({ ...base, ...changed }));
  });
  const isSigned = (type: unknown, name: string): boolean =>
    type === 'Notification' ? name !== 'Token' && name !== 'SubscribeURL' : name !== 'Subject';
  const toMeaning = (message: Fields): unknown[] =>
    NAMES.map((name) => (isSigned(message['Type'], name) ? message[name] : undefined));

  /** Moves each boundary that the signed bytes of `message` could be read to have. */
  function toReadings(message: Fields, signed: string): Fields[] {
    const names = NAMES.filter((name) => isSigned(message['Type'], name));
    let readings: { readonly fields: Fields; readonly rest: string }[] = [{ fields: {}, rest: signed }];
    names.forEach((name, index) => {
      const following = [...(index + 1 < names.length ? [names[index + 1], names[index + 2]] : []), undefined];
      readings = readings.flatMap(({ fields: read, rest }) => {
        const without = name === 'Subject' ? [{ fields: read, rest }] : [];
        if (!rest.startsWith(`${name}\n`)) return without;
        const content = rest.slice(name.length + 1);
        const ends = [...content.matchAll(/\n/g)].map(({ index: end }) => end);
        const cuts = ends.filter((end) =>
          following.some((next) => (next === undefined ? end === content.length - 1 : content.startsWith(`${next}\n`, end + 1))),
        );
        return [
          ...without,
          ...cuts.map((end) => ({ fields: { ...read, [name]: content.slice(0, end) }, rest: content.slice(end + 1) })),
        ];
      });
    });
    return readings.filter(({ rest }) => rest === '').map(({ fields: read }) => read);
  }

  test('never have the same signed bytes, however the boundaries between fields are moved', () => {
    let signable = 0;
    fc.assert(
      fc.property(fields, (message) => {
        const signed = toSigned(message);
        if (signed === undefined) return;
        signable++;
        const { SignatureVersion, Signature, SigningCertURL } = NOTIFICATION;
        const accepted = toReadings(message, signed)
          .map((reading): Fields => ({ ...reading, SignatureVersion, Signature, SigningCertURL }))
          .filter((reading) => toSigned(reading) === signed);
        expect(accepted.map(toMeaning)).toEqual([toMeaning(message)]);
      }),
      { numRuns: 2_000, examples: [[{ ...NOTIFICATION, Message: 'hello\nMessageId\nforged\nSubject\nworld' }]] },
    );
    expect(signable).toBeGreaterThan(1_000);
  });
});

describe('the work for a sender that is not verified is bounded', () => {
  const text = JSON.stringify(NOTIFICATION).slice(0, -1);
  const toMembers = (count: number): string => Array.from({ length: count }, (_, i) => `"${i}":0`).join();
  test.each([
    ['levels', `${text},"x":${'['.repeat(500_000)}${']'.repeat(500_000)}}`, 'it has more than 64 levels'],
    ['values', `${text},"x":[${'{},'.repeat(300_000)}{}]}`, 'it has more than 25000 values'],
    ['members', `${text},${toMembers(90_000)}}`, 'an object has more than 1000 members'],
    ['fields', `${text},${toMembers(60)}}`, 'the message has more than 64 fields'],
    ['characters in a name', `${text},"${'_'.repeat(257)}":0}`, 'an object has a name of more than 256 characters'],
  ])('by the number of %s', (_, body, problem) => {
    expect(parseSnsMessage(Buffer.from(body))).toEqual({ problem: expect.stringContaining(problem) });
  });

  test('for a message with as many attributes as fit into it', () => {
    const attributes = Array.from({ length: 900 }, (_, i) => [`attribute${i}`, { Type: 'String', Value: 'v'.repeat(200) }]);
    expect(toSigned({ ...NOTIFICATION, MessageAttributes: Object.fromEntries(attributes) })).toBe(toSigned(NOTIFICATION));
  });
});

describe('a field that the signature does not cover', () => {
  test.each([
    'subject',
    'SUBJECT',
    '\u017fubject',
    'messageId',
    'Me\u017fsage',
    'TopicARN',
    '\u017figningCertURL',
    'TYPE',
    'to\u212aen',
    'Sub_ject',
    'Subject\0x',
    'un-subscribe-url',
    'me\u017f\u017fage',
  ])('is rejected under a name that case-insensitive decoders read as a known one: %s', (name) => {
    expect(toSigned({ ...NOTIFICATION, [name]: 'forged' })).toBeUndefined();
    const escaped = [...name].map((letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
    const text = JSON.stringify(NOTIFICATION).replace('{', `{"${escaped}":"forged",`);
    expect(parseSnsMessage(Buffer.from(text))).toHaveProperty('problem');
  });

  test.each([
    ['SubscribeURL', `${HOST}/?Action=ConfirmSubscription`],
    ['Token', 'abc'],
    ['UnsubscribeURL', 'https://attacker.example/'],
    ['UnsubscribeURL', 5],
    ['SubscribeURL', ['https://attacker.example/']],
  ])('is rejected in a notification: %s', (name, value) => {
    expect(toSigned({ ...NOTIFICATION, [name]: value })).toBeUndefined();
  });

  test('is rejected as the subject of a confirmation', () => {
    expect(toSigned({ ...CONFIRMATION, Subject: 'forged' })).toBeUndefined();
  });

  test('is accepted in the place where SNS writes it', () => {
    const own = { UnsubscribeURL: `${HOST}/?Action=Unsubscribe`, MessageAttributes: { a: { Type: 'String', Value: 'b' } } };
    expect(toSigned({ ...NOTIFICATION, ...own, Unknown: 5 })).toBe(toSigned(NOTIFICATION));
  });
});
