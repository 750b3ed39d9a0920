/** Senders that sign the URL that they call, so that the route must know its public URL. */
import type { SchemeDescription } from '../schemes/description.ts';
import { BODY, base64In, JSON_OR_FORM, sender } from './shapes.ts';

export const SIGNED_URL: readonly SchemeDescription[] = [
  /**
   * Twilio: https://www.twilio.com/docs/usage/webhooks/webhooks-security. For forms the parameters are signed, for other bodies their
   * digest in the query.
   */
  sender('twilio', 'Twilio', {
    docs: 'https://www.twilio.com/docs/usage/webhooks/webhooks-security',
    key: "the account's primary auth token; not an API key's secret",
    ...BODY,
    signature: { header: 'X-Twilio-Signature', encoding: 'base64', forms: [{ prefix: '', algorithm: 'hmac-sha1' }] },
    signed: ['url', 'form'],
    id: { header: 'I-Twilio-Idempotency-Token' },
    contentTypes: JSON_OR_FORM,
    methods: ['POST', 'GET'],
    isPortOptional: true,
    contentDigestParameter: 'bodySHA256',
    // A caller who presses the same key again in a menu.
    repeatsBytes: true,
  }),
  /** Square: https://developer.squareup.com/docs/webhooks/step3validate. The signed URL is the one in the subscription. */
  sender('square', 'Square', {
    docs: 'https://developer.squareup.com/docs/webhooks/step3validate',
    key: "the subscription's signature key, as is; not an access token",
    ...BODY,
    signature: base64In('X-Square-HmacSha256-Signature'),
    signed: ['url', 'body'],
    id: { json: '$.event_id' },
    contentShape: 'json-object',
  }),
  /** HubSpot, signature v3: https://developers.hubspot.com/docs/apps/developer-platform/build-apps/authentication/request-validation. */
  sender('hubspot', 'HubSpot (v3)', {
    docs: 'https://developers.hubspot.com/docs/apps/developer-platform/build-apps/authentication/request-validation',
    key: "the app's client secret, as is",
    ...BODY,
    signature: base64In('X-HubSpot-Signature-v3'),
    signed: ['method', 'url', 'body', 'timestamp'],
    timestamp: { from: { header: 'X-HubSpot-Request-Timestamp' }, unit: 'ms' },
    decodedInUrl: ":/?@!$'()*,;",
    contentShape: 'json-object-or-array',
  }),
];
