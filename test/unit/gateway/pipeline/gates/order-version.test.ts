import { describe, expect, test } from 'vitest';
import { readJsonPath } from '../../../../../src/core/json-path.ts';
import { NumberText, readValues, toName, toSortable } from '../../../../../src/gateway/pipeline/gates/order.ts';
import { fc } from '../../../../support/property.ts';

function sortable(value: unknown): string {
  const text = toSortable(value);
  expect(text).toMatch(/^\d+$/);
  return text as string;
}

/** -1, 0 or 1, as bytes have it. */
function compare(a: unknown, b: unknown): number {
  return Math.sign(Buffer.compare(Buffer.from(sortable(a)), Buffer.from(sortable(b))));
}

const A = { text: '$.a', steps: ['a'] };
const B = { text: '$.b', steps: ['b'] };

/** Of JSON texts: as their numbers are in an event. */
const json = (text: string): unknown => readValues(Buffer.from(`{"a":${text}}`), [A])[0];

describe('the smaller of two numbers sorts first:', () => {
  test.each([
    ['0', '1'],
    ['9', '10'],
    ['99', '100'],
    ['1700000000', '1700000001'],
    ['9007199254740992', '9007199254740993'],
    ['9007199254740993', '9007199254740994'],
    ['18446744073709551614', '18446744073709551615'],
    ['9'.repeat(49), `1${'0'.repeat(49)}`],
    [`${'9'.repeat(49)}7`, `${'9'.repeat(49)}8`],
    ['1700000000.123456788', '1700000000.123456789'],
    ['1.5', '1.51'],
    ['1.49', '1.5'],
    ['1.09', '1.1'],
    ['0.001', '0.01'],
    ['1e2', '101'],
    ['99.9', '1E2'],
    ['1e-3', '2e-3'],
    ['1e-30', '1e-29'],
    ['1e30', '2e30'],
    ['-1', '0'],
    ['-10', '-9'],
    ['-0.51', '-0.5'],
    ['-0.5', '-0.49'],
    ['-1.5', '-1'],
    ['-1e3', '-999'],
  ])('%s < %s', (smaller, larger) => {
    expect(compare(json(smaller), json(larger))).toBe(-1);
    expect(compare(json(larger), json(smaller))).toBe(1);
  });
});

test.each([
  ['1', '1.0'],
  ['100', '1e2'],
  ['1', '1e000000'],
  ['0.1', '1e-1'],
  ['0', '-0'],
  ['0', '0e5'],
  ['0.0', '-0.00'],
  ['0', `-0.${'0'.repeat(20)}`],
  ['1500', '1.5E+3'],
])('a number is the same version in every spelling: %s and %s', (a, b) => {
  expect(compare(json(a), json(b))).toBe(0);
});

test('a string of digits equals its number', () => {
  expect(compare('42', json('42'))).toBe(0);
  expect(compare('0042', json('42'))).toBe(0);
  expect(compare('99', 100)).toBe(-1);
  expect(compare(10n ** 40n, '1'.padEnd(41, '0'))).toBe(0);
});

describe('the earlier of two times sorts first:', () => {
  test.each([
    ['2026-11-21T10:00:00Z', '2026-11-21T10:00:01Z'],
    ['2026-11-21T10:00:00Z', '2026-11-21T10:00:00.000000001Z'],
    ['2026-11-21T10:00:00.1Z', '2026-11-21T10:00:00.12Z'],
    ['2026-11-21T10:00:00.09Z', '2026-11-21T10:00:00.1Z'],
    ['2026-11-21T10:00:00+01:00', '2026-11-21T09:30:00Z'],
    ['2026-11-21T10:00:00Z', '2026-11-21T10:00:00-00:30'],
    ['2024-02-28T23:59:59Z', '2024-02-29T00:00:00Z'],
    ['2024-02-29T23:59:59Z', '2024-03-01T00:00:00Z'],
    ['2023-12-31T23:59:59Z', '2024-01-01T00:00:00Z'],
    ['0000-01-01T00:00:00+23:59', '0000-01-01T00:00:00Z'],
    ['0000-12-31T23:59:59Z', '0001-01-01T00:00:00Z'],
    ['9999-12-31T23:59:58Z', '9999-12-31T23:59:59-23:59'],
    ['2016-12-31T23:59:59Z', '2016-12-31T23:59:60Z'],
  ])('%s < %s', (earlier, later) => {
    expect(compare(earlier, later)).toBe(-1);
    expect(compare(later, earlier)).toBe(1);
  });

  test.each([
    ['2026-11-21T10:00:00Z', '2026-11-21T11:00:00+01:00'],
    ['2026-11-21T10:00:00Z', '2026-11-21t10:00:00.000z'],
    ['2026-11-21T10:00:00Z', '2026-11-21 10:00:00-00:00'],
  ])('%s is %s', (a, b) => {
    expect(compare(a, b)).toBe(0);
  });
});

