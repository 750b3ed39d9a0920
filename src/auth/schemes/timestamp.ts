/** The formats of timestamps. Parsing is strict, because lenient parsers disagree with each other. */
import { type EpochMilliseconds, toInstant } from '../../core/clock.ts';
import type { TimestampDescription } from './description.ts';

/** How to parse and format one unit. */
export interface TimestampFormat {
  /** Description for the operator. */
  readonly form: string;
  /** Undefined if the text does not have this format. */
  parse(text: string): EpochMilliseconds | undefined;
  format(at: EpochMilliseconds): string;
}

/** UTC only, which all senders use: the Z marks the end, so no byte can move between the time and the signed part after it. */
const RFC_3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?Z$/;

function digits(max: number, factor: number, form: string): TimestampFormat {
  // Digits only: lenient parsers disagree about `1700000000junk`, signs, fractions and exponents.
  // No leading zeros: with `signed: [body, timestamp]` an attacker could move them from the end of the body into the timestamp.
  const pattern = new RegExp(`^(?:0|[1-9][0-9]{0,${max - 1}})$`);
  return {
    form,
    parse: (text) => (pattern.test(text) ? Number(text) * factor : undefined),
    format: (at) => String(Math.floor(at / factor)),
  };
}

/** All units. */
export const TIMESTAMP_FORMATS: Readonly<Record<TimestampDescription['unit'], TimestampFormat>> = {
  s: digits(12, 1_000, '1 to 12 digits without leading zeros'),
  ms: digits(15, 1, '1 to 15 digits without leading zeros'),
  rfc3339: {
    form: 'a UTC time such as 2026-12-31T00:00:00Z',
    parse(text) {
      const at = RFC_3339.test(text) ? Date.parse(text) : Number.NaN;
      return Number.isNaN(at) ? undefined : at;
    },
    format: toInstant,
  },
};
