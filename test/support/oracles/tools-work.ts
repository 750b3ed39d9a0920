/** Senders that people work with: notes, tasks, records, mail and messages. */
import { toOracle } from './documented.ts';
import { BODY_AND_URL, type Oracle } from './oracle.ts';
import { hmac, toSeconds } from './recipes.ts';
import { ofBody, ofEntries, ofTime, SECRET } from './tool-recipes.ts';

/** One for each sender. */
export const workTools: readonly Oracle[] = [
  ofBody(
    'notion',
    "Notion's document, webhooks, validating events",
    'x-notion-signature',
    {
      id: '367cba44-b6f3-4c92-81e7-6a2e9659efd4',
      type: 'page.created',
      entity: { id: '153104cd', type: 'page' },
    },
    { prefix: 'sha256=' },
  ),
  ofBody('asana', "Asana's document, webhooks guide, security", 'x-hook-signature', {
    events: [{ action: 'changed', resource: { gid: '1337', resource_type: 'task' }, created_at: '2026-08-21T18:20:37.972Z' }],
  }),
  toOracle({
    preset: 'trello',
    source: "Atlassian's document, webhooks of Trello, webhook signatures",
    covers: BODY_AND_URL,
    content: () => ({
      action: { id: '51f9424bcd6e040f3c002412', type: 'updateCard' },
      model: { id: '4d5ea62fd76aa1136000000c' },
    }),
    toHeaders: ({ url, body }) => ({ 'x-trello-webhook': hmac('sha1', SECRET, [body, url], 'base64') }),
  }),
  toOracle({
    preset: 'airtable',
    source: "Airtable's document, webhooks overview, webhook notification delivery",
    secret: { text: SECRET, encoding: 'base64' },
    otherSecret: { text: [...SECRET].reverse().join(''), encoding: 'base64' },
    content: (timestamp) => ({
      base: { id: 'app00000000000000' },
      webhook: { id: 'ach00000000000000' },
      timestamp: new Date(timestamp).toISOString(),
    }),
    toHeaders: ({ body }) => ({
      'x-airtable-content-mac': `hmac-sha256=${hmac('sha256', Buffer.from(SECRET, 'base64'), [body])}`,
    }),
  }),
  ofBody('clickup', "ClickUp's document, webhook signature", 'x-signature', {
    webhook_id: '7689a169-a000-4985-8676-6902b96d6627',
    event: 'taskCreated',
    task_id: 'c0j',
  }),
  ofBody(
    'todoist',
    "Todoist's document, webhooks, request header",
    'x-todoist-hmac-sha256',
    {
      event_name: 'item:added',
      event_data: { content: 'Milch kaufen – für Jürgen', id: '2995104339' },
    },
    { encoding: 'base64', more: ({ id }) => ({ 'x-todoist-delivery-id': id }) },
  ),
  ofBody(
    'segment',
    "Segment's document, webhooks (actions), authentication",
    'x-signature',
    {
      type: 'track',
      messageId: 'ajs-f8ca1e4de5024d9430b3928bd8ac6b96',
      event: 'Clicked',
    },
    { algorithm: 'sha1' },
  ),
  ofBody('nylas', "Nylas' document, verify webhook signatures", 'x-nylas-signature', {
    specversion: '1.0',
    type: 'message.created',
    id: 'mock-id',
    data: { object: { subject: 'Zoë' } },
  }),
  ofEntries(
    'courier',
    "Courier's document, outbound webhooks",
    'courier-signature',
    {
      type: 'message:updated',
      data: { id: '1-5e2b2615-05efbb3acab9172f88dd3f6f', status: 'SENT' },
    },
    ({ timestamp, body }) => `t=${timestamp},signature=${hmac('sha256', SECRET, [String(timestamp), '.', body])}`,
  ),
  ofEntries(
    'knock',
    "Knock's document, outbound webhooks, verifying webhook signatures",
    'x-knock-signature',
    {
      id: 'd6cc9d4b-8ae7-4cba-9c9b-0b1a45ecb5a9',
      type: 'message.sent',
      data: {},
    },
    ({ timestamp, body }) => `t=${timestamp},s=${hmac('sha256', SECRET, [String(timestamp), '.', body], 'base64')}`,
  ),
  ofBody(
    'ashby',
    "Ashby's document, authenticating webhooks",
    'ashby-signature',
    {
      action: 'applicationSubmit',
      data: { application: { id: '1' } },
    },
    { prefix: 'sha256=' },
  ),
  ofBody(
    'greenhouse',
    "Greenhouse's document, recruiting webhooks, authentication",
    'signature',
    {
      action: 'hire_candidate',
      payload: { application: { id: 46194062 } },
    },
    { prefix: 'sha256 ', more: ({ id }) => ({ 'greenhouse-event-id': id }) },
  ),
  ofBody('modern-treasury', "Modern Treasury's document, signature verification", 'x-signature', {
    event: 'completed',
    data: { id: 'c743edb7-4059-496a-94b8-06fc081156fd', object: 'payment_order' },
  }),
  ofBody(
    'tally',
    "Tally's document, webhooks, signing secret",
    'tally-signature',
    {
      eventId: 'a4cb511e-d513-4fa5-baee-b815d718dfd1',
      eventType: 'FORM_RESPONSE',
      data: { fields: [] },
    },
    { encoding: 'base64' },
  ),
  ofBody(
    'hookdeck',
    "Hookdeck's document, webhook signature verification",
    'x-hookdeck-signature',
    {
      id: 'evt',
      type: 'order',
    },
    { encoding: 'base64', more: ({ id }) => ({ 'x-hookdeck-eventid': id }) },
  ),
  ofTime(
    'akeneo',
    "Akeneo's own sender, GuzzleWebhookClient",
    {
      events: [{ action: 'product.updated', event_id: '7abae2fe-759e-4fce-aa43-f413980671b3' }],
    },
    ({ timestamp, body }) => ({
      'x-akeneo-request-timestamp': toSeconds(timestamp),
      'x-akeneo-request-signature': hmac('sha256', SECRET, [toSeconds(timestamp), '.', body]),
    }),
  ),
  ofBody('clio', "Clio's document, webhooks", 'x-hook-signature', {
    data: { id: 1, etag: '"a"' },
    meta: { event: 'matter.updated', webhook_id: 7 },
  }),
  ofBody('smartcar', "Smartcar's document, payload verification", 'sc-signature', {
    eventId: '123e4567-e89b-12d3-a456-426614174000',
    eventType: 'VEHICLE_STATE',
  }),
  ofTime(
    'pylon',
    "Pylon's document, using webhooks, event signatures",
    {
      type: 'issue.created',
      data: { id: '1' },
    },
    ({ timestamp, body }) => ({
      'pylon-webhook-timestamp': toSeconds(timestamp),
      'pylon-webhook-signature': `hs256=${hmac('sha256', SECRET, [toSeconds(timestamp), '.', body])}`,
    }),
  ),
  toOracle({
    preset: 'linkedin',
    source: "Microsoft's document, webhook validation of LinkedIn",
    content: () => ({ type: 'LEAD_ACTION', notificationId: 8_912_231, leadGenFormResponse: 'urn:li:leadGenFormResponse:1' }),
    toHeaders: ({ body }) => ({ 'x-li-signature': hmac('sha256', SECRET, ['hmacsha256=', body]) }),
  }),
];
