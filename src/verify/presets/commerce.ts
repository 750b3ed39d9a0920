/** Senders of shops, subscriptions, shipping and accounting. */
import type { SchemeDescription } from '../schemes/description.ts';
import { BODY, base64In, hexIn, JSON_ONLY, sender } from './shapes.ts';
import { polar } from './standard-webhooks.ts';

/** In order of their names. */
export const COMMERCE: readonly SchemeDescription[] = [
  /** As Standard Webhooks, with the client secret's text as the key. */
  sender('bigcommerce', 'BigCommerce', {
    docs: 'https://docs.bigcommerce.com/docs/integrations/webhooks',
    key: "the client secret of the app's or store's API account, as is; not in base64",
    ...polar,
    secret: { encoding: 'utf8' },
  }),
  /** Bodies are forms. */
  sender('chargify', 'Maxio (Chargify)', {
    docs: 'https://docs.maxio.com/hc/en-us/articles/24266143173901-Webhooks-Overview',
    key: "the site's shared key, as is; not an API key",
    ...BODY,
    signature: hexIn('X-Chargify-Webhook-Signature-Hmac-Sha-256'),
    id: { header: 'X-Chargify-Webhook-Id' },
    contentTypes: ['application/x-www-form-urlencoded'],
  }),
  /** The body does not name the event. */
  sender('commerce-layer', 'Commerce Layer', {
    docs: 'https://docs.commercelayer.io/core/callbacks-security',
    key: "the webhook's shared secret, as is; not a client secret",
    ...BODY,
    signature: base64In('X-CommerceLayer-Signature'),
    kind: ['X-CommerceLayer-Topic'],
    contentTypes: [...JSON_ONLY, 'application/vnd.api+json'],
  }),
  sender('easypost', 'EasyPost', {
    docs: 'https://docs.easypost.com/guides/webhooks-guide',
    key: 'the webhook secret that the webhook was created with; not an API key',
    ...BODY,
    signature: hexIn('X-Hmac-Signature', 'hmac-sha256-hex='),
    secret: { encoding: 'utf8', transform: 'nfkd' },
    id: { json: '$.id' },
  }),
  /** A delivery may contain several events. */
  sender('fastspring', 'FastSpring', {
    docs: 'https://developer.fastspring.com/reference/message-security',
    key: "the webhook's HMAC SHA256 secret, as it was entered",
    ...BODY,
    signature: base64In('X-FS-Signature'),
    id: { json: '$.events[*].id' },
  }),
  sender('lemon-squeezy', 'Lemon Squeezy', {
    docs: 'https://docs.lemonsqueezy.com/help/webhooks/signing-requests',
    key: "the webhook's signing secret, as it was entered",
    ...BODY,
    signature: hexIn('X-Signature'),
  }),
  /** Only events in the CloudEvents format have IDs. */
  sender('quickbooks', 'QuickBooks Online (Intuit)', {
    docs: 'https://developer.intuit.com/app/developer/qbo/docs/develop/webhooks',
    key: "the app's verifier token (Webhooks), as is; not its client secret",
    ...BODY,
    signature: base64In('Intuit-Signature'),
    id: { json: '$[*].id' },
    contentTypes: [...JSON_ONLY, 'application/cloudevents-batch+json'],
  }),
  sender('squarespace', 'Squarespace', {
    docs: 'https://developers.squarespace.com/webhooks/verifying-notifications',
    key: "the webhook subscription's secret, in hex, which is shown when it is created or rotated",
    ...BODY,
    signature: hexIn('Squarespace-Signature'),
    secret: { encoding: 'hex' },
    id: { json: '$.id' },
  }),
  /** A delivery contains several events without IDs. */
  sender('xero', 'Xero', {
    docs: 'https://developer.xero.com/documentation/guides/webhooks/overview',
    key: "the webhook signing key (the app's Webhooks tab), as is; not the client secret",
    ...BODY,
    signature: base64In('X-Xero-Signature'),
  }),
];
