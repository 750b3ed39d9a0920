/** How senders interpret response statuses: which they retry, which they give up on, and which disable the endpoint. */
import { REFUSALS, type RefusalCode } from '../../core/refusal.ts';
import { COMMERCE_PROFILES, type SenderProfile, TOOL_PROFILES } from './sender-profiles.ts';

/** The meaning of a refusal for the sender: the event is done, it can never be accepted, or the sender should retry later. */
export type Meaning = 'done' | 'never' | 'later';

const SERVER_ERROR = 500;
const TOO_MANY = 429;
/** The client errors that a retry can resolve: RFC 9110 §15.5.9, RFC 6585 §4. */
const TEMPORARY = new Set([408, TOO_MANY]);
/** In order of preference. */
const LATER_STATUSES = [503, 500, 502, 504, 429];
const NEVER_STATUSES = [400, 403, 422];

/** The meaning of a refusal. */
export function toMeaning(code: RefusalCode): Meaning {
  const { status } = REFUSALS[code];
  if (status < 300) return 'done';
  return status >= SERVER_ERROR || TEMPORARY.has(status) ? 'later' : 'never';
}

/** Whether the sender retries after a response with this status. */
export function isRetried({ retries, givesUpOn = [], disabledBy = [] }: SenderProfile, status: number): boolean {
  if (retries === 'nothing' || givesUpOn.includes(status) || disabledBy.includes(status)) return false;
  return retries !== 'server-errors' || status >= SERVER_ERROR || status === TOO_MANY;
}

/** The refusals whose status in the catalogue this sender would misinterpret, with the status to use instead. */
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
  return [status, ...LATER_STATUSES].find((each) => isRetried(profile, each));
}

const EVENT_GRID: SenderProfile = {
  acknowledgedBy: [200, 201, 202, 203, 204],
  givesUpOn: [400, 401, 403, 413],
  waitsSeconds: 30,
  schedule: 'for 24 hours by default, at first after 10 and 30 seconds, 1, 5, 10 and 30 minutes',
};

/** The documented behavior of senders with a preset. */
export const SENDERS: Readonly<Record<string, SenderProfile>> = {
  'standard-webhooks': { retries: 'failures', disabledBy: [410], waitsSeconds: 15, schedule: '10 attempts in 75 hours' },
  svix: {
    retries: 'failures',
    disabledBy: [410],
    waitsSeconds: 15,
    schedule: '8 attempts in 27 hours; disabled after five days of failures',
  },
  github: { retries: 'nothing', waitsSeconds: 10, schedule: 'no automatic retries; only manually or through the API' },
  stripe: { retries: 'failures', schedule: 'for three days, with increasing intervals' },
  slack: { retries: 'failures', waitsSeconds: 3, schedule: 'immediately, after 1 minute and after 5 minutes' },
  shopify: { waitsSeconds: 5, schedule: '8 times in 4 hours; then the subscription is deleted' },
  'shopify-events': { waitsSeconds: 5, schedule: '8 times in 4 hours; then the subscription is deleted' },
  twilio: { retries: 'nothing', waitsSeconds: 15, schedule: 'never, unless the URL requests it' },
  pagerduty: {
    retries: 'server-errors',
    waitsSeconds: 5,
    schedule: '4 times in 20 minutes; disabled for a day after 3 consecutive lost events',
  },
  linear: { waitsSeconds: 5, schedule: 'after 1 minute, 1 hour and 6 hours' },
  zoom: { acknowledgedBy: [200, 204], retries: 'failures', waitsSeconds: 3, schedule: 'after 5, 20 and 60 minutes' },
  paddle: { acknowledgedBy: [200], waitsSeconds: 5, schedule: '60 times in 3 days, with increasing intervals' },
  square: { schedule: 'for 24 hours; disabled after three weeks of failures' },
  gitlab: { retries: 'nothing', schedule: 'never; disabled temporarily after 4 consecutive failures, permanently after 40' },
  sanity: { retries: 'server-errors', schedule: 'twice, 30 seconds apart' },
  discord: { acknowledgedBy: [204], waitsSeconds: 3, schedule: 'for 10 minutes; disabled after too many failures' },
  hubspot: { retries: 'server-errors' },
  twitch: { schedule: 'a few times; revoked after too many failures' },
  line: { schedule: 'only if redelivery is enabled; suspended after failing for a long time' },
  woocommerce: { retries: 'nothing', schedule: 'never; disabled after 5 consecutive failures' },
  x: { waitsSeconds: 10 },
  'aws-sns': { schedule: '3 times, 20 seconds apart, unless the subscription says otherwise; at most an hour' },
  'adyen-payments': {
    waitsSeconds: 10,
    schedule: 'for 30 days: after 2, 5, 10, 15 and 30 minutes, 1, 2 and 4 hours, then every 8 hours',
  },
  'azure-event-grid': EVENT_GRID,
  'azure-event-grid-cloudevents': EVENT_GRID,
  box: { waitsSeconds: 30, schedule: 'up to 10 times' },
  contentful: { retries: 'server-errors', waitsSeconds: 30, schedule: 'twice' },
  mailgun: {
    acknowledgedBy: [200],
    retries: 'failures',
    givesUpOn: [406],
    schedule: 'after 5, 10 and 15 minutes, 1, 2 and 4 hours; the event `delivered` is not retried',
  },
  'dropbox-sign': { acknowledgedBy: [200], acknowledgement: 'Hello API Event Received', schedule: 'for three days' },
  'microsoft-graph': { givesUpOn: [400, 401, 403, 413] },
  wise: { waitsSeconds: 5, schedule: 'at most 25 times in two weeks' },
  paypal: { schedule: 'at most 25 times in 3 days' },
  'paypal-sandbox': { schedule: 'at most 25 times in 3 days' },
  'google-pubsub': {
    acknowledgedBy: [200, 201, 202, 204],
    schedule: 'until the message expires, 7 days by default, with a backoff',
  },
  plaid: {
    acknowledgedBy: [200],
    waitsSeconds: 10,
    schedule: 'for 24 hours, at first after 30 seconds, then each time after four times as long',
  },
  wix: { acknowledgedBy: [200], waitsSeconds: 1.25, schedule: 'for 2 days' },
  'apple-app-store': { schedule: 'after 1, 12, 24, 48 and 72 hours' },
  ...COMMERCE_PROFILES,
  ...TOOL_PROFILES,
};

const ACCEPTED = 202;

/** The status by which a preset's sender learns that its delivery is stored but not handled yet: 202, unless it counts that as a failure. */
export function toAcceptedStatus(preset: string): number {
  const { acknowledgedBy = [ACCEPTED] } = SENDERS[preset] ?? {};
  return acknowledgedBy.includes(ACCEPTED) ? ACCEPTED : (acknowledgedBy[0] ?? ACCEPTED);
}

/** The text by which a preset's sender learns that an event needs no retry; undefined if the status is enough. */
export function toAcknowledgement(preset: string): string | undefined {
  return SENDERS[preset]?.acknowledgement;
}

/** The statuses that a preset's sender needs instead of those in the catalogue. */
export function toStatuses(preset: string): ReadonlyMap<RefusalCode, number> {
  return translate(SENDERS[preset] ?? {});
}
