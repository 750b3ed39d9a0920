import { describe, expect, test } from 'vitest';
import { parseTracestate } from '../../../../src/telemetry/tracing/trace-context.ts';
import { fc } from '../../../support/property.ts';

const many = (count: number, value = '1') => Array.from({ length: count }, (_, i) => `k${i}=${value}`).join(',');

describe('a tracestate is passed on', () => {
  test.each([
    ['of one member', ['rojo=00f067aa0ba902b7'], 'rojo=00f067aa0ba902b7'],
    ['of several lines, in their order', ['rojo=1,congo=2', 'a=3'], 'rojo=1,congo=2,a=3'],
    ['without empty members', ['a=1,,b=2', '', ' , '], 'a=1,b=2'],
    ['without the space around members', ['a=1 ,\tb=2\t'], 'a=1,b=2'],
    ['with space inside a value', ['a= x y'], 'a= x y'],
    ['of a tenant', ['fw529a3039@dt=FfffffeA'], 'fw529a3039@dt=FfffffeA'],
    ['whose key begins with a digit', ['0a=1'], '0a=1'],
    ['of 32 members', [many(32)], many(32)],
    ['with the longest key', [`${'k'.repeat(256)}=1`], `${'k'.repeat(256)}=1`],
    ['with the longest value', [`k=${'v'.repeat(256)}`], `k=${'v'.repeat(256)}`],
  ])('%s', (_, lines, expected) => {
    expect(parseTracestate(lines)).toBe(expected);
  });
});

describe('a tracestate is dropped', () => {
  test.each([
    ['where there is none', []],
    ['that is empty', ['']],
    ['of 33 members', [many(33)]],
    ['with a key twice', ['a=1,b=2', 'a=3']],
    ['with a capital in a key', ['A=1']],
    ['with a key too long', [`${'k'.repeat(257)}=1`]],
    ['with a value too long', [`k=${'v'.repeat(257)}`]],
    ['without a key', ['=1']],
    ['without a value', ['a=']],
    ['without an equals sign', ['a']],
    ['with two equals signs', ['a=1=2']],
    ['with a control in a value', ['a=\u0001']],
    ['with a letter beyond ASCII', ['a=é']],
    ['with space before the equals sign', ['a =1']],
  ])('%s', (_, lines) => {
    expect(parseTracestate(lines)).toBeUndefined();
  });
});

test('a tracestate that is too long loses its long members first, then the last ones, but never a part of one', () => {
  const long = `long=${'v'.repeat(124)}`;
  const members = [...Array.from({ length: 8 }, (_, i) => `k${i}=${'v'.repeat(57)}`)];
  expect(parseTracestate([long, members.join(',')])).toBe(members.join(','));
  const more = [...members, 'z=1', 'y=2'];
  const kept = parseTracestate([more.join(',')])?.split(',') ?? [];
  expect(kept.join(',').length).toBeLessThanOrEqual(512);
  expect(more.slice(0, kept.length)).toEqual(kept);
});

test('returns values within the limits for any input', () => {
  let returned = 0;
  const member = fc.tuple(fc.stringMatching(/^[a-z0-9_@*/A-Z-]{0,5}$/), fc.string({ maxLength: 300 }));
  fc.assert(
    fc.property(fc.array(member, { maxLength: 40 }), (members) => {
      const kept = parseTracestate([members.map(([key, value]) => `${key}=${value}`).join(',')]);
      if (kept === undefined) return;
      returned++;
      expect(kept.length).toBeLessThanOrEqual(512);
      expect(kept).toMatch(/^[\x20-\x7e]+$/);
      expect(kept.split(',').length).toBeLessThanOrEqual(32);
      expect(parseTracestate([kept])).toBe(kept);
    }),
    { numRuns: 1_000 },
  );
  expect(returned).toBeGreaterThan(0);
});
