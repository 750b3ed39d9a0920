/** The forms in which senders write their time; strict, as what one parser reads leniently another reads otherwise. */
import { type EpochMilliseconds, toInstant } from '../../core/clock.ts';
import type { TimestampDescription } from './description.ts';

/** How one unit is read and written. */
export interface TimestampFormat {
  /** In words, for the operator. */
  readonly form: string;
  /** Undefined for any other form. */
  parse(text: string): EpochMilliseconds | undefined;
  format(at: EpochMilliseconds): string;
}

/** UTC only, as all senders write it: so the text ends itself, and no byte can move between it and what stands beside it. */
const RFC_3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?Z$/;

function digits(most: number, factor: number, form: string): TimestampFormat {
  // Digits only: `1700000000junk`, signs, fractions and exponents are read by lenient parsers, each in its own way.
  // No zeros before them: with `signed: [body, timestamp]` they could be moved from the end of the content into the time.
  const pattern = new RegExp(`^(?:0|[1-9][0-9]{0,${most - 1}})$`);
  return {
    form,
    parse: (text) => (pattern.test(text) ? Number(text) * factor : undefined),
    format: (at) => String(Math.floor(at / factor)),
  };
}

/** Every unit. */
export const TIMESTAMP_FORMATS: Readonly<Record<TimestampDescription['unit'], TimestampFormat>> = {
  s: digits(12, 1_000, '1 to 12 digits without zeros before them'),
  ms: digits(15, 1, '1 to 15 digits without zeros before them'),
  rfc3339: {
    form: 'an instant in UTC such as 2026-12-31T00:00:00Z',
    parse(text) {
      const at = RFC_3339.test(text) ? Date.parse(text) : Number.NaN;
      return Number.isNaN(at) ? undefined : at;
    },
    format: toInstant,
  },
};
