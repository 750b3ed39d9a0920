/** Senders of shops, subscriptions, shipping and accounting. */
import type { SchemeDescription } from '../schemes/description.ts';
import { BODY, base64In, hexIn, JSON_ONLY } from './shapes.ts';
import { polar } from './standard-webhooks.ts';

/** As Standard Webhooks, with the client secret's text as the key. */
const bigcommerce: SchemeDescription = {
  ...polar,
  name: 'bigcommerce',
  from: {
    title: 'BigCommerce',
    docs: 'https://docs.bigcommerce.com/docs/integrations/webhooks',
    key: "the client secret of the app's or store's API account, as is; not in base64",
  },
  secret: { encoding: 'utf8' },
};

/** Bodies are forms. */
const chargify: SchemeDescription = {
  ...BODY,
  name: 'chargify',
  from: {
    title: 'Maxio (Chargify)',
    docs: 'https://docs.maxio.com/hc/en-us/articles/24266143173901-Webhooks-Overview',
    key: "the site's shared key, as is; not an API key",
  },
  signature: hexIn('X-Chargify-Webhook-Signature-Hmac-Sha-256'),
  id: { header: 'X-Chargify-Webhook-Id' },
  contentTypes: ['application/x-www-form-urlencoded'],
};

/** The body does not name the event. */
const commerceLayer: SchemeDescription = {
  ...BODY,
  name: 'commerce-layer',
  from: {
    title: 'Commerce Layer',
    docs: 'https://docs.commercelayer.io/core/callbacks-security',
    key: "the webhook's shared secret, as is; not a client secret",
  },
  signature: base64In('X-CommerceLayer-Signature'),
  kind: ['X-CommerceLayer-Topic'],
  contentTypes: [...JSON_ONLY, 'application/vnd.api+json'],
};

const easypost: SchemeDescription = {
  ...BODY,
  name: 'easypost',
  from: {
    title: 'EasyPost',
    docs: 'https://docs.easypost.com/guides/webhooks-guide',
    key: 'the webhook secret that the webhook was created with; not an API key',
  },
  signature: hexIn('X-Hmac-Signature', 'hmac-sha256-hex='),
  secret: { encoding: 'utf8', transform: 'nfkd' },
  id: { json: '$.id' },
};

/** A delivery may contain several events. */
const fastspring: SchemeDescription = {
  ...BODY,
  name: 'fastspring',
  from: {
    title: 'FastSpring',
    docs: 'https://developer.fastspring.com/reference/message-security',
    key: "the webhook's HMAC SHA256 secret, as it was entered",
  },
  signature: base64In('X-FS-Signature'),
  id: { json: '$.events[*].id' },
};

const lemonSqueezy: SchemeDescription = {
  ...BODY,
  name: 'lemon-squeezy',
  from: {
    title: 'Lemon Squeezy',
    docs: 'https://docs.lemonsqueezy.com/help/webhooks/signing-requests',
    key: "the webhook's signing secret, as it was entered",
  },
  signature: hexIn('X-Signature'),
};

/** Only events in the CloudEvents format have IDs. */
const quickbooks: SchemeDescription = {
  ...BODY,
  name: 'quickbooks',
  from: {
    title: 'QuickBooks Online (Intuit)',
    docs: 'https://developer.intuit.com/app/developer/qbo/docs/develop/webhooks',
    key: "the app's verifier token (Webhooks), as is; not its client secret",
  },
  signature: base64In('Intuit-Signature'),
  id: { json: '$[*].id' },
  contentTypes: [...JSON_ONLY, 'application/cloudevents-batch+json'],
};

const squarespace: SchemeDescription = {
  ...BODY,
  name: 'squarespace',
  from: {
    title: 'Squarespace',
    docs: 'https://developers.squarespace.com/webhooks/verifying-notifications',
    key: "the webhook subscription's secret, in hex, which is shown when it is created or rotated",
  },
  signature: hexIn('Squarespace-Signature'),
  secret: { encoding: 'hex' },
  id: { json: '$.id' },
};

/** A delivery contains several events without IDs. */
const xero: SchemeDescription = {
  ...BODY,
  name: 'xero',
  from: {
    title: 'Xero',
    docs: 'https://developer.xero.com/documentation/guides/webhooks/overview',
    key: "the webhook signing key (the app's Webhooks tab), as is; not the client secret",
  },
  signature: base64In('X-Xero-Signature'),
};

/** In order of their names. */
export const COMMERCE: readonly SchemeDescription[] = [
  bigcommerce,
  chargify,
  commerceLayer,
  easypost,
  fastspring,
  lemonSqueezy,
  quickbooks,
  squarespace,
  xero,
];
