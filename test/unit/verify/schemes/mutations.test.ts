/** No change of anything that a preset signs passes: each byte changed, taken out or put in, and each boundary moved. */

import { describe, expect, test } from 'vitest';
import { PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { isPlain } from '../../../support/field-cases.ts';
import {
  getPart,
  judge,
  type Parts,
  toCase,
  toDelivery,
  toFields,
  toSignedParts,
  withPart,
} from '../../../support/preset-cases.ts';
import { fc } from '../../../support/property.ts';

/** Those with ID, time and signature in headers; the others are in signed-fields.test.ts. */
const SIGNING = PRESETS.filter(isPlain);
const NAMED = SIGNING.map((description) => ({ name: description.name, description }));
/** Deliveries that every byte of is changed. */
const WHOLE_RUNS = 3;

/** The entries of a signature header as its own definition has them: spaces and empty entries say nothing, nor does the case of hex. */
function toMeaning(description: SchemeDescription, parts: Parts): string {
  const { signature } = description;
  const header = toFields(description, parts).raw[1] ?? '';
  const entries = signature?.list === undefined ? [header] : header.split(signature.list).map((entry) => entry.trim());
  const text = entries.filter((entry) => entry !== '').join(signature?.list);
  if (signature?.encoding === 'hex') return text.toLowerCase();
  // The name of an authentication scheme has no case (RFC 9110 §11.1).
  return signature?.header === 'Authorization' ? text.replace(/^bearer /i, 'bearer ') : text;
}

/** What Twilio's definition makes of a form, by another decoder than the gate's, which is led to take each escape for one character. */
function toFormMeaning(body: Buffer): string {
  const text = body.toString('latin1').replace(/%[89a-f][0-9a-f]/gi, (escaped) => encodeURIComponent(unescape(escaped)));
  const pairs = new URLSearchParams(text);
  const names = [...new Set(pairs.keys())].sort();
  return names
    .map((name) =>
      [...new Set(pairs.getAll(name))]
        .sort()
        .map((value) => name + value)
        .join(''),
    )
    .join('');
}

/** HubSpot decodes some escapes before it signs, so each of them has two spellings. */
function toUrlMeaning({ decodedInUrl = '' }: SchemeDescription, url: string): string {
  return url.replace(/%[0-9a-f]{2}/gi, (escaped) => {
    const character = String.fromCharCode(Number.parseInt(escaped.slice(1), 16));
    return decodedInUrl.includes(character) ? character : escaped;
  });
}

/** Whether the scheme's own definition makes both the same message. */
function isSameMessage(description: SchemeDescription, a: Parts, b: Parts): boolean {
  const { signed, timestamp } = description;
  const isEntry = timestamp !== undefined && 'entry' in timestamp.from;
  if ((!isEntry && a.timestamp !== b.timestamp) || (signed.includes('id') && a.id !== b.id)) return false;
  if (description.signed.includes('method') && a.method !== b.method) return false;
  if (toMeaning(description, a) !== toMeaning(description, b)) return false;
  if (description.signed.includes('url') && toUrlMeaning(description, a.url) !== toUrlMeaning(description, b.url)) return false;
  if (description.signed.length === 0 || a.body.equals(b.body)) return true;
  const parameter = description.contentDigestParameter;
  const isBound = parameter !== undefined && b.url.includes(`${parameter}=`);
  return description.signed.includes('form') && !isBound && toFormMeaning(a.body) === toFormMeaning(b.body);
}

/** Every single-byte change at one place. */
function* changeAt(bytes: Buffer, at: number, other: number): Generator<Buffer> {
  const [before, after] = [bytes.subarray(0, at), bytes.subarray(at)];
  yield Buffer.concat([before, Buffer.from([other]), after]);
  if (after.length === 0) return;
  yield Buffer.concat([before, after.subarray(1)]);
  if (after[0] === other) return;
  yield Buffer.concat([before, Buffer.from([other]), after.subarray(1)]);
}

describe.each(NAMED)('$name', ({ description }) => {
  const one = toCase(description);
  const names = [...new Set([...toSignedParts(description), 'signature'] as const)];

  test('accepts what it signs', () => {
    fc.assert(fc.property(toDelivery(one), (parts) => judge(one, parts) === 'ok'));
  });

  test('rejects every change of one byte of the signed parts, and of the signature', () => {
    let refused = 0;
    const check = (parts: Parts, changed: Parts): void => {
      if (isSameMessage(description, parts, changed)) return;
      refused++;
      if (judge(one, changed) === 'ok') throw new Error(`taken: ${JSON.stringify(changed)} for ${JSON.stringify(parts)}`);
    };
    const property = fc.property(toDelivery(one), fc.infiniteStream(fc.integer({ min: 0x20, max: 0x7e })), (parts, others) => {
      for (const name of names) {
        const bytes = getPart(parts, name);
        for (let at = 0; at <= bytes.length; at++)
          for (const changed of changeAt(bytes, at, others.next().value ?? 0)) check(parts, withPart(parts, name, changed));
      }
    });
    fc.assert(property, { numRuns: WHOLE_RUNS });
    expect(refused).toBeGreaterThan(100);
  });

  // Twilio puts nothing between the URL and the parameters: what moves changes the path, or the query, that the route sees.
  const hasBoundaries = toSignedParts(description).length > 1 && !description.signed.includes('form');
  test.runIf(hasBoundaries)('rejects bytes that moved across a boundary between two parts', () => {
    const parts = toSignedParts(description);
    let refused = 0;
    const pairs = parts.slice(1).map((after, index) => [parts[index] ?? after, after] as const);
    const property = fc.property(
      toDelivery(one),
      fc.constantFrom(...pairs),
      fc.integer({ min: 1, max: 30 }),
      fc.boolean(),
      // With the separator in its place, and as if nothing separated them.
      fc.constantFrom(description.separator, ''),
      (delivery, [before, after], count, isForward, separator) => {
        const joint = Buffer.concat([getPart(delivery, before), Buffer.from(separator), getPart(delivery, after)]);
        const cut = getPart(delivery, before).length + (isForward ? count : -count);
        if (cut < 0 || cut > joint.length - separator.length) return;
        const moved = withPart(withPart(delivery, before, joint.subarray(0, cut)), after, joint.subarray(cut + separator.length));
        if (isSameMessage(description, delivery, moved)) return;
        refused++;
        expect(judge(one, moved)).not.toBe('ok');
      },
    );
    fc.assert(property, { numRuns: 300 });
    expect(refused).toBeGreaterThan(50);
  });
});
