/** Senders of video, audio, calls and devices. */
import type { SchemeDescription } from '../schemes/description.ts';
import { BODY, hexIn, hexListIn, JSON_OR_FORM, minutes, sender, TIME_AND_BODY, VERSION_TIME_AND_BODY } from './shapes.ts';

/** All of them. */
export const MEDIA_AND_VOICE: readonly SchemeDescription[] = [
  sender('mux', 'Mux', {
    docs: 'https://www.mux.com/docs/core/verify-webhook-signatures',
    key: "the webhook's signing secret; not the secret of an access token",
    ...TIME_AND_BODY,
    signature: hexListIn('Mux-Signature', 'v1='),
    timestamp: { from: { entry: 't=' }, unit: 's' },
    id: { json: '$.id' },
  }),
  /** Cloudflare Stream: https://developers.cloudflare.com/stream/manage-video-library/using-webhooks. */
  sender('cloudflare-stream', 'Cloudflare Stream', {
    docs: 'https://developers.cloudflare.com/stream/manage-video-library/using-webhooks/#verify-webhook-authenticity',
    key: 'the secret of the response that created the webhook; not an API token',
    ...TIME_AND_BODY,
    signature: hexListIn('Webhook-Signature', 'sig1='),
    timestamp: { from: { entry: 'time=' }, unit: 's' },
  }),
  sender('frame-io', 'Frame.io', {
    docs: 'https://next.developer.frame.io/platform/docs/guides/webhooks',
    key: "the webhook's signing secret, which is shown once; each webhook and custom action has its own",
    ...VERSION_TIME_AND_BODY,
    signature: hexIn('X-Frameio-Signature', 'v0='),
    timestamp: { from: { header: 'X-Frameio-Request-Timestamp' }, unit: 's' },
  }),
  /** Bunny Stream: https://docs.bunny.net/stream/webhooks. Each finished resolution of a video is an event, and all of them are the same bytes. */
  sender('bunny-stream', 'Bunny Stream', {
    docs: 'https://docs.bunny.net/stream/webhooks#signature-validation',
    key: "the video library's read-only API key",
    ...BODY,
    signature: hexIn('X-BunnyStream-Signature'),
    repeatsBytes: true,
  }),
  /** The timestamp follows the body directly, so it must have exactly 13 digits (layout.ts). */
  sender('retell', 'Retell AI', {
    docs: 'https://docs.retellai.com/features/secure-webhook',
    key: 'the API key that has the webhook badge, key_…',
    ...TIME_AND_BODY,
    signature: hexListIn('X-Retell-Signature', 'd='),
    signed: ['body', 'timestamp'],
    separator: '',
    timestamp: { from: { entry: 'v=' }, unit: 'ms' },
  }),
  /** The sender documents a tolerance of five minutes. */
  sender('telnyx', 'Telnyx', {
    docs: 'https://developers.telnyx.com/docs/development/api-fundamentals/webhooks',
    key: 'the public key of the account (Keys & Credentials, Public Key), in base64, as is; not an API key',
    ...TIME_AND_BODY,
    signature: { header: 'Telnyx-Signature-Ed25519', encoding: 'base64', forms: [{ prefix: '', algorithm: 'ed25519' }] },
    separator: '|',
    timestamp: { from: { header: 'Telnyx-Timestamp' }, unit: 's' },
    id: { json: '$.data.id' },
    publicKey: { encoding: 'base64', format: 'raw' },
    // Callbacks of TeXML are forms.
    contentTypes: JSON_OR_FORM,
  }),
  sender('fireflies', 'Fireflies (v2)', {
    docs: 'https://docs.fireflies.ai/graphql-api/webhooks-v2',
    key: 'the signing secret, as it was entered; not the API key',
    ...BODY,
    signature: hexIn('X-Hub-Signature', 'sha256='),
  }),
  /** Pusher Channels: https://pusher.com/docs/channels/server_api/webhooks. Retries follow for five minutes. */
  sender('pusher', 'Pusher (Channels)', {
    docs: 'https://pusher.com/docs/channels/server_api/webhooks/#authentication',
    key: "the app's secret, which belongs to the key in X-Pusher-Key; not the key itself",
    ...BODY,
    signature: hexIn('X-Pusher-Signature'),
    timestamp: { from: { json: '$.time_ms' }, unit: 'ms' },
    tolerance: minutes(15, 5),
  }),
  sender('enode', 'Enode', {
    docs: 'https://developers.enode.com/docs/webhooks',
    key: 'the secret that the webhook was created with; not the client secret',
    ...BODY,
    signature: { header: 'X-Enode-Signature', encoding: 'hex', forms: [{ prefix: 'sha1=', algorithm: 'hmac-sha1' }] },
    id: { header: 'X-Enode-Delivery' },
  }),
  /** Alchemy: https://www.alchemy.com/docs/reference/notify-api-quickstart. */
  sender('alchemy', 'Alchemy (Notify)', {
    docs: 'https://www.alchemy.com/docs/reference/notify-api-quickstart#webhook-signature--security',
    key: "the webhook's signing key, whsec_…, as is; not the auth token",
    ...BODY,
    signature: hexIn('X-Alchemy-Signature'),
    id: { json: '$.id' },
    secret: { encoding: 'utf8', usualStart: 'whsec_' },
  }),
  sender('smartcar', 'Smartcar', {
    docs: 'https://smartcar.com/docs/integrations/webhooks/payload-verification',
    key: 'the application management token; not the client secret',
    ...BODY,
    handshake: 'smartcar',
    signature: hexIn('SC-Signature'),
    id: { json: '$.eventId' },
  }),
];
