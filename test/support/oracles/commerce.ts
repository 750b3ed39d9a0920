/** Senders of payments, commerce, messages and forms: signed here with node:crypto from their documents. commerce.py does the same in Python. */
import {
  BODY,
  BODY_AND_TIME,
  BODY_AND_URL,
  BODY_ID_AND_TIME,
  type Covered,
  type Oracle,
  type ReceiverKey,
  type SignedDelivery,
  withHeaders,
} from './oracle.ts';
import { hmac, toSeconds } from './recipes.ts';
import { readVectors, type Vector } from './vectors.ts';

/** What a sender signs, and the key's bytes. */
interface Signing {
  readonly key: string | Buffer;
  readonly body: Buffer;
  readonly url: string;
  readonly id: string;
  /** As the sender writes it. */
  readonly time: string;
}

interface Recipe {
  /** The signature header's value. */
  readonly sign: (signing: Signing) => string;
  readonly header: string;
  readonly covers?: Covered;
  /** How the sender writes a time, and where the time is if it has a header of its own. */
  readonly time?: { readonly format: (timestamp: number) => string; readonly header?: string };
  readonly idHeader?: string;
  readonly isHexKey?: true;
}

const inHex = (header: string, prefix = '', algorithm: 'sha1' | 'sha256' | 'sha512' = 'sha256'): Recipe => ({
  header,
  sign: ({ key, body }) => prefix + hmac(algorithm, key, [body]),
});
const inBase64 = (header: string, prefix = '', algorithm: 'sha1' | 'sha256' = 'sha256'): Recipe => ({
  header,
  sign: ({ key, body }) => prefix + hmac(algorithm, key, [body], 'base64'),
});
const asStripe = (header: string, name: string): Recipe => ({
  header,
  covers: BODY_AND_TIME,
  time: { format: toSeconds },
  sign: ({ key, body, time }) => `t=${time},${name}=${hmac('sha256', key, [time, '.', body])}`,
});

const RECIPES: Readonly<Record<string, Recipe>> = {
  airwallex: {
    header: 'x-signature',
    covers: BODY_AND_TIME,
    time: { format: String, header: 'x-timestamp' },
    sign: ({ key, body, time }) => hmac('sha256', key, [time, body]),
  },
  bigcommerce: {
    header: 'webhook-signature',
    covers: BODY_ID_AND_TIME,
    time: { format: toSeconds, header: 'webhook-timestamp' },
    idHeader: 'webhook-id',
    sign: ({ key, body, id, time }) => `v1,${hmac('sha256', key, [id, '.', time, '.', body], 'base64')}`,
  },
  'cal-com': inHex('x-cal-signature-256'),
  calendly: asStripe('calendly-webhook-signature', 'v1'),
  cashfree: {
    header: 'x-webhook-signature',
    covers: BODY_AND_TIME,
    time: { format: String, header: 'x-webhook-timestamp' },
    sign: ({ key, body, time }) => hmac('sha256', key, [time, body], 'base64'),
  },
  chargify: { ...inHex('x-chargify-webhook-signature-hmac-sha-256'), idHeader: 'x-chargify-webhook-id' },
  'checkout-com': inHex('cko-signature'),
  'coinbase-commerce': inHex('x-cc-webhook-signature'),
  'commerce-layer': inBase64('x-commercelayer-signature'),
  'customer-io': {
    header: 'x-cio-signature',
    covers: BODY_AND_TIME,
    time: { format: toSeconds, header: 'x-cio-timestamp' },
    sign: ({ key, body, time }) => hmac('sha256', key, ['v0:', time, ':', body]),
  },
  dwolla: inHex('x-request-signature-sha-256'),
  easypost: inHex('x-hmac-signature', 'hmac-sha256-hex='),
  fastspring: inBase64('x-fs-signature'),
  flutterwave: inBase64('flutterwave-signature'),
  'flutterwave-v3': {
    header: 'verif-hash',
    covers: { body: false, url: false, id: false, timestamp: false },
    sign: ({ key }) => String(key),
  },
  front: {
    header: 'x-front-signature',
    covers: BODY_AND_TIME,
    time: { format: String, header: 'x-front-request-timestamp' },
    sign: ({ key, body, time }) => hmac('sha256', key, [time, ':', body], 'base64'),
  },
  'front-rules': inBase64('x-front-signature', '', 'sha1'),
  gocardless: inHex('webhook-signature'),
  intercom: inHex('x-hub-signature', 'sha1=', 'sha1'),
  klaviyo: {
    header: 'klaviyo-signature',
    covers: BODY_AND_TIME,
    time: { format: (timestamp) => new Date(timestamp).toUTCString(), header: 'klaviyo-timestamp' },
    sign: ({ key, body, time }) => hmac('sha256', key, [body, time]),
  },
  'lemon-squeezy': inHex('x-signature'),
  mandrill: {
    header: 'x-mandrill-signature',
    covers: BODY_AND_URL,
    sign: ({ key, body, url }) => {
      const fields = [...new URLSearchParams(body.toString())].sort(([a], [b]) => (a < b ? -1 : 1));
      return hmac('sha1', key, [url, ...fields.flat()], 'base64');
    },
  },
  mollie: inHex('x-mollie-signature', 'sha256='),
  onfido: inHex('x-sha2-signature'),
  paystack: inHex('x-paystack-signature', '', 'sha512'),
  persona: asStripe('persona-signature', 'v1'),
  quickbooks: inBase64('intuit-signature'),
  razorpay: { ...inHex('x-razorpay-signature'), idHeader: 'x-razorpay-event-id' },
  recurly: {
    header: 'recurly-signature',
    covers: BODY_AND_TIME,
    time: { format: String },
    sign: ({ key, body, time }) => `${time},${hmac('sha256', key, [time, '.', body])}`,
  },
  revolut: {
    header: 'revolut-signature',
    covers: BODY_AND_TIME,
    time: { format: String, header: 'revolut-request-timestamp' },
    sign: ({ key, body, time }) => `v1=${hmac('sha256', key, ['v1.', time, '.', body])}`,
  },
  squarespace: { ...inHex('squarespace-signature'), isHexKey: true },
  tiktok: asStripe('tiktok-signature', 's'),
  typeform: inBase64('typeform-signature', 'sha256='),
  xero: inBase64('x-xero-signature'),
  zendesk: {
    header: 'x-zendesk-webhook-signature',
    covers: BODY_AND_TIME,
    time: { format: (timestamp) => new Date(timestamp).toISOString(), header: 'x-zendesk-webhook-signature-timestamp' },
    idHeader: 'x-zendesk-webhook-invocation-id',
    sign: ({ key, body, time }) => hmac('sha256', key, [time, body], 'base64'),
  },
};

