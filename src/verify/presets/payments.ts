/** Senders of payments. Most sign only the raw body, so that an ID in the body or the signed bytes identify duplicates. */
import type { SchemeDescription } from '../schemes/description.ts';
import { BODY, base64In, hexIn, hexListIn, minutes, sender, TIME_AND_BODY, TOKEN, tokenIn } from './shapes.ts';

/** In order of their names. */
export const PAYMENTS: readonly SchemeDescription[] = [
  /** Retries follow for three days, and it is not documented that they get a new timestamp. */
  sender('airwallex', 'Airwallex', {
    docs: 'https://www.airwallex.com/docs/developer-tools/webhooks/listen-for-webhook-events',
    key: 'the secret of this notification URL (Settings, Developer, Webhooks), as is',
    ...BODY,
    signature: hexIn('X-Signature'),
    // Without a separator, so the timestamp must have exactly 13 digits (layout.ts).
    signed: ['timestamp', 'body'],
    timestamp: { from: { header: 'X-Timestamp' }, unit: 'ms' },
    id: { json: '$.id' },
    tolerance: minutes(71 * 60, 5),
  }),
  /** The sender documents no tolerance. */
  sender('cashfree', 'Cashfree (payments)', {
    docs: 'https://www.cashfree.com/docs/api-reference/payments/latest/webhooks/overview',
    key: "the account's client secret, as is",
    ...BODY,
    signature: base64In('X-Webhook-Signature'),
    signed: ['timestamp', 'body'],
    timestamp: { from: { header: 'X-Webhook-Timestamp' }, unit: 'ms' },
    tolerance: minutes(120, 5),
  }),
  sender('checkout-com', 'Checkout.com', {
    docs: 'https://www.checkout.com/docs/developer-resources/event-notifications/receive-webhooks',
    key: "the webhook's signature key, as is; not its authorization key",
    ...BODY,
    signature: hexIn('Cko-Signature'),
    id: { json: '$.id' },
  }),
  /** Each attempt has its number in the body. */
  sender('coinbase-commerce', 'Coinbase Commerce', {
    docs: 'https://docs.cloud.coinbase.com/commerce/docs/webhooks-security',
    key: 'the webhook shared secret (Settings, Notifications), as is',
    ...BODY,
    signature: hexIn('X-CC-Webhook-Signature'),
    id: { json: '$.event.id' },
  }),
  sender('dwolla', 'Dwolla', {
    docs: 'https://developers.dwolla.com/docs/balance/webhooks',
    key: 'the secret that the webhook subscription was created with',
    ...BODY,
    signature: hexIn('X-Request-Signature-SHA-256'),
    id: { json: '$.id' },
  }),
  sender('flutterwave', 'Flutterwave (v4)', {
    docs: 'https://developer.flutterwave.com/docs/webhooks',
    key: 'the secret hash (Settings, Webhooks), as it was entered; with API v3 use scheme: flutterwave-v3',
    ...BODY,
    signature: base64In('Flutterwave-Signature'),
  }),
  /** The header contains the secret hash itself. */
  sender('flutterwave-v3', 'Flutterwave (v3)', {
    docs: 'https://developer.flutterwave.com/v3.0/docs/webhooks',
    key: 'the secret hash (Settings, Webhooks), as it was entered',
    ...TOKEN,
    signature: tokenIn('Verif-Hash'),
  }),
  /** A delivery has up to 250 events. */
  sender('gocardless', 'GoCardless', {
    docs: 'https://developer.gocardless.com/api-reference/#webhooks-overview',
    key: "the webhook endpoint's secret, as is; not an access token",
    ...BODY,
    signature: hexIn('Webhook-Signature'),
    id: { json: '$.events[*].id' },
  }),
  /** Classic webhooks are not signed. */
  sender('mollie', 'Mollie (next-gen webhooks)', {
    docs: 'https://docs.mollie.com/reference/webhooks-best-practices',
    key: "the webhook's signing secret, as is; not an API key",
    ...BODY,
    signature: hexIn('X-Mollie-Signature', 'sha256='),
    id: { json: '$.id' },
  }),
  sender('paystack', 'Paystack', {
    docs: 'https://paystack.com/docs/payments/webhooks',
    key: "the account's secret key, sk_live_… or sk_test_…, as is",
    ...BODY,
    signature: { header: 'X-Paystack-Signature', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha512' }] },
    secret: { encoding: 'utf8', usualStart: 'sk_' },
    // customeridentification.failed has no time: two attempts with the same data.
    repeatsBytes: true,
  }),
  sender('razorpay', 'Razorpay', {
    docs: 'https://razorpay.com/docs/webhooks/validate-test',
    key: "the webhook's secret, as it was entered; not the API key secret",
    ...BODY,
    signature: hexIn('X-Razorpay-Signature'),
    id: { header: 'X-Razorpay-Event-Id' },
  }),
  /**
   * For a day after a rotation both keys sign. Its own libraries accept a timestamp for five minutes, although retries follow for three days. Its
   * events have no ID.
   */
  sender('recurly', 'Recurly (JSON webhooks)', {
    docs: 'https://docs.recurly.com/recurly-subscriptions/docs/signature-verification',
    key: "the endpoint's secret key (Integrations, Webhooks), as is; not an API key",
    ...TIME_AND_BODY,
    signature: hexListIn('recurly-signature', ''),
    timestamp: { from: { entry: '', first: true }, unit: 'ms' },
  }),
  sender('revolut', 'Revolut (Merchant, Business)', {
    docs: 'https://developer.revolut.com/docs/guides/merchant/monitor-and-observe/webhooks/verify-the-payload-signature',
    key: "the webhook's signing secret, wsk_…, as is",
    ...BODY,
    signature: hexListIn('Revolut-Signature', 'v1='),
    signed: [{ text: 'v1' }, 'timestamp', 'body'],
    separator: '.',
    timestamp: { from: { header: 'Revolut-Request-Timestamp' }, unit: 'ms' },
    secret: { encoding: 'utf8', usualStart: 'wsk_' },
  }),
];
