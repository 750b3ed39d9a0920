/** Senders without a verifier in JavaScript: signed here from their documents or their source, proved in other languages or by published values. */
import {
  BODY,
  BODY_AND_TIME,
  BODY_AND_URL,
  BODY_ID_AND_TIME,
  type Delivery,
  type Oracle,
  toJsonDelivery,
  withHeaders,
} from './oracle.ts';
import { hmac, toHubspotUri, toSeconds } from './recipes.ts';

const SECRET = { text: 'lDQHScfUeXUKaQRNF+8XIiDKZ7XX3itB' };
const OTHER = { text: 'BtIX3XX7ZKDiIX8+FNRQaKUXeUfcSHQD' };
const NOTHING = { body: false, url: false, id: false, timestamp: false };

/** What a document says of a sender. */
export type Recipe = Pick<Oracle, 'preset' | 'source'> &
  Partial<Oracle> & { readonly content: (timestamp: number) => unknown; toHeaders(delivery: Delivery): Record<string, string> };

/** The sender of a recipe, with a secret that every recipe of HMACs can use. */
export function toOracle({ content, toHeaders, ...recipe }: Recipe): Oracle {
  return {
    signedBy: 'node:crypto',
    secret: SECRET,
    otherSecret: OTHER,
    covers: BODY,
    sample: (timestamp) => toJsonDelivery(`https://hooks.example.com/${recipe.preset}`, timestamp, content(timestamp)),
    sign: (delivery) => withHeaders(delivery, toHeaders(delivery)),
    ...recipe,
  };
}

const ADYEN_KEY = '44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056';

