/**
 * Senders of software development, work, media and voice: signed here from their documents, by nothing but node:crypto. Python's HMAC
 * signs them from the same documents a second time (tools.py).
 */
import type { Oracle } from './oracle.ts';
import { hmac, toSeconds } from './recipes.ts';
import { ofBody, ofEntries, ofTime, SECRET } from './tool-recipes.ts';
import { mediaAndVoice } from './tools-media.ts';
import { workTools } from './tools-work.ts';

const codeHosting: readonly Oracle[] = [
  ofBody(
    'jira',
    "Atlassian's document, webhooks of Jira Cloud, secure admin webhooks",
    'x-hub-signature',
    {
      timestamp: 1525698237764,
      webhookEvent: 'jira:issue_created',
      issue: { key: 'TEST-1' },
    },
    { prefix: 'sha256=', more: ({ id }) => ({ 'x-atlassian-webhook-identifier': id }) },
  ),
  ofBody(
    'bitbucket',
    "Atlassian's document, manage webhooks of Bitbucket Cloud",
    'x-hub-signature',
    {
      actor: { nickname: 'emmap1' },
      push: { changes: [] },
    },
    { prefix: 'sha256=', more: ({ id }) => ({ 'x-event-key': 'repo:push', 'x-request-uuid': id }) },
  ),
  ofBody(
    'gitea',
    "Gitea's own sender, services/webhook/deliver.go",
    'x-gitea-signature',
    {
      ref: 'refs/heads/main',
      repository: { full_name: 'a/b' },
    },
    { more: ({ id }) => ({ 'x-gitea-event': 'push', 'x-gitea-delivery': id }) },
  ),
  ofBody(
    'forgejo',
    "Forgejo's document, webhooks; its sender descends from Gitea's",
    'x-forgejo-signature',
    {
      ref: 'refs/heads/main',
      repository: { full_name: 'a/b' },
    },
    { more: ({ id }) => ({ 'x-forgejo-event': 'push', 'x-forgejo-delivery': id }) },
  ),
  ofBody(
    'gogs',
    "Gogs' document, webhooks; Gitea's sender writes the same header",
    'x-gogs-signature',
    {
      ref: 'refs/heads/main',
      repository: { full_name: 'a/b' },
    },
    { more: ({ id }) => ({ 'x-gogs-event': 'push', 'x-gogs-delivery': id }) },
  ),
  ofBody(
    'circleci',
    "CircleCI's document, outbound webhooks, validate webhooks",
    'circleci-signature',
    {
      type: 'workflow-completed',
      id: '3888f21b-eaa7-38e3-8f3d-75a63bba8895',
      workflow: { status: 'success' },
    },
    { prefix: 'v1=' },
  ),
  ofEntries(
    'buildkite',
    "Buildkite's document, webhooks, webhook signature",
    'x-buildkite-signature',
    {
      event: 'build.finished',
      build: { id: '1', state: 'passed' },
    },
    ({ timestamp, body }) => {
      const seconds = toSeconds(timestamp);
      return `timestamp=${seconds},signature=${hmac('sha256', SECRET, [seconds, '.', body])}`;
    },
  ),
  ofBody(
    'terraform-cloud',
    "HashiCorp's document, notification configurations, notification authenticity",
    'x-tfe-notification-signature',
    {
      payload_version: 1,
      run_id: 'run-FwnENkvDnrpyFC7M',
      notifications: [{ trigger: 'run:completed' }],
    },
    { algorithm: 'sha512' },
  ),
  ofBody(
    'sentry',
    "Sentry's own sender, SentryApp.build_signature",
    'sentry-hook-signature',
    {
      action: 'created',
      installation: { uuid: 'a8e5d37a' },
      data: { issue: { id: '1', title: 'Größe' } },
    },
    {
      more: ({ id, timestamp }) => ({
        'request-id': id,
        'sentry-hook-resource': 'issue',
        'sentry-hook-timestamp': toSeconds(timestamp),
      }),
    },
  ),
  ofBody(
    'heroku',
    "Heroku's document, app webhooks, securing webhook requests",
    'heroku-webhook-hmac-sha256',
    {
      id: '01234567-89ab-cdef-0123-456789abcdef',
      action: 'update',
      resource: 'build',
      webhook_metadata: {
        delivery: { id: 'c6a4b2d8-6a0f-4f5e-8c55-0d7f4b1f5e02' },
        event: { id: '01234567-89ab-cdef-0123-456789abcdef' },
      },
    },
    { encoding: 'base64' },
  ),
  ofBody('launchdarkly', "LaunchDarkly's document, webhooks, sign the webhook", 'x-ld-signature', {
    _id: '599e19d8e4b0b4a5c9b4c9f8',
    kind: 'flag',
    name: 'New dashboard',
  }),
  ofBody('sonarqube', "Sonar's document, webhooks, securing your webhooks", 'x-sonar-webhook-hmac-sha256', {
    taskId: 'AVh21JS2JepAEhwQ-b3u',
    status: 'SUCCESS',
  }),
  ofEntries(
    'tailscale',
    "Tailscale's document and example verifier, docs/webhooks/example.go",
    'tailscale-webhook-signature',
    [{ timestamp: '2026-09-21T13:37:51Z', version: 1, type: 'nodeCreated', tailnet: 'example.com' }],
    ({ timestamp, body }) => {
      const seconds = toSeconds(timestamp);
      return `t=${seconds},v1=${hmac('sha256', SECRET, [seconds, '.', body])}`;
    },
  ),
  ofTime(
    'statsig',
    "Statsig's document, event webhook, webhook signature",
    {
      data: [{ user: { name: 'a' }, eventName: 'statsig::config_change' }],
    },
    ({ timestamp, body }) => ({
      'x-statsig-request-timestamp': String(timestamp),
      'x-statsig-signature': `v0=${hmac('sha256', SECRET, ['v0:', String(timestamp), ':', body])}`,
    }),
  ),
  ofBody(
    'cursor',
    "Cursor's document, cloud agents, webhook verification",
    'x-webhook-signature',
    {
      event: 'statusChange',
      id: 'bc_abc123',
      status: 'FINISHED',
    },
    { prefix: 'sha256=', more: ({ id }) => ({ 'x-webhook-id': id, 'x-webhook-event': 'statusChange' }) },
  ),
  ofBody(
    'snyk',
    "Snyk's document, webhooks, validating payloads",
    'x-hub-signature',
    {
      project: { id: '1' },
      newIssues: [],
    },
    { prefix: 'sha256=', more: ({ id }) => ({ 'x-snyk-event': 'project_snapshot/v0', 'x-snyk-transport-id': id }) },
  ),
  ofBody(
    'expo',
    "Expo's document, EAS webhooks",
    'expo-signature',
    {
      id: '147a3212-49fd-446f-b4e3-a6519acf264a',
      status: 'finished',
    },
    { algorithm: 'sha1', prefix: 'sha1=' },
  ),
  ofBody(
    'mongodb-atlas',
    "MongoDB's document, third-party service integrations, webhook",
    'x-mms-signature',
    {
      id: '533cb4b8e4b0f1820cdabc7f',
      eventTypeName: 'PRIMARY_ELECTED',
    },
    { algorithm: 'sha1', encoding: 'base64' },
  ),
  ofBody('dub', "Dub's own sender, createWebhookSignature", 'dub-signature', {
    id: 'evt_KleiO7Qt4lHyVPbBXQZkwiSTL',
    event: 'link.created',
  }),
  ofBody(
    'scrapfly',
    "Scrapfly's document, scrape API, webhook",
    'x-scrapfly-webhook-signature',
    {
      context: { webhook: { name: 'samples' } },
      result: { content: '<p>Ä</p>' },
    },
    { more: ({ id }) => ({ 'x-scrapfly-webhook-resource-type': 'scrape', 'x-scrapfly-webhook-job-id': id }) },
  ),
];

/** One for each sender. */
export const toolOracles: readonly Oracle[] = [...codeHosting, ...workTools, ...mediaAndVoice];
