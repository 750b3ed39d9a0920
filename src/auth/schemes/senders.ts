/** How senders take an answer: what they send again, what they give up on, and what they take as the wish to hear no more. */
import type { RefusalCode } from '../../core/refusal.ts';
import { REFUSALS } from '../../core/refusal-catalogue.ts';

/** What is known of one sender; what its documents do not say is left out, and then counts as in Standard Webhooks. */
export interface SenderProfile {
  /** What counts as delivered; left out: any 2xx. */
  readonly acknowledgedBy?: readonly number[];
  /** What is sent again (429 counts as a server's error); left out: whatever is not delivered. */
  readonly retries?: 'failures' | 'server-errors' | 'nothing';
  /** Never sent again, whatever `retries` says. */
  readonly givesUpOn?: readonly number[];
  /** Taken as the wish to hear nothing any more. */
  readonly disabledBy?: readonly number[];
  /** How long it waits for the answer, in seconds. */
  readonly waitsSeconds?: number;
  /** How it sends again, and when it stops, in words. */
  readonly schedule?: string;
}

/** What the gate means by a refusal: the event is done, it can never be taken as it is, or it should come again. */
export type Meaning = 'done' | 'never' | 'later';

const SERVER_ERROR = 500;
const TOO_MANY = 429;
/** Of a client's error, those that time mends: RFC 9110 §15.5.9, RFC 6585 §4. */
const PASSING = new Set([408, TOO_MANY]);
/** In the order in which they are tried. */
const LATER_STATUSES = [503, 500, 502, 504, 429];
const NEVER_STATUSES = [400, 403, 422];

/** What a refusal means. */
export function toMeaning(code: RefusalCode): Meaning {
  const { status } = REFUSALS[code];
  if (status < 300) return 'done';
  return status >= SERVER_ERROR || PASSING.has(status) ? 'later' : 'never';
}

/** Whether the sender comes again after such an answer. */
export function isSentAgain({ retries, givesUpOn = [], disabledBy = [] }: SenderProfile, status: number): boolean {
  if (retries === 'nothing' || givesUpOn.includes(status) || disabledBy.includes(status)) return false;
  return retries !== 'server-errors' || status >= SERVER_ERROR || status === TOO_MANY;
}

/** Where the catalogue's status would tell this sender something else than the refusal means: the status that tells it. */
export function translate(profile: SenderProfile): ReadonlyMap<RefusalCode, number> {
  const found = new Map<RefusalCode, number>();
  for (const code of Object.keys(REFUSALS) as RefusalCode[]) {
    const { status } = REFUSALS[code];
    const needed = toNeeded(profile, toMeaning(code), status);
    if (needed !== undefined && needed !== status) found.set(code, needed);
  }
  return found;
}

function toNeeded(profile: SenderProfile, meaning: Meaning, status: number): number | undefined {
  const { acknowledgedBy, disabledBy = [] } = profile;
  if (meaning === 'done') return acknowledgedBy?.includes(status) === false ? acknowledgedBy[0] : status;
  if (meaning === 'never') return [status, ...NEVER_STATUSES].find((each) => !disabledBy.includes(each));
  return [status, ...LATER_STATUSES].find((each) => isSentAgain(profile, each));
}

/** What their documents say of the senders that have a preset. */
export const SENDERS: Readonly<Record<string, SenderProfile>> = {
  'standard-webhooks': { retries: 'failures', disabledBy: [410], waitsSeconds: 15, schedule: '10 attempts in 75 hours' },
  svix: {
    retries: 'failures',
    disabledBy: [410],
    waitsSeconds: 15,
    schedule: '8 attempts in 27 hours; disabled after five days of failures',
  },
  github: { retries: 'nothing', waitsSeconds: 10, schedule: 'never by itself; by hand or by its API' },
  stripe: { retries: 'failures', schedule: 'for three days, less and less often' },
  slack: { retries: 'failures', waitsSeconds: 3, schedule: 'at once, after 1 and after 5 minutes' },
  shopify: { waitsSeconds: 5, schedule: '8 times in 4 hours; then the subscription is deleted' },
  'shopify-events': { waitsSeconds: 5, schedule: '8 times in 4 hours; then the subscription is deleted' },
  twilio: { retries: 'nothing', schedule: 'never, unless the URL asks for it' },
  pagerduty: {
    retries: 'server-errors',
    waitsSeconds: 5,
    schedule: '4 times in 20 minutes; off for a day after 3 lost in a row',
  },
  linear: { waitsSeconds: 5, schedule: 'after 1 minute, 1 hour and 6 hours' },
  zoom: { acknowledgedBy: [200, 204], retries: 'failures', waitsSeconds: 3, schedule: 'after 5, 20 and 60 minutes' },
  paddle: { waitsSeconds: 5, schedule: '60 times in 3 days' },
  square: { schedule: 'for 24 hours; disabled after three weeks of failures' },
  gitlab: { retries: 'nothing', schedule: 'never; turned off for a while after 4 failures in a row, for good after 40' },
  sanity: { retries: 'server-errors', schedule: 'twice, 30 seconds apart' },
  discord: { acknowledgedBy: [204], waitsSeconds: 3, schedule: 'for 10 minutes; stopped after too many failures' },
  hubspot: { retries: 'server-errors' },
  twitch: { schedule: 'a few times; revoked after too many failures' },
  line: { schedule: 'only where redelivery is turned on; suspended after long failure' },
  woocommerce: { retries: 'nothing', schedule: 'never; disabled after 5 failures in a row' },
  x: { waitsSeconds: 10 },
  'aws-sns': { schedule: '3 times, 20 seconds apart, unless the subscription says otherwise; an hour at the most' },
  'microsoft-graph': { givesUpOn: [400, 401, 403, 413] },
};

/** The statuses that a preset's sender needs otherwise. */
export function toStatuses(preset: string): ReadonlyMap<RefusalCode, number> {
  return translate(SENDERS[preset] ?? {});
}
