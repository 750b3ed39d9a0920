import { describe, expect, test } from 'vitest';
import { findMember, listElements, toWholeSpan } from '../../../src/core/json-scan.ts';
import { parseStrictJson } from '../../../src/core/strict-json.ts';
import { fc } from '../../support/property.ts';

const BOUNDS = { maxDepth: 8, maxValues: 1_000, maxMembers: 100 };
const toMembers = (count: number) => Array.from({ length: count }, (_, i) => `"${i}":0`).join();
const parse = (text: string | Buffer) => parseStrictJson(Buffer.from(text as string), BOUNDS);

test.each([
  ['bad UTF-8', Buffer.from([0x22, 0xff, 0x22]), 'it is not UTF-8'],
  ['a byte order mark', '\ufeff{}', 'it is not valid JSON'],
  ['no JSON', '{"a":}', 'it is not valid JSON'],
  ['an empty text', '', 'it is not valid JSON'],
  ['two values', '{} {}', 'it is not valid JSON'],
  ['a repeated name', '{"a":1,"b":2,"a":3}', 'the member "a" is repeated in an object'],
  ['a repeated name in another spelling', '{"data":{},"d\\u0061ta":{}}', 'the member "data" is repeated in an object'],
  ['a repeated name deep inside', '{"a":[1,{"b":{"x":":,{","x":2}}]}', 'the member "x" is repeated in an object'],
  ['a repeated __proto__', '{"__proto__":1,"__proto__":2}', 'the member "__proto__" is repeated in an object'],
  [
    'a repeated name that would control a terminal, or turn the text around',
    '{"\u009b31m\u202ex ü":1,"\u009b31m\u202ex ü":2}',
    'the member "\\u{9b}31m\\u{202e}x ü" is repeated in an object',
  ],
  ['an unpaired surrogate', '{"a":"\\ud800"}', 'a string contains an unpaired surrogate'],
  ['an unpaired surrogate in a name', '{"\\uDFFF":1}', 'a string contains an unpaired surrogate'],
  ['too many levels', `${'['.repeat(9)}${']'.repeat(9)}`, 'it has more than 8 levels'],
  ['too many values', `[${'0,'.repeat(1_001)}0]`, 'it has more than 1000 values'],
  ['too many members of one object', `{"a":[{${toMembers(101)}}]}`, 'an object has more than 100 members'],
  ['millions of levels', '['.repeat(5_000_000), 'it has more than 8 levels'],
])('rejects %s', (_, text, problem) => {
  expect(parse(text)).toEqual({ kind: 'problem', problem });
});

test('rejects a repeated name in a long text without a search for it, which would scan each level again', () => {
  const text = `{"a":["${'b'.repeat(20_000)}",{"x":1,"x":2}]}`;
  expect(parse(text)).toEqual({ kind: 'problem', problem: 'a member is repeated in an object' });
});

test.each(['{"exp":1e400}', '[-1e309]'])('rejects %s only where numbers must be finite', (text) => {
  const bytes = Buffer.from(text);
  expect(parseStrictJson(bytes, BOUNDS).kind).toBe('value');
  expect(parseStrictJson(bytes, BOUNDS, 'finite')).toEqual({ kind: 'problem', problem: 'a number is out of range' });
});

test('accepts a pair of surrogate escapes, colons in strings, and __proto__ as a plain member', () => {
  const text = '{"a":"\\ud83d\\ude00:\\":","__proto__":{"b":[]}}';
  expect(parse(text)).toEqual({ kind: 'value', value: JSON.parse(text) });
});

test('accepts as many members in each of several objects', () => {
  const text = `[{${toMembers(99)},"a":{${toMembers(100)}}},{${toMembers(100)}}]`;
  expect(parse(text)).toEqual({ kind: 'value', value: JSON.parse(text) });
});

test('accepts whatever JSON.stringify writes, and returns the same value', () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 6 }), fc.constantFrom(undefined, 2), (value, indent) => {
      const text = JSON.stringify(value, undefined, indent);
      expect(parse(text)).toEqual({ kind: 'value', value: JSON.parse(text) });
    }),
  );
});

describe('the bytes of a part', () => {
  test('are found for each member, in any spelling and with any whitespace', () => {
    const text = Buffer.from('{ "x" : [1, "]}"] ,\n"d\\u0061ta" :\t{"n": 12345678901234567890.0} , "z":null}');
    const data = findMember(text, toWholeSpan(text), 'data');
    expect(text.toString('utf8', data?.from, data?.to)).toBe('{"n": 12345678901234567890.0}');
    expect(findMember(text, toWholeSpan(text), 'y')).toBeUndefined();
  });

  test('are the same value as the parsed one', () => {
    fc.assert(
      fc.property(fc.array(fc.dictionary(fc.string(), fc.jsonValue())), fc.constantFrom(undefined, 1), (list, indent) => {
        const text = Buffer.from(JSON.stringify(list, undefined, indent));
        const elements = [...listElements(text, toWholeSpan(text))];
        expect(elements.map(({ from, to }) => JSON.parse(text.toString('utf8', from, to)))).toEqual(JSON.parse(text.toString()));
        for (const [index, span] of elements.entries())
          for (const [name, value] of Object.entries(JSON.parse(text.toString())[index] as object)) {
            const found = findMember(text, span, name);
            expect(JSON.parse(text.toString('utf8', found?.from, found?.to))).toEqual(value);
          }
      }),
    );
  });
});

test('a repeated name with an escape is a problem, whatever was parsed before', () => {
  parse(String.raw`{"psp":0,"success":"false","\\u0073u":"true"}`);
  const { kind } = parse(String.raw`{"psp":0,"success":"false","\u0073uccess":"true"}`);
  expect(kind).toBe('problem');
});
