import { describe, expect, test } from 'vitest';
import { formatTraceparent, parseTraceparent, parseTracestate } from '../../../../src/telemetry/tracing/trace-context.ts';
import { fc } from '../../../support/property.ts';

describe('traceparent', () => {
  const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
  const SPAN = '00f067aa0ba902b7';
  const GOOD = `00-${TRACE}-${SPAN}-01`;

  describe('a traceparent is accepted', () => {
    test.each([
      ['sampled', GOOD, 1],
      ['not sampled', `00-${TRACE}-${SPAN}-00`, 0],
      ['random', `00-${TRACE}-${SPAN}-02`, 2],
      ['sampled and random', `00-${TRACE}-${SPAN}-03`, 3],
      ['without unknown flags', `00-${TRACE}-${SPAN}-fd`, 1],
      ['of a later version', `01-${TRACE}-${SPAN}-01`, 1],
      ['of a later version that has more', `cc-${TRACE}-${SPAN}-01-what-the-future-will-be-like`, 1],
      ['of a later version with an empty rest', `01-${TRACE}-${SPAN}-00-`, 0],
    ])('%s', (_, value, flags) => {
      expect(parseTraceparent([value])).toEqual({ traceId: TRACE, parentId: SPAN, flags });
    });
  });

  describe('a traceparent is rejected', () => {
    test.each([
      ['of no line', []],
      ['that comes twice', [GOOD, GOOD]],
      ['that is a list', [`${GOOD},${GOOD}`]],
      ['that is empty', ['']],
      ['of the version that will never be', [`ff-${TRACE}-${SPAN}-01`]],
      ['of version 00 with more', [`${GOOD}-00`]],
      ['of version 00 with a dash at the end', [`${GOOD}-`]],
      ['of a later version whose rest has no dash', [`01-${TRACE}-${SPAN}-01.x`]],
      ['in capitals', [GOOD.toUpperCase()]],
      ['with one capital', [`00-${TRACE}-${SPAN}-0A`]],
      ['with a trace of zeros', [`00-${'0'.repeat(32)}-${SPAN}-01`]],
      ['with a span of zeros', [`00-${TRACE}-${'0'.repeat(16)}-01`]],
      ['with a short trace', [`00-${TRACE.slice(1)}-${SPAN}-01`]],
      ['with a long trace', [`00-0${TRACE}-${SPAN}-01`]],
      ['with a short span', [`00-${TRACE}-${SPAN.slice(1)}-01`]],
      ['without flags', [`00-${TRACE}-${SPAN}`]],
      ['with short flags', [`00-${TRACE}-${SPAN}-1`]],
      ['with a character that is not hex', [`00-${TRACE.replace('4', 'g')}-${SPAN}-01`]],
      ['with space around it', [` ${GOOD}`]],
      ['with a line end behind it', [`${GOOD}\n`]],
      ['with other separators', [GOOD.replaceAll('-', '_')]],
      ['with digits of another script', [`00-${TRACE.replace('4', '٤')}-${SPAN}-01`]],
    ])('%s', (_, values) => {
      expect(parseTraceparent(values)).toBeUndefined();
    });
  });

  const hex = (length: number) =>
    fc.array(fc.constantFrom(...'0123456789abcdef'), { minLength: length, maxLength: length }).map((digits) => digits.join(''));

  test('a formatted traceparent parses to the same values', () => {
    fc.assert(
      fc.property(hex(32), hex(16), fc.integer({ min: 0, max: 3 }), (traceId, parentId, flags) => {
        fc.pre(!/^0+$/.test(traceId) && !/^0+$/.test(parentId));
        const text = formatTraceparent({ traceId, parentId, flags });
        expect(text).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]$/);
        expect(parseTraceparent([text])).toEqual({ traceId, parentId, flags });
      }),
    );
  });

  test('accepts only exactly valid values of any input, and formats them as valid ones', () => {
    let accepted = 0;
    const mutated = fc.tuple(fc.nat(54), fc.string({ maxLength: 3 }), fc.nat(3)).map(([at, text, cut]) => {
      return GOOD.slice(0, at) + text + GOOD.slice(at + cut);
    });
    fc.assert(
      fc.property(fc.oneof(fc.string(), mutated, fc.string({ unit: 'binary', maxLength: 200 })), (value) => {
        const parsed = parseTraceparent([value]);
        if (parsed === undefined) return;
        accepted++;
        expect(value.slice(3, 35)).toBe(parsed.traceId);
        expect(value.slice(36, 52)).toBe(parsed.parentId);
        expect(formatTraceparent(parsed)).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]$/);
      }),
      { numRuns: 2_000 },
    );
    expect(accepted).toBeGreaterThan(0);
  });
});

describe('tracestate', () => {
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
});
