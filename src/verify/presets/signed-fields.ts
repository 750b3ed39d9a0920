/** Senders that sign single fields, several headers, or a form, or that have their signature in the body or in several headers. */
import type { FieldOptions, FieldPiece, SchemeDescription } from '../schemes/description.ts';
import { ANY_METHOD, BODY, hexIn, JSON_OR_FORM, minutes, sender, URL_ENCODED } from './shapes.ts';

const ADYEN_ITEM = '$.notificationItems[0].NotificationRequestItem';

function inItem(path: string, options: FieldOptions = {}): FieldPiece {
  return { json: `${ADYEN_ITEM}.${path}`, ...options };
}

export const SIGNED_FIELDS: readonly SchemeDescription[] = [
  /**
   * Adyen, standard webhooks: https://docs.adyen.com/development-resources/webhooks/verify-hmac-signatures. The libraries join the fields
   * with colons and escape none, so only the merchant's own reference may contain one. A JSON webhook has exactly one item. The details
   * that differ in duplicates are not proven: those of the first notification count.
   */
  sender('adyen-payments', 'Adyen (payments, standard webhooks)', {
    docs: 'https://docs.adyen.com/development-resources/webhooks/verify-hmac-signatures',
    key: "the webhook's HMAC key, 64 hex digits",
    ...BODY,
    signature: {
      header: '',
      json: `${ADYEN_ITEM}.additionalData.hmacSignature`,
      encoding: 'base64',
      forms: [{ prefix: '', algorithm: 'hmac-sha256' }],
    },
    signed: [
      inItem('pspReference'),
      inItem('originalReference', { optional: true }),
      inItem('merchantAccountCode'),
      inItem('merchantReference', { optional: true, mayContainSeparator: true }),
      inItem('amount.value', { type: 'integer' }),
      inItem('amount.currency'),
      inItem('eventCode'),
      inItem('success'),
    ],
    separator: ':',
    unsignedBody: true,
    // In a duplicate they can differ or be missing, and Adyen sends nothing else until it gets a 2xx.
    perAttempt: ['eventDate', 'reason', 'additionalData', 'operations', 'paymentMethod'].map((name) => inItem(name)),
    secret: { encoding: 'hex' },
  }),
  /**
   * Mailgun, webhooks: https://documentation.mailgun.com/docs/mailgun/user-manual/events/webhooks. It signs a time and a random token, but
   * nothing of the event. A retry has a new time and token, and the ID and the content of the first attempt.
   */
  sender('mailgun', 'Mailgun (webhooks)', {
    docs: 'https://documentation.mailgun.com/docs/mailgun/user-manual/events/webhooks',
    key: "the account's HTTP webhook signing key; not an API key",
    ...BODY,
    signature: {
      header: '',
      json: '$.signature.signature',
      encoding: 'hex',
      forms: [{ prefix: '', algorithm: 'hmac-sha256' }],
    },
    signed: ['timestamp', { json: '$.signature.token' }],
    // Deliveries of subaccounts have a second signature, by the key of the parent account, which is not verified.
    perAttempt: [{ json: '$.signature.token' }, { json: '$.parent-signature' }],
    unsignedBody: true,
    timestamp: { from: { json: '$.signature.timestamp' }, unit: 's' },
    id: { json: '$.event-data.id' },
    // Retries arrive for eight hours.
    tolerance: minutes(9 * 60, 5),
  }),
  /**
   * Dropbox Sign (HelloSign), events: https://developers.hellosign.com/docs/events/walkthrough. It signs the time and the type of the
   * event, but nothing else, and retries for three days.
   */
  sender('dropbox-sign', 'Dropbox Sign', {
    docs: 'https://developers.hellosign.com/docs/events/walkthrough',
    key: 'the API key of the account (for account callbacks), or of the owner of the app (for app callbacks)',
    ...BODY,
    signature: {
      header: '',
      form: 'json',
      path: '$.event.event_hash',
      encoding: 'hex',
      forms: [{ prefix: '', algorithm: 'hmac-sha256' }],
    },
    signed: ['timestamp', { form: 'json', path: '$.event.event_type' }],
    unsignedBody: true,
    timestamp: { from: { form: 'json', path: '$.event.event_time' }, unit: 's' },
    tolerance: minutes(70 * 60, 5),
    contentTypes: ['multipart/form-data', 'application/x-www-form-urlencoded'],
  }),
  /**
   * Braintree: https://developer.paypal.com/braintree/docs/guides/webhooks/parse. The key is the SHA-1 of the private key, and each
   * signature follows the public key that it belongs to.
   */
  sender('braintree', 'Braintree', {
    docs: 'https://developer.paypal.com/braintree/docs/guides/webhooks/parse',
    key: "the private key of the gateway's API keys, as is",
    ...BODY,
    handshake: 'braintree',
    signature: {
      header: '',
      form: 'bt_signature',
      encoding: 'hex',
      list: '&',
      parts: { separator: '|', count: 2, signature: 1 },
      forms: [{ prefix: '', algorithm: 'hmac-sha1' }],
    },
    signed: [{ form: 'bt_payload' }],
    onlySignedFields: true,
    secret: { encoding: 'utf8', digest: 'sha1' },
    contentTypes: URL_ENCODED,
  }),
  /**
   * Alipay, asynchronous notifications: https://opendocs.alipay.com/open/270/105902, signed by RSA2. The fields are joined as they are, so
   * a value with `&` and a later `=` is rejected (strict-form.ts). `sign_type` is not signed, and has only one value.
   */
  sender('alipay', 'Alipay', {
    docs: 'https://opendocs.alipay.com/open/270/105902',
    key: "Alipay's public key in base64 or PEM, or its certificate, from the page of the app; not the app's own public key",
    ...BODY,
    signature: { header: '', form: 'sign', encoding: 'base64', forms: [{ prefix: '', algorithm: 'rsa-sha256' }] },
    signed: [{ sortedForm: { sign_type: 'RSA2' } }],
    id: { form: 'notify_id' },
    publicKey: { encoding: 'base64', format: 'spki' },
    // Its notifications have this value, which no media type has (RFC 9110 §8.3.1).
    contentTypes: ['application/x-www-form-urlencoded; text/html; charset=utf-8', ...URL_ENCODED],
  }),
  /** Docusign Connect: https://developers.docusign.com/platform/webhooks/connect/validate. Each active key has its own header. */
  sender('docusign', 'Docusign (Connect)', {
    docs: 'https://developers.docusign.com/platform/webhooks/connect/validate',
    key: 'a Connect key (Connect, Connect Keys), as is; it is shown once, when it is created',
    ...BODY,
    signature: {
      header: 'X-DocuSign-Signature-1',
      moreHeaders: Array.from({ length: 9 }, (_, index) => `X-DocuSign-Signature-${index + 2}`),
      encoding: 'base64',
      forms: [{ prefix: '', algorithm: 'hmac-sha256' }],
    },
    contentTypes: ['application/json', 'text/xml', 'application/xml'],
  }),
  /** Box, webhooks V2: https://developer.box.com/guides/webhooks/v2/signatures-v2. Two keys sign at the same time. */
  sender('box', 'Box (webhooks V2)', {
    docs: 'https://developer.box.com/guides/webhooks/v2/signatures-v2',
    key: 'the primary or the secondary signature key of the app (Webhooks, Manage signature keys), as is',
    ...BODY,
    signature: {
      header: 'BOX-SIGNATURE-PRIMARY',
      moreHeaders: ['BOX-SIGNATURE-SECONDARY'],
      encoding: 'base64',
      forms: [{ prefix: '', algorithm: 'hmac-sha256' }],
    },
    signed: ['body', 'timestamp'],
    timestamp: { from: { header: 'BOX-DELIVERY-TIMESTAMP' }, unit: 'rfc3339' },
    // Unlike BOX-DELIVERY-ID, it stays the same in retries.
    id: { json: '$.id' },
    tolerance: minutes(10),
  }),
  /**
   * Contentful: https://www.contentful.com/developers/docs/extensibility/webhooks/request-verification. Its library encodes the path and
   * the query once more before it signs them, so the URL must have no query and no percent-encoding.
   */
  sender('contentful', 'Contentful', {
    docs: 'https://www.contentful.com/developers/docs/extensibility/webhooks/request-verification',
    key: "the signing secret of the space's webhooks, or of the app, 64 characters",
    ...BODY,
    signature: hexIn('X-Contentful-Signature'),
    signed: ['method', 'target', { headersIn: 'X-Contentful-Signed-Headers' }, 'body'],
    separator: '\n',
    timestamp: { from: { header: 'X-Contentful-Timestamp' }, unit: 'ms' },
    id: { header: 'X-Contentful-Idempotency-Key' },
    contentTypes: ['application/vnd.contentful.management.v1+json', ...JSON_OR_FORM],
    methods: ANY_METHOD,
  }),
];
