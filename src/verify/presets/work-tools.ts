/** Senders that people work with: notes, tasks, records, mail and messages. */
import type { SchemeDescription } from '../schemes/description.ts';
import { ANY_METHOD, BODY, base64In, hexIn, hexListIn, JSON_XML_OR_FORM, minutes, sender, TIME_AND_BODY } from './shapes.ts';

/** All of them. */
export const WORK_TOOLS: readonly SchemeDescription[] = [
  sender('notion', 'Notion', {
    docs: 'https://developers.notion.com/reference/webhooks',
    key: 'the verification token, secret_…, that Notion sends once to the URL; not the token of the integration, ntn_…',
    ...BODY,
    handshake: 'notion',
    signature: hexIn('X-Notion-Signature', 'sha256='),
    id: { json: '$.id' },
    secret: { encoding: 'utf8', usualStart: 'secret_' },
  }),
  /** Asana: https://developers.asana.com/docs/webhooks-guide. Heartbeats have no events, so each after the first is a repeat. */
  sender('asana', 'Asana', {
    docs: 'https://developers.asana.com/docs/webhooks-guide#security',
    key: 'the X-Hook-Secret that Asana sends when the webhook is created; not the client secret',
    ...BODY,
    handshake: 'asana',
    signature: hexIn('X-Hook-Signature'),
  }),
  /**
   * Trello: https://developer.atlassian.com/cloud/trello/guides/rest-api/webhooks. The signed URL is the callback URL of the webhook,
   * and follows the body directly. An action reaches each webhook that it concerns with the same `action.id`, so that is not the ID of a delivery.
   */
  sender('trello', 'Trello', {
    docs: 'https://developer.atlassian.com/cloud/trello/guides/rest-api/webhooks/#webhook-signatures',
    key: "the app's secret (OAuth secret on the page of the API key); not the API key or a token",
    ...BODY,
    handshake: 'trello',
    signature: { header: 'X-Trello-Webhook', encoding: 'base64', forms: [{ prefix: '', algorithm: 'hmac-sha1' }] },
    signed: ['body', 'url'],
    contentShape: 'json-object',
  }),
  /** Airtable: https://airtable.com/developers/web/api/webhooks-overview. Pings that fail are retried for about a day. */
  sender('airtable', 'Airtable', {
    docs: 'https://airtable.com/developers/web/api/webhooks-overview#webhook-notification-delivery',
    key: 'macSecretBase64 of the response that created the webhook, as is; not an access token',
    ...BODY,
    signature: hexIn('X-Airtable-Content-MAC', 'hmac-sha256='),
    timestamp: { from: { json: '$.timestamp' }, unit: 'rfc3339' },
    secret: { encoding: 'base64' },
    tolerance: minutes(25 * 60, 5),
  }),
  /**
   * Several events can share an item of the history, so it is not an ID. Events of spaces, folders and goals have only their names and IDs: two
   * changes of one space are the same bytes.
   */
  sender('clickup', 'ClickUp', {
    docs: 'https://developer.clickup.com/docs/webhooksignature',
    key: 'the secret of the response that created the webhook; not an API token pk_…',
    ...BODY,
    signature: hexIn('X-Signature'),
    repeatsBytes: true,
  }),
  sender('todoist', 'Todoist', {
    docs: 'https://developer.todoist.com/api/v1/#tag/Webhooks',
    key: "the app's client secret, as is; not its verification token",
    ...BODY,
    signature: base64In('X-Todoist-Hmac-SHA256'),
    id: { header: 'X-Todoist-Delivery-ID' },
  }),
  /** In batches only the first event is signed. */
  sender('segment', 'Segment', {
    docs: 'https://www.twilio.com/docs/segment/connections/destinations/catalog/actions-webhook',
    key: "the destination's shared secret, as it was entered; not a write key",
    ...BODY,
    signature: { header: 'X-Signature', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha1' }] },
    id: { json: '$.messageId' },
    methods: ['POST', 'PUT', 'PATCH'],
  }),
  /** Nylas v3: https://developer.nylas.com/docs/v3/notifications/webhooks. */
  sender('nylas', 'Nylas', {
    docs: 'https://developer.nylas.com/docs/cookbook/use-cases/build/verify-webhook-signatures',
    key: 'the webhook_secret of the response that created the webhook; not the API key',
    ...BODY,
    handshake: 'nylas',
    signature: hexIn('X-Nylas-Signature'),
    id: { json: '$.id' },
  }),
  sender('courier', 'Courier', {
    docs: 'https://www.courier.com/docs/platform/workspaces/outbound-webhooks',
    key: "the outbound webhook's signing secret; not an API key",
    ...TIME_AND_BODY,
    signature: hexListIn('courier-signature', 'signature='),
    timestamp: { from: { entry: 't=' }, unit: 'ms' },
  }),
  sender('knock', 'Knock', {
    docs: 'https://docs.knock.app/developer-tools/outbound-webhooks/overview',
    key: "the webhook's signing secret; not the API key sk_…",
    ...TIME_AND_BODY,
    signature: { ...base64In('x-knock-signature', 's='), list: ',' },
    timestamp: { from: { entry: 't=' }, unit: 'ms' },
    id: { json: '$.id' },
  }),
  sender('ashby', 'Ashby', {
    docs: 'https://developers.ashbyhq.com/docs/authenticating-webhooks',
    key: "the webhook's secret token, as it was entered",
    ...BODY,
    signature: hexIn('Ashby-Signature', 'sha256='),
  }),
  /** Greenhouse, recruiting: https://developers.greenhouse.io/webhooks.html. */
  sender('greenhouse', 'Greenhouse (recruiting)', {
    docs: 'https://developers.greenhouse.io/webhooks.html#authentication',
    key: "the webhook's secret key, as it was entered",
    ...BODY,
    signature: hexIn('Signature', 'sha256 '),
    id: { header: 'Greenhouse-Event-ID' },
    // It is not documented that each body has a time.
    repeatsBytes: true,
  }),
  /** Modern Treasury: https://docs.moderntreasury.com/platform/docs/webhooks. */
  sender('modern-treasury', 'Modern Treasury', {
    docs: 'https://docs.moderntreasury.com/platform/docs/signature-verification',
    key: 'the webhook key (Developers, Webhooks); not an API key',
    ...BODY,
    signature: hexIn('X-Signature'),
  }),
  sender('tally', 'Tally', {
    docs: 'https://tally.so/help/webhooks',
    key: "the webhook's signing secret, as it was entered",
    ...BODY,
    signature: base64In('Tally-Signature'),
    id: { json: '$.eventId' },
  }),
  sender('hookdeck', 'Hookdeck (Event Gateway)', {
    docs: 'https://hookdeck.com/docs/authentication#hookdeck-webhook-signature-verification',
    key: "the project's signing secret (Settings, Secrets); not an API key, nor the secret of the source",
    ...BODY,
    // After the secret was rolled, both secrets sign, each in its header.
    signature: { ...base64In('X-Hookdeck-Signature'), moreHeaders: ['X-Hookdeck-Signature-2'] },
    id: { header: 'X-Hookdeck-EventID' },
    // It forwards what the source sent.
    repeatsBytes: true,
    contentTypes: JSON_XML_OR_FORM,
    methods: ANY_METHOD,
  }),
  sender('akeneo', 'Akeneo (Events API)', {
    docs: 'https://api.akeneo.com/events-documentation/security.html',
    key: "the connection's secret (Connection settings, Event subscription)",
    ...TIME_AND_BODY,
    signature: hexIn('X-Akeneo-Request-Signature'),
    timestamp: { from: { header: 'X-Akeneo-Request-Timestamp' }, unit: 's' },
    id: { json: '$.events[*].event_id' },
  }),
  sender('clio', 'Clio (Manage)', {
    docs: 'https://docs.developers.clio.com/api-reference/#tag/Webhooks',
    key: "the webhook's shared_secret, which is also the X-Hook-Secret of its activation",
    ...BODY,
    handshake: 'asana',
    signature: hexIn('X-Hook-Signature'),
    // Users choose the fields of the body, and the default ones have no time.
    repeatsBytes: true,
  }),
  /** Pylon: https://getpylon.com/developers/guides/using-webhooks. Retries continue for 31 hours, maybe with the first timestamp. */
  sender('pylon', 'Pylon', {
    docs: 'https://getpylon.com/developers/guides/using-webhooks/#event-signatures',
    key: "the destination's signing secret, which is shown once; not an API token",
    ...TIME_AND_BODY,
    signature: hexIn('Pylon-Webhook-Signature', 'hs256='),
    timestamp: { from: { header: 'Pylon-Webhook-Timestamp' }, unit: 's' },
    tolerance: minutes(32 * 60, 5),
  }),
  /** Anyone can get the HMAC of a challenge code, which never starts like the signed string (verify/handshakes/challenge-mac.ts). */
  sender('linkedin', 'LinkedIn', {
    docs: 'https://learn.microsoft.com/linkedin/shared/api-guide/webhook-validation',
    key: "the app's client secret, as is",
    ...BODY,
    handshake: 'linkedin',
    signature: hexIn('X-LI-Signature'),
    signed: [{ text: 'hmacsha256=' }, 'body'],
    id: { json: '$.notificationId' },
  }),
];
