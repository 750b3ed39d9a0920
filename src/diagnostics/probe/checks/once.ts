/** Checks that an event which comes again is acknowledged, and handled once. */
import type { Milliseconds } from '../../../core/clock.ts';
import { withField } from '../anatomy.ts';
import { type Bench, type Delivery, isAccepted } from '../bench.ts';
import { type Check, describe, type Finding, notApplicable, type Sent, sendAll } from '../check.ts';

const AT_ONCE = 4;
/** Some senders allow a few seconds only. */
const RETRY_AFTER: Milliseconds = 10_000;
/** Come again later: for a sender each of these is no end. 409 is what the Idempotency-Key draft asks for. */
const LATER = new Set([409, 425, 503]);

/** What only the app can tell, or the count that the user has given. */
function handledOnce(bench: Bench, came: string, ids: readonly string[]): Finding {
  const { countHandled, anatomy } = bench;
  const { id, signed } = anatomy.description;
  if (id === undefined && signed.length === 0) return notApplicable(`${came}; this scheme has nothing to tell a repeat by`);
  if (countHandled === undefined) {
    return {
      verdict: 'look',
      came,
      advice: `look in your app: ${ids.join(' or ')} must have been handled once (--count lets the probe ask)`,
    };
  }
  const later = async (): Promise<Finding> => {
    let count = 0;
    for (const id of ids) count += await countHandled(id);
    const times = count === 1 ? 'once' : count === 0 ? 'never, though it was acknowledged' : `${count} times`;
    return { verdict: count === 1 ? 'holds' : 'fails', came: `${came}; handled ${times}` };
  };
  return { verdict: 'look', came, later };
}

function judgeRepeats(bench: Bench, sent: readonly Sent[]): Finding {
  const came = describe(sent);
  if (!sent.every(({ reply }) => isAccepted(reply))) return { verdict: 'fails', came };
  return handledOnce(bench, came, [...new Set(sent.map(({ delivery }) => delivery.id))]);
}

async function runConcurrently(bench: Bench): Promise<Finding> {
  const delivery = bench.make();
  const atOnce = await Promise.all(
    Array.from({ length: AT_ONCE }, async () => ({ delivery, reply: await bench.send(delivery, 'in') })),
  );
  const last = await sendAll(bench, [{ ...delivery, label: 'the one after' }], 'in');
  const sent = [...atOnce, ...last];
  const isSound = atOnce.every(({ reply }) => isAccepted(reply) || ('status' in reply && LATER.has(reply.status)));
  if (!isSound || !last.every(({ reply }) => isAccepted(reply))) return { verdict: 'fails', came: describe(sent) };
  return handledOnce(bench, describe(sent), [delivery.id]);
}

/** In the order of the report. */
export const ONCE_CHECKS: readonly Check[] = [
  {
    id: 'duplicate',
    group: 'once',
    severity: 'major',
    sent: 'one delivery twice, one after the other',
    expected: '2xx to both, handled once',
    cost: 'Senders repeat what they believe lost. An error makes them repeat it for days and can switch the endpoint off; handled twice, it charges twice.',
    async run(bench) {
      const delivery = bench.make({ label: 'the first' });
      return judgeRepeats(bench, await sendAll(bench, [delivery, { ...delivery, label: 'the second' }], 'in'));
    },
  },
  {
    id: 'retry',
    group: 'once',
    severity: 'major',
    sent: 'one event twice, the second time signed anew with a later time, as retries are',
    expected: '2xx to both, handled once',
    cost: 'What goes by the signature instead of the id takes every retry for another event, and handles it again.',
    async run(bench) {
      const { isTimestampSigned, description } = bench.anatomy;
      if (!isTimestampSigned) return notApplicable('this scheme signs no time, so retries are the same bytes');
      if (description.id === undefined)
        return notApplicable('this scheme has no id, so events signed at two times are two events');
      const first = bench.make({ label: 'the first', age: Math.min(RETRY_AFTER, bench.tolerance.past / 2) });
      return judgeRepeats(
        bench,
        await sendAll(bench, [first, bench.make({ label: 'the retry', id: first.id, body: () => first.body })], 'in'),
      );
    },
  },
  {
    id: 'concurrent-duplicates',
    group: 'once',
    severity: 'major',
    sent: `one delivery ${AT_ONCE} times at once, and once more after that`,
    expected: '2xx, or 409, 425 or 503 to those that came while it was at work; 2xx to the last; handled once',
    cost: 'Two replicas ask "seen before?" at the same moment and both hear no: the event is handled twice, or one of them fails on a unique key.',
    run: runConcurrently,
  },
  {
    id: 'new-id',
    group: 'once',
    severity: 'major',
    sent: 'one delivery twice, the second time under another id, which this scheme does not sign',
    expected: 'handled once',
    cost: 'The id stands outside the signature: one captured event can be replayed without end, each time under a fresh id.',
    async run(bench) {
      const { idName, isIdSigned } = bench.anatomy;
      if (idName === undefined || isIdSigned) return notApplicable('this scheme signs the id, or has no header for it');
      const first = bench.make({ label: 'the first' });
      const id = bench.make().id;
      const again: Delivery = { ...first, id, label: 'the other id', fields: withField(first.fields, idName, () => id) };
      const sent = [...(await sendAll(bench, [first], 'in')), ...(await sendAll(bench, [again], 'out'))];
      return handledOnce(bench, describe(sent), [first.id, id]);
    },
  },
];
