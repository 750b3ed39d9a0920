/** Standard Webhooks (standardwebhooks.com, specification v1), and Svix, which uses the same scheme with other header names. */
import type { SchemeDescription } from '../schemes/description.ts';
import { FIVE_MINUTES, JSON_ONLY, sender } from './shapes.ts';

const COMMON = {
  signed: ['id', 'timestamp', 'body'],
  separator: '.',
  secret: { encoding: 'base64', prefix: 'whsec_' },
  publicKey: { encoding: 'base64', format: 'raw', prefix: 'whpk_', privatePrefix: 'whsk_' },
  tolerance: FIVE_MINUTES,
  contentTypes: JSON_ONLY,
  leastSecretBytes: 24,
} as const;

const SIGNATURE = {
  encoding: 'base64',
  list: ' ',
  forms: [
    { prefix: 'v1,', algorithm: 'hmac-sha256' },
    { prefix: 'v1a,', algorithm: 'ed25519' },
  ],
} as const;

/** The header names of the specification. */
export const standardWebhooks: SchemeDescription = sender('standard-webhooks', 'Standard Webhooks', {
  docs: 'https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md',
  key: 'the secret, whsec_… and base64, or the public key, whpk_…',
  ...COMMON,
  signature: { ...SIGNATURE, header: 'Webhook-Signature' },
  timestamp: { from: { header: 'Webhook-Timestamp' }, unit: 's' },
  id: { header: 'Webhook-Id' },
  twins: { 'Webhook-Id': 'Svix-Id', 'Webhook-Timestamp': 'Svix-Timestamp', 'Webhook-Signature': 'Svix-Signature' },
});

/** Svix's default header names. Senders can configure those of the specification, and all Svix libraries accept both. */
export const svix: SchemeDescription = sender('svix', 'Svix', {
  docs: 'https://docs.svix.com/receiving/verifying-payloads/how-manual',
  key: "the endpoint's signing secret, whsec_… and base64, or the public key, whpk_…",
  ...COMMON,
  signature: { ...SIGNATURE, header: 'Svix-Signature' },
  timestamp: { from: { header: 'Svix-Timestamp' }, unit: 's' },
  id: { header: 'Svix-Id' },
  twins: { 'Svix-Id': 'Webhook-Id', 'Svix-Timestamp': 'Webhook-Timestamp', 'Svix-Signature': 'Webhook-Signature' },
  acceptsTwins: true,
});

/**
 * Polar: https://polar.sh/docs/integrate/webhooks/delivery. As Standard Webhooks, except that the key is the secret's text itself. For
 * newer endpoints, where Polar decodes the text after `whsec_`, set `encoding: base64` on the key.
 */
export const polar: SchemeDescription = sender('polar', 'Polar', {
  docs: 'https://polar.sh/docs/integrate/webhooks/delivery',
  key: "the endpoint's secret, as is; for signatures of the newer kind add it a second time with encoding: base64",
  signature: {
    header: 'Webhook-Signature',
    encoding: 'base64',
    list: ' ',
    forms: [{ prefix: 'v1,', algorithm: 'hmac-sha256' }],
  },
  signed: ['id', 'timestamp', 'body'],
  separator: '.',
  timestamp: { from: { header: 'Webhook-Timestamp' }, unit: 's' },
  id: { header: 'Webhook-Id' },
  secret: { encoding: 'utf8', prefix: 'whsec_' },
  tolerance: FIVE_MINUTES,
  contentTypes: JSON_ONLY,
});
