/** Checks of what the timestamp is held to. */
import type { Milliseconds } from '../../../core/clock.ts';
import { withField } from '../anatomy.ts';
import type { Bench, Delivery } from '../bench.ts';
import { type Check, expectAccepted, expectRefused, type Finding, notApplicable } from '../check.ts';

const UNSIGNED = 'this scheme signs no time';
const NOT_IN_HEADER = 'this scheme has no signed time in a header';
const NO_NUMBER = 'this scheme signs no time in seconds or milliseconds';
/** Clocks differ: what lies so far beyond the tolerance is outside for everybody. */
const CLEARLY: Milliseconds = 60_000;

/** Writes the timestamp otherwise, and leaves the signature. */
function rewrite(bench: Bench, delivery: Delivery, change: (text: string) => string): Delivery {
  const { timestampName, toTimeText } = bench.anatomy;
  const text = toTimeText(delivery.timestamp);
  return { ...delivery, fields: withField(delivery.fields, timestampName, (value) => value.replace(text, () => change(text))) };
}

function refuseAt(toAge: (bench: Bench) => Milliseconds) {
  return async (bench: Bench): Promise<Finding> =>
    bench.anatomy.isTimestampSigned ? expectRefused(bench, bench.make({ age: toAge(bench) })) : notApplicable(UNSIGNED);
}

/** In the order of the report. */
export const TIME_CHECKS: readonly Check[] = [
  {
    id: 'stale',
    group: 'time',
    severity: 'major',
    sent: 'a genuine signature from a minute before the tolerance',
    expected: 'a refusal',
    cost: 'Whoever ever saw one delivery, in a log or a proxy, can send it again years later, once its id is forgotten.',
    run: refuseAt(({ tolerance }) => tolerance.past + CLEARLY),
  },
  {
    id: 'future',
    group: 'time',
    severity: 'major',
    sent: 'a genuine signature with a time beyond the tolerance ahead',
    expected: 'a refusal',
    cost: 'One event signed with a time far ahead, by a sender whose clock was wrong, can be replayed until that time comes.',
    run: refuseAt(({ tolerance }) => -tolerance.future - CLEARLY),
  },
  {
    id: 'skewed',
    group: 'time',
    severity: 'minor',
    sent: 'genuine signatures with times half the tolerance ago, and half of it ahead',
    expected: '2xx to both',
    cost: "The sender's queue is late or clocks drift apart by a little, and genuine events are refused.",
    async run(bench) {
      const { isTimestampSigned } = bench.anatomy;
      const { past, future } = bench.tolerance;
      if (!isTimestampSigned) return notApplicable(UNSIGNED);
      return expectAccepted(
        bench,
        bench.make({ label: 'the past', age: past / 2 }),
        bench.make({ label: 'the future', age: -future / 2 }),
      );
    },
  },
  {
    id: 'renewed-timestamp',
    group: 'time',
    severity: 'critical',
    sent: 'an old signature under the present time',
    expected: 'a refusal',
    cost: 'The time is read but not part of what is verified: replays only have to write a new one.',
    async run(bench) {
      const { isTimestampSigned, timestampName, toTimeText } = bench.anatomy;
      if (!isTimestampSigned || timestampName === undefined) return notApplicable(NOT_IN_HEADER);
      const old = bench.make({ age: bench.tolerance.past + CLEARLY });
      const now = bench.now();
      return expectRefused(bench, { ...rewrite(bench, old, () => toTimeText(now)), timestamp: now });
    },
  },
  {
    id: 'timestamp-unit',
    group: 'time',
    severity: 'minor',
    sent: 'a genuine signature with the time in the other unit, seconds or milliseconds',
    expected: 'a refusal',
    cost: 'Read in the wrong unit, a time lies thousands of years ahead or decades back; what accepts it has no bound to that side.',
    async run(bench) {
      const unit = bench.anatomy.description.timestamp?.unit;
      if (!bench.anatomy.isTimestampSigned || unit === undefined || unit === 'rfc3339') return notApplicable(NO_NUMBER);
      const now = bench.now();
      return expectRefused(bench, bench.make({ timestamp: unit === 's' ? now * 1000 : Math.floor(now / 1000) }));
    },
  },
  {
    id: 'timestamp-forms',
    group: 'time',
    severity: 'minor',
    sent: 'a genuine signature with its time rewritten: with a sign, a fraction, a zero or letters more',
    expected: 'refusals',
    cost: 'The time is made into a number and back before it is verified, so a delivery can be altered and still pass; what else reads the header sees another time.',
    async run(bench) {
      const { timestampName, isTimestampSigned, description } = bench.anatomy;
      if (!isTimestampSigned || timestampName === undefined) return notApplicable(NOT_IN_HEADER);
      if (description.timestamp?.unit === 'rfc3339') return notApplicable(NO_NUMBER);
      const forms: readonly ((text: string) => string)[] = [
        (text) => `+${text}`,
        (text) => `${text}.0`,
        (text) => `0${text}`,
        (text) => `${text}junk`,
      ];
      const example = '170…';
      return expectRefused(bench, ...forms.map((form) => rewrite(bench, bench.make({ label: form(example) }), form)));
    },
  },
];
