/** Schemes that use each form of signed fields and of signatures outside of one header, with a delivery for each. */
import type { SchemeDescription, SignatureDescription } from '../../src/verify/schemes/description.ts';
import type { Arrived } from './field-cases.ts';
import { toPreset } from './preset-cases.ts';

/** One scheme. */
export interface FieldScheme {
  readonly name: string;
  readonly description: SchemeDescription;
  readonly delivery: Partial<Arrived>;
}

/** What every scheme has. */
export const BASE = {
  name: 'custom',
  separator: '.',
  secret: { encoding: 'utf8' },
  tolerance: { past: 300_000, future: 300_000 },
  contentTypes: ['application/json'],
} as const;

function inHeader(options: Partial<SignatureDescription> = {}): SignatureDescription {
  return { header: 'X-Signature', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha256' }], ...options };
}

const JSON_BODY = Buffer.from('{"id":"e1","amount":{"value":1000,"currency":"EUR"},"paid":true,"note":"a.b"}');
const form = (fields: Record<string, string>): Buffer => Buffer.from(new URLSearchParams(fields).toString());

function preset(name: string, delivery: Partial<Arrived>): FieldScheme {
  return { name, description: toPreset(name), delivery };
}

/** An item as in Adyen's documentation. */
export const ADYEN_BODY = Buffer.from(
  JSON.stringify({
    live: 'false',
    notificationItems: [
      {
        NotificationRequestItem: {
          additionalData: {},
          amount: { currency: 'EUR', value: 1130 },
          eventCode: 'AUTHORISATION',
          merchantAccountCode: 'TestMerchant',
          merchantReference: 'TestPayment:1407325143704',
          paymentMethod: 'visa',
          pspReference: '7914073381342284',
          success: 'true',
        },
      },
    ],
  }),
);

/** The presets with such signatures. */
export const FIELD_PRESETS: readonly FieldScheme[] = [
  preset('adyen-payments', { body: ADYEN_BODY }),
  preset('mailgun', {
    body: Buffer.from('{"signature":{"token":"a8ce0edb2dd8301dee"},"event-data":{"id":"Ase7i2zsRYeDXztHGENqRA"}}'),
  }),
  preset('dropbox-sign', {
    body: Buffer.from('{"event":{"event_type":"signature_request_sent"},"account_guid":"63522885f9261e2b"}'),
  }),
  preset('braintree', { body: form({ bt_payload: 'PG5vdGlmaWNhdGlvbj4KPC9ub3RpZmljYXRpb24+Cg==\n' }) }),
  preset('alipay', { body: form({ notify_id: '2019081500222', subject: 'Tee=gut & Öl;', total_amount: '0.10', b: '', a: '1' }) }),
  preset('docusign', { body: JSON_BODY }),
  preset('box', { body: JSON_BODY }),
  preset('contentful', { body: JSON_BODY, headers: [['X-Contentful-Topic', 'ContentManagement.Entry.publish']] }),
];

/** One scheme for each form. */
export const FIELD_SCHEMES: readonly FieldScheme[] = [
  {
    name: 'headers, the target and the digest of the body, separated by line ends',
    description: {
      ...BASE,
      signature: inHeader(),
      signed: ['method', 'target', { header: 'X-Nonce' }, { header: 'X-Event' }, 'timestamp', { bodySha256: 'hex' }],
      separator: '\n',
      timestamp: { from: { header: 'X-Time' }, unit: 's' },
    },
    delivery: { body: JSON_BODY, url: 'https://hooks.example.com/hook?a=1&b=2', headers: [['X-Event', 'order.paid']] },
  },
  {
    name: 'the digest of the body in base64, by SHA-384',
    description: {
      ...BASE,
      signature: inHeader({ encoding: 'base64', forms: [{ prefix: 'sha384=', algorithm: 'hmac-sha384' }] }),
      signed: [{ bodySha256: 'base64' }, { text: '\n' }, { header: 'X-Nonce' }],
    },
    delivery: { body: JSON_BODY },
  },
  {
    name: 'several algorithms in one header',
    description: {
      ...BASE,
      signature: inHeader({
        list: ',',
        forms: [
          { prefix: 'sha256=', algorithm: 'hmac-sha256' },
          { prefix: 'sha1=', algorithm: 'hmac-sha1' },
        ],
      }),
      signed: ['body', { header: 'X-Nonce' }],
      separator: '|',
    },
    delivery: { body: JSON_BODY },
  },
  {
    name: 'a signature of three parts',
    description: {
      ...BASE,
      signature: inHeader({ parts: { separator: ':', count: 3, signature: 2 } }),
      signed: [{ signaturePart: 0 }, 'timestamp', 'body'],
      timestamp: { from: { signaturePart: 1 }, unit: 's' },
    },
    delivery: { body: JSON_BODY },
  },
  {
    name: 'a signature in the query, with the rest of the URL',
    description: {
      ...BASE,
      signature: { ...inHeader(), header: '', query: 'sig' },
      signed: ['urlWithoutSignature', { text: ' ' }, 'body'],
      separator: '',
    },
    delivery: { body: JSON_BODY, url: 'https://hooks.example.com/hook?a=1&b=x%20y' },
  },
  {
    name: 'parameters of the query',
    description: {
      ...BASE,
      signature: { ...inHeader(), header: '', query: 'sig' },
      signed: [{ query: 'nonce' }, 'timestamp', 'body'],
      timestamp: { from: { query: 'ts' }, unit: 's' },
    },
    delivery: { body: JSON_BODY, url: 'https://hooks.example.com/hook?nonce=n-1' },
  },
  {
    name: 'a signature in the JSON body, with the rest of it',
    description: { ...BASE, signature: { ...inHeader(), header: '', json: '$.signature' }, signed: ['bodyWithoutSignature'] },
    delivery: { body: Buffer.from('{"signature":"","id":"e1","data":[1,{"signature":"x"}]}') },
  },
  {
    name: 'a signature in a form, with the rest of it',
    description: {
      ...BASE,
      signature: { ...inHeader(), header: '', form: 'sig' },
      signed: ['bodyWithoutSignature'],
      contentTypes: ['application/x-www-form-urlencoded'],
    },
    delivery: { body: form({ id: 'e1', note: 'a b&c', sig: '' }) },
  },
  {
    name: 'JSON fields of several types, escaped',
    description: {
      ...BASE,
      signature: { ...inHeader(), header: '', json: '$.signature' },
      signed: [
        { json: '$.note', escape: 'backslash' },
        { json: '$.missing', optional: true, escape: 'backslash' },
        { json: '$.amount.value', type: 'integer' },
        { json: '$.paid', type: 'boolean' },
        { json: '$.amount.currency' },
      ],
      unsignedBody: true,
    },
    delivery: { body: JSON_BODY },
  },
  {
    name: 'form fields, and no others',
    description: {
      ...BASE,
      signature: { ...inHeader(), header: '', form: 'sig' },
      signed: ['timestamp', { form: 'id' }, { form: 'note' }],
      timestamp: { from: { form: 'ts' }, unit: 's' },
      onlySignedFields: true,
      contentTypes: ['application/x-www-form-urlencoded'],
    },
    delivery: { body: form({ id: 'e1', note: 'c d' }) },
  },
  {
    name: 'SHA-256 of the secret and a JSON body',
    description: {
      ...BASE,
      signature: inHeader({ forms: [{ prefix: '', algorithm: 'sha256-secret-first' }] }),
      signed: [{ header: 'X-Nonce' }, 'body'],
      contentShape: 'json-object',
    },
    delivery: { body: JSON_BODY },
  },
  {
    name: 'SHA-256 of the body and the secret',
    description: {
      ...BASE,
      signature: inHeader({ forms: [{ prefix: '', algorithm: 'sha256-secret-last' }] }),
      signed: [{ header: 'X-Nonce' }, 'body'],
    },
    delivery: { body: JSON_BODY },
  },
];
