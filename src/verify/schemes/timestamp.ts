/** The formats of timestamps. Parsing is strict, because lenient parsers disagree with each other. */
import { type EpochMilliseconds, toHttpDate, toInstant } from '../../core/clock.ts';
import type { TimestampUnit } from './description.ts';

/** How to parse and format one unit. */
interface TimestampFormat {
  /** Name of the unit. */
  readonly title: string;
  /** Description for the operator. */
  readonly form: string;
  /** Whether the text is a number. */
  readonly isNumber: boolean;
  /** Undefined if the text does not have this format. */
  parse(text: string): EpochMilliseconds | undefined;
  format(at: EpochMilliseconds): string;
}

/**
 * The form has no proper beginning or end that is also a time: no byte can move between a time and the signed part next to it. So the
 * offset has exactly one form, and nothing but the fraction has a variable length.
 */
const RFC_3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/;
/** IMF-fixdate (RFC 9110 §5.6.7), always 29 characters. */
const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/;

function digits(title: string, max: number, factor: number): TimestampFormat {
  // Digits only: lenient parsers disagree about `1700000000junk`, signs, fractions and exponents.
  // No leading zeros: with `signed: [body, timestamp]` an attacker could move them from the end of the body into the timestamp.
  const pattern = new RegExp(`^(?:0|[1-9][0-9]{0,${max - 1}})$`);
  return {
    title,
    form: `1 to ${max} digits without leading zeros`,
    isNumber: true,
    parse: (text) => (pattern.test(text) ? Number(text) * factor : undefined),
    format: (at) => String(Math.floor(at / factor)),
  };
}

/** All units. */
export const TIMESTAMP_FORMATS: Readonly<Record<TimestampUnit, TimestampFormat>> = {
  s: digits('seconds', 12, 1_000),
  ms: digits('milliseconds', 15, 1),
  rfc3339: {
    title: 'RFC 3339',
    form: 'a time such as 2026-12-31T00:00:00Z or 2026-12-31T01:00:00.5+01:00',
    isNumber: false,
    parse(text) {
      const at = RFC_3339.test(text) ? Date.parse(text) : Number.NaN;
      return Number.isNaN(at) ? undefined : at;
    },
    format: toInstant,
  },
  'http-date': {
    title: 'an HTTP date',
    form: 'an HTTP date such as Thu, 31 Dec 2026 00:00:00 GMT',
    isNumber: false,
    parse(text) {
      const at = HTTP_DATE.test(text) ? Date.parse(text) : Number.NaN;
      // Each instant has one spelling: a wrong weekday and 31 February are rejected.
      return toHttpDate(at) === text ? at : undefined;
    },
    format: toHttpDate,
  },
};

/** All units, likely ones first. */
export const TIMESTAMP_UNITS: readonly TimestampUnit[] = ['s', 'ms', 'rfc3339', 'http-date'];
