/** Checks that repeated events are acknowledged, and handled once. */
import type { Milliseconds } from '../../../core/clock.ts';
import {
  type Check,
  type CheckContext,
  type CheckFinding,
  describeReplies,
  isAccepted,
  notApplicable,
  type ProbeDelivery,
  type Sent,
  sendAll,
} from '../check.ts';
import { withField } from '../probed-scheme.ts';

const CONCURRENT = 4;
/** Some senders have a tolerance of only a few seconds. */
const RETRY_AFTER_MS: Milliseconds = 10_000;
/** Senders retry after these; the Idempotency-Key draft requires 409. */
const RETRYABLE = new Set([409, 425, 503]);

/** Decides by the count of the user's command; without one, only the app knows. */
function handledOnce(context: CheckContext, actual: string, ids: readonly string[]): CheckFinding {
  const { countHandled, scheme } = context;
  const { id, signed } = scheme.description;
  if (id === undefined && signed.length === 0)
    return notApplicable(`${actual}; this scheme has nothing that identifies a repeat`);
  if (countHandled === undefined) {
    return {
      outcome: 'see',
      actual,
      advice: `see in your app whether ${ids.join(' or ')} was handled exactly once (--count automates this)`,
    };
  }
  const later = async (): Promise<CheckFinding> => {
    let count = 0;
    for (const id of ids) count += await countHandled(id);
    const times = count === 1 ? 'once' : count === 0 ? 'never, although it was acknowledged' : `${count} times`;
    return { outcome: count === 1 ? 'passed' : 'failed', actual: `${actual}; handled ${times}` };
  };
  return { outcome: 'see', actual, later };
}

function evaluateRepeats(context: CheckContext, sent: readonly Sent[]): CheckFinding {
  const actual = describeReplies(sent);
  if (!sent.every(({ reply }) => isAccepted(reply))) return { outcome: 'failed', actual };
  return handledOnce(context, actual, [...new Set(sent.map(({ delivery }) => delivery.id))]);
}

async function runConcurrently(context: CheckContext): Promise<CheckFinding> {
  const delivery = context.make();
  const concurrent = await Promise.all(
    Array.from({ length: CONCURRENT }, async () => ({ delivery, reply: await context.send(delivery, 'accept') })),
  );
  const last = await sendAll(context, [{ ...delivery, label: 'the last one' }], 'accept');
  const sent = [...concurrent, ...last];
  const areAllowed = concurrent.every(({ reply }) => isAccepted(reply) || ('status' in reply && RETRYABLE.has(reply.status)));
  if (!areAllowed || !last.every(({ reply }) => isAccepted(reply))) return { outcome: 'failed', actual: describeReplies(sent) };
  return handledOnce(context, describeReplies(sent), [delivery.id]);
}

/** In the order of the report. */
export const ONCE_CHECKS: readonly Check[] = [
  {
    id: 'duplicate',
    group: 'once',
    severity: 'major',
    sent: 'the same delivery twice in sequence',
    expected: '2xx to both, handled once',
    impact:
      'Senders repeat events that they consider lost. If the response is an error, they retry for days and may disable the endpoint; if the event is handled twice, it charges twice.',
    async run(context) {
      const delivery = context.make({ label: 'the first' });
      return evaluateRepeats(context, await sendAll(context, [delivery, { ...delivery, label: 'the second' }], 'accept'));
    },
  },
  {
    id: 'retry',
    group: 'once',
    severity: 'major',
    sent: 'the same event twice, the second time with a later timestamp and a new signature, like a retry',
    expected: '2xx to both, handled once',
    impact: 'Deduplication by signature instead of ID treats every retry as another event, and handles it again.',
    async run(context) {
      const { isTimestampSigned, description } = context.scheme;
      if (!isTimestampSigned) return notApplicable('this scheme signs no timestamp, so retries have the same bytes');
      if (description.id === undefined) return notApplicable('this scheme has no ID, so a new timestamp means a new event');
      const first = context.make({ label: 'the first', age: Math.min(RETRY_AFTER_MS, context.tolerance.past / 2) });
      return evaluateRepeats(
        context,
        await sendAll(context, [first, context.make({ label: 'the retry', id: first.id, body: () => first.body })], 'accept'),
      );
    },
  },
  {
    id: 'concurrent-duplicates',
    group: 'once',
    severity: 'major',
    sent: `the same delivery ${CONCURRENT} times concurrently, and once more afterwards`,
    expected:
      '2xx to all, or 409, 425 or 503 to those that arrive while the first is being handled; 2xx to the last; handled once',
    impact:
      'Two replicas check for a duplicate at the same moment and find none: the event is handled twice, or one of them fails on a unique key.',
    run: runConcurrently,
  },
  {
    id: 'new-id',
    group: 'once',
    severity: 'major',
    sent: 'the same delivery twice, the second time with another ID, which this scheme does not sign',
    expected: 'handled once',
    impact: 'The signature does not cover the ID: a captured event can be replayed forever, each time with a new ID.',
    async run(context) {
      const { idName, isIdSigned } = context.scheme;
      if (idName === undefined || isIdSigned) return notApplicable('this scheme signs the ID, or has no header for it');
      const first = context.make({ label: 'the first' });
      const id = context.make().id;
      const again: ProbeDelivery = { ...first, id, label: 'the other ID', fields: withField(first.fields, idName, () => id) };
      const sent = [...(await sendAll(context, [first], 'accept')), ...(await sendAll(context, [again], 'reject'))];
      return handledOnce(context, describeReplies(sent), [first.id, id]);
    },
  },
];
