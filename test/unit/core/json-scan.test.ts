import { expect, test } from 'vitest';
import { findMembers, isJson, listElements, parseJsonText, toWholeSpan } from '../../../src/core/json-scan.ts';
import { JSON_PIECES } from '../../support/json-pieces.ts';
import { fc } from '../../support/property.ts';

/** Each unit of UTF-16 as an escape. */
const toEscapes = (text: string): string =>
  [...Array(text.length).keys()].map((at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, '0')}`).join('');

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

test('parses what was written, with any escapes in names and strings', () => {
  const write = (value: unknown, escapes: boolean): string => {
    if (typeof value === 'string') return escapes ? `"${toEscapes(value)}"` : JSON.stringify(value);
    if (Array.isArray(value)) return `[ ${value.map((item) => write(item, !escapes)).join(' , ')}]`;
    if (typeof value !== 'object' || value === null) return JSON.stringify(value);
    return `{${Object.entries(value).map(([name, item]) => `${write(name, escapes)} :${write(item, !escapes)}\n`)}}`;
  };
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 4 }), fc.boolean(), (value, escapes) => {
      const read = parseJsonText(Buffer.from(write(value, escapes)));
      expect(JSON.stringify(read)).toBe(JSON.stringify(value));
    }),
    { numRuns: 3_000 },
  );
  expect(Object.keys(parseJsonText(Buffer.from('{"__proto__":{"a":"\\n"}}')) as object)).toEqual(['__proto__']);
  expect(() => parseJsonText(Buffer.from(`${'['.repeat(4_000)}"\\n"${']'.repeat(4_000)}`))).toThrow('more than 1000 levels');
  for (const text of ['', '"\\x"', '{"\\u00":1}', '["\\n",]', '\ufeff"\\n"'])
    expect(() => parseJsonText(Buffer.from(text))).toThrow(SyntaxError);
});

test('reads a name with an escape as it is written, whatever was parsed before', () => {
  // V8 then takes the first characters of `\u0070assword` for the whole name.
  JSON.parse(String.raw`{"first":1,"\\u0070as":1}`);
  const text = Buffer.from(String.raw`{"first":1,"\u0070assword":2}`);
  expect(parseJsonText(text)).toEqual({ first: 1, password: 2 });
});