function toKey({ isHexKey }: Recipe, { text }: ReceiverKey): string | Buffer {
  return isHexKey === true ? Buffer.from(text, 'hex') : text;
}

function toOracle(preset: string, recipe: Recipe, { secret, signed: known, source }: Vector): Oracle {
  const { header, time, idHeader, sign } = recipe;
  const { [header]: _signature, ...others } = known.headers;
  return {
    preset,
    signedBy: 'node:crypto',
    verifiedBy: 'node:crypto',
    source,
    secret,
    otherSecret: { ...secret, text: [...secret.text].reverse().join('') },
    covers: recipe.covers ?? BODY,
    sample: (timestamp) => ({
      method: known.method,
      url: known.url,
      contentType: known.headers['content-type'] ?? '',
      body: known.body,
      id: known.headers[idHeader ?? ''] ?? 'evt_2f0c6b7e9a',
      timestamp,
    }),
    sign(delivery) {
      const text = time?.format(delivery.timestamp) ?? '';
      const { body, url, id } = delivery;
      return withHeaders(delivery, {
        ...others,
        ...(idHeader !== undefined && { [idHeader]: id }),
        ...(time?.header !== undefined && { [time.header]: text }),
        [header]: sign({ key: toKey(recipe, secret), body, url, id, time: text }),
      });
    },
    verify: ({ headers, body, url }: SignedDelivery, key) => {
      const given = headers[header] ?? '';
      const text = time?.header === undefined ? (/^(?:t=)?(\d+),/.exec(given)?.[1] ?? '') : (headers[time.header] ?? '');
      return sign({ key: toKey(recipe, key), body, url, id: headers[idHeader ?? ''] ?? '', time: text }) === given;
    },
  };
}

const right = readVectors().filter(({ verdict }) => verdict === 'ok');

/** One a sender, with the content of its known answer; its own published one if it has several. */
export const commerceOracles: readonly Oracle[] = Object.entries(RECIPES).map(([preset, recipe]) => {
  const known = right.find((vector) => vector.preset === preset);
  if (known === undefined) throw new Error(`no known answer of ${preset}`);
  return toOracle(preset, recipe, known);
});
