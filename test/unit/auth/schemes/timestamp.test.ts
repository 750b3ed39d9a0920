import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compileScheme } from '../../../../src/auth/schemes/compile.ts';
import { standardWebhooks } from '../../../../src/auth/schemes/presets/standard-webhooks.ts';
import { TIMESTAMP_FORMATS } from '../../../../src/auth/schemes/timestamp.ts';
import { HeaderFields } from '../../../../src/core/headers.ts';
import { Secret } from '../../../../src/core/secret.ts';

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