describe('a value without a known order is not a version:', () => {
  test.each([
    [undefined],
    [null],
    [true],
    [{}],
    [[1]],
    [''],
    ['1.10'],
    ['v2'],
    ['-5'],
    [' 5'],
    ['٣'],
    ['0x10'],
    [Number.NaN],
    [Number.POSITIVE_INFINITY],
    ['2026-11-21'],
    ['2026-11-21T10:00:00'],
    ['2026-11-21T10:00Z'],
    ['2026-11-21T24:00:00Z'],
    ['2026-11-21T10:60:00Z'],
    ['2026-11-21T10:00:61Z'],
    ['2026-11-21T10:00:00+24:00'],
    ['2026-11-21T10:00:00+01:60'],
    ['2026-13-01T00:00:00Z'],
    ['2026-00-01T00:00:00Z'],
    ['2026-04-31T00:00:00Z'],
    ['2023-02-29T00:00:00Z'],
    ['1900-02-29T00:00:00Z'],
    ['2026-11-00T00:00:00Z'],
    ['Sat, 21 Nov 2026 10:00:00 GMT'],
    [new NumberText('1e99999')],
    [new NumberText('1e-99999')],
    ['9'.repeat(65)],
    [new NumberText(`-0.${'1'.repeat(30)}`)],
    [`2026-11-21T10:00:00.${'1'.repeat(65)}Z`],
  ])('%j', (value) => {
    expect(toSortable(value)).toBeUndefined();
  });
});

test('versions of two kinds differ in their first digit', () => {
  expect(sortable(5)[0]).not.toBe(sortable('2026-11-21T10:00:00Z')[0]);
});

describe('the order is correct for any two', () => {
  test('integers', () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }),
        fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }),
        (a, b) => {
          expect(compare(json(String(a)), json(String(b)))).toBe(a < b ? -1 : a > b ? 1 : 0);
        },
      ),
    );
  });

  test('doubles, as JSON writes them', () => {
    const double = fc.tuple(fc.maxSafeInteger(), fc.nat(10)).map(([whole, decimals]) => whole / 10 ** decimals);
    fc.assert(
      fc.property(double, double, (a, b) => {
        expect(compare(json(JSON.stringify(a)), json(JSON.stringify(b)))).toBe(a < b ? -1 : a > b ? 1 : 0);
      }),
      { numRuns: 1_000 },
    );
  });

  test('times, compared with Date', () => {
    const at = fc.date({ min: new Date('0000-01-02T00:00:00Z'), max: new Date('9999-12-30T00:00:00Z'), noInvalidDate: true });
    fc.assert(
      fc.property(at, at, fc.integer({ min: -1_439, max: 1_439 }), (a, b, offset) => {
        const sign = offset < 0 ? '-' : '+';
        const [hours, minutes] = [Math.floor(Math.abs(offset) / 60), Math.abs(offset) % 60].map((n) =>
          String(n).padStart(2, '0'),
        );
        const local = new Date(b.getTime() + offset * 60_000).toISOString();
        fc.pre(/^\d{4}-/.test(local));
        const elsewhere = local.replace('Z', `${sign}${hours}:${minutes}`);
        expect(compare(a.toISOString(), elsewhere)).toBe(Math.sign(a.getTime() - b.getTime()));
      }),
      { numRuns: 1_000 },
    );
  });
});

describe('a name', () => {
  test.each([
    [json('7'), '7'],
    [json('7.0'), '7'],
    [json('70e-1'), '7'],
    [json('12345678901234567890'), '12345678901234567890'],
    [json('-0.50'), '-0.5'],
    [json('-0'), '0'],
    [json('1e21'), '1000000000000000000000'],
    [json('1e999'), `1${'0'.repeat(999)}`],
    ['text', 'text'],
    ['007', '007'],
  ])('%j is %s', (value, expected) => {
    expect(toName(value)).toBe(expected);
  });

  test.each([[''], [null], [true], [{}], [[]], [undefined], [Number.POSITIVE_INFINITY]])('is not %j', (value) => {
    expect(toName(value)).toBeUndefined();
  });
});

