import { createHmac } from 'node:crypto';
import { expect, test } from 'vitest';
import { customScheme } from '../../../../src/config/schema/scheme-schema.ts';
import { findField, foldName, isAlike, parseStrictForm } from '../../../../src/verify/schemes/strict-form.ts';
import { judgeArrived } from '../../../support/field-cases.ts';
import { PUBLIC_URL, toCase } from '../../../support/preset-cases.ts';
import { fc } from '../../../support/property.ts';

test('a lookup does not read the names of other fields: any client can send a thousand long ones', () => {
  const text = Array.from({ length: 1_000 }, (_, i) => `${'N_.'.repeat(70)}${i}=v`).join('&');
  const parsed = parseStrictForm(Buffer.from(`${text}&sign=x`.slice(text.indexOf('&') + 1)));
  if (parsed.kind === 'problem') throw new Error(parsed.problem);
  let reads = 0;
  const fields = parsed.fields.map(
    (field) =>
      new Proxy(field, {
        get: (target, key: keyof typeof field) => {
          if (key === 'name') reads++;
          return target[key];
        },
      }),
  );
  const names = ['sign', 'sign_type', 'timestamp', 'token'];
  expect(names.map((name) => findField(fields, name) !== undefined)).toEqual([true, false, false, false]);
  // Of the field that is found.
  expect(reads).toBe(1);
});

test('names that apps may take for each other are equal once folded', () => {
  const character = fc.constantFrom(...'aZk09_-. []%\u00e9\u00c0+\u0000~');
  const name = fc.string({ unit: character, maxLength: 40 });
  fc.assert(
    fc.property(name, (text) => {
      const expected = text
        .toLowerCase()
        .replaceAll(/[^a-z0-9]+/g, '-')
        .replaceAll(/^-|-$/g, '');
      return foldName(text).text === expected;
    }),
  );
});

test.each([
  ['a.b', 'a_b', true],
  ['a[]', 'a', true],
  ['a[b]', 'a-b', true],
  ['A', 'a', true],
  [' a', 'a', true],
  ['\u017fign', 'sign', true],
  ['TO\u212aEN[\u017f]', 'token', true],
  ['s\u0131gn', 'sign', true],
  ['ab', 'a', false],
  ['[a', 'a', true],
  ['data[id]x', 'data[id]', true],
  ['data.id[x]', 'data_id', true],
  ['data[ID]', 'data[id]', true],
  ['data[id][]', 'data[id]', true],
  ['data[id][0]', 'data[id]', true],
  ['data.id', 'data[id]', true],
  ['data', 'data[id]', true],
  ['data[]', 'data[id]', true],
  ['data[id', 'data[id]', true],
  ['data[id-type]', 'data[id]', false],
  ['data[type]', 'data[id]', false],
  ['dat', 'data[id]', false],
  ['data[i]', 'data[id]', false],
])('%s and %s: an app may take one for the other is %s', (name, wanted, expected) => {
  const parsed = parseStrictForm(Buffer.from(`${encodeURIComponent(name)}=1`));
  const [field] = parsed.kind === 'fields' ? parsed.fields : [];
  expect(field !== undefined && isAlike(field, foldName(wanted))).toBe(expected);
});

const FILE = ['order"\r\n\r\n7', 'discount"; filename="x"\r\n\r\n99']
  .map((part) => `--b\r\nContent-Disposition: form-data; name="${part}\r\n`)
  .join('');
const IN_FORM = { signed: [{ form: 'order' }, { form: 'discount', optional: true }], onlySignedFields: true };
const IN_BRACKETS = { signed: [{ form: 'data[id]' }, { form: 'event' }], unsignedBody: true };
const IN_JSON = { signed: [{ json: '$.order' }, { json: '$.coupons[0].code', optional: true }], unsignedBody: true };
const IN_QUERY = { signed: [{ query: 'user', optional: true }, 'body'] };

test.each<[string, string, object, { query?: string; body?: string }]>([
  ['ok', '7:', IN_FORM, { body: 'order=7' }],
  ['ok', '7:99', IN_FORM, { body: 'order=7&discount=99' }],
  ['mismatch', '7:', IN_FORM, { body: 'order=7&discount=99' }],
  ['discount is repeated, or', '7:', IN_FORM, { body: 'order=7&Discount=99' }],
  ['discount is repeated, or', '7:', IN_FORM, { body: 'order=7&discount[]=99' }],
  ['discount is repeated, or', '7:', IN_FORM, { body: 'order=7&%20discount=99' }],
  ['discount is repeated, or', '7:', IN_FORM, { body: `${FILE}--b--` }],
  ['order is repeated, or', '7:', IN_FORM, { body: 'Order=7' }],
  ['ok', '7:paid', IN_BRACKETS, { body: 'data[id]=7&event=paid&data[type]=x' }],
  ['data[id] is repeated, or', '7:paid', IN_BRACKETS, { body: 'data[id]=7&event=paid&data[id]x=8' }],
  ['data[id] is repeated, or', '7:paid', IN_BRACKETS, { body: 'data[id]=7&event=paid&data[id][0]=8' }],
  ['data[id] is repeated, or', '7:paid', IN_BRACKETS, { body: 'data[id]=7&event=paid&data=8' }],
  ['ok', '7:', IN_JSON, { body: '{"order":"7"}' }],
  ['ok', '7:', IN_JSON, { body: '{"order":"7","coupons":null}' }],
  ['ok', '7:', IN_JSON, { body: '{"order":"7","coupons":[]}' }],
  ['ok', '7:FREE', IN_JSON, { body: '{"order":"7","coupons":[{"code":"FREE"}]}' }],
  ['is not a list', '7:', IN_JSON, { body: '{"order":"7","coupons":{"0":{"code":"FREE"}}}' }],
  ['is not a list', '7:', IN_JSON, { body: '{"order":"7","coupons":"x"}' }],
  ['is not an object', '7:', IN_JSON, { body: '{"order":"7","coupons":[["FREE"]]}' }],
  ['ok', ':{}', IN_QUERY, { body: '{}' }],
  ['mismatch', ':{}', IN_QUERY, { body: '{}', query: '?user=admin' }],
  ['user is repeated, or', ':{}', IN_QUERY, { body: '{}', query: '?USER=admin' }],
  ['user is repeated, or', ':{}', IN_QUERY, { body: '{}', query: '?user[]=admin' }],
  ['user is repeated, or', ':{}', IN_QUERY, { body: '{}', query: '?user%5B0%5D=admin' }],
])(
  'a value that an app may find is not missing, and is the one that is signed: %s for %s',
  (expected, signed, scheme, { query = '', body = '' }) => {
    const one = toCase(customScheme.parse({ signature: { header: 'X-Sig' }, separator: ':', ...scheme }));
    const signature = createHmac('sha256', one.secret).update(signed).digest('hex');
    const arrived = { method: 'POST', url: `${PUBLIC_URL}/hook${query}`, headers: [['X-Sig', signature]] as const };
    expect(judgeArrived(one, { ...arrived, body: Buffer.from(body) })).toContain(expected);
  },
);
