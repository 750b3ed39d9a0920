/** Senders that sign only the raw body, without a timestamp or an ID, so that the signed bytes identify duplicates. */
import type { SchemeDescription } from '../schemes/description.ts';
import { BODY, base64In, hexIn, hexListIn, JSON_ONLY, JSON_OR_FORM, minutes, sender } from './shapes.ts';

/** The header that GitHub and Meta both use. */
const HUB_SIGNATURE = hexIn('X-Hub-Signature-256', 'sha256=');

const META = { ...BODY, handshake: 'meta', signature: HUB_SIGNATURE } as const;
const META_SECRET = "the app's secret (App settings, Basic), as is; not the verify token";

export const CONTENT_HMAC: readonly SchemeDescription[] = [
  /** GitHub: https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries. */
  sender('github', 'GitHub', {
    docs: 'https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries',
    key: 'the secret that was entered when the webhook was created',
    ...BODY,
    signature: HUB_SIGNATURE,
    id: { header: 'X-GitHub-Delivery' },
    // A member who is added, removed and added again: neither body has a time.
    repeatsBytes: true,
    contentTypes: JSON_OR_FORM,
    comparedHeaders: ['X-GitHub-Hook-Installation-Target-ID'],
  }),
  /** Shopify, webhooks: https://shopify.dev/docs/apps/build/webhooks/verify-deliveries. */
  sender('shopify', 'Shopify (webhooks)', {
    docs: 'https://shopify.dev/docs/apps/build/webhooks/verify-deliveries',
    key: "the app's client secret, as is; after a rotation Shopify may sign with the old one for an hour",
    ...BODY,
    signature: base64In('X-Shopify-Hmac-Sha256'),
    kind: ['X-Shopify-Topic'],
    id: { header: 'X-Shopify-Webhook-Id' },
    // A subscription has the format JSON or XML.
    contentTypes: [...JSON_ONLY, 'application/xml'],
    // Topics such as product_listings/remove and inventory_levels/disconnect have only IDs.
    repeatsBytes: true,
  }),
  /** Shopify, events: as for webhooks, with headers without `X-` (https://shopify.dev/docs/apps/build/events/verify-deliveries). */
  sender('shopify-events', 'Shopify (events)', {
    docs: 'https://shopify.dev/docs/apps/build/events/verify-deliveries',
    key: "the app's client secret, as is",
    ...BODY,
    signature: base64In('Shopify-Hmac-Sha256'),
    kind: ['Shopify-Topic', 'Shopify-Action'],
    id: { header: 'Shopify-Webhook-Id' },
    // It is not documented that each body has a time.
    repeatsBytes: true,
  }),
  /** PagerDuty, webhooks v3: https://developer.pagerduty.com/docs/verifying-signatures. */
  sender('pagerduty', 'PagerDuty (v3)', {
    docs: 'https://developer.pagerduty.com/docs/verifying-signatures',
    key: "the subscription's secret, which is shown once, when it is created",
    ...BODY,
    signature: hexListIn('X-PagerDuty-Signature', 'v1='),
    // Signed, unlike X-Webhook-Id.
    id: { json: '$.event.id' },
  }),
  /**
   * Linear: https://linear.app/developers/webhooks. Retries follow after a minute, an hour and six hours, and it is not documented that
   * they get a new timestamp. A replay within that time is detected by the signed bytes.
   */
  sender('linear', 'Linear', {
    docs: 'https://linear.app/developers/webhooks',
    key: "the signing secret on the webhook's page",
    ...BODY,
    signature: hexIn('Linear-Signature'),
    timestamp: { from: { json: '$.webhookTimestamp' }, unit: 'ms' },
    id: { header: 'Linear-Delivery' },
    tolerance: minutes(8 * 60, 5),
  }),
  /** Meta (Messenger, Instagram, Pages): https://developers.facebook.com/docs/graph-api/webhooks/getting-started. */
  sender('meta', 'Meta (Messenger, Instagram, Pages)', {
    docs: 'https://developers.facebook.com/docs/graph-api/webhooks/getting-started',
    key: META_SECRET,
    ...META,
  }),
  /** WhatsApp, which signs like Meta: https://developers.facebook.com/docs/whatsapp/cloud-api/guides/set-up-webhooks. */
  sender('whatsapp', 'WhatsApp (Cloud API)', {
    docs: 'https://developers.facebook.com/docs/whatsapp/cloud-api/guides/set-up-webhooks',
    key: META_SECRET,
    ...META,
  }),
  /** LINE: https://developers.line.biz/en/docs/messaging-api/verify-webhook-signature. */
  sender('line', 'LINE (Messaging API)', {
    docs: 'https://developers.line.biz/en/docs/messaging-api/verify-webhook-signature',
    key: "the channel secret on the channel's page, as is; not the channel access token",
    ...BODY,
    signature: base64In('X-Line-Signature'),
    // The body of a redelivery is marked as such, so the signed bytes do not identify the event.
    id: { json: '$.events[*].webhookEventId' },
  }),
  /**
   * Adyen's webhooks for platforms, banking and issuing: https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures.
   * Webhooks for payments contain a signature of some fields in their body, and do not use this scheme.
   */
  sender('adyen-platforms', 'Adyen (platforms, banking, issuing)', {
    docs: 'https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures',
    key: "the webhook's HMAC key, 64 hex digits",
    ...BODY,
    signature: base64In('HmacSignature'),
    secret: { encoding: 'hex' },
  }),
  /**
   * WooCommerce: https://woocommerce.com/document/webhooks. Its delivery ID does not identify an event: it changes with each attempt,
   * and two deliveries in one second share it. It decodes HTML entities in the secret (`wp_specialchars_decode`) before it signs.
   */
  sender('woocommerce', 'WooCommerce', {
    docs: 'https://woocommerce.com/document/webhooks',
    key: "the webhook's secret, as it was entered",
    ...BODY,
    handshake: 'woocommerce',
    signature: base64In('X-WC-Webhook-Signature'),
    kind: ['X-WC-Webhook-Topic'],
    secret: { encoding: 'utf8', transform: 'html-entities' },
    comparedHeaders: ['X-WC-Webhook-ID'],
    // The body of each event of a deletion is the ID alone, and what is in the trash can be restored and deleted again.
    repeatsBytes: true,
  }),
  /**
   * X: https://docs.x.com/x-api/webhooks/quickstart. Anyone can get the HMAC of a token through the CRC, so only JSON objects are events.
   */
  sender('x', 'X', {
    docs: 'https://docs.x.com/x-api/webhooks/quickstart',
    key: "the app's consumer secret (API key secret)",
    ...BODY,
    handshake: 'x',
    signature: base64In('X-Twitter-Webhooks-Signature', 'sha256='),
    contentShape: 'json-object',
  }),
];
