/** Checks of the timestamp. */

import type { Milliseconds } from '../../../core/clock.ts';
import { TIMESTAMP_FORMATS } from '../../../verify/schemes/coverage.ts';
import {
  type Check,
  type CheckContext,
  type CheckFinding,
  expectAccepted,
  expectRejected,
  notApplicable,
  type ProbeDelivery,
} from '../check.ts';
import { withField } from '../probed-scheme.ts';

const UNSIGNED = 'this scheme signs no timestamp';
const NOT_IN_HEADER = 'this scheme has no signed timestamp in a header';
const NO_NUMBER = 'this scheme signs no timestamp in seconds or milliseconds';
/** How far to exceed the tolerance: more than clocks differ. */
const MARGIN_MS: Milliseconds = 60_000;

/** Rewrites the timestamp, but not the signature. */
function rewrite(context: CheckContext, delivery: ProbeDelivery, change: (text: string) => string): ProbeDelivery {
  const { timestampName, toTimeText } = context.scheme;
  const text = toTimeText(delivery.timestamp);
  return { ...delivery, fields: withField(delivery.fields, timestampName, (value) => value.replace(text, () => change(text))) };
}

function rejectAtAge(toAge: (context: CheckContext) => Milliseconds) {
  return async (context: CheckContext): Promise<CheckFinding> =>
    context.scheme.isTimestampSigned ? expectRejected(context, context.make({ age: toAge(context) })) : notApplicable(UNSIGNED);
}

/** In the order of the report. */
export const TIME_CHECKS: readonly Check[] = [
  {
    id: 'stale',
    group: 'time',
    severity: 'major',
    sent: 'a valid signature that is a minute older than the tolerance',
    expected: 'rejected',
    impact:
      'Anyone who has seen a delivery, in a log or a proxy, can replay it years later, when its ID is no longer remembered.',
    run: rejectAtAge(({ tolerance }) => tolerance.past + MARGIN_MS),
  },
  {
    id: 'future',
    group: 'time',
    severity: 'major',
    sent: 'a valid signature with a timestamp that is further in the future than the tolerance',
    expected: 'rejected',
    impact: 'An event with a timestamp far in the future, from a sender with a wrong clock, can be replayed until that time.',
    run: rejectAtAge(({ tolerance }) => -tolerance.future - MARGIN_MS),
  },
  {
    id: 'skewed',
    group: 'time',
    severity: 'minor',
    sent: 'valid signatures with timestamps half the tolerance in the past, and half of it in the future',
    expected: '2xx to both',
    impact: "The sender's queue is slow or the clocks drift slightly, and valid events are rejected.",
    async run(context) {
      const { isTimestampSigned } = context.scheme;
      const { past, future } = context.tolerance;
      if (!isTimestampSigned) return notApplicable(UNSIGNED);
      return expectAccepted(
        context,
        context.make({ label: 'the past', age: past / 2 }),
        context.make({ label: 'the future', age: -future / 2 }),
      );
    },
  },
  {
    id: 'renewed-timestamp',
    group: 'time',
    severity: 'critical',
    sent: 'an old signature with the current timestamp',
    expected: 'rejected',
    impact: 'The timestamp is checked but not covered by the signature: a replay only needs a new one.',
    async run(context) {
      const { isTimestampSigned, timestampName, toTimeText } = context.scheme;
      if (!isTimestampSigned || timestampName === undefined) return notApplicable(NOT_IN_HEADER);
      const old = context.make({ age: context.tolerance.past + MARGIN_MS });
      const now = context.now();
      return expectRejected(context, { ...rewrite(context, old, () => toTimeText(now)), timestamp: now });
    },
  },
  {
    id: 'timestamp-unit',
    group: 'time',
    severity: 'minor',
    sent: 'a valid signature with the timestamp in the other unit (seconds or milliseconds)',
    expected: 'rejected',
    impact:
      'In the wrong unit, a timestamp is thousands of years in the future or decades in the past; an endpoint that accepts it has no limit in that direction.',
    async run(context) {
      const unit = context.scheme.description.timestamp?.unit;
      if (!context.scheme.isTimestampSigned || unit === undefined || !TIMESTAMP_FORMATS[unit].isNumber)
        return notApplicable(NO_NUMBER);
      const now = context.now();
      return expectRejected(context, context.make({ timestamp: unit === 's' ? now * 1000 : Math.floor(now / 1000) }));
    },
  },
  {
    id: 'timestamp-forms',
    group: 'time',
    severity: 'minor',
    sent: 'a valid signature with a rewritten timestamp: with a sign, a fraction, a leading zero or trailing letters',
    expected: 'all rejected',
    impact:
      'The timestamp is converted to a number and back before verification, so an altered delivery passes; other code that reads the header sees another time.',
    async run(context) {
      const { timestampName, isTimestampSigned, description } = context.scheme;
      if (!isTimestampSigned || timestampName === undefined) return notApplicable(NOT_IN_HEADER);
      if (description.timestamp === undefined || !TIMESTAMP_FORMATS[description.timestamp.unit].isNumber)
        return notApplicable(NO_NUMBER);
      const forms: readonly ((text: string) => string)[] = [
        (text) => `+${text}`,
        (text) => `${text}.0`,
        (text) => `0${text}`,
        (text) => `${text}junk`,
      ];
      const example = '170…';
      return expectRejected(context, ...forms.map((form) => rewrite(context, context.make({ label: form(example) }), form)));
    },
  },
];
