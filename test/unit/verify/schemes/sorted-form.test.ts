/** Forms whose fields are signed in order of their names: one signed text has one interpretation, and no app reads a field that is not in it. */
import { sign as signBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { Refusal } from '../../../../src/core/refusal.ts';
import { compileSortedForm } from '../../../../src/verify/schemes/body-head.ts';
import { BodyContent } from '../../../../src/verify/schemes/body-values.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { judgeArrived, signArrived } from '../../../support/field-cases.ts';
import { PUBLIC_URL, toCase, toPreset } from '../../../support/preset-cases.ts';
import { fc } from '../../../support/property.ts';
import { judgeToken, RSA_PAIR } from '../../../support/tokens.ts';

const ALIPAY = toPreset('alipay');
const one = toCase(ALIPAY);
const { signature } = ALIPAY;
const toBody = (pairs: readonly (readonly [string, string])[]): Buffer =>
  Buffer.from(new URLSearchParams(pairs.map(([name, value]): [string, string] => [name, value])).toString());

/** The refusal of a delivery with these fields, whatever was signed. */
function read(body: Buffer | string): string {
  const text = compileSortedForm({ sortedForm: { sign_type: 'RSA2' } }, signature)(new BodyContent(Buffer.from(body)));
  return text instanceof Refusal ? `refused: ${text.detail}` : text;
}

/** As Alipay's document says, over text that the test chooses. */
function judgeText(signed: string, pairs: readonly (readonly [string, string])[]): string {
  const sign = signBytes('sha256', Buffer.from(signed), RSA_PAIR.privateKey).toString('base64');
  const body = toBody([...pairs, ['sign', sign], ['sign_type', 'RSA2']]);
  return judgeArrived(one, { method: 'POST', url: `${PUBLIC_URL}/hook`, headers: [], body });
}

describe('the fields of a form', () => {
  test('are signed in order of their names, decoded, without the signature and sign_type', () => {
    expect(read('b=2%262&sign=x&a=%C3%A4+%3D1&sign_type=RSA2&B=&c')).toBe('B=&a=\u00c3\u00a4 =1&b=2&2&c=');
  });

  test.each([
    ['a=1&a=2&sign_type=RSA2', 'a form field is repeated'],
    ['a%3Db=1&sign_type=RSA2', 'the name of a form field contains = or &'],
    ['a=1%26b%3D2&sign_type=RSA2', 'a form field contains & and = after it'],
    ['a=1', 'the form field sign_type, which is not signed, is not RSA2'],
    ['a=1&sign_type=RSA', 'the form field sign_type, which is not signed, is not RSA2'],
    ['a=1&sign_type=RSA2&Sign_Type=RSA2', 'the form field sign_type, which is not signed, is not RSA2'],
    ['a=1&sign_type=RSA2&sign_type[]=RSA', 'the form field sign_type, which is not signed, is not RSA2'],
    ['a=%ff&sign_type=RSA2', 'the form is ambiguous: it is not UTF-8'],
    ['a=1;b=2&sign_type=RSA2', 'the form is ambiguous: it contains a semicolon'],
    ['--b\r\nContent-Disposition: form-data; name="sign_type"\r\n\r\nRSA2\r\n--b--\r\n', 'the form is multipart'],
    ['{"sign_type":"RSA2"}', 'the form field sign_type, which is not signed, is not RSA2'],
  ])('are rejected: %j', (body, problem) => {
    expect(read(body)).toContain(`refused: ${problem}`);
  });

  test('that give one signed text are the same fields', () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'b', '&', '='), maxLength: 5 });
    const pairs = fc.array(fc.tuple(text, text), { maxLength: 4 });
    const seen = new Map<string, string>();
    fc.assert(
      fc.property(pairs, (fields) => {
        const signed = read(toBody([...fields, ['sign_type', 'RSA2']]));
        if (signed.startsWith('refused')) return;
        const meaning = JSON.stringify([...fields].sort());
        expect(seen.get(signed) ?? meaning).toBe(meaning);
        seen.set(signed, meaning);
      }),
      { numRuns: 20_000 },
    );
    expect(seen.size).toBeGreaterThan(300);
  });
});