/** One a sender. */
export const documentedOracles: readonly Oracle[] = [
  toOracle({
    preset: 'pagerduty',
    source: "PagerDuty's developer-docs, Verifying Signatures; proved by go-pagerduty",
    content: () => ({
      event: { id: '01BWDWL3NYY7LUFPZCC28QUCMK', event_type: 'incident.triggered', data: { title: 'Störung' } },
    }),
    toHeaders: ({ body, id }) => ({ 'x-webhook-id': id, 'x-pagerduty-signature': `v1=${hmac('sha256', SECRET.text, [body])}` }),
  }),
  toOracle({
    preset: 'square',
    source: "Square's document, validate event notifications; proved by squareup for Python",
    covers: BODY_AND_URL,
    content: () => ({ merchant_id: 'MLEFBHHSJGVHD', type: 'payment.updated', event_id: 'ac3ac95b-f97d-458c-a6e6-18981597e05f' }),
    toHeaders: ({ url, body }) => ({ 'x-square-hmacsha256-signature': hmac('sha256', SECRET.text, [url, body], 'base64') }),
  }),
  toOracle({
    preset: 'hubspot',
    source: "HubSpot's document, validate the v3 request signature; proved by hubspot-api-client for Python",
    covers: { ...BODY_AND_TIME, url: true },
    content: () => [{ eventId: 1, subscriptionId: 12345, portalId: 62515, occurredAt: 1564113600000, attemptNumber: 0 }],
    sample: (timestamp) => ({
      ...toJsonDelivery('', timestamp, [{ eventId: 1, subscriptionType: 'contact.creation', attemptNumber: 0 }]),
      url: 'https://hooks.example.com/hubspot?next=https%3A%2F%2Fa.example%2Fb%20c&list=1%2C2&plus=%2B',
    }),
    toHeaders({ method, url, body, timestamp }) {
      const milliseconds = String(timestamp);
      return {
        'x-hubspot-request-timestamp': milliseconds,
        'x-hubspot-signature-v3': hmac('sha256', SECRET.text, [method, toHubspotUri(url), body, milliseconds], 'base64'),
      };
    },
  }),
  toOracle({
    preset: 'vercel',
    source: "Vercel's document, securing webhooks (HMAC-SHA1 of the raw body)",
    content: () => ({ id: 'uev_1', type: 'deployment.created', payload: {} }),
    toHeaders: ({ body }) => ({ 'x-vercel-signature': hmac('sha1', SECRET.text, [body]) }),
  }),
  toOracle({
    preset: 'woocommerce',
    source: "WooCommerce's own sender, WC_Webhook::generate_signature and deliver",
    content: () => ({ id: 727, status: 'processing', total: '29.35' }),
    toHeaders: ({ body, id }) => ({
      'x-wc-webhook-topic': 'order.created',
      'x-wc-webhook-id': '12',
      'x-wc-webhook-delivery-id': id,
      'x-wc-webhook-signature': hmac('sha256', SECRET.text, [body], 'base64'),
    }),
  }),
  toOracle({
    preset: 'x',
    source: "X's document, securing webhooks, signature header",
    content: () => ({ for_user_id: '2244994945', tweet_create_events: [{ id_str: '1' }] }),
    toHeaders: ({ body }) => ({ 'x-twitter-webhooks-signature': `sha256=${hmac('sha256', SECRET.text, [body], 'base64')}` }),
  }),
  toOracle({
    preset: 'gitlab',
    source: "GitLab's document, webhooks, secret token and delivery headers",
    covers: NOTHING,
    content: () => ({ object_kind: 'push', ref: 'refs/heads/main' }),
    toHeaders: ({ id }) => ({
      'x-gitlab-event': 'Push Hook',
      'idempotency-key': id,
      'x-gitlab-webhook-uuid': '13792a34-cac6-4fda-95a8-c58e00a3954e',
      'x-gitlab-token': SECRET.text,
    }),
  }),
  toOracle({
    preset: 'microsoft-graph',
    source: "Microsoft Graph's document, change notifications delivered through webhooks, clientState",
    covers: NOTHING,
    content: () => ({
      value: [
        { id: 'lsgTZMr9KwAAA', subscriptionId: 's1', clientState: SECRET.text, changeType: 'updated', resource: 'me/messages/1' },
      ],
    }),
    toHeaders: () => ({}),
  }),
  toOracle({
    preset: 'elevenlabs',
    source: "ElevenLabs' document, post-call webhooks; proved by elevenlabs for Python",
    covers: BODY_AND_TIME,
    content: () => ({ type: 'post_call_transcription', data: { conversation_id: 'c1' } }),
    toHeaders({ body, timestamp }) {
      const seconds = toSeconds(timestamp);
      return { 'elevenlabs-signature': `t=${seconds},v0=${hmac('sha256', SECRET.text, [seconds, '.', body])}` };
    },
  }),
  toOracle({
    preset: 'adyen-platforms',
    source: "Adyen's document, verify HMAC signatures of Platforms and Banking webhooks; proved by Adyen for Python",
    secret: { text: ADYEN_KEY, encoding: 'hex' },
    otherSecret: { text: [...ADYEN_KEY].reverse().join(''), encoding: 'hex' },
    content: () => ({ type: 'balancePlatform.transfer.created', environment: 'test', data: { id: '1' } }),
    toHeaders: ({ body }) => ({ hmacsignature: hmac('sha256', Buffer.from(ADYEN_KEY, 'hex'), [body], 'base64') }),
  }),
  toPolar('whole secret', SECRET.text, SECRET.text),
  toPolar('whsec_', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', Buffer.from('MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', 'base64')),
];

/** Polar signs with the bytes of the whole secret today, and moves to Standard Webhooks' reading of it. */
function toPolar(form: string, text: string, key: string | Buffer): Oracle {
  return toOracle({
    preset: 'polar',
    form,
    source: 'polar-sdk for Python, validate_event, which accepts both readings of the secret',
    secret: { text, encoding: typeof key === 'string' ? 'utf8' : 'base64' },
    covers: BODY_ID_AND_TIME,
    content: () => ({ type: 'customer.created', timestamp: '2026-11-01T00:00:00Z', data: {} }),
    toHeaders({ body, id, timestamp }) {
      const seconds = toSeconds(timestamp);
      const signature = hmac('sha256', key, [id, '.', seconds, '.', body], 'base64');
      return { 'webhook-id': id, 'webhook-timestamp': seconds, 'webhook-signature': `v1,${signature}` };
    },
  });
}
