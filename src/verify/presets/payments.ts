/** Senders of payments. Most sign only the raw body, so that an ID in the body or the signed bytes identify duplicates. */
import type { SchemeDescription } from '../schemes/description.ts';
import { BODY, base64In, hexIn, hexListIn, minutes, TIME_AND_BODY, TOKEN, tokenIn } from './shapes.ts';

/** Retries follow for three days, and it is not documented that they get a new timestamp. */
const airwallex: SchemeDescription = {
  ...BODY,
  name: 'airwallex',
  from: {
    title: 'Airwallex',
    docs: 'https://www.airwallex.com/docs/developer-tools/webhooks/listen-for-webhook-events',
    key: 'the secret of this notification URL (Settings, Developer, Webhooks), as is',
  },
  signature: hexIn('X-Signature'),
  // Without a separator, so the timestamp must have exactly 13 digits (layout.ts).
  signed: ['timestamp', 'body'],
  timestamp: { from: { header: 'X-Timestamp' }, unit: 'ms' },
  id: { json: '$.id' },
  tolerance: minutes(71 * 60, 5),
};

/** The sender documents no tolerance. */
const cashfree: SchemeDescription = {
  ...BODY,
  name: 'cashfree',
  from: {
    title: 'Cashfree (payments)',
    docs: 'https://www.cashfree.com/docs/api-reference/payments/latest/webhooks/overview',
    key: "the account's client secret, as is",
  },
  signature: base64In('X-Webhook-Signature'),
  signed: ['timestamp', 'body'],
  timestamp: { from: { header: 'X-Webhook-Timestamp' }, unit: 'ms' },
  tolerance: minutes(120, 5),
};

const checkoutCom: SchemeDescription = {
  ...BODY,
  name: 'checkout-com',
  from: {
    title: 'Checkout.com',
    docs: 'https://www.checkout.com/docs/developer-resources/event-notifications/receive-webhooks',
    key: "the webhook's signature key, as is; not its authorization key",
  },
  signature: hexIn('Cko-Signature'),
  id: { json: '$.id' },
};

/** Each attempt has its number in the body. */
const coinbaseCommerce: SchemeDescription = {
  ...BODY,
  name: 'coinbase-commerce',
  from: {
    title: 'Coinbase Commerce',
    docs: 'https://docs.cloud.coinbase.com/commerce/docs/webhooks-security',
    key: 'the webhook shared secret (Settings, Notifications), as is',
  },
  signature: hexIn('X-CC-Webhook-Signature'),
  id: { json: '$.event.id' },
};

const dwolla: SchemeDescription = {
  ...BODY,
  name: 'dwolla',
  from: {
    title: 'Dwolla',
    docs: 'https://developers.dwolla.com/docs/balance/webhooks',
    key: 'the secret that the webhook subscription was created with',
  },
  signature: hexIn('X-Request-Signature-SHA-256'),
  id: { json: '$.id' },
};

const flutterwave: SchemeDescription = {
  ...BODY,
  name: 'flutterwave',
  from: {
    title: 'Flutterwave (v4)',
    docs: 'https://developer.flutterwave.com/docs/webhooks',
    key: 'the secret hash (Settings, Webhooks), as it was entered; with API v3 use scheme: flutterwave-v3',
  },
  signature: base64In('Flutterwave-Signature'),
};

/** The header contains the secret hash itself. */
const flutterwaveV3: SchemeDescription = {
  ...TOKEN,
  name: 'flutterwave-v3',
  from: {
    title: 'Flutterwave (v3)',
    docs: 'https://developer.flutterwave.com/v3.0/docs/webhooks',
    key: 'the secret hash (Settings, Webhooks), as it was entered',
  },
  signature: tokenIn('Verif-Hash'),
};

/** A delivery has up to 250 events. */
const gocardless: SchemeDescription = {
  ...BODY,
  name: 'gocardless',
  from: {
    title: 'GoCardless',
    docs: 'https://developer.gocardless.com/api-reference/#webhooks-overview',
    key: "the webhook endpoint's secret, as is; not an access token",
  },
  signature: hexIn('Webhook-Signature'),
  id: { json: '$.events[*].id' },
};

/** Classic webhooks are not signed. */
const mollie: SchemeDescription = {
  ...BODY,
  name: 'mollie',
  from: {
    title: 'Mollie (next-gen webhooks)',
    docs: 'https://docs.mollie.com/reference/webhooks-best-practices',
    key: "the webhook's signing secret, as is; not an API key",
  },
  signature: hexIn('X-Mollie-Signature', 'sha256='),
  id: { json: '$.id' },
};

const paystack: SchemeDescription = {
  ...BODY,
  name: 'paystack',
  from: {
    title: 'Paystack',
    docs: 'https://paystack.com/docs/payments/webhooks',
    key: "the account's secret key, sk_live_… or sk_test_…, as is",
  },
  signature: { header: 'X-Paystack-Signature', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha512' }] },
  secret: { encoding: 'utf8', usualStart: 'sk_' },
  // customeridentification.failed has no time: two attempts with the same data.
  repeatsBytes: true,
};

const razorpay: SchemeDescription = {
  ...BODY,
  name: 'razorpay',
  from: {
    title: 'Razorpay',
    docs: 'https://razorpay.com/docs/webhooks/validate-test',
    key: "the webhook's secret, as it was entered; not the API key secret",
  },
  signature: hexIn('X-Razorpay-Signature'),
  id: { header: 'X-Razorpay-Event-Id' },
};

/**
 * For a day after a rotation both keys sign. Its own libraries accept a timestamp for five minutes, although retries follow for three days. Its
 * events have no ID.
 */
const recurly: SchemeDescription = {
  ...TIME_AND_BODY,
  name: 'recurly',
  from: {
    title: 'Recurly (JSON webhooks)',
    docs: 'https://docs.recurly.com/recurly-subscriptions/docs/signature-verification',
    key: "the endpoint's secret key (Integrations, Webhooks), as is; not an API key",
  },
  signature: hexListIn('recurly-signature', ''),
  timestamp: { from: { entry: '', first: true }, unit: 'ms' },
};

const revolut: SchemeDescription = {
  ...BODY,
  name: 'revolut',
  from: {
    title: 'Revolut (Merchant, Business)',
    docs: 'https://developer.revolut.com/docs/guides/merchant/monitor-and-observe/webhooks/verify-the-payload-signature',
    key: "the webhook's signing secret, wsk_…, as is",
  },
  signature: hexListIn('Revolut-Signature', 'v1='),
  signed: [{ text: 'v1' }, 'timestamp', 'body'],
  separator: '.',
  timestamp: { from: { header: 'Revolut-Request-Timestamp' }, unit: 'ms' },
  secret: { encoding: 'utf8', usualStart: 'wsk_' },
};

/** In order of their names. */
export const PAYMENTS: readonly SchemeDescription[] = [
  airwallex,
  cashfree,
  checkoutCom,
  coinbaseCommerce,
  dwolla,
  flutterwave,
  flutterwaveV3,
  gocardless,
  mollie,
  paystack,
  razorpay,
  recurly,
  revolut,
];