describe('Alipay', () => {
  test('is verified as its document describes the signature', () => {
    const pairs = [
      ['total_amount', '1.00'],
      ['body', 'a&b'],
      ['notify_id', 'n1'],
    ] as const;
    expect(judgeText('body=a&b&notify_id=n1&total_amount=1.00', pairs)).toBe('ok');
    expect(judgeText('total_amount=1.00&body=a&b&notify_id=n1', pairs)).toBe('mismatch');
  });

  test('has no delivery that a part of another one could be taken for', () => {
    const signed = 'body=1&total_amount=9.00';
    expect(
      judgeText(signed, [
        ['body', '1'],
        ['total_amount', '9.00'],
      ]),
    ).toBe('ok');
    expect(judgeText(signed, [['body', '1&total_amount=9.00']])).toBe('a form field contains & and = after it');
  });

  test('is signed by the scheme itself so that other fields stay as they are', () => {
    const arrived = signArrived(one, { body: Buffer.from('notify_id=n1&sign_type=RSA') });
    expect(arrived.body.toString()).toMatch(/^notify_id=n1&sign_type=RSA2&sign=/);
    expect(judgeArrived(one, arrived)).toBe('ok');
  });

  test('takes the signed notify_id for the ID', () => {
    const { body } = signArrived(one, { body: Buffer.from('notify_id=n1&sign_type=RSA2') });
    const identity = one.scheme.identify(
      { id: undefined, timestamp: undefined, timestampText: undefined, signatures: [] },
      { method: 'POST', url: '', body },
    );
    expect(identity).toEqual({ id: 'n1', timestamp: undefined });
  });
});

describe('a notification of the service market, which signs sign_type as well,', () => {
  const KEY =
    'MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAk6DCsBIUhWriFohzRV8Fic6oQWNnLKKILNk97VU5qcHEuxYzCujKoyva5gy1170mFJw4IcgJF8AyS7iDUwzAwF4Pp9CpWxDhUhe7mdQJhjBmvTcPLGFFrzlj6unO5lAcbdwaxPUtSxOaNxPJGrTK/wnKQSbjTMMltp1J68q2Tfgrsn/NdZ6lrxO9rvmky8kowqaH5NjntyHO59jCGabMj5sI14z8N61wB/QuIJrDuzIPMPrSNbq0cOWcSCDG09oUHTp9fk7suDB8UiFcmVTXOvK3d4HbeX8V9YsEMxrwxEoYgRRj6K2qrC6oxw480cqf2ueumCmHg6xrcgkyXK81hwIDAQAB';
  // As the tests of Alipay's own library contain it.
  const FIELDS = {
    app_id: '2017122801303261',
    charset: 'UTF-8',
    commodity_order_id: '2019030800000018079639',
    contactor: '技术支持测试的公司',
    merchant_pid: '2088721996721370',
    method: 'alipay.open.servicemarket.order.notify',
    name: '技术支持测试的公司',
    notify_id: '2019030800222102023008121054923345',
    notify_time: '2019-03-08 10:20:23',
    notify_type: 'servicemarket_order_notify',
    order_item_num: '1',
    order_ticket: '29b1c37d99ab48c5bd5bdaeaeaefbB37',
    order_time: '2019-03-08 10:20:08',
    phone: '17826894615',
    service_code: '58621634',
    sign: 'MsK5SCw8oqLw4f0hiNSd5OVGXxBY3wnQeT8vn5PklJSZFWSZbK4hQbNvkp4ZezeXQH514cEv0ul6Qow8yh6e6yM06LfEL+EZjcpZ0nxzFGRNQ5qq2AUc1OaXQdk92AGvxh+Iq4NGpPQFBd4D8EBJa3NJd8+czMfQskceosOQFqUtLQMYa5DPs+VpN7VM5BdXjaVIuKn5d9Wm2B9dI9ObIM+YRySDkZZPv14DVmUvcrcqJfOR8aHvtSd7B4l92wUQPQgQKNcOQho7xOHS/Bk+Y74AZL2y7TkNmdDoq9OGsThuF5tDW9rI9nVwXxOtsuB+bstra+W7aw9x9DvkKgdSRw==',
    sign_type: 'RSA2',
    timestamp: '2019-03-08 10:20:23',
    title: '麦禾商城模版',
    total_price: '0.00',
    version: '1.0',
  };
  const custom: SchemeDescription = { ...ALIPAY, name: 'custom', signed: [{ sortedForm: {} }] };
  const judge = (description: SchemeDescription, fields: Readonly<Record<string, string>>): Promise<string> =>
    judgeToken(description, { secret: KEY, headers: {}, body: toBody(Object.entries(fields)), at: 0 });

  test('is verified by a custom scheme without unsigned fields', async () => {
    expect(await judge(custom, FIELDS)).toBe(`ok ${FIELDS.notify_id}`);
    expect(await judge(custom, { ...FIELDS, service_code: '58621634111' })).toBe('mismatch');
    expect(await judge(custom, { ...FIELDS, sign_type: 'RSA' })).toBe('mismatch');
    expect(await judge(ALIPAY, FIELDS)).toBe('mismatch');
  });
});
