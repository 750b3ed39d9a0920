import { expect, test } from 'vitest';
import { findMembers, isJson, listElements, toWholeSpan } from '../../../src/core/json-scan.ts';
import { JSON_PIECES } from '../../support/json-pieces.ts';
import { fc } from '../../support/property.ts';

function isParsed(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

test('accepts what a parser accepts, and nothing else: pieces of JSON in any order', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...JSON_PIECES), { maxLength: 12 }), (pieces) => {
      const text = pieces.join('');
      expect([text, isJson(Buffer.from(text))]).toEqual([text, isParsed(text)]);
    }),
    { numRuns: 20_000 },
  );
});

test('accepts what a parser accepts, and nothing else: JSON with one change', () => {
  const change = fc.record({ at: fc.nat(200), removed: fc.nat(2), added: fc.constantFrom('', ...JSON_PIECES) });
  fc.assert(
    fc.property(fc.json({ maxDepth: 5 }), change, (json, { at, removed, added }) => {
      expect(isJson(Buffer.from(json))).toBe(true);
      const changed = json.slice(0, at) + added + json.slice(at + removed);
      expect([changed, isJson(Buffer.from(changed))]).toEqual([changed, isParsed(changed)]);
    }),
    { numRuns: 10_000 },
  );
});

test('takes linear time and memory for any depth', () => {
  for (const [open, close] of [
    ['[', ']'],
    ['{"a":', '}'],
  ] as const) {
    const deep = open.repeat(300_000);
    expect(isJson(Buffer.from(`${deep}0${close.repeat(300_000)}`))).toBe(true);
    expect(isJson(Buffer.from(`${deep}0${close.repeat(299_999)}`))).toBe(false);
  }
  expect(isJson(Buffer.from(`${'[{'.repeat(3)}"a":0${'}]'.repeat(3)}`))).toBe(false);
});

test('a list that is not JSON ends, also if nothing was checked before', () => {
  for (const text of ['[}', '[1}', '[1,}', '[,]', '[ }x']) {
    const bytes = Buffer.from(text);
    expect([...listElements(bytes, toWholeSpan(bytes))].length).toBeLessThan(3);
  }
});

test('finds the members that a parser finds, with escapes and repeated names', () => {
  const names = ['id', 'a\\b', '/"\n', 'é', '', '日本', '\u{1f600}'];
  const spell = fc.record({ name: fc.constantFrom(...names, 'ID', 'idx', 'i'), escaped: fc.boolean(), value: fc.nat(9) });
  fc.assert(
    fc.property(fc.array(spell, { maxLength: 12 }), (members) => {
      const toEscapes = (text: string): string =>
        [...Array(text.length).keys()].map((at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, '0')}`).join('');
      const written = members.map(({ name, escaped, value }) => {
        return `${escaped ? `"${toEscapes(name)}"` : JSON.stringify(name)} : ${value}`;
      });
      const text = Buffer.from(`{${written.join(',')}}`);
      const parsed = new Map(Object.entries(JSON.parse(text.toString()) as object));
      const found = findMembers(text, toWholeSpan(text), names);
      const read = found.map((span) => (span === undefined ? undefined : Number(text.toString('utf8', span.from, span.to))));
      expect(read).toEqual(names.map((name) => parsed.get(name)));
    }),
    { numRuns: 2_000 },
  );
});
