/** Standard Webhooks (standardwebhooks.com, specification v1), and Svix, which signs alike under names of its own. */
import type { SchemeDescription } from '../description.ts';
import { FIVE_MINUTES, JSON_ONLY } from './defaults.ts';

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

/** The specification's own names. */
export const standardWebhooks: SchemeDescription = {
  ...COMMON,
  name: 'standard-webhooks',
  from: {
    title: 'Standard Webhooks',
    docs: 'https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md',
    key: 'the secret, whsec_… in base64, or the public key, whpk_…',
  },
  signature: { ...SIGNATURE, header: 'Webhook-Signature' },
  timestamp: { from: { header: 'Webhook-Timestamp' }, unit: 's' },
  id: { header: 'Webhook-Id' },
  twins: { 'Webhook-Id': 'Svix-Id', 'Webhook-Timestamp': 'Svix-Timestamp', 'Webhook-Signature': 'Svix-Signature' },
};

/** Svix's own names, where the sender did not rename them. */
export const svix: SchemeDescription = {
  ...COMMON,
  name: 'svix',
  from: {
    title: 'Svix',
    docs: 'https://docs.svix.com/receiving/verifying-payloads/how-manual',
    key: "the endpoint's signing secret, whsec_… in base64, or the public key, whpk_…",
  },
  signature: { ...SIGNATURE, header: 'Svix-Signature' },
  timestamp: { from: { header: 'Svix-Timestamp' }, unit: 's' },
  id: { header: 'Svix-Id' },
  twins: { 'Svix-Id': 'Webhook-Id', 'Svix-Timestamp': 'Webhook-Timestamp', 'Svix-Signature': 'Webhook-Signature' },
};

/**
 * Polar: https://polar.sh/docs/integrate/webhooks/delivery. Standard Webhooks but for the key, which is the secret's own text; where
 * Polar has moved on to decode what follows `whsec_`, the key's `encoding: base64` does too.
 */
export const polar: SchemeDescription = {
  name: 'polar',
  from: {
    title: 'Polar',
    docs: 'https://polar.sh/docs/integrate/webhooks/delivery',
    key: "the endpoint's secret, as it stands; for signatures of the newer kind give it once more with encoding: base64",
  },
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
};
