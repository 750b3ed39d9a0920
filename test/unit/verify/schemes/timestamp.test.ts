import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { standardWebhooks } from '../../../../src/verify/presets/standard-webhooks.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import { TIMESTAMP_FORMATS } from '../../../../src/verify/schemes/coverage.ts';
import { fc } from '../../../support/property.ts';

const SECRET = 'a secret that both of us know';

describe('a time in digits', () => {
  test.each(['s', 'ms'] as const)('is accepted in one spelling only (%s)', (unit) => {
    const { parse } = TIMESTAMP_FORMATS[unit];
    for (const text of ['00', '01', '01700000000', '001700000000', '', '-1', '+1', '1.0', '1e3'])
      expect(parse(text)).toBeUndefined();
    expect([parse('0'), parse('10')]).toEqual(unit === 's' ? [0, 10_000] : [0, 10]);
    const most = unit === 's' ? 12 : 15;
    expect([parse('9'.repeat(most)) !== undefined, parse('9'.repeat(most + 1))]).toEqual([true, undefined]);
    const factor = unit === 's' ? 1_000 : 1;
    fc.assert(fc.property(fc.nat(), (n) => parse(String(n)) === n * factor && parse(`0${n}`) === undefined));
  });

  test('takes no zeros from preceding content without a separator', () => {
    const scheme = compileScheme({
      ...standardWebhooks,
      name: 'own',
      signed: ['body', 'timestamp'],
      separator: '',
      twins: {},
      signature: { header: 'X-Signature', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha256' }] },
      timestamp: { from: { header: 'X-Time' }, unit: 's' },
    });
    const parsed = scheme.parseKey('k', new Secret(Buffer.from(SECRET)), 'utf8');
    if ('problem' in parsed) throw new Error(parsed.problem);
    const signature = createHmac('sha256', SECRET).update('amount=1001700000000').digest('hex');
    const judge = (body: string, time: string): string | undefined => {
      const head = scheme.readHead(new HeaderFields(['X-Signature', signature, 'X-Time', time]), { allowDotInId: false });
      if ('code' in head) return head.code;
      return scheme.verify(head, { method: 'POST', url: '', body: Buffer.from(body) }, [parsed.key])?.name;
    };
    expect(judge('amount=100', '1700000000')).toBe('k');
    for (const [body, time] of [
      ['amount=10', '01700000000'],
      ['amount=1', '001700000000'],
    ] as const)
      expect(judge(body, time)).toBe('malformed_signature');
  });
});

const AT = Date.parse('2026-12-31T00:00:00Z');

describe('an RFC 3339 time', () => {
  const { parse, format } = TIMESTAMP_FORMATS.rfc3339;

  test.each([
    ['2026-12-31T00:00:00Z', AT],
    ['2026-12-31T01:00:00+01:00', AT],
    ['2026-12-30T14:15:00-09:45', AT],
    ['2026-12-31T00:00:00+00:00', AT],
    ['2026-12-31T00:00:00-00:00', AT],
    ['2026-12-31T00:00:00.5Z', AT + 500],
    ['2026-12-31T05:30:00.250000+05:30', AT + 250],
    ['2026-12-31T00:00:00.123456789Z', AT + 123],
  ])('may have an offset and a fraction: %s', (text, at) => {
    expect(parse(text)).toBe(at);
  });

  test.each([
    '2026-12-31T00:00:00',
    '2026-12-31T00:00:00.Z',
    '2026-12-31T00:00:00.1234567890Z',
    '2026-12-31T00:00:00,5Z',
    '2026-12-31 00:00:00Z',
    '2026-12-31t00:00:00z',
    '2026-12-31T00:00:00+0100',
    '2026-12-31T00:00:00+01',
    '2026-12-31T00:00:00+24:00',
    '2026-12-31T00:00:00+01:60',
    '2026-12-31T00:00:00Z+01:00',
    '2026-12-31T00:00:00+01:000',
    '12026-12-31T00:00:00Z',
    '2026-13-31T00:00:00Z',
    ' 2026-12-31T00:00:00Z',
    '',
  ])('is rejected in any other form: %j', (text) => {
    expect(parse(text)).toBeUndefined();
  });

  test('is never the beginning or the end of another', () => {
    const two = (max: number): fc.Arbitrary<string> => fc.nat(max).map((n) => String(n).padStart(2, '0'));
    const offset = fc.oneof(
      fc.constant('Z'),
      fc.tuple(fc.constantFrom('+', '-'), two(23), two(59)).map(([sign, h, m]) => `${sign}${h}:${m}`),
    );
    const fraction = fc.option(fc.stringMatching(/^\.[0-9]{1,9}$/), { nil: '' });
    const time = fc
      .tuple(fc.nat(4_000_000_000), fraction, offset)
      .map(([seconds, dot, end]) => `${new Date(seconds * 1000).toISOString().slice(0, 19)}${dot}${end}`);
    const isTime = (text: string): boolean => parse(text) !== undefined;
    fc.assert(
      fc.property(time, fc.stringMatching(/^[0-9:.+TZ-]{1,3}$/), (text, more) => {
        expect(isTime(text)).toBe(true);
        expect(isTime(text + more) || isTime(more + text)).toBe(false);
        for (let at = 1; at < text.length; at++) expect(isTime(text.slice(at)) || isTime(text.slice(0, at))).toBe(false);
      }),
    );
    expect(parse(format(AT))).toBe(AT);
  });
});

describe('an HTTP date', () => {
  const { parse, format } = TIMESTAMP_FORMATS['http-date'];

  test('is accepted as an IMF-fixdate, and formatted as one', () => {
    expect(parse('Thu, 31 Dec 2026 00:00:00 GMT')).toBe(AT);
    expect(format(AT + 999)).toBe('Thu, 31 Dec 2026 00:00:00 GMT');
    fc.assert(fc.property(fc.nat(4_000_000_000), (seconds) => parse(format(seconds * 1000)) === seconds * 1000));
  });

  test.each([
    'Wed, 31 Dec 2026 00:00:00 GMT',
    'Thu, 31 Dec 2026 00:00:00 UTC',
    'Thu, 31 Dec 2026 00:00:00 +0000',
    'Thursday, 31-Dec-26 00:00:00 GMT',
    'Thu Dec 31 00:00:00 2026',
    'Thu, 31 Dec 2026 24:00:00 GMT',
    'Wed, 31 Feb 2026 00:00:00 GMT',
    'thu, 31 dec 2026 00:00:00 gmt',
    'Thu, 31 Dec 2026 00:00:00 GMT ',
    'Thu, 31 Dec 2026 00:00 GMT',
    '',
  ])('is rejected in any other form: %j', (text) => {
    expect(parse(text)).toBeUndefined();
  });
});

describe('a scheme whose sender signs a time with an offset', () => {
  test.each([
    ['rfc3339', '2027-01-15T09:00:00.125+01:00'],
    ['http-date', 'Fri, 15 Jan 2027 08:00:00 GMT'],
  ] as const)('verifies the time as it was written (%s)', (unit, time) => {
    const scheme = compileScheme({
      name: 'own',
      signature: { header: 'X-Signature', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha256' }] },
      signed: ['timestamp', 'body'],
      separator: '\n',
      timestamp: { from: { header: 'Date' }, unit },
      secret: { encoding: 'utf8' },
      tolerance: { past: 300_000, future: 300_000 },
      contentTypes: ['application/json'],
    });
    const parsed = scheme.parseKey('k', new Secret(Buffer.from(SECRET)), undefined);
    if ('problem' in parsed) throw new Error(parsed.problem);
    const signature = createHmac('sha256', SECRET).update(`${time}\n{}`).digest('hex');
    const head = scheme.readHead(new HeaderFields(['X-Signature', signature, 'Date', time]), { allowDotInId: false });
    if ('code' in head) throw new Error(head.code);
    expect(Math.floor((head.timestamp ?? 0) / 1000)).toBe(1_800_000_000);
    const message = { method: 'POST', url: '', body: Buffer.from('{}') };
    expect(scheme.verify(head, message, [parsed.key])?.name).toBe('k');
    expect(scheme.verify({ ...head, timestampText: '2027-01-15T08:00:00.125Z' }, message, [parsed.key])).toBeUndefined();
  });
});
