/** The heads that senders really send, for tests: from their documents, their source or captured requests. A preset without one is marked in src/cli/sender-notes.json. */

import { toMediaForm } from '../../src/core/head.ts';
import { ANY_METHOD } from '../../src/verify/presets/shapes.ts';
import type { SchemeDescription } from '../../src/verify/schemes/description.ts';

/** What a delivery of a sender begins with. */
export interface SentHead {
  /** The values of Content-Type, as the sender writes them. */
  readonly types: readonly string[];
  /** If it is not always POST. */
  readonly methods?: readonly string[];
  /** Where this is from. */
  readonly source: string;
}

const PLAIN_JSON = 'application/json';
const JSON_UTF_8 = 'application/json; charset=utf-8';
const FORM = 'application/x-www-form-urlencoded';
const [CAPTURED, SAMPLES] = ['a captured request', 'https://github.com/hookdeck/webhook-samples'];
const SVIX = 'https://github.com/svix/svix-webhooks/blob/main/server/svix-server/src/worker.rs';
const EVENT_GRID = 'https://learn.microsoft.com/azure/event-grid/cloud-event-schema';

/** By preset. */
export const SENT_HEADS: Readonly<Record<string, SentHead>> = {
  'adyen-payments': { types: [JSON_UTF_8], source: SAMPLES },
  akeneo: {
    types: [PLAIN_JSON],
    source: 'https://github.com/akeneo/pim-community-dev, GuzzleWebhookClient.php',
  },
  alchemy: {
    types: [PLAIN_JSON],
    source: 'https://www.alchemy.com/docs/reference/notify-api-faq',
  },
  alipay: {
    types: [
      'application/x-www-form-urlencoded; text/html; charset=utf-8',
      'application/x-www-form-urlencoded; text/html; charset=UTF-8',
    ],
    source: 'https://opendocs.alipay.com/open/270/105902',
  },
  'aws-sns': {
    types: ['text/plain; charset=UTF-8'],
    source: 'https://docs.aws.amazon.com/sns/latest/dg/http-notification-json.html',
  },
  'azure-event-grid': { types: [JSON_UTF_8], source: EVENT_GRID },
  'azure-event-grid-cloudevents': { types: ['application/cloudevents+json; charset=utf-8'], source: EVENT_GRID },
  bigcommerce: { types: [PLAIN_JSON], source: SAMPLES },
  bitbucket: { types: [PLAIN_JSON], source: SAMPLES },
  braintree: { types: [FORM], source: 'https://developer.paypal.com/braintree/docs/guides/webhooks/parse' },
  brex: { types: [PLAIN_JSON], source: SVIX },
  'cal-com': {
    types: [PLAIN_JSON, FORM],
    source: 'https://github.com/calcom/cal.com/blob/main/packages/features/webhooks/lib/sendPayload.ts',
  },
  chargify: { types: [FORM], source: 'https://docs.maxio.com/hc/en-us/articles/24266143173901-Webhooks-Overview' },
  'checkout-com': { types: [JSON_UTF_8], source: SAMPLES },
  circleci: { types: [PLAIN_JSON], source: 'https://circleci.com/docs/guides/integration/outbound-webhooks/' },
  clerk: { types: [PLAIN_JSON], source: SVIX },
  'coinbase-commerce': { types: [PLAIN_JSON], source: CAPTURED },
  'commerce-layer': { types: [PLAIN_JSON], source: SAMPLES },
  contentful: {
    types: [
      'application/vnd.contentful.management.v1+json',
      'application/vnd.contentful.management.v1+json; charset=utf-8',
      JSON_UTF_8,
      FORM,
    ],
    methods: ANY_METHOD,
    source: 'https://www.contentful.com/developers/docs/webhooks/overview/',
  },
  discord: { types: [PLAIN_JSON], source: 'https://github.com/discord/discord-interactions-js' },
  docusign: {
    types: [JSON_UTF_8, 'text/xml; charset=utf-8'],
    source: 'https://developers.docusign.com/platform/webhooks/connect/',
  },
  'dropbox-sign': { types: ['multipart/form-data'], source: 'https://developers.hellosign.com/docs/events/walkthrough' },
  dwolla: { types: ['application/json; charset=UTF-8'], source: 'https://developers.dwolla.com/docs/balance/webhooks' },
  forgejo: {
    types: [PLAIN_JSON, FORM],
    source: 'https://codeberg.org/forgejo/forgejo/src/branch/forgejo/services/webhook/shared/payloader.go',
  },
  fireflies: { types: [PLAIN_JSON], source: 'https://docs.fireflies.ai/graphql-api/webhooks-v2' },
  gitea: { types: [PLAIN_JSON, FORM], source: 'https://github.com/go-gitea/gitea/blob/main/services/webhook/deliver.go' },
  github: { types: [PLAIN_JSON, FORM], source: 'https://docs.github.com/webhooks/webhook-events-and-payloads' },
  gitlab: { types: [PLAIN_JSON], source: SAMPLES },
  gocardless: { types: [PLAIN_JSON], source: 'https://developer.gocardless.com/api-reference/#webhooks-overview' },
  gogs: { types: [PLAIN_JSON, FORM], source: 'https://github.com/gogs/gogs/blob/main/internal/database/webhook.go' },
  hookdeck: {
    types: [PLAIN_JSON, FORM, 'application/xml', 'text/xml'],
    methods: ANY_METHOD,
    source: 'https://hookdeck.com/docs/destinations',
  },
  hubspot: { types: [PLAIN_JSON], source: SAMPLES },
  'incident-io': { types: [PLAIN_JSON], source: SVIX },
  jira: { types: [JSON_UTF_8], source: 'https://developer.atlassian.com/cloud/jira/platform/webhooks/' },
  'lemon-squeezy': { types: [PLAIN_JSON], source: 'https://docs.lemonsqueezy.com/help/webhooks/webhook-requests' },
  line: { types: [JSON_UTF_8], source: 'https://developers.line.biz/en/reference/messaging-api/#request-headers' },
  linear: { types: [JSON_UTF_8], source: 'https://linear.app/developers/webhooks' },
  lithic: { types: [PLAIN_JSON], source: SVIX },
  mailgun: { types: [PLAIN_JSON], source: 'https://documentation.mailgun.com/docs/mailgun/user-manual/events/webhooks' },
  mandrill: { types: [FORM], source: 'https://mailchimp.com/developer/transactional/guides/track-respond-activity-webhooks' },
  meta: { types: [PLAIN_JSON], source: 'https://developers.facebook.com/docs/graph-api/webhooks/getting-started' },
  'microsoft-graph': {
    types: [PLAIN_JSON, JSON_UTF_8],
    source: 'https://learn.microsoft.com/graph/change-notifications-delivery-webhooks',
  },
  monday: { types: [PLAIN_JSON], source: SAMPLES },
  paddle: { types: [PLAIN_JSON], source: SAMPLES },
  pagerduty: { types: [PLAIN_JSON], source: 'https://developer.pagerduty.com/docs/webhooks-overview' },
  paypal: { types: [PLAIN_JSON], source: SAMPLES },
  'paypal-sandbox': { types: [PLAIN_JSON], source: SAMPLES },
  polar: { types: [PLAIN_JSON], source: 'https://github.com/polarsource/polar/blob/main/server/polar/webhook/tasks.py' },
  pusher: { types: [PLAIN_JSON], source: 'https://pusher.com/docs/channels/server_api/webhooks/' },
  quickbooks: {
    types: [PLAIN_JSON, JSON_UTF_8, 'application/cloudevents-batch+json'],
    source: 'https://developer.intuit.com/app/developer/qbo/docs/develop/webhooks',
  },
  razorpay: { types: [PLAIN_JSON], source: 'https://razorpay.com/docs/webhooks/' },
  resend: { types: [PLAIN_JSON], source: SVIX },
  ringcentral: {
    types: ['application/json;charset=UTF-8'],
    source: 'https://developers.ringcentral.com/guide/notifications/webhooks/receiving',
  },
  sanity: { types: [PLAIN_JSON], methods: ANY_METHOD, source: 'https://www.sanity.io/docs/content-lake/webhooks' },
  scrapfly: { types: [PLAIN_JSON], source: 'https://github.com/scrapfly/python-scrapfly/blob/master/scrapfly/webhook.py' },
  segment: {
    types: [PLAIN_JSON],
    methods: ['POST', 'PUT', 'PATCH'],
    source:
      'https://github.com/segmentio/action-destinations/blob/main/packages/destination-actions/src/destinations/webhook/send/index.ts',
  },
  sendgrid: {
    types: ['application/json;charset=utf-8'],
    source: 'https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/event',
  },
  sentry: { types: [PLAIN_JSON], source: 'https://docs.sentry.io/organization/integrations/integration-platform/webhooks/' },
  shopify: {
    types: [PLAIN_JSON, 'application/xml'],
    source: 'https://shopify.dev/docs/api/admin-graphql/latest/enums/WebhookSubscriptionFormat',
  },
  slack: { types: [PLAIN_JSON, FORM], source: 'https://docs.slack.dev/authentication/verifying-requests-from-slack' },
  sonarqube: {
    types: [JSON_UTF_8],
    source:
      'https://github.com/SonarSource/sonarqube/blob/master/server/sonar-server-common/src/main/java/org/sonar/server/webhook/WebhookCallerImpl.java',
  },
  snyk: {
    types: [PLAIN_JSON],
    source: 'https://docs.snyk.io/snyk-api/using-specific-snyk-apis/webhooks-apis/webhooks',
  },
  'standard-webhooks': {
    types: [PLAIN_JSON],
    source: 'https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md',
  },
  stripe: { types: [JSON_UTF_8], source: SAMPLES },
  stytch: { types: [PLAIN_JSON], source: SVIX },
  supabase: { types: [PLAIN_JSON], source: 'https://github.com/supabase/auth/blob/master/internal/hooks/hookshttp/hookshttp.go' },
  svix: { types: [PLAIN_JSON], source: SVIX },
  telegram: {
    types: [PLAIN_JSON],
    source: 'https://github.com/tdlib/telegram-bot-api/blob/master/telegram-bot-api/WebhookActor.cpp',
  },
  trello: { types: [PLAIN_JSON], source: CAPTURED },
  twilio: {
    types: [FORM, 'application/x-www-form-urlencoded; charset=UTF-8', PLAIN_JSON],
    methods: ['POST', 'GET'],
    source: 'https://www.twilio.com/docs/usage/webhooks/webhooks-security',
  },
  twitch: {
    types: [PLAIN_JSON],
    source: 'https://github.com/twitchdev/twitch-cli/blob/main/internal/events/trigger/forward_event.go',
  },
  typeform: { types: [PLAIN_JSON], source: CAPTURED },
  vercel: { types: [PLAIN_JSON, 'application/x-ndjson'], source: 'https://vercel.com/docs/drains' },
  vonage: {
    types: [PLAIN_JSON],
    methods: ['POST', 'GET'],
    source: 'https://developer.vonage.com/en/getting-started/concepts/webhooks',
  },
  webflow: { types: [PLAIN_JSON], source: 'https://developers.webflow.com/reference/webhooks' },
  whatsapp: { types: [PLAIN_JSON], source: 'https://developers.facebook.com/docs/graph-api/webhooks/getting-started' },
  wix: {
    types: ['text/plain; charset=utf-8'],
    source: 'https://dev.wix.com/docs/build-apps/develop-your-app/api-integrations/events-and-webhooks/about-webhooks',
  },
  woocommerce: { types: [PLAIN_JSON], source: SAMPLES },
  zendesk: {
    types: [PLAIN_JSON, FORM, 'application/xml'],
    methods: ANY_METHOD,
    source: 'https://developer.zendesk.com/documentation/webhooks/anatomy-of-a-webhook-request/',
  },
  zoom: { types: [JSON_UTF_8], source: 'https://developers.zoom.us/docs/api/webhooks/' },
};

/** All values with which a test sends a body of this preset: its own, and those of its media types in the spellings that HTTP clients write. */
export function toSentTypes({ name, contentTypes }: SchemeDescription, body: Buffer): string[] {
  const start = body.subarray(0, 1).toString('latin1');
  const spellings = contentTypes.flatMap((type) =>
    type.includes(';')
      ? [type]
      : [type, `${type}; charset=utf-8`, `${type};charset=UTF-8`, `${type}; charset="utf-8"`, type.toUpperCase()],
  );
  return [...new Set([...(SENT_HEADS[name]?.types ?? []), ...spellings])].filter((type) => {
    const form = toMediaForm(type);
    if (form === 'multipart') return false;
    if (form === 'xml') return start === '<';
    return form === 'form' ? !'{[<'.includes(start) : form !== 'json' || start === '{' || start === '[';
  });
}
