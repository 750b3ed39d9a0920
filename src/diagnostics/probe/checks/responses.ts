/** Checks of the responses to the other checks: their status, their time, and what they reveal. */
import type { Milliseconds } from '../../../core/clock.ts';
import {
  type Check,
  type CheckContext,
  type CheckFinding,
  expectAccepted,
  isAccepted,
  type Leak,
  type ProbeExchange,
} from '../check.ts';
import type { ProbeResponse } from '../client.ts';

/** The shortest timeout that Standard Webhooks recommends to senders. */
const RECOMMENDED_TIMEOUT_MS: Milliseconds = 15_000;
/** Senders with a shorter timeout. */
const SHORT_TIMEOUTS: readonly (readonly [limit: Milliseconds, senders: string])[] = [
  [1_000, 'Sentry'],
  [3_000, 'Slack and Zoom'],
  [5_000, 'Shopify, Linear and Paddle'],
  [10_000, 'GitHub'],
];
/** Response headers that Svix and Slack obey. */
const COMMANDS = ['webhook-delivery', 'x-slack-no-retry'];

interface Answered extends ProbeExchange {
  readonly reply: ProbeResponse;
}

function findAnswered({ exchanges }: CheckContext): Answered[] {
  return exchanges.filter((exchange): exchange is Answered => 'status' in exchange.reply);
}

/** Fails if something was found, and lists the checks that found it. */
function evaluate(found: readonly ProbeExchange[], what: (exchange: ProbeExchange) => string, otherwise: string): CheckFinding {
  if (found.length === 0) return { outcome: 'passed', actual: otherwise };
  const places = new Map<string, Set<string>>();
  for (const exchange of found) {
    const key = what(exchange);
    places.set(key, (places.get(key) ?? new Set()).add(exchange.checkId));
  }
  return { outcome: 'failed', actual: [...places].map(([key, checks]) => `${key} (${[...checks].join(', ')})`).join('; ') };
}

function evaluateLeaks(context: CheckContext, leaks: Readonly<Partial<Record<Leak, string>>>): CheckFinding {
  const found = findAnswered(context).filter((exchange) => exchange.leaks.some((leak) => leak in leaks));
  return evaluate(found, (exchange) => exchange.leaks.flatMap((leak) => leaks[leak] ?? []).join(' and '), 'no response does');
}

/** The first delivery was sent alone, so its time does not depend on the others. */
function findFirstTime(context: CheckContext): Milliseconds | undefined {
  const first = findAnswered(context)[0];
  return first !== undefined && isAccepted(first.reply) ? first.reply.durationMs : undefined;
}

function toSeconds(time: Milliseconds): string {
  return time < 1000 ? `${Math.ceil(time)} ms` : `${(time / 1000).toFixed(1)} s`;
}

function evaluateTime(context: CheckContext, limit: Milliseconds): CheckFinding {
  const time = findFirstTime(context);
  if (time === undefined) return { outcome: 'skipped', actual: 'no valid delivery was accepted' };
  const timedOut = SHORT_TIMEOUTS.filter(([timeout]) => time > timeout).flatMap(([, senders]) => senders);
  const actual = `a response after ${toSeconds(time)}`;
  if (time <= limit) return { outcome: 'passed', actual };
  return { outcome: 'failed', actual, ...(timedOut.length > 0 && { advice: `too late for: ${timedOut.join(', ')}` }) };
}

const STRICT_TIMEOUT_MS: Milliseconds = 3_000;

/** Checks of the time, the status and the headers of responses. */
const STATUS_CHECKS: readonly Check[] = [
  {
    id: 'answer-time',
    group: 'responses',
    severity: 'major',
    sent: 'the first valid delivery, alone',
    expected: 'a response within 15 s',
    impact:
      'The sender times out and retries while the app is still handling the first attempt: the load doubles when it is highest.',
    isLast: true,
    run: async (context) => evaluateTime(context, RECOMMENDED_TIMEOUT_MS),
  },
  {
    id: 'answer-time-strict',
    group: 'responses',
    severity: 'minor',
    sent: 'the same delivery',
    expected: 'a response within 3 s',
    impact:
      'Slack and Zoom time out after 3 s, Shopify, Linear and Paddle after 5 s, GitHub after 10 s without a retry: acknowledge first, then process.',
    isLast: true,
    run: async (context) => evaluateTime(context, STRICT_TIMEOUT_MS),
  },
  {
    id: 'redirect',
    group: 'responses',
    severity: 'major',
    sent: 'all of the above',
    expected: 'no response is a redirect (3xx)',
    impact: 'Senders do not follow redirects, or lose the body: register the final URL, with https and any trailing slash.',
    isLast: true,
    run: async (context) =>
      evaluate(
        findAnswered(context).filter(({ reply }) => reply.status >= 300 && reply.status < 400),
        ({ reply }) => ('status' in reply ? String(reply.status) : ''),
        'no response is',
      ),
  },
  {
    id: 'refusal-status',
    group: 'responses',
    severity: 'major',
    sent: 'everything that must be rejected, except for another ID',
    expected: 'a 4xx status other than 410 each time',
    impact:
      'A 5xx makes senders retry invalid requests for days, and shows that the code threw an exception. On 410, senders disable the endpoint.',
    isLast: true,
    run: async (context) =>
      evaluate(
        findAnswered(context).filter(
          ({ reply, expects, checkId }) =>
            // A signed body under another ID may be another event: it may be sent again.
            expects === 'reject' && checkId !== 'new-id' && (reply.status >= 500 || reply.status === 410),
        ),
        ({ reply }) => ('status' in reply ? String(reply.status) : ''),
        'no rejection has another status',
      ),
  },
  {
    id: 'sender-commands',
    group: 'responses',
    severity: 'minor',
    sent: 'all of the above',
    expected: `no response has the header ${COMMANDS.join(' or ')}`,
    impact:
      'Some senders obey these headers: if an attacker can inject response headers into the app, they can disable its deliveries.',
    isLast: true,
    run: async (context) =>
      evaluate(
        findAnswered(context).filter(({ reply }) => COMMANDS.some((name) => name in reply.headers)),
        ({ reply }) => COMMANDS.filter((name) => 'headers' in reply && name in reply.headers).join(' and '),
        'no response has',
      ),
  },
];

/** In the order of the report. */
export const RESPONSE_CHECKS: readonly Check[] = [
  {
    id: 'survives',
    group: 'responses',
    severity: 'critical',
    sent: 'a valid delivery after all others',
    expected: '2xx',
    impact: 'One malformed request crashes the process or breaks later requests: anyone can take the endpoint down.',
    isLast: true,
    run: (context) => expectAccepted(context, context.make()),
  },
  ...STATUS_CHECKS,
  {
    id: 'reveals-signature',
    group: 'responses',
    severity: 'critical',
    sent: 'all of the above',
    expected: 'no response contains the secret or the correct signature',
    impact: 'An error message such as "expected …, got …" reveals the correct signature: an attacker resends any event with it.',
    isLast: true,
    run: async (context) => evaluateLeaks(context, { signature: 'the correct signature', secret: 'the secret' }),
  },
  {
    id: 'reveals-code',
    group: 'responses',
    severity: 'minor',
    sent: 'all of the above',
    expected: 'no response contains a stack trace',
    impact:
      'File names and versions help attackers, and show that the code threw an exception where it should have rejected the request.',
    isLast: true,
    run: async (context) => evaluateLeaks(context, { trace: 'a stack trace' }),
  },
];
