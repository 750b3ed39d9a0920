/** Senders that sign a timestamp and the body with HMAC-SHA256; the timestamp is next to the signature or in a separate header. */
import type { SchemeDescription } from '../schemes/description.ts';
import { ANY_METHOD, hexIn, hexListIn, JSON_OR_FORM, minutes, sender, TIME_AND_BODY, VERSION_TIME_AND_BODY } from './shapes.ts';

export const TIME_AND_CONTENT: readonly SchemeDescription[] = [
  /** Stripe: https://docs.stripe.com/webhooks/signature. Other entries (`v0=`) are for Stripe's tests and are ignored. */
  sender('stripe', 'Stripe', {
    docs: 'https://docs.stripe.com/webhooks/signature',
    key: "the endpoint's signing secret, whsec_…, as is; not an API key",
    ...TIME_AND_BODY,
    signature: hexListIn('Stripe-Signature', 'v1='),
    timestamp: { from: { entry: 't=' }, unit: 's' },
    id: { json: '$.id' },
    secret: { encoding: 'utf8', usualStart: 'whsec_' },
  }),
  /** WorkOS: https://workos.com/docs/events/data-syncing/webhooks. */
  sender('workos', 'WorkOS', {
    docs: 'https://workos.com/docs/events/data-syncing/webhooks',
    key: "the endpoint's signing secret, as is",
    ...TIME_AND_BODY,
    signature: hexListIn('WorkOS-Signature', 'v1='),
    timestamp: { from: { entry: 't=' }, unit: 'ms' },
    id: { json: '$.id' },
  }),
  /** Sanity: https://www.sanity.io/docs/content-lake/webhooks. Its toolkit does not check the timestamp; retries arrive within half an hour. */
  sender('sanity', 'Sanity', {
    docs: 'https://www.sanity.io/docs/content-lake/webhooks',
    key: "the webhook's secret, as it was entered",
    ...TIME_AND_BODY,
    signature: {
      header: 'Sanity-Webhook-Signature',
      encoding: 'base64url',
      list: ',',
      forms: [{ prefix: 'v1=', algorithm: 'hmac-sha256' }],
    },
    timestamp: { from: { entry: 't=' }, unit: 'ms' },
    id: { header: 'Idempotency-Key' },
    tolerance: minutes(60, 5),
    comparedHeaders: ['sanity-document-id', 'sanity-project-id'],
    methods: ANY_METHOD,
  }),
  /** ElevenLabs: https://elevenlabs.io/docs/eleven-agents/workflows/post-call-webhooks, which recommends a tolerance of half an hour. */
  sender('elevenlabs', 'ElevenLabs', {
    docs: 'https://elevenlabs.io/docs/eleven-agents/workflows/post-call-webhooks',
    key: 'the secret that is shown once, when the webhook is created',
    ...TIME_AND_BODY,
    signature: hexListIn('ElevenLabs-Signature', 'v0='),
    timestamp: { from: { entry: 't=' }, unit: 's' },
    tolerance: minutes(30, 5),
  }),
  /** Paddle Billing: https://developer.paddle.com/webhooks/signature-verification. During a rotation there are several `h1=` entries. */
  sender('paddle', 'Paddle (Billing)', {
    docs: 'https://developer.paddle.com/webhooks/signature-verification',
    key: "the notification destination's secret key, as is; not an API key",
    ...TIME_AND_BODY,
    signature: { header: 'Paddle-Signature', encoding: 'hex', list: ';', forms: [{ prefix: 'h1=', algorithm: 'hmac-sha256' }] },
    separator: ':',
    timestamp: { from: { entry: 'ts=' }, unit: 's' },
    id: { json: '$.event_id' },
  }),
  /** Slack: https://docs.slack.dev/authentication/verifying-requests-from-slack. Commands and buttons send forms without an ID. */
  sender('slack', 'Slack', {
    docs: 'https://docs.slack.dev/authentication/verifying-requests-from-slack',
    key: "the app's signing secret (Basic Information); not the verification token",
    ...VERSION_TIME_AND_BODY,
    handshake: 'slack',
    signature: hexIn('X-Slack-Signature', 'v0='),
    timestamp: { from: { header: 'X-Slack-Request-Timestamp' }, unit: 's' },
    id: { json: '$.event_id' },
    contentTypes: JSON_OR_FORM,
  }),
  /**
   * Zoom: https://developers.zoom.us/docs/api/webhooks. It documents no tolerance, and its SDK checks none. Retries continue for 85
   * minutes, and it is not documented that they get a new timestamp.
   */
  sender('zoom', 'Zoom', {
    docs: 'https://developers.zoom.us/docs/api/webhooks',
    key: "the app's secret token (Features, Event Subscriptions); not its client secret",
    ...VERSION_TIME_AND_BODY,
    handshake: 'zoom',
    signature: hexIn('X-Zm-Signature', 'v0='),
    timestamp: { from: { header: 'X-Zm-Request-Timestamp' }, unit: 's' },
    tolerance: minutes(120, 5),
  }),
  /** Webflow: https://developers.webflow.com/data/docs/working-with-webhooks. Webhooks created in the dashboard are not signed. */
  sender('webflow', 'Webflow', {
    docs: 'https://developers.webflow.com/data/docs/working-with-webhooks',
    key: "the OAuth app's client secret, or the secret of a webhook that was created through the API",
    ...TIME_AND_BODY,
    signature: hexIn('X-Webflow-Signature'),
    separator: ':',
    timestamp: { from: { header: 'X-Webflow-Timestamp' }, unit: 'ms' },
  }),
  /**
   * Twitch EventSub: https://dev.twitch.tv/docs/eventsub/handling-webhook-events. Nothing separates the signed parts. An ID
   * must not contain a colon, so the first colon of the signed string is 13 characters after the start of the timestamp, which ends with
   * its Z (layout.ts).
   */
  sender('twitch', 'Twitch (EventSub)', {
    docs: 'https://dev.twitch.tv/docs/eventsub/handling-webhook-events',
    key: 'the secret of 10 to 100 characters that the subscription was created with',
    ...TIME_AND_BODY,
    handshake: 'twitch',
    signature: hexIn('Twitch-Eventsub-Message-Signature', 'sha256='),
    signed: ['id', 'timestamp', 'body'],
    separator: '',
    timestamp: { from: { header: 'Twitch-Eventsub-Message-Timestamp' }, unit: 'rfc3339' },
    id: { header: 'Twitch-Eventsub-Message-Id' },
    tolerance: minutes(10),
    leastSecretBytes: 10,
  }),
];
