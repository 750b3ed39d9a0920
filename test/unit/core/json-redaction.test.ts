import { describe, expect, test } from 'vitest';
import { type JsonPattern, parseJsonPattern } from '../../../src/core/json-path.ts';
import { parseStrictJson } from '../../../src/core/strict-json.ts';
import { redactJson } from '../../../src/gateway/pipeline/body-recorders.ts';
import { fc } from '../../support/property.ts';

const REDACTED = '[redacted]';
const parse = (text: string): JsonPattern => {
  const pattern = parseJsonPattern(text);
  if ('problem' in pattern) throw new Error(pattern.problem);
  return pattern;
};
const redact = (json: string, ...paths: string[]): [text: string | undefined, count: number | undefined] => {
  const redacted = redactJson(Buffer.from(json), paths.map(parse), 1_000_000);
  return [redacted?.text.toString(), redacted?.count];
};

describe('replaces', () => {
  test.each<[json: string, path: string, expected: string]>([
    ['{"card":{"number":"4242"},"n":1}', '$.card.number', '{"card":{"number":"[redacted]"},"n":1}'],
    ['{"c":[{"e":1,"x":2},{"e":{"a":[]}},{}]}', '$.c[*].e', '{"c":[{"e":"[redacted]","x":2},{"e":"[redacted]"},{}]}'],
    ['{"c":{"a":{"e":1},"b":{"e":2}}}', '$.c.*.e', '{"c":{"a":{"e":"[redacted]"},"b":{"e":"[redacted]"}}}'],
    ['{"c":{"a":{"e":1},"b":[{"e":2}]}}', '$.c[*][0].e', '{"c":{"a":{"e":1},"b":[{"e":"[redacted]"}]}}'],
    ['[[1,2],[3]]', '$[*][0]', '[["[redacted]",2],["[redacted]"]]'],
    ['{"a":null,"b":false}', '$.a', '{"a":"[redacted]","b":false}'],
    ['{"c\\u0061rd" : {"n\\u0075mber":\t1 } }', '$.card.number', '{"c\\u0061rd" : {"n\\u0075mber":\t"[redacted]" } }'],
    ['{"__proto__":{"a":1}}', '$.__proto__.a', '{"__proto__":{"a":"[redacted]"}}'],
    ['{"c":{"0":{"e":1},"2":{"e":2}}}', '$.c[0].e', '{"c":{"0":{"e":"[redacted]"},"2":{"e":2}}}'],
    ['{"c":[{"e":1},{"e":2}]}', '$.c.1.e', '{"c":[{"e":1},{"e":"[redacted]"}]}'],
    ['{"c":{"00":1,"0":2}}', '$.c[0]', '{"c":{"00":1,"0":"[redacted]"}}'],
    ['{"":{"":1}}', '$[""][""]', '{"":{"":"[redacted]"}}'],
    ['{"a.b":{"]":1}}', '$["a.b"]["]"]', '{"a.b":{"]":"[redacted]"}}'],
    ['{"a":"},\\"b\\":\\"","b":"x"}', '$.b', '{"a":"},\\"b\\":\\"","b":"[redacted]"}'],
  ])('in %s what %s selects', (json, path, expected) => {
    expect(redact(json, path)[0]).toBe(expected);
  });

  test('a text in place of an object or array, which may contain the value as JSON', () => {
    expect(redact('{"Message":"{\\"email\\":\\"a@b\\"}","n":1}', '$.Message.email')).toEqual([
      '{"Message":"[redacted]","n":1}',
      1,
    ]);
    expect(redact('"a@b"', '$.email')).toEqual(['"[redacted]"', 1]);
    expect(redact('{"c":["cus_1",{"e":1}]}', '$.c[*].e')).toEqual(['{"c":["[redacted]",{"e":"[redacted]"}]}', 2]);
  });

  test('what several paths select, once', () => {
    expect(redact('{"a":{"b":{"c":1}},"d":2}', '$.a.b.c', '$.a.b', '$.a', '$.*', '$.d')).toEqual([
      '{"a":"[redacted]","d":"[redacted]"}',
      2,
    ]);
  });

  test('nothing that no path selects, and keeps all digits and whitespace', () => {
    const json = ' { "id" : 12345678901234567890.10 , "e" : [ 1e400 , -0 ] }\n';
    expect(redact(json, '$.none', '$.id[0]', '$.e.x', '$.e[9]', '$.E')).toEqual([json, 0]);
    expect(redact(json, '$.e[0]')[0]).toBe(' { "id" : 12345678901234567890.10 , "e" : [ "[redacted]" , -0 ] }\n');
  });
});

