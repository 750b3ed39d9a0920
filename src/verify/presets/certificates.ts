/** Senders that sign by RSA: with a pinned key, or with a certificate that each delivery names. */
import type { SchemeDescription } from '../schemes/description.ts';
import { JSON_ONLY, minutes, sender } from './shapes.ts';

const RSA_KEY = { encoding: 'base64', format: 'spki' } as const;

/**
 * PayPal: https://developer.paypal.com/api/rest/webhooks/rest. It retries for three days, and does not document that retries get a new
 * time. The host serves the certificate without its issuers, so the TLS connection to the pinned host is what vouches for it.
 */
function toPaypal(name: string, title: string, domain: string): SchemeDescription {
  return sender(name, title, {
    docs: 'https://developer.paypal.com/api/rest/webhooks/rest',
    key: 'none: deliveries name a certificate on a host of PayPal; receiverId is the ID of the webhook',
    signature: { header: 'Paypal-Transmission-Sig', encoding: 'base64', forms: [{ prefix: '', algorithm: 'rsa-sha256' }] },
    signed: ['id', 'timestamp', 'receiverId', 'crc32'],
    separator: '|',
    timestamp: { from: { header: 'Paypal-Transmission-Time' }, unit: 'rfc3339' },
    id: { header: 'Paypal-Transmission-Id' },
    secret: { encoding: 'utf8' },
    publicKey: RSA_KEY,
    certificate: {
      header: 'Paypal-Cert-Url',
      hosts: [`api.${domain}`, `api-m.${domain}`],
      path: '/v1/notifications/certs/',
      names: [`messageverificationcerts.${domain}`],
    },
    tolerance: minutes(70 * 60, 5),
    contentTypes: JSON_ONLY,
  });
}

export const CERTIFICATES: readonly SchemeDescription[] = [
  /**
   * Wise: https://docs.wise.com/guides/developer/webhooks/event-handling. Retries keep the body, and come for two weeks. It is not
   * documented whether they keep the delivery ID, so the digest of the body counts as well.
   */
  sender('wise', 'Wise', {
    docs: 'https://docs.wise.com/guides/developer/webhooks/event-handling',
    key: "Wise's public key for webhooks, in PEM or base64, from its documentation; that of the sandbox differs",
    signature: { header: 'X-Signature-SHA256', encoding: 'base64', forms: [{ prefix: '', algorithm: 'rsa-sha256' }] },
    signed: ['body'],
    separator: '',
    id: { header: 'X-Delivery-Id' },
    secret: { encoding: 'utf8' },
    publicKey: RSA_KEY,
    tolerance: minutes(5),
    contentTypes: JSON_ONLY,
    comparedHeaders: ['X-Test-Notification'],
  }),
  /**
   * Amazon SNS: https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html. The signature is checked in
   * verify/schemes/aws-sns.ts. A retry has the timestamp of the first attempt, and arrives within an hour.
   */
  sender('aws-sns', 'Amazon SNS', {
    docs: 'https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html',
    key: 'none: messages name a certificate on an Amazon host',
    isSignedInContent: true,
    signed: [],
    separator: '',
    timestamp: { from: { json: '$.Timestamp' }, unit: 'rfc3339' },
    id: { json: '$.MessageId' },
    secret: { encoding: 'utf8' },
    tolerance: minutes(65, 5),
    contentTypes: ['text/plain', 'application/json'],
  }),
  /** The live environment. */
  toPaypal('paypal', 'PayPal', 'paypal.com'),
  /** The sandbox: anyone with a test account can make it sign. */
  toPaypal('paypal-sandbox', 'PayPal (sandbox)', 'sandbox.paypal.com'),
];
