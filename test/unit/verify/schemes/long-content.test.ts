/** Content with many small values is read without a tree of it, which would take 20 times its length. */
import { afterEach, expect, test, vi } from 'vitest';
import type { SignedHead } from '../../../../src/core/event.ts';
import { createEnvelopeGate } from '../../../../src/gateway/pipeline/gates/envelope.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { compileIdentity } from '../../../../src/verify/schemes/identity.ts';
import { BASE } from '../../../support/field-schemes.ts';
import { JSON_PIECES } from '../../../support/json-pieces.ts';
import { fc } from '../../../support/property.ts';

const HEAD: SignedHead = { id: undefined, timestampText: undefined, timestamp: undefined, signatures: [] };
const LONG = `,"x":[${'{},'.repeat(300_000)}{}]`;
afterEach(() => vi.restoreAllMocks());

function identify(parts: Partial<SchemeDescription>, body: string): object {
  const description = { ...BASE, signed: ['body'], ...parts } as SchemeDescription;
  const message = { method: 'POST', url: '', body: Buffer.from(body), isMultipart: false };
  const found = compileIdentity(description)(HEAD, message, () => [body]);
  return 'problem' in found ? found : { id: found.id, timestamp: found.timestamp };
}

test.each<[string, Partial<SchemeDescription>, (more: string) => string, object]>([
  ['an ID', { id: { json: '$.a.id' } }, (more) => `{"a":{"id":"e1"${more}}}`, { id: 'e1' }],
  ['a number as ID', { id: { json: '$.id' } }, (more) => `{"id":1,"\\u0069d":42${more}}`, { id: '42' }],
  [
    'a time',
    { timestamp: { from: { json: '$.at' }, unit: 's' }, id: { json: '$.id' } },
    (more) => `{"id":"e","at":17${more}}`,
    { timestamp: 17_000 },
  ],
  ['the shape', { contentShape: 'json-array', id: { json: '$[0].id' } }, (more) => ` [{"id":"e1"${more}}]`, { id: 'e1' }],
  ['another shape', { contentShape: 'json-array' }, (more) => `{"id":"e1"${more}}`, { problem: 'the body is not a JSON array' }],
])('%s in long content is that in short content', (_, parts, toBody, expected) => {
  expect(identify(parts, toBody(''))).toMatchObject(expected);
  const parse = vi.spyOn(JSON, 'parse');
  expect(identify(parts, toBody(LONG))).toMatchObject(expected);
  expect(Math.max(0, ...parse.mock.calls.map(([text]) => text.length))).toBeLessThan(65_537);
});

test('all IDs of a list count, also in long content', () => {
  const [one, other] = ['"b"', '"c"'].map((last) =>
    identify({ id: { json: '$.e[*].id' } }, `{"e":[{"id":"a"},{"id":${last}}]${LONG}}`),
  );
  expect(one).not.toEqual(other);
});

test('any long text ends the search, without an exception', () => {
  const gate = createEnvelopeGate();
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...JSON_PIECES), { maxLength: 40 }), (parts) => {
      const body = `${parts.join('')}${' '.repeat(70_000)}`;
      for (const json of ['$.a', '$.a[0]', '$[0].a', '$.a[*].id', '$[*].a'])
        expect(identify({ id: { json } }, body)).toHaveProperty('id');
      expect(gate.check({ body: Buffer.from(body), id: 'e1' } as never, undefined as never)).toBeDefined();
    }),
    { numRuns: 300 },
  );
});

test('long text that is not JSON has no ID of its own, and takes no time', () => {
  const id = { json: '$[*].a' };
  for (const body of [`[${'{"a"},"b": '.repeat(90_000)}{}]`, `[${'{"a""["},'.repeat(90_000)}{}]`, `{"a":"x"${LONG}}\n{"a":"y"}`])
    expect(identify({ id }, body)).toEqual(identify({}, body));
});

test('the envelope of long content is checked without a tree', () => {
  const gate = createEnvelopeGate();
  const check = (body: string): unknown => gate.check({ body: Buffer.from(body), id: 'e1' } as never, undefined as never);
  const parse = vi.spyOn(JSON, 'parse');
  expect(check(`{"type":"t","id":"e1","created":1,"data":{"a":1${LONG}}}`)).toBeUndefined();
  expect(check(`{"type":"t","id":"e2","created":1,"data":{"a":1${LONG}}}`)).toMatchObject({
    detail: 'id differs from Webhook-Id',
  });
  expect(check(`{"type":"t","id":"e1","created":1,"data":[{"a":1${LONG}}]}`)).toMatchObject({
    detail: 'data is not an object',
  });
  expect(Math.max(0, ...parse.mock.calls.map(([text]) => text.length))).toBeLessThan(65_537);
});