test('gives up if the result would be larger than allowed: a replacement can be longer than its value', () => {
  const json = Buffer.from(`[${'1,'.repeat(5_000)}1]`);
  expect(redactJson(json, [parse('$[*]')], 60_000)).toBeUndefined();
  expect(redactJson(json, [parse('$[*]')], 70_000)?.count).toBe(5_001);
  expect(redactJson(json, [], json.length - 1)).toBeUndefined();
});

test('allocates exactly the memory of the result', () => {
  const { text } = redactJson(Buffer.from('{"a":1}'), [parse('$.a')], 100) ?? { text: Buffer.alloc(0) };
  expect(text.buffer.byteLength).toBe(text.length);
});

test('stays fast for wide and deep JSON, and many paths', () => {
  const deep = `${'{"a":['.repeat(15)}{"a":1}${']}'.repeat(15)}`;
  const json = Buffer.from(`[${Array<string>(500).fill(deep).join(',')}]`);
  const paths = Array.from({ length: 32 }, (_, i) => parse(`$${'[*]'.repeat(1 + (i % 30))}.b${i}`));
  const started = performance.now();
  expect(redactJson(json, paths, 1_000_000)?.count).toBe(0);
  expect(performance.now() - started).toBeLessThan(2_000);
});

/** The selected values by another way: the parsed value, changed in place. */
function redactValue(value: unknown, steps: JsonPattern['steps']): unknown {
  const [step, ...rest] = steps;
  if (step === undefined || typeof value === 'string') return REDACTED;
  if (Array.isArray(value))
    return value.map((each, index) => (step === null || `${step}` === `${index}` ? redactValue(each, rest) : (each as unknown)));
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([name, each]) => [
    name,
    step === null || `${step}` === name ? redactValue(each, rest) : (each as unknown),
  ]);
  return Object.fromEntries(entries);
}

test('gives the same as changing the parsed value, for any JSON, any path and any spelling of names', () => {
  // Without a backslash: after an object with that name, V8 reads the name `"` as a backslash, so the comparison would fail.
  const name = fc.constantFrom('a', 'b', '', 'ü', '__proto__', '"', '\n', ']', '0');
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.constantFrom<unknown>(1, null, true, 'text', 1e21, '{"a":1}'),
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(name, tie('value'), { maxKeys: 3 }),
    ),
  }));
  const steps = fc.array(fc.oneof(name, fc.nat({ max: 2 }), fc.constant(null)), { minLength: 1, maxLength: 4 });
  const respell = (json: string): string => json.replaceAll('a', '\\u0061').replaceAll('f\\u0061lse', 'false');
  fc.assert(
    fc.property(value, steps, fc.boolean(), fc.constantFrom(undefined, 1), (json, path, escapes, indent) => {
      const plain = JSON.stringify(json, undefined, indent);
      const text = Buffer.from(escapes ? respell(plain) : plain);
      const bounds = { maxDepth: 20, maxValues: 1_000 };
      expect(parseStrictJson(text, bounds).kind).toBe('value');
      const redacted = redactJson(text, [{ text: '', steps: path }], 100_000);
      expect(JSON.parse(redacted?.text.toString() ?? '')).toEqual(redactValue(JSON.parse(plain), path));
      expect(parseStrictJson(redacted?.text ?? text, bounds).kind).toBe('value');
    }),
    { numRuns: 2_000 },
  );
});
