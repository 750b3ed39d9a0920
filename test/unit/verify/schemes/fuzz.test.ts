/** Whatever a stranger sends, and whatever an operator pastes as a key: no scheme throws, and nothing that nobody signed is taken. */

import { describe, expect, test } from 'vitest';
import { SidegateError } from '../../../../src/core/errors.ts';
import { HeaderFields } from '../../../../src/core/head.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { toQuery } from '../../../../src/verify/schemes/url.ts';
import { PUBLIC_URL, toCase } from '../../../support/preset-cases.ts';
import { fc } from '../../../support/property.ts';

const RUNS = 400;
const NAMED = PRESETS.map((description) => ({ name: description.name, description }));

const latin1 = fc.string({ unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)), maxLength: 60 });
const bytes = fc.uint8Array({ maxLength: 80 }).map((content) => Buffer.from(content));

/** Pieces that the scheme's own headers are made of, put together anyhow. */
function toStructured({ signature, timestamp }: SchemeDescription): fc.Arbitrary<string> {
  const prefixes = signature?.forms.map(({ prefix }) => prefix) ?? [];
  const entry = timestamp !== undefined && 'entry' in timestamp.from ? timestamp.from.entry : 't=';
  const lengths = [19, 20, 32, 64, 70].map((length) => fc.uint8Array({ minLength: length, maxLength: length }));
  const encoded = fc
    .tuple(fc.oneof(...lengths), fc.constantFrom('hex', 'base64', 'base64url'))
    .map(([content, encoding]) => Buffer.from(content).toString(encoding as BufferEncoding));
  const piece = fc.oneof(
    fc.constantFrom(...prefixes, entry, signature?.list ?? ',', ',', ';', ' ', '=', '.', '', '\u00ff'),
    encoded,
    fc.integer({ min: 0, max: 2 ** 40 }).map(String),
    fc.constantFrom('1800000000', '-1', '1e9', '9'.repeat(400), '2026-12-31T00:00:00Z', '2026-13-99T99:99:99Z'),
  );
  return fc.array(piece, { maxLength: 30 }).map((pieces) => pieces.join(''));
}

function toFields(description: SchemeDescription): fc.Arbitrary<string[]> {
  const names = [...compileScheme(description).headerNames, ...Object.values(description.twins ?? {})];
  const name = names.length === 0 ? fc.constant('x') : fc.constantFrom(...names);
  const field = fc.tuple(name, fc.oneof(latin1, toStructured(description)));
  const each = fc.tuple(...names.map((own) => toStructured(description).map((value) => [own, value] as [string, string])));
  return fc.oneof(fc.array(field, { maxLength: 6 }), each).map((fields) => fields.flat());
}

const nested = (depth: number): Buffer => Buffer.from(`${'['.repeat(depth)}${']'.repeat(depth)}`);
const content = fc.oneof(
  bytes,
  fc.json().map((text) => Buffer.from(text)),
  fc.constantFrom(
    Buffer.alloc(0),
    nested(100_000),
    Buffer.from('{"__proto__":{"id":1},"id":{},"event":null,"webhookTimestamp":1e400}'),
    Buffer.from('{"id":9007199254740993,"event_id":"\\u0000","event":{"id":"\\ud800"}}'),
    Buffer.from('%&=&&%zz=%f&a=b&a=b&\u0000=+'),
  ),
);
const url = fc.oneof(
  fc.webUrl({ withQueryParameters: true }),
  latin1,
  fc
    .tuple(fc.constantFrom('bodySHA256=', 'bodySHA256', '%62odySHA256='), latin1)
    .map((parts) => `${PUBLIC_URL}/?${parts.join('')}`),
);

describe.each(NAMED)('$name', ({ description }) => {
  const scheme = compileScheme(description);
  const keys = description.signature === undefined ? [] : [toCase(description).key];

  test('parses any headers and verifies any body without an exception, and accepts none', () => {
    const property = fc.property(toFields(description), content, url, fc.string(), (fields, body, href, method) => {
      const options = { allowDotInId: fields.length % 4 === 0 };
      const read = scheme.readHead(new HeaderFields(fields), options, toQuery(href));
      const head = 'code' in read || scheme.readBody === undefined ? read : scheme.readBody(read, body, options);
      if ('code' in head) {
        expect(['missing_signature', 'malformed_signature', 'malformed_request']).toContain(head.code);
        return;
      }
      const message = { method, url: href, body };
      expect(scheme.verify(head, message, keys)).toBeUndefined();
      scheme.identify(head, message);
    });
    fc.assert(property, { numRuns: RUNS });
  });

  test('parses any text as a key, or reports what is wrong with it, and never shows it', () => {
    const pem = (title: string): fc.Arbitrary<string> =>
      bytes.map((inner) => `-----BEGIN ${title}-----\n${inner.toString('base64')}\n-----END ${title}-----\n`);
    const prefixed = fc.tuple(fc.constantFrom('whsec_', 'whpk_', 'whsk_', 'MFkw', ''), latin1).map((parts) => parts.join(''));
    const text = fc.oneof(latin1, prefixed, pem('PUBLIC KEY'), pem('PRIVATE KEY'), pem('EC PRIVATE KEY'));
    const encoding = fc.constantFrom('utf8', 'base64', 'hex', undefined);
    const property = fc.property(text, encoding, (secret, named) => {
      const parsed = scheme.parseKey('k', new Secret(Buffer.from(secret, 'latin1')), named);
      const shown = 'problem' in parsed ? `${parsed.problem} ${parsed.hint}` : (parsed.warning ?? '');
      if (secret.length > 20) expect(shown).not.toContain(secret);
      try {
        scheme.signRequest({ id: 'a', timestamp: 0, body: Buffer.alloc(0) }, new Secret(Buffer.from(secret, 'latin1')), named);
      } catch (thrown) {
        expect(thrown).toBeInstanceOf(SidegateError);
      }
    });
    fc.assert(property, { numRuns: RUNS });
  });
});
