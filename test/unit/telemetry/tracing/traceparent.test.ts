import { describe, expect, test } from 'vitest';
import { formatTraceparent, parseTraceparent } from '../../../../src/telemetry/tracing/trace-context.ts';
import { fc } from '../../../support/property.ts';

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
