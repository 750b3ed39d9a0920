import { expect, test } from 'vitest';
import { isJson } from '../../../src/core/json-check.ts';
import { fc } from '../../support/property.ts';

function isParsed(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const PIECES = [
  ...[
    '{',
    '}',
    '[',
    ']',
    '"',
    ',',
    ':',
    '\\',
    '\\u00e4',
    '\\uD8',
    '\\n',
    '\\x',
    ' ',
    '\t',
    '\n',
    '\r',
    '\0',
    '\u000b',
    '\u00a0',
    '\ufeff',
  ],
  ...[
    '0',
    '1',
    '-',
    '+',
    '.',
    'e',
    'E5',
    '-0',
    '01',
    '1.',
    '.5',
    '1e400',
    'true',
    'fals',
    'null',
    'NaN',
    'a',
    'ä',
    '"a"',
    '"a":',
    '{"a":[',
    '[[',
    '{}',
    '[]',
  ],
];

test('accepts what a parser accepts, and nothing else: pieces of JSON in any order', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...PIECES), { maxLength: 12 }), (pieces) => {
      const text = pieces.join('');
      expect([text, isJson(Buffer.from(text))]).toEqual([text, isParsed(text)]);
    }),
    { numRuns: 20_000 },
  );
});

test('accepts what a parser accepts, and nothing else: JSON with one change', () => {
  const change = fc.record({ at: fc.nat(200), removed: fc.nat(2), added: fc.constantFrom('', ...PIECES) });
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
