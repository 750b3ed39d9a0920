/** Which deliveries count as one event: a retry does, and nothing that an app could read differently. */
import { describe, expect, test } from 'vitest';
import type { SignedHead } from '../../../../src/core/event.ts';
import { HeaderFields } from '../../../../src/core/head.ts';
import type { SchemeDescription, SignatureDescription } from '../../../../src/verify/schemes/description.ts';
import { compileCompared, compileOpenHead } from '../../../../src/verify/schemes/identity.ts';
import { compileCut } from '../../../../src/verify/schemes/removal.ts';
import { BASE } from '../../../support/field-schemes.ts';
import { toPreset } from '../../../support/preset-cases.ts';
import { fc } from '../../../support/property.ts';

const NO_HEADERS = new HeaderFields([]);
const HEAD: SignedHead = { id: 'e1', timestampText: '1', timestamp: 1, signatures: [] };

function inPlace(place: Partial<SignatureDescription>): SignatureDescription {
  return { header: '', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha256' }], ...place };
}

/** The open content and the lasting content of a body, as text. */
function compare(parts: Partial<SchemeDescription>, body: string, head: Partial<SignedHead> = {}, isMultipart = false): string[] {
  const description = { ...BASE, signed: ['body'], signature: inPlace({ header: 'X-Signature' }), ...parts } as SchemeDescription;
  const message = { method: 'POST', url: '', body: Buffer.from(body), isMultipart };
  const { openContent, lastingContent } = compileCompared(description)({ ...HEAD, ...head }, message, true);
  return [openContent, lastingContent].map((content) => content?.toString('latin1') ?? 'none');
}

const MAILGUN = {
  signature: inPlace({ json: '$.signature.signature' }),
  signed: ['timestamp', { json: '$.signature.token' }],
  perAttempt: [{ json: '$.signature.token' }],
  timestamp: { from: { json: '$.signature.timestamp' }, unit: 's' },
} as const;
const toMailgun = (attempt: number, event: string): string =>
  `{"signature":{"timestamp":"170000000${attempt}","token":"t${attempt}","signature":"s${attempt}"},"event-data":${event}}`;
const FIELDS = (attempt: number) => ({ fields: [`t${attempt}`] });

describe('a retry is the same event', () => {
  test('with a new token, time and signature in the body', () => {
    expect(compare(MAILGUN, toMailgun(1, '{"id":"a"}'), FIELDS(1))).toEqual(
      compare(MAILGUN, toMailgun(2, '{"id":"a"}'), FIELDS(2)),
    );
  });

  test('with a new signature by the parent account of a subaccount of Mailgun, and not with another event', () => {
    const toBody = (attempt: number, event: string): string =>
      `${toMailgun(attempt, event).slice(0, -1)},"parent-signature":{"timestamp":"170000000${attempt}","token":"p${attempt}"}}`;
    const of = (attempt: number, event: string): string[] =>
      compare(toPreset('mailgun'), toBody(attempt, event), FIELDS(attempt));
    expect(of(1, '{"id":"a"}')).toEqual(of(2, '{"id":"a"}'));
    expect(of(1, '{"id":"a"}')).not.toEqual(of(2, '{"id":"a","event":"opened"}'));
  });

  test('with a new time in a signed body, in any format', () => {
    for (const [unit, times] of [
      ['ms', ['1700000000000', '1700000009000']],
      ['rfc3339', ['"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:09.5+01:00"']],
    ] as const) {
      const scheme = { timestamp: { from: { json: '$.at' }, unit }, id: { header: 'X-Id' } };
      const [first, second] = times.map((time) =>
        compare(scheme, `{"id":1,"at":${time},"x":[${time}]}`.replace(/x":.*\]/, 'x":[]')),
      );
      expect(first).toEqual(second);
      expect(first).toEqual(['none', '{"id":1,"at":,"x":[]}']);
    }
  });

  test('with another boundary', () => {
    const toForm = (boundary: string, value: string): string =>
      `--${boundary}\r\nContent-Disposition: form-data; name="json"\r\n\r\n${value}\r\n--${boundary}--\r\n`;
    const scheme = {
      signature: inPlace({ form: 'json', path: '$.hash' }),
      signed: ['timestamp', { form: 'json', path: '$.type' }],
      timestamp: { from: { form: 'json', path: '$.time' }, unit: 's' },
    } as const;
    const toContents = (boundary: string, value: string): string[] => compare(scheme, toForm(boundary, value), {}, true);
    const value = '{"time":"1700000000","type":"sent","hash":"ab","note":"x"}';
    expect(toContents('one', value)).toEqual(toContents('two', value));
    expect(toContents('one', value)).not.toEqual(toContents('one', value.replace('"x"', '"y"')));
    // As text, the boundary may mean something.
    expect(compare({ ...scheme, signed: [] }, toForm('one', value))).not.toEqual(
      compare({ ...scheme, signed: [] }, toForm('two', value)),
    );
    expect(compare({}, toForm('one', value), {}, true)).toEqual(compare({}, toForm('two', value), {}, true));
  });

  test('with a new time in the list of signed headers, and not with another topic', () => {
    const scheme = { signed: [{ headersIn: 'X-Names' }, 'body'], timestamp: { from: { header: 'X-Time' }, unit: 'ms' } } as const;
    const toContents = (time: string, topic: string): string[] =>
      compare(scheme, '{}', { fields: [`x-names:x-time,x-topic;x-time:${time};x-topic:${topic}`] });
    expect(toContents('1', 'a')).toEqual(toContents('2', 'a'));
    expect(toContents('1', 'a')).not.toEqual(toContents('1', 'b'));
    expect(toContents('1', 'x-time:1')).not.toEqual(toContents('1', 'x-time:2'));
  });

  test('with a new time and signature in the query', () => {
    const toOpen = compileOpenHead({
      ...BASE,
      signature: inPlace({ query: 'sig' }),
      signed: ['timestamp', 'body'],
      timestamp: { from: { query: 'ts' }, unit: 's' },
    } as SchemeDescription);
    expect(toOpen?.('/hook?a=1&ts=17&sig=ab', NO_HEADERS)).toBe('/hook?a=1&ts=&sig=');
    expect(toOpen?.('/hook', NO_HEADERS)).toBe('/hook');
    expect(
      compileOpenHead({ ...BASE, signature: inPlace({ header: 'X' }), signed: ['body'] } as SchemeDescription),
    ).toBeUndefined();
  });
});

describe('another event', () => {
  test('has other headers that the app reads, in any spelling', () => {
    const toOpen = compileOpenHead({
      ...BASE,
      signature: inPlace({ header: 'X' }),
      signed: ['body'],
      comparedHeaders: ['X-Event'],
    } as SchemeDescription);
    const heads = [[], ['X-Event', 'a'], ['x-event', 'b'], ['X_Event', 'b', 'X-Event', 'a'], ['X-Event', 'a', 'X-Event', 'b']];
    const texts = heads.map((raw) => toOpen?.('/hook', new HeaderFields([...raw, 'X-Request-Id', '1'])));
    expect(new Set(texts).size).toBe(heads.length);
    expect(toOpen?.('/hook', new HeaderFields(['X-Request-Id', '2', 'x-event', 'a']))).toBe(texts[1]);
  });

  test('has other signed values, even if an attacker put the rest of the first one beside them', () => {
    const scheme = { ...MAILGUN, signed: ['timestamp', { json: '$.type' }], perAttempt: [] } as const;
    const toBody = (type: string): string => `{"signature":{"timestamp":"1","signature":"s"},"type":"${type}","id":"e"}`;
    const [opened, failed] = ['opened', 'failed'].map((type) => compare(scheme, toBody(type), { fields: [type] }));
    expect(opened?.[0]).toBe(failed?.[0]);
    expect(opened?.[1]).not.toBe(failed?.[1]);
  });

  const first = toMailgun(1, '{"id":"a","at":1700000001}');
  test.each([
    ['a time elsewhere', '"at":1700000001', '"at":1700000002'],
    ['the order of members', '"id":"a","at":1700000001', '"at":1700000001,"id":"a"'],
    ['a repeated member', '"id":"a"', '"id":"b","id":"a"'],
    ['the case of a name', '"id"', '"ID"'],
    ['a number written otherwise', '"at":1700000001', '"at":1.700000001e9'],
    ['white space', '"id"', ' "id"'],
    ['an object in place of the token', '"t1"', '{"a":1}'],
    ['null in place of the token', '"t1"', 'null'],
    ['a further member of the signature', '"token"', '"x":1,"token"'],
  ])('differs in %s', (_, from, to) => {
    expect(first).toContain(from);
    expect(compare(MAILGUN, first, FIELDS(1))[0]).not.toBe(compare(MAILGUN, first.replace(from, to), FIELDS(1))[0]);
  });

  test('differs in anything in a form whose bytes can move between names and values', () => {
    expect(compare({ signed: ['url', 'form'] }, 'a=bc')[0]).not.toBe(compare({ signed: ['url', 'form'] }, 'ab=c')[0]);
  });

  test.each([
    ['the name of a file', 'filename="a"', 'filename="b"'],
    ['the content of a file', 'one', 'two'],
    ['the head of a part', 'text/plain', 'text/html'],
    ['the name of a field', 'name="n"', 'name="m"'],
    ['a part more', '--B--', '--B\r\nContent-Disposition: form-data; name="n"\r\n\r\n\r\n--B--'],
  ])('differs in a multipart form by %s', (_, from, to) => {
    const form =
      '--B\r\nContent-Disposition: form-data; name="n"; filename="a"\r\nContent-Type: text/plain\r\n\r\none\r\n--B--\r\n';
    expect(form).toContain(from);
    expect(compare({ signed: [] }, form, {}, true)[0]).not.toBe(compare({ signed: [] }, form.replace(from, to), {}, true)[0]);
  });
});

test('a token in place of a signature covers nothing of the body', () => {
  const scheme = {
    signed: [],
    signature: inPlace({ json: '$.token', encoding: 'text', forms: [{ prefix: '', algorithm: 'token' }] }),
  };
  expect(compare(scheme, '{"token":"secret","id":"1"}')[0]).toBe('{"token":,"id":"1"}');
  expect(compare({ signed: [] }, '{"id":"1"}')[0]).toBe('{"id":"1"}');
});

test('a body that parsers read in several ways is compared as it is, where the scheme did not read it', () => {
  const scheme = { signed: [], perAttempt: [{ json: '$.attempt' }] } as const;
  expect(compare(scheme, '{"attempt":1,"id":"1"}')[0]).toBe('{"id":"1"}');
  for (const body of ['{"attempt":1,"attempt":2}', '/* " */{"attempt":1}', '{"attempt":1', '{attempt:1}'])
    expect(compare(scheme, body)[0]).toBe(body);
});

describe('cutting', () => {
  const cut = compileCut([{ json: '$.a' }, { json: '$.b.c' }, { json: '$.list[0].x' }]);
  const read = (text: string): unknown => JSON.parse(text);
  const value = fc.oneof(fc.string(), fc.integer(), fc.boolean());
  const document = fc.record(
    {
      a: value,
      b: fc.oneof(fc.constant(null), fc.record({ c: value, d: fc.jsonValue() }, { requiredKeys: [] }), value),
      list: fc.array(fc.oneof(fc.record({ x: value, y: fc.jsonValue() }, { requiredKeys: [] }), fc.jsonValue()), {
        maxLength: 3,
      }),
      rest: fc.jsonValue(),
    },
    { requiredKeys: [] },
  );

  test('keeps all but the values at the places: what is left determines the rest of the document', () => {
    const kept = new Map<string, string>();
    fc.assert(
      fc.property(document, (content) => {
        const text = JSON.stringify(content);
        const left = cut({ body: Buffer.from(text) }).toString();
        const blank = (one: unknown): unknown => (['string', 'number', 'boolean'].includes(typeof one) ? 'CUT' : one);
        const copy = structuredClone(read(text)) as { a?: unknown; b?: { c?: unknown }; list?: { x?: unknown }[] };
        if (copy.a !== undefined) copy.a = blank(copy.a);
        if (copy.b?.c !== undefined) copy.b.c = blank(copy.b.c);
        const item = copy.list?.[0];
        if (typeof item === 'object' && item !== null && Object.hasOwn(item, 'x')) item.x = blank(item.x);
        const rest = JSON.stringify(copy);
        expect(kept.get(left) ?? rest).toBe(rest);
        kept.set(left, rest);
      }),
    );
  });

  test('keeps lists, objects, null and numbers that are no plain integers', () => {
    for (const kept of ['null', '[1]', '{"x":1}', '1.0', '1e3', '-0', '01'])
      expect(cut({ body: Buffer.from(`{"a":${kept}}`) }).toString()).toBe(`{"a":${kept}}`);
    for (const gone of ['"x"', '""', 'true', 'false', '0', '-12', '170000000000'])
      expect(cut({ body: Buffer.from(`{"a":${gone} }`) }).toString()).toBe('{"a": }');
  });

  test('of members takes them for missing, whatever they contain, and keeps all others apart', () => {
    const cutMembers = compileCut([{ json: '$.x.sig' }], [{ json: '$.a' }, { json: '$.x' }, { json: '$.o.b' }]);
    const cutText = (text: string): string => cutMembers({ body: Buffer.from(text) }).toString();
    const left = cutText('{"n":1,"o":{"c":2}}');
    for (const text of [
      '{"a":1,"n":1,"o":{"c":2}}',
      '{"n":1,"a":[{"b":"}"}],"x":{"sig":"s","y":1},"o":{"c":2}}',
      '{"n":1,"o":{"b":null,"c":2},"x":{}}',
      '{"n":1,"o":{"c":2,"b":{"c":3}},"x":[],"a":"t"}',
    ])
      expect(cutText(text)).toBe(left);
    for (const text of ['{"n":12,"o":{"c":2}}', '{"n":1,"o":{"c":2,"a":1}}', '{"n":1,"o":{"c":2},"A":1}', '{"n":1,"c":2}'])
      expect(cutText(text)).not.toBe(left);
  });

  test('works on the values of fields', () => {
    const inForm = compileCut([{ form: 'json', path: '$.a' }, { form: 'sig' }]);
    expect(inForm({ body: Buffer.from('x=1&json=%7B%22a%22%3A1%7D&sig=ab&&y') }).toString()).toBe(
      'x=1&json=%7B%22a%22%3A%7D&sig=&&y',
    );
  });
});
