import { describe, expect, test } from 'vitest';
import {
  type JsonPath,
  type JsonPathProblem,
  parseJsonPath,
  parseJsonPattern,
  readJsonPath,
} from '../../../src/core/json-path.ts';
import { fc } from '../../support/property.ts';

const VALUE: unknown = JSON.parse(
  '{"id":"e","data":{"object":{"id":"o","n":[10,[20,{"x":null}]]},"a.b":1,"":2,"q\\"":3,"ünï":4,"$ref":5,"0":6},"__proto__":{"own":7}}',
);

function parse(text: string): JsonPath {
  const path = parseJsonPath(text);
  if ('problem' in path) throw new Error(path.problem);
  return path;
}

describe('a path finds', () => {
  test.each<[string, unknown]>([
    ['$.id', 'e'],
    ['$.data.object.id', 'o'],
    ['$.data.object.n[0]', 10],
    ['$.data.object.n[1][1].x', null],
    ['$["data"]["a.b"]', 1],
    ['$.data[""]', 2],
    ['$.data["q\\""]', 3],
    ['$.data.ünï', 4],
    ['$.data["\\u00fcn\\u00ef"]', 4],
    ['$.data.$ref', 5],
    ['$.data.0', 6],
    ['$.__proto__.own', 7],
  ])('%s', (text, expected) => {
    expect(readJsonPath(parse(text), VALUE)).toEqual(expected);
  });
});

describe('a path finds nothing', () => {
  test.each([
    ...['$.none', '$.id.length', '$.data.object.n.length', '$.data.object.n.0', '$.data[0]', '$.data.object.n[2]'],
    ...['$.data.object.n[1][1].x.y', '$.toString', '$.data.constructor', '$.data.__proto__', '$.id[0]'],
  ])('at %s, which does not exist or is inherited', (text) => {
    expect(readJsonPath(parse(text), VALUE)).toBeUndefined();
  });

  test.each([[undefined], [null], [1], ['text'], [[]]])('in %j', (value) => {
    expect(readJsonPath(parse('$.a'), value)).toBeUndefined();
  });
});

describe('rejects text that is not a path, and quotes what it cannot parse', () => {
  test.each([
    ['', 'a path begins with $'],
    ['data.id', 'a path begins with $'],
    ['$', 'selects the whole value'],
    ['$id', 'cannot parse "id";'],
    ['$.', 'cannot parse ".";'],
    ['$..id', 'cannot parse "..id";'],
    ['$.a.', 'cannot parse ".";'],
    ['$.a b', 'cannot parse " b";'],
    ['$.a[', 'cannot parse "[";'],
    ['$.a[*]', 'cannot parse "[*]";'],
    ['$.a[-1]', 'cannot parse "[-1]";'],
    ['$.a[01]', 'cannot parse "[01]";'],
    ["$.a['b']", `cannot parse "['b']";`],
    ['$.a["b]', 'cannot parse "[\\"b]";'],
    ['$.a["\\q"]', 'cannot parse'],
    ['$.a["\n"]', 'cannot parse'],
    ['$.a[9999999999]', 'cannot parse'],
    [`$.${'a'.repeat(300)}`, 'longer than 256'],
    [`$${'.a'.repeat(33)}`, 'more than 32 steps'],
  ])('%j', (text, part) => {
    const result = parseJsonPath(text);
    expect((result as JsonPathProblem).problem).toContain(part);
  });
});

test('parsing never throws, and a formatted path is parsed again', () => {
  fc.assert(fc.property(fc.string({ maxLength: 40 }), (text) => void parseJsonPath(`$${text}`)));
  const step = fc.oneof(fc.nat({ max: 999_999 }), fc.string({ maxLength: 6 }));
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 8 }), (steps) => {
      expect(parseJsonPath(`$${steps.map((each) => `[${JSON.stringify(each)}]`).join('')}`)).toMatchObject({ steps });
    }),
  );
});

test('finds every value in any JSON by its path', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.string({ maxLength: 5 }), fc.nat({ max: 3 }), (inner, name, place) => {
      const list = [...Array<null>(place).fill(null), inner];
      const value: unknown = JSON.parse(`{${JSON.stringify(name)}:${JSON.stringify(list)}}`);
      expect(readJsonPath({ text: '', steps: [name, place] }, value)).toEqual(JSON.parse(JSON.stringify(inner)));
    }),
  );
});

describe('a pattern', () => {
  test.each<[string, (string | number | null)[]]>([
    ['$.a', ['a']],
    ['$[*]', [null]],
    ['$.*', [null]],
    ['$.customers[*].email', ['customers', null, 'email']],
    ['$.a.*.b[*][0]', ['a', null, 'b', null, 0]],
    ['$["*"].x', ['*', 'x']],
    ['$.*name', ['*name']],
    ['$["[*]"]', ['[*]']],
  ])('%s has its steps; null stands for every member or element', (text, steps) => {
    expect(parseJsonPattern(text)).toEqual({ text, steps });
  });

  test.each([
    ['$', 'selects the whole value'],
    ['$..email', 'cannot parse "..email"'],
    ['$.a[ *]', 'cannot parse "[ *]"'],
    ['$[0:2]', 'cannot parse "[0:2]"'],
    ['$.a[?(@.b)]', 'cannot parse'],
    ['email', 'a path begins with $; write for example $.card.number'],
    [`$${'[*]'.repeat(33)}`, 'more than 32 steps'],
    [`$.${'a'.repeat(300)}`, 'longer than 256'],
  ])('%s is rejected', (text, part) => {
    expect((parseJsonPattern(text) as JsonPathProblem).problem).toContain(part);
  });
});
