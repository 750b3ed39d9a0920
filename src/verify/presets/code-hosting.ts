/** Senders that host code, build it and run it; most sign only the raw body. */
import type { SchemeDescription } from '../schemes/description.ts';
import { BODY, base64In, hexIn, hexListIn, JSON_OR_FORM, sender, TIME_AND_BODY, VERSION_TIME_AND_BODY } from './shapes.ts';

/** Gitea and its relatives. In a form they sign the JSON of its only field, not the form. */
function toForge(name: string, title: string, docs: string): SchemeDescription {
  return sender(name, title, {
    docs,
    key: "the webhook's secret, as it was entered",
    ...BODY,
    signature: hexIn(`X-${title}-Signature`),
    id: { header: `X-${title}-Delivery` },
    repeatsBytes: true,
    contentField: 'payload',
    contentTypes: JSON_OR_FORM,
  });
}

/** All of them. */
export const CODE_HOSTING: readonly SchemeDescription[] = [
  /** Jira: https://developer.atlassian.com/cloud/jira/platform/webhooks. Webhooks without a secret, and those of apps, are not signed. */
  sender('jira', 'Jira', {
    docs: 'https://developer.atlassian.com/cloud/jira/platform/webhooks/#secure-admin-webhooks',
    key: 'the secret of the webhook (System, WebHooks), as it was entered',
    ...BODY,
    signature: hexIn('X-Hub-Signature', 'sha256='),
    // The same for all attempts.
    id: { header: 'X-Atlassian-Webhook-Identifier' },
  }),
  sender('bitbucket', 'Bitbucket', {
    docs: 'https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks',
    key: 'the secret of the webhook, as it was entered; its UUID is not secret',
    ...BODY,
    signature: hexIn('X-Hub-Signature', 'sha256='),
    id: { header: 'X-Request-UUID' },
    // A push names refs and hashes, not when it happened: a tag that is deleted and pushed again.
    repeatsBytes: true,
  }),
  toForge('gitea', 'Gitea', 'https://docs.gitea.com/usage/webhooks'),
  toForge('forgejo', 'Forgejo', 'https://forgejo.org/docs/latest/user/webhooks'),
  toForge('gogs', 'Gogs', 'https://gogs.io/advancing/webhooks'),
  /** CircleCI: https://circleci.com/docs/guides/integration/outbound-webhooks. Versions other than v1 are ignored. */
  sender('circleci', 'CircleCI', {
    docs: 'https://circleci.com/docs/guides/integration/outbound-webhooks/#validate-webhooks',
    key: "the webhook's secret token; not an API token",
    ...BODY,
    signature: hexListIn('circleci-signature', 'v1='),
    id: { json: '$.id' },
  }),
  /** Buildkite: https://buildkite.com/docs/apis/webhooks. With a token in place of a signature, use a custom scheme. */
  sender('buildkite', 'Buildkite', {
    docs: 'https://buildkite.com/docs/apis/webhooks/pipelines#webhook-signature',
    key: "the notification service's token, with the setting that sends a signature; not an API token",
    ...TIME_AND_BODY,
    signature: hexListIn('X-Buildkite-Signature', 'signature='),
    timestamp: { from: { entry: 'timestamp=' }, unit: 's' },
  }),
  /** HCP Terraform and Terraform Enterprise: https://developer.hashicorp.com/terraform/cloud-docs/api-docs/notification-configurations. */
  sender('terraform-cloud', 'HCP Terraform (Terraform Cloud)', {
    docs: 'https://developer.hashicorp.com/terraform/cloud-docs/api-docs/notification-configurations#notification-authenticity',
    key: "the notification configuration's token; not an API token",
    ...BODY,
    signature: {
      header: 'X-TFE-Notification-Signature',
      encoding: 'hex',
      forms: [{ prefix: '', algorithm: 'hmac-sha512' }],
    },
  }),
  sender('vercel', 'Vercel', {
    docs: 'https://vercel.com/docs/webhooks/webhooks-api',
    key: "the webhook's secret, which is shown once; for an integration its client secret; for a drain its signature secret",
    ...BODY,
    signature: { header: 'x-vercel-signature', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha1' }] },
    id: { json: '$.id' },
    contentTypes: ['application/json', 'application/x-ndjson'],
  }),
  /** Sentry: https://docs.sentry.io/organization/integrations/integration-platform/webhooks. The timestamp and the resource are not signed. */
  sender('sentry', 'Sentry', {
    docs: 'https://docs.sentry.io/organization/integrations/integration-platform/webhooks/#sentry-hook-signature',
    key: "the integration's client secret; not its client ID, a token or a DSN",
    ...BODY,
    signature: hexIn('Sentry-Hook-Signature'),
    id: { header: 'Request-ID' },
    // An issue that is resolved, unresolved and resolved again, without a new event in between.
    repeatsBytes: true,
  }),
  /** Heroku: https://devcenter.heroku.com/articles/app-webhooks. */
  sender('heroku', 'Heroku', {
    docs: 'https://devcenter.heroku.com/articles/app-webhooks#securing-webhook-requests',
    key: 'the secret that the webhook subscription was created with, or that Heroku returned',
    ...BODY,
    signature: base64In('Heroku-Webhook-Hmac-SHA256'),
    // `$.id` is the event, which every webhook of the app gets.
    id: { json: '$.webhook_metadata.delivery.id' },
  }),
  /** LaunchDarkly: https://launchdarkly.com/docs/integrations/webhooks. */
  sender('launchdarkly', 'LaunchDarkly', {
    docs: 'https://launchdarkly.com/docs/integrations/webhooks#sign-the-webhook',
    key: "the webhook's secret; not an SDK key or an access token",
    ...BODY,
    signature: hexIn('X-LD-Signature'),
    id: { json: '$._id' },
  }),
  sender('sonarqube', 'SonarQube (Server and Cloud)', {
    docs: 'https://docs.sonarsource.com/sonarqube-server/project-administration/webhooks',
    key: "the webhook's secret, as it was entered",
    ...BODY,
    signature: hexIn('X-Sonar-Webhook-HMAC-SHA256'),
  }),
  /** Tailscale: https://tailscale.com/kb/1213/webhooks. During a rotation there are several `v1=` entries. */
  sender('tailscale', 'Tailscale', {
    docs: 'https://tailscale.com/kb/1213/webhooks#verifying-an-event-signature',
    key: "the webhook endpoint's secret, tskey-webhook-…, as is",
    ...TIME_AND_BODY,
    signature: hexListIn('Tailscale-Webhook-Signature', 'v1='),
    timestamp: { from: { entry: 't=' }, unit: 's' },
    secret: { encoding: 'utf8', usualStart: 'tskey-webhook-' },
  }),
  /** Statsig: https://docs.statsig.com/integrations/event_webhook. */
  sender('statsig', 'Statsig', {
    docs: 'https://docs.statsig.com/integrations/event_webhook#webhook-signature',
    key: "the webhook integration's signing secret; not an SDK key",
    ...VERSION_TIME_AND_BODY,
    signature: hexIn('X-Statsig-Signature', 'v0='),
    timestamp: { from: { header: 'X-Statsig-Request-Timestamp' }, unit: 'ms' },
    handshake: 'statsig',
  }),
  sender('cursor', 'Cursor (cloud agents)', {
    docs: 'https://cursor.com/docs/cloud-agent/api/webhooks',
    key: 'the secret that the agent was started with',
    ...BODY,
    signature: hexIn('X-Webhook-Signature', 'sha256='),
    id: { header: 'X-Webhook-ID' },
  }),
  sender('snyk', 'Snyk', {
    docs: 'https://docs.snyk.io/snyk-api/using-specific-snyk-apis/webhooks-apis/validating-payloads',
    key: 'the secret that the webhook was created with; not an API token',
    ...BODY,
    signature: hexIn('X-Hub-Signature', 'sha256='),
    id: { header: 'X-Snyk-Transport-ID' },
  }),
  sender('expo', 'Expo (EAS)', {
    docs: 'https://docs.expo.dev/eas/webhooks',
    key: 'the secret of the webhook (eas webhook:create), as it was entered; not an access token',
    ...BODY,
    signature: { header: 'expo-signature', encoding: 'hex', forms: [{ prefix: 'sha1=', algorithm: 'hmac-sha1' }] },
  }),
  sender('mongodb-atlas', 'MongoDB Atlas (alerts)', {
    docs: 'https://www.mongodb.com/docs/atlas/tutorial/third-party-service-integrations',
    key: "the webhook integration's secret, as it was entered; not an API key",
    ...BODY,
    signature: { header: 'X-MMS-Signature', encoding: 'base64', forms: [{ prefix: '', algorithm: 'hmac-sha1' }] },
  }),
  sender('dub', 'Dub', {
    docs: 'https://dub.co/docs/webhooks/verify-webhook-requests',
    key: "the webhook's signing secret, whsec_…, as is; not the API key dub_…",
    ...BODY,
    signature: hexIn('Dub-Signature'),
    id: { json: '$.id' },
    secret: { encoding: 'utf8', usualStart: 'whsec_' },
  }),
  /** The product that the delivery is of is in a header that is not signed. */
  sender('scrapfly', 'Scrapfly', {
    docs: 'https://scrapfly.io/docs/scrape-api/webhook',
    key: "the webhook's signing secret; not the API key",
    ...BODY,
    signature: hexIn('X-Scrapfly-Webhook-Signature'),
    id: { header: 'X-Scrapfly-Webhook-Job-Id' },
    // It is not documented that each body has a time.
    repeatsBytes: true,
  }),
];