describe('reading values', () => {
  const read = (text: string): unknown => readValues(Buffer.from(text), [A, B]);

  test.each<[string, unknown, unknown]>([
    ['{"a":1,"b":"x"}', 1, 'x'],
    ['{"a":123456789012345,"b":null}', 123_456_789_012_345, null],
    ['{"a":1234567890123456,"b":2}', new NumberText('1234567890123456'), 2],
    ['{"a":1700000000.000000001,"b":[true]}', new NumberText('1700000000.000000001'), undefined],
    ['{"a":1e400}', new NumberText('1e400'), undefined],
    ['{"a":"12345678901234567890","b":{}}', '12345678901234567890', undefined],
    [' { "\\u0061" : 1 , "b" : "\\ud83d\\ude00" } ', 1, '😀'],
    ['{"a":1,"a":2}', 2, undefined],
    ['\ufeff{"a":1}', 1, undefined],
    ['[1]', undefined, undefined],
    ['{"a":1', undefined, undefined],
  ])('of %s takes digits from the text if a double may lack them', (text, a, b) => {
    expect(read(text)).toEqual([a, b]);
  });

  test('finds nothing in invalid UTF-8', () => {
    expect(readValues(Buffer.from([0x22, 0xff, 0x22]), [A])).toEqual([undefined]);
  });

  test('finds nothing, without an exception, in values that are nested too deeply', () => {
    const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
    expect(read(`{"a":1,"b":2,"c":${deep}}`)).toEqual([1, 2]);
    expect(read(`{"a":12345678901234567890,"c":${deep}}`)).toEqual([new NumberText('12345678901234567890'), undefined]);
  });

  test('reads long content without a tree of it, and survives errors in it', () => {
    const long = '{},'.repeat(300_000);
    const before = process.memoryUsage().heapUsed;
    expect(read(`{"x":[${long}{}],"a":12345678901234567890,"b":"r"}`)).toEqual([new NumberText('12345678901234567890'), 'r']);
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(30_000_000);
    expect(read(`{"\\x":1,"a":1,"x":"${'y'.repeat(70_000)}"}`)).toEqual([undefined, undefined]);
    for (const broken of ['{', '{"a"', '{"a":', '{"a":1,', '[[', '"', '{"a":"'])
      expect(() => read(broken + ' '.repeat(70_000))).not.toThrow();
  });

  test('finds what a parser finds, at any path of any JSON', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 4 }), fc.array(fc.oneof(fc.nat(3), fc.string()), { maxLength: 3 }), (text, steps) => {
        const value = readJsonPath({ text: '', steps }, JSON.parse(text));
        const isScalar = typeof value !== 'object' || value === null;
        const [found] = readValues(Buffer.from(text), [{ text: '', steps }]);
        expect(found instanceof NumberText ? Number(found.text) : found).toEqual(isScalar ? value : undefined);
      }),
      { numRuns: 2_000 },
    );
  });

  test('returns the digits of every number, in any spelling', () => {
    const digits = fc.stringMatching(/^(?:0|[1-9]\d{0,24})(?:\.\d{1,24})?(?:[eE][+-]?\d{1,3})?$/);
    fc.assert(
      fc.property(digits, (text) => {
        expect(toSortable(json(text))).toBe(toSortable(new NumberText(text)));
        expect(toName(json(text))).toBe(toName(new NumberText(text)));
      }),
      { numRuns: 2_000 },
    );
  });
});

test('reads values beside text that is not UTF-8, and after a byte order mark', () => {
  const bytes = (text: string): Buffer => Buffer.from(text, 'latin1');
  expect(readValues(bytes('{"a":"x","b":2,"c":"\xff"}'), [A, B])).toEqual(['x', 2]);
  expect(readValues(bytes('\xef\xbb\xbf{"a":"x","b":2}'), [A, B])).toEqual(['x', 2]);
  expect(readValues(bytes('{"a":"\xff","b":2}'), [A, B])).toEqual([undefined, 2]);
  expect(readValues(bytes('\xef\xbb\xbf\xef\xbb\xbf{"a":"x"}'), [A])).toEqual([undefined]);
});
