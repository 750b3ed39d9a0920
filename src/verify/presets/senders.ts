/** How senders interpret response statuses, as they document it: which they retry, which they give up on, and which disable the endpoint. */
import { REFUSALS, type RefusalCode } from '../../core/refusal.ts';

/** Documented behavior of one sender. Properties that its documentation omits are undefined, and treated as in Standard Webhooks. */
export interface SenderProfile {
  /** Statuses that count as delivered. Default: any 2xx. */
  readonly acknowledgedBy?: readonly number[];
  /** The text of a response without which the sender does not count a delivery as delivered. If it is empty, no response may have content. */
  readonly acknowledgement?: string;
  /** Which failures are retried (429 counts as a server error). Default: everything that was not delivered. */
  readonly retries?: 'failures' | 'server-errors' | 'nothing';
  /** Statuses that are never retried, regardless of `retries`. */
  readonly givesUpOn?: readonly number[];
  /** Statuses that disable the endpoint. */
  readonly disabledBy?: readonly number[];
  /** How long the sender waits for the response, in seconds. */
  readonly waitsSeconds?: number;
  /** Retry schedule, in words. */
  readonly schedule?: string;
}

/** The meaning of a refusal for the sender: the event is done, it can never be accepted, or the sender should retry later. */
type Meaning = 'done' | 'never' | 'later';

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

const [OK, ACCEPTED] = [200, 202];

/**
 * The status by which a sender learns that its delivery is stored but not handled yet: 202, unless it counts that as a failure; 200 if nothing is
 * known of it.
 */
