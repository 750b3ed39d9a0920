import { expect, test } from 'vitest';
import { PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';

/**
 * Senders that sign the body, without a time or an ID that the preset reads. Two of their events never have the same bytes, or the later one
 * would get 200 and not reach the app: what makes each body unique, according to the sender's document (`from.docs` of the preset) or source.
 */
const UNIQUE: Readonly<Record<string, string>> = {
  'adyen-payments': 'the sender defines that events with the same pspReference, eventCode and success are duplicates',
  'adyen-platforms': 'timestamp',
  asana: 'created_at of each event',
  ashby: 'webhookActionId, the same across retries',
  braintree: 'timestamp in bt_payload',
  'cal-com': 'createdAt',
  chargify: 'id of the webhook in the form, the same in retries',
  'commerce-layer': 'updated_at of the resource',
  cursor: 'timestamp',
  docusign: 'generatedDateTime',
  enode: 'createdAt of each event',
  expo: 'ID of the build or submission, and updatedAt',
  fireflies: 'timestamp (webhooks v2)',
  flutterwave: 'timestamp and webhook_id',
  jira: 'timestamp',
  'lemon-squeezy': 'updated_at of the resource',
  mandrill: 'ts and _id of each event',
  meta: 'time of each entry',
  'modern-treasury': 'updated_at of the resource',
  'mongodb-atlas': 'updated of the alert',
  netlify: 'updated_at of the deploy, or the ID of the submission',
  razorpay: 'created_at',
  snyk: 'lastTestedDate of the project: each test is an event',
  sonarqube: 'changedAt, the time of the event (WebhookPayloadFactoryImpl)',
  'terraform-cloud': 'run_updated_at of each notification',
  todoist: 'triggered_at',
  trello: 'action.id with its date, and the webhook',
  whatsapp: 'timestamp of each message and status, time of other entries',
  wise: 'data.occurred_at',
  x: 'created_timestamp or timestamp_ms of each event',
  xero: 'eventDateUtc of each event',
};

/** Nothing that is signed distinguishes two events but their contents. */
function hasOnlyContent({ signed, timestamp, id }: SchemeDescription): boolean {
  const isIdSigned = signed.includes('id') || (id !== undefined && !('header' in id));
  return signed.length > 0 && timestamp === undefined && !isIdSigned;
}

test('each preset without a signed time or ID either repeats bytes, or its sender makes each body unique', () => {
  const undecided = PRESETS.filter(hasOnlyContent);
  const repeating = undecided.filter(({ repeatsBytes }) => repeatsBytes === true).map(({ name }) => name);
  const names = undecided.map(({ name }) => name);
  expect([...repeating, ...Object.keys(UNIQUE)].sort()).toEqual([...names].sort());
  for (const { name, repeatsBytes } of PRESETS) if (repeatsBytes === true) expect(names).toContain(name);
});
