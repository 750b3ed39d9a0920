/** Senders of answers to forms, of bookings, and of checks of identities. */
import type { SchemeDescription } from '../schemes/description.ts';
import { BODY, base64In, hexIn, hexListIn, JSON_OR_FORM, minutes, sender, TIME_AND_BODY } from './shapes.ts';

/** The time is an entry of the signature header, as Stripe writes it. */
const AS_STRIPE = { ...TIME_AND_BODY, timestamp: { from: { entry: 't=' }, unit: 's' } } as const;

/** In order of their names. */
export const FORMS: readonly SchemeDescription[] = [
  /** Without a secret, its header contains no signature. A custom payload that is not JSON is sent as a form. */
  sender('cal-com', 'Cal.com', {
    docs: 'https://cal.com/docs/developing/guides/automation/webhooks',
    key: "the webhook's secret, as it was entered",
    ...BODY,
    signature: hexIn('X-Cal-Signature-256'),
    contentTypes: JSON_OR_FORM,
  }),
  /** Calendly: https://developer.calendly.com/api-docs/overview/webhooks/webhook-signatures, whose example allows three minutes. */
  sender('calendly', 'Calendly', {
    docs: 'https://developer.calendly.com/api-docs/overview/webhooks/webhook-signatures',
    key: 'the webhook signing key, which was sent with the subscription or belongs to the OAuth app',
    ...AS_STRIPE,
    signature: hexListIn('Calendly-Webhook-Signature', 'v1='),
  }),
  sender('onfido', 'Onfido', {
    docs: 'https://documentation.onfido.com/api/latest#verifying-webhook-signatures',
    key: "the webhook's token, which is shown once, when it is created; not an API token",
    ...BODY,
    signature: hexIn('X-SHA2-Signature'),
    // The body has the time of a completion only: a check that is reopened twice.
    repeatsBytes: true,
  }),
  /**
   * The sender documents no tolerance, and not that retries get a new timestamp. While a secret is rotated, the header contains two lists with a space
   * between them, of which only the last signature counts here.
   */
  sender('persona', 'Persona', {
    docs: 'https://docs.withpersona.com/webhooks-best-practices',
    key: "the webhook's secret, wbhsec_…, as is; not an API key",
    ...AS_STRIPE,
    signature: hexListIn('Persona-Signature', 'v1='),
    secret: { encoding: 'utf8', usualStart: 'wbhsec_' },
    id: { json: '$.data.id' },
    tolerance: minutes(25 * 60, 5),
  }),
  /** Retries follow for 72 hours, and it is not documented that they get a new timestamp. TikTok Shop signs in another way. */
  sender('tiktok', 'TikTok (for developers)', {
    docs: 'https://developers.tiktok.com/doc/webhooks-verification',
    key: "the app's client secret, as is",
    ...AS_STRIPE,
    signature: hexListIn('TikTok-Signature', 's='),
    tolerance: minutes(71 * 60, 5),
  }),
  sender('typeform', 'Typeform', {
    docs: 'https://www.typeform.com/developers/webhooks/secure-your-webhooks',
    key: "the webhook's secret, as it was entered",
    ...BODY,
    signature: base64In('Typeform-Signature', 'sha256='),
    id: { json: '$.event_id' },
  }),
];
