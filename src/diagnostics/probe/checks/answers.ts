/** Checks of the answers that the other checks got: their status, their time, and what they give away. */
import type { Milliseconds } from '../../../core/clock.ts';
import { type Bench, type Exchange, isAccepted, type Leak } from '../bench.ts';
import { type Check, expectAccepted, type Finding } from '../check.ts';
import type { Answer } from '../client.ts';

/** The shortest that a Standard Webhooks sender should wait. */
const PATIENT: Milliseconds = 15_000;
/** Senders that wait less. */
const IMPATIENT: readonly (readonly [limit: Milliseconds, senders: string])[] = [
  [1_000, 'Sentry'],
  [3_000, 'Slack and Zoom'],
  [5_000, 'Shopify, Linear and Paddle'],
  [10_000, 'GitHub'],
];
/** Read by Svix and by Slack from what a receiver answers. */
const COMMANDS = ['webhook-delivery', 'x-slack-no-retry'];

interface Answered extends Exchange {
  readonly reply: Answer;
}

function findAnswered({ exchanges }: Bench): Answered[] {
  return exchanges.filter((exchange): exchange is Answered => 'status' in exchange.reply);
}

/** Which checks saw it. */
function judge(found: readonly Exchange[], what: (exchange: Exchange) => string, otherwise: string): Finding {
  if (found.length === 0) return { verdict: 'holds', came: otherwise };
  const places = new Map<string, Set<string>>();
  for (const exchange of found) {
    const key = what(exchange);
    places.set(key, (places.get(key) ?? new Set()).add(exchange.checkId));
  }
  return { verdict: 'fails', came: [...places].map(([key, checks]) => `${key} (${[...checks].join(', ')})`).join('; ') };
}

function judgeLeaks(bench: Bench, leaks: Readonly<Partial<Record<Leak, string>>>): Finding {
  const found = findAnswered(bench).filter((exchange) => exchange.leaks.some((leak) => leak in leaks));
  return judge(
    found,
    (exchange) => exchange.leaks.flatMap((leak) => leaks[leak] ?? []).join(' and '),
    'nothing of the kind in any answer',
  );
}

/** The first delivery was sent alone, before all others: its time is the endpoint's own. */
function findFirstTime(bench: Bench): Milliseconds | undefined {
  const first = findAnswered(bench)[0];
  return first !== undefined && isAccepted(first.reply) ? first.reply.durationMs : undefined;
}

function toSeconds(time: Milliseconds): string {
  return time < 1000 ? `${Math.ceil(time)} ms` : `${(time / 1000).toFixed(1)} s`;
}

function judgeTime(bench: Bench, limit: Milliseconds): Finding {
  const time = findFirstTime(bench);
  if (time === undefined) return { verdict: 'skipped', came: 'no genuine delivery was accepted' };
  const gone = IMPATIENT.filter(([patience]) => time > patience).flatMap(([, senders]) => senders);
  const came = `an answer after ${toSeconds(time)}`;
  if (time <= limit) return { verdict: 'holds', came };
  return { verdict: 'fails', came, ...(gone.length > 0 && { advice: `no longer waiting by then: ${gone.join(', ')}` }) };
}

const STRICT: Milliseconds = 3_000;

/** What senders do on an answer. */
const STATUS_CHECKS: readonly Check[] = [
  {
    id: 'answer-time',
    group: 'answers',
    severity: 'major',
    sent: 'the first genuine delivery, alone',
    expected: 'an answer within 15 s',
    cost: 'Senders take a late answer for none and send the event again, while the first run is still at work: load doubles when it is highest.',
    isLast: true,
    run: async (bench) => judgeTime(bench, PATIENT),
  },
  {
    id: 'answer-time-strict',
    group: 'answers',
    severity: 'minor',
    sent: 'the same',
    expected: 'an answer within 3 s',
    cost: 'Slack and Zoom wait 3 s, Shopify, Linear and Paddle 5 s, GitHub 10 s and never tries again: acknowledge first, work afterwards.',
    isLast: true,
    run: async (bench) => judgeTime(bench, STRICT),
  },
  {
    id: 'redirect',
    group: 'answers',
    severity: 'major',
    sent: 'all of the above',
    expected: 'no answer is a redirect (3xx)',
    cost: 'Senders do not follow redirects, or lose the content on the way: register the URL that answers, with its slash and https.',
    isLast: true,
    run: async (bench) =>
      judge(
        findAnswered(bench).filter(({ reply }) => reply.status >= 300 && reply.status < 400),
        ({ reply }) => ('status' in reply ? String(reply.status) : ''),
        'none was',
      ),
  },
  {
    id: 'refusal-status',
    group: 'answers',
    severity: 'major',
    sent: 'all that was to be refused',
    expected: 'a 4xx other than 410 each time',
    cost: 'A 5xx says "come again": forgeries and broken entries are retried for days, and show that code threw. 410 says "never again": senders switch the endpoint off.',
    isLast: true,
    run: async (bench) =>
      judge(
        findAnswered(bench).filter(({ reply, expects }) => expects === 'out' && (reply.status >= 500 || reply.status === 410)),
        ({ reply }) => ('status' in reply ? String(reply.status) : ''),
        'no refusal was any other',
      ),
  },
  {
    id: 'sender-commands',
    group: 'answers',
    severity: 'minor',
    sent: 'all of the above',
    expected: `no answer has ${COMMANDS.join(' or ')}`,
    cost: 'Some senders obey these headers: an app that lets others write its headers can be made to switch its own deliveries off.',
    isLast: true,
    run: async (bench) =>
      judge(
        findAnswered(bench).filter(({ reply }) => COMMANDS.some((name) => name in reply.headers)),
        ({ reply }) => COMMANDS.filter((name) => 'headers' in reply && name in reply.headers).join(' and '),
        'none had',
      ),
  },
];

/** In the order of the report. */
export const ANSWER_CHECKS: readonly Check[] = [
  {
    id: 'survives',
    group: 'answers',
    severity: 'critical',
    sent: 'a genuine delivery after all others',
    expected: '2xx',
    cost: 'One malformed request ends the process, or spoils it for the next: anybody can switch the endpoint off.',
    isLast: true,
    run: (bench) => expectAccepted(bench, bench.make()),
  },
  ...STATUS_CHECKS,
  {
    id: 'reveals-signature',
    group: 'answers',
    severity: 'critical',
    sent: 'all of the above',
    expected: 'no answer holds the secret, or the signature that would have been right',
    cost: 'An error text such as "expected …, got …" signs any event for anybody: they send it once more with what they were told.',
    isLast: true,
    run: async (bench) => judgeLeaks(bench, { signature: 'the right signature', secret: 'the secret' }),
  },
  {
    id: 'reveals-code',
    group: 'answers',
    severity: 'minor',
    sent: 'all of the above',
    expected: 'no answer holds a stack trace',
    cost: 'File names and versions tell strangers where to look next, and show that code threw where it should have refused.',
    isLast: true,
    run: async (bench) => judgeLeaks(bench, { trace: 'a stack trace' }),
  },
];