export function toAcceptedStatus(scheme: string): number {
  const { acknowledgedBy = [ACCEPTED] } = SENDERS[scheme] ?? (scheme === 'custom' ? {} : { acknowledgedBy: [OK] });
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

// The documented behavior of senders. Senders whose documents say nothing are not listed.

/** Senders whose webhooks Svix delivers. */
const SVIX: SenderProfile = {
  retries: 'failures',
  disabledBy: [410],
  waitsSeconds: 15,
  schedule: '8 attempts in 27 hours; disabled after five days of failures',
};
const FORGE: SenderProfile = {
  retries: 'nothing',
  waitsSeconds: 5,
  schedule: 'no automatic retries; only manually',
};
/** 429 is a client error for these. */
const NOT_429 = [429];

/** Of the presets of code-hosting.ts, header-tokens.ts, media-and-voice.ts, svix-senders.ts and work-tools.ts. */
const TOOL_PROFILES: Readonly<Record<string, SenderProfile>> = {
  jira: { retries: 'server-errors', schedule: '5 times, 5 to 15 minutes apart' },
  bitbucket: { retries: 'server-errors', givesUpOn: NOT_429, waitsSeconds: 10, schedule: 'twice' },
  gitea: FORGE,
  forgejo: FORGE,
  gogs: { retries: 'nothing', schedule: FORGE.schedule ?? '' },
  vercel: { retries: 'failures', waitsSeconds: 30, schedule: 'for 24 hours, with increasing intervals' },
  sentry: {
    retries: 'server-errors',
    givesUpOn: NOT_429,
    waitsSeconds: 1,
    schedule: '3 times, 5 minutes apart, for published apps; disabled after repeated failures',
  },
  sonarqube: { waitsSeconds: 10 },
  tailscale: { retries: 'failures', schedule: 'with increasing intervals; later events wait' },
  openai: { retries: 'failures', schedule: 'for 72 hours, with increasing intervals' },
  clerk: SVIX,
  resend: SVIX,
  'incident-io': SVIX,
  lithic: SVIX,
  stytch: SVIX,
  supabase: {
    acknowledgedBy: [200, 202, 204],
    retries: 'server-errors',
    givesUpOn: [500, 502, 504, 508],
    waitsSeconds: 5,
    schedule: 'up to 3 times within the 5 seconds',
  },
  replicate: { schedule: 'only the final event, for about a minute' },
  notion: { retries: 'failures', schedule: '8 times in 24 hours' },
  asana: {
    acknowledgedBy: [200, 204],
    retries: 'failures',
    disabledBy: [410],
    waitsSeconds: 10,
    schedule: 'for 24 hours, with increasing intervals; then the webhook is deleted',
  },
  trello: {
    retries: 'failures',
    disabledBy: [410],
    schedule: 'after 30, 60 and 120 seconds; disabled after 30 days of failures',
  },
  // 200 also counts, but only without a body.
  airtable: {
    acknowledgedBy: [204],
    retries: 'failures',
    waitsSeconds: 25,
    schedule: '13 times in about a day; then notifications are disabled',
  },
  todoist: { acknowledgedBy: [200], schedule: '3 times, 15 minutes apart' },
  monday: { acknowledgedBy: [200], waitsSeconds: 180, schedule: 'every minute, for 30 minutes' },
  ringcentral: { acknowledgedBy: [200], waitsSeconds: 3, schedule: 'suspended after failures' },
  clickup: { disabledBy: [410], waitsSeconds: 7, schedule: '5 attempts; suspended after 100 failed events' },
  circleci: { retries: 'failures', waitsSeconds: 10 },
  elevenlabs: {
    acknowledgedBy: [200],
    schedule: 'never, unless retries are enabled; disabled after 10 consecutive failures without a success in 7 days',
  },
  greenhouse: {
    acknowledgedBy: [200],
    schedule: '6 times in 15 hours, with increasing intervals; disabled if the ping after a change of the webhook fails',
  },
  segment: { retries: 'server-errors', schedule: '9 times in 4 hours' },
  nylas: {
    acknowledgedBy: [200],
    retries: 'server-errors',
    givesUpOn: [500, 508],
    waitsSeconds: 10,
    schedule: 'twice, within 20 minutes; marked as failed after 72 hours of failures',
  },
  knock: { retries: 'failures', schedule: 'up to 8 attempts' },
  ashby: {
    retries: 'failures',
    schedule:
      'up to 10 attempts, 10, 30 and 70 seconds apart and so on; disabled if the ping after a change of the webhook fails',
  },
  tally: { retries: 'failures', waitsSeconds: 10, schedule: 'after 5 and 30 minutes, 1, 6 and 24 hours' },
  mux: { retries: 'failures', schedule: 'for 24 hours, with increasing intervals' },
  retell: { retries: 'failures', waitsSeconds: 10, schedule: 'up to 3 times' },
  telnyx: { acknowledgedBy: [200], retries: 'failures', waitsSeconds: 2, schedule: 'a few times, then at the failover URL' },
  fireflies: { waitsSeconds: 10 },
  'frame-io': { acknowledgedBy: [200] },
  webflow: { acknowledgedBy: [200], schedule: '3 times, 10 minutes apart; then deactivated' },
  workos: { acknowledgedBy: [200], schedule: 'up to 12 times in 3 days' },
  pusher: { retries: 'failures', waitsSeconds: 4, schedule: 'for 5 minutes, with increasing intervals' },
  enode: { retries: 'failures', waitsSeconds: 5, schedule: 'for 24 hours; then the webhook becomes inactive' },
  alchemy: { acknowledgedBy: [200], waitsSeconds: 5, schedule: 'for 10 minutes, or an hour, depending on the plan' },
  akeneo: { retries: 'nothing', schedule: 'never' },
  smartcar: { retries: 'failures', waitsSeconds: 15, schedule: 'with increasing intervals' },
  pylon: { schedule: 'up to 5 attempts in 31 hours; inactive after 7 days of failures' },
  scrapfly: {
    retries: 'failures',
    schedule: 'after 30 seconds, 1, 5 and 30 minutes, 1 hour and 1 day; disabled after 100 consecutive failures',
  },
  linkedin: { schedule: 'every 5 minutes, for 8 hours' },
  telegram: { retries: 'failures', schedule: 'a limited number of times' },
  okta: { retries: 'server-errors', givesUpOn: NOT_429, waitsSeconds: 3, schedule: 'once' },
};

/** Of the presets of commerce.ts, customer-contact.ts, forms.ts and payments.ts. */
const COMMERCE_PROFILES: Readonly<Record<string, SenderProfile>> = {
  alipay: { acknowledgement: 'success', schedule: '8 times in 25 hours, at last after 15 hours' },
  airwallex: { acknowledgedBy: [200], retries: 'failures', schedule: 'for three days, with increasing intervals' },
  bigcommerce: { schedule: 'for 48 hours, with increasing intervals; then deactivated' },
  calendly: { waitsSeconds: 15, schedule: 'for 24 hours, with increasing intervals; then disabled' },
  chargify: { acknowledgedBy: [200], waitsSeconds: 15, schedule: '4 times within 5 minutes' },
  'checkout-com': { waitsSeconds: 10, schedule: '8 times in 30 hours' },
  'coinbase-commerce': { acknowledgedBy: [200], schedule: 'for three days, at most an hour apart' },
  'commerce-layer': { waitsSeconds: 5, schedule: 'disabled after 30 consecutive failures' },
  'customer-io': { waitsSeconds: 4, schedule: 'for seven days, with increasing intervals; later events may wait' },
  dwolla: { waitsSeconds: 10, schedule: '8 times in 72 hours; paused after 400 consecutive failures' },
  fastspring: { acknowledgedBy: [200] },
  flutterwave: { acknowledgedBy: [200], waitsSeconds: 60, schedule: '3 times, 30 minutes apart, if retries are enabled' },
  'flutterwave-v3': { acknowledgedBy: [200], waitsSeconds: 60, schedule: '3 times, 30 minutes apart, if retries are enabled' },
  front: {
    retries: 'server-errors',
    givesUpOn: [502, 503, 504, 508],
    schedule: '3 times after 408, 429, 500 or a timeout; disabled after repeated failures',
  },
  'front-rules': { retries: 'nothing', waitsSeconds: 5, schedule: 'never' },
  gocardless: { waitsSeconds: 10, schedule: '8 times, after 1, 2 and 10 minutes and so on' },
  intercom: {
    disabledBy: [410],
    waitsSeconds: 5,
    schedule: 'once, after a minute; paused for 15 minutes after 1,000 failures in a row, suspended after seven days of failures',
  },
  klaviyo: {
    acknowledgedBy: [200, 201, 202],
    waitsSeconds: 5,
    schedule: 'with increasing intervals, at most an hour; disabled after 48 hours of failures',
  },
  'lemon-squeezy': { acknowledgedBy: [200], retries: 'failures', schedule: 'after 5, 25 and 125 seconds' },
  mollie: { waitsSeconds: 15 },
  paystack: { acknowledgedBy: [200], schedule: '4 times, 3 minutes apart, then hourly for 72 hours' },
  persona: { acknowledgedBy: [200, 201, 202, 204], waitsSeconds: 5 },
  quickbooks: {
    acknowledgedBy: [200],
    retries: 'failures',
    waitsSeconds: 3,
    schedule: 'after 10, 20 and 30 seconds, 5 and 20 minutes, 2 and 4 hours, then every 6 hours; later events wait',
  },
  razorpay: { waitsSeconds: 5, schedule: 'for 24 hours, with increasing intervals; then disabled' },
  recurly: { waitsSeconds: 5, schedule: '10 times in three days, with increasing intervals' },
  revolut: { schedule: '3 times, 10 minutes apart' },
  squarespace: { schedule: 'for 48 hours; then perhaps deleted' },
  tiktok: { acknowledgedBy: [200], schedule: 'for 72 hours, with increasing intervals' },
  typeform: {
    disabledBy: [404, 410],
    waitsSeconds: 30,
    schedule: 'after 408, 423, 429 and 503 every few minutes for 10 hours; otherwise about 5 times',
  },
  xero: {
    acknowledgedBy: [200],
    acknowledgement: '',
    waitsSeconds: 5,
    schedule: 'for 24 hours, with decreasing frequency; then disabled',
  },
  zendesk: {
    retries: 'server-errors',
    givesUpOn: [500, 502, 504],
    schedule: '3 times after 409, and after 429 or 503 with Retry-After below a minute',
  },
};

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
    schedule: 'for 48 hours, while later events of the resource wait; disabled for a day after 3 consecutive lost events',
  },
  linear: { acknowledgedBy: [200], waitsSeconds: 5, schedule: 'after 1 minute, 1 hour and 6 hours' },
  zoom: { acknowledgedBy: [200, 204], retries: 'failures', waitsSeconds: 3, schedule: 'after 5, 20 and 60 minutes' },
  paddle: { acknowledgedBy: [200], waitsSeconds: 5, schedule: '60 times in 3 days, with increasing intervals' },
  square: { schedule: 'for 24 hours; disabled after three weeks of failures' },
  gitlab: { retries: 'nothing', schedule: 'never; disabled temporarily after 4 consecutive failures, permanently after 40' },
  sanity: { retries: 'server-errors', schedule: 'twice, 30 seconds apart' },
  discord: { acknowledgedBy: [204], waitsSeconds: 3, schedule: 'for 10 minutes; disabled after too many failures' },
  hubspot: { retries: 'server-errors' },
  meta: { acknowledgedBy: [200], schedule: 'for 36 hours, with decreasing frequency' },
  whatsapp: { acknowledgedBy: [200], schedule: 'for 7 days, with decreasing frequency' },
  vonage: { acknowledgedBy: [200], retries: 'server-errors', schedule: 'for 24 hours, after 5 seconds, 1, 5 and 15 minutes' },
  twitch: { schedule: 'a few times; revoked after too many failures' },
  line: { waitsSeconds: 2, schedule: 'only if redelivery is enabled; suspended after failing for a long time' },
  woocommerce: { retries: 'nothing', schedule: 'never; disabled after 5 consecutive failures' },
  x: { acknowledgedBy: [200], waitsSeconds: 10 },
  'aws-sns': {
    retries: 'server-errors',
    schedule: '3 times, 20 seconds apart, unless the subscription says otherwise; at most an hour',
  },
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
  wise: { acknowledgedBy: [200], waitsSeconds: 5, schedule: 'at most 25 times in two weeks' },
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
