/** How the senders of code-hosting.ts, header-tokens.ts, media-and-voice.ts, svix-senders.ts and work-tools.ts interpret statuses. */
import type { SenderProfile } from './sender-profile.ts';

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

/** Documented behavior; senders whose documents say nothing are not listed. */
export const TOOL_PROFILES: Readonly<Record<string, SenderProfile>> = {
  jira: { retries: 'server-errors', schedule: '5 times, 5 to 15 minutes apart' },
  bitbucket: { retries: 'server-errors', givesUpOn: NOT_429, waitsSeconds: 10, schedule: 'twice' },
  gitea: FORGE,
  forgejo: FORGE,
  gogs: { retries: 'nothing', schedule: FORGE.schedule ?? '' },
  vercel: { retries: 'failures', waitsSeconds: 30, schedule: 'for 24 hours, with increasing intervals' },
  sentry: { waitsSeconds: 1, schedule: 'disabled after repeated failures' },
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
  todoist: { schedule: '3 times, 15 minutes apart' },
  segment: { retries: 'server-errors', schedule: '9 times in 4 hours' },
  nylas: {
    acknowledgedBy: [200],
    retries: 'server-errors',
    givesUpOn: [500, 508],
    waitsSeconds: 10,
    schedule: 'twice, within 20 minutes; marked as failed after 72 hours of failures',
  },
  knock: { retries: 'failures', schedule: 'up to 8 attempts' },
  ashby: { schedule: 'disabled if the ping after a change of the webhook fails' },
  tally: { retries: 'failures', waitsSeconds: 10, schedule: 'after 5 and 30 minutes, 1, 6 and 24 hours' },
  mux: { retries: 'failures', schedule: 'for 24 hours, with increasing intervals' },
  retell: { retries: 'failures', waitsSeconds: 10, schedule: 'up to 3 times' },
  telnyx: { retries: 'failures', waitsSeconds: 2, schedule: 'a few times, then at the failover URL' },
  fireflies: { waitsSeconds: 10 },
  pusher: { retries: 'failures', waitsSeconds: 4, schedule: 'for 5 minutes, with increasing intervals' },
  enode: { retries: 'failures', waitsSeconds: 5, schedule: 'for 24 hours; then the webhook becomes inactive' },
  alchemy: { schedule: 'for 10 minutes, or an hour, depending on the plan' },
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
