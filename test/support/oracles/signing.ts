/** Senders whose own library signs as well as verifies. */
import { sign as signGithub, verify as verifyGithub } from '@octokit/webhooks-methods';
import { encodeSignatureHeader, isValidSignature } from '@sanity/webhook';
import { createWorkOS } from '@workos-inc/node';
import { Webhook } from 'standardwebhooks';
import Stripe from 'stripe';
import { Webhook as SvixWebhook } from 'svix';
import twilio from 'twilio';
import {
  BODY,
  BODY_AND_TIME,
  BODY_AND_URL,
  BODY_ID_AND_TIME,
  type Delivery,
  getHeader,
  isAccepted,
  type Oracle,
  type ReceiverKey,
  type SignedDelivery,
  toJsonDelivery,
  withHeaders,
} from './oracle.ts';
import { toSeconds } from './recipes.ts';

const WHSEC = { text: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' };
const OTHER_WHSEC = { text: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD' };
const TOKEN = { text: '12345678901234567890123456789012' };
const OTHER_TOKEN = { text: '98765432109876543210987654321098' };

const stripe = new Stripe('sk_test_none');
const workos = createWorkOS({ apiKey: 'sk_test_none' });

interface StandardLibrary {
  sign(id: string, time: Date, body: string): string;
  verify(body: string, headers: Record<string, string>): unknown;
}

interface Standard {
  readonly prefix: 'webhook' | 'svix';
  readonly signedBy: string;
  create(secret: string): StandardLibrary;
}

const STANDARD: Standard = { prefix: 'webhook', signedBy: 'npm standardwebhooks', create: (secret) => new Webhook(secret) };
const SVIX: Standard = { prefix: 'svix', signedBy: 'npm svix', create: (secret) => new SvixWebhook(secret) };

function toStandard(preset: string, { prefix, signedBy, create }: Standard, secret = WHSEC, otherSecret = OTHER_WHSEC): Oracle {
  return {
    preset,
    signedBy,
    verifiedBy: signedBy,
    source: `${signedBy}, Webhook.sign and Webhook.verify`,
    secret,
    otherSecret,
    covers: BODY_ID_AND_TIME,
    sample: (timestamp) =>
      toJsonDelivery(`https://hooks.example.com/${preset}`, timestamp, { type: 'user.created', data: { name: 'Grüße 🎉' } }),
    sign(delivery) {
      const { id, timestamp, body } = delivery;
      return withHeaders(delivery, {
        [`${prefix}-id`]: id,
        [`${prefix}-timestamp`]: toSeconds(timestamp),
        [`${prefix}-signature`]: create(secret.text).sign(id, new Date(timestamp), body.toString()),
      });
    },
    verify: (signed, key) => isAccepted(() => create(key.text).verify(signed.body.toString(), { ...signed.headers })),
  };
}

function toBare({ text }: ReceiverKey): { text: string } {
  return { text: text.slice('whsec_'.length) };
}

/** Standard Webhooks and Svix: the same bytes under two families of headers, and senders whose documents name their libraries. */
export const standardOracles: readonly Oracle[] = [
  ...['standard-webhooks', 'openai', 'supabase', 'replicate', 'render', 'incident-io', 'lithic'].map((name) =>
    toStandard(name, STANDARD),
  ),
  ...['svix', 'clerk', 'resend', 'stytch'].map((name) => toStandard(name, SVIX)),
  toStandard('brex', STANDARD, toBare(WHSEC), toBare(OTHER_WHSEC)),
];

function toGithub(
  preset: string,
  source: string,
  sample: Oracle['sample'],
  more: (delivery: Delivery) => Record<string, string>,
): Oracle {
  const secret = { text: "It's a Secret to Everybody" };
  return {
    preset,
    signedBy: 'npm @octokit/webhooks-methods',
    verifiedBy: 'npm @octokit/webhooks-methods',
    source,
    secret,
    otherSecret: OTHER_TOKEN,
    covers: BODY,
    sample,
    sign: async (delivery) =>
      withHeaders(delivery, {
        ...more(delivery),
        'x-hub-signature-256': await signGithub(secret.text, delivery.body.toString()),
      }),
    verify: ({ body, headers }, key) => verifyGithub(key.text, body.toString(), headers['x-hub-signature-256'] ?? 'none'),
  };
}

/** GitHub, and Meta, whose document asks for the very same bytes under the same header. */
export const hubOracles: readonly Oracle[] = [
  toGithub(
    'github',
    '@octokit/webhooks-methods, sign and verify',
    (timestamp) =>
      toJsonDelivery('https://hooks.example.com/github', timestamp, { zen: 'Keep it logically awesome.', hook_id: 1 }),
    ({ id }) => ({ 'x-github-event': 'ping', 'x-github-delivery': id }),
  ),
  toGithub(
    'meta',
    "Meta's webhook document (getting started, validating payloads), signed by GitHub's library",
    (timestamp) =>
      toJsonDelivery('https://hooks.example.com/meta', timestamp, {
        object: 'whatsapp_business_account',
        entry: [{ id: '1', changes: [{ field: 'messages', value: { messages: [{ id: 'wamid.1', type: 'text' }] } }] }],
      }),
    () => ({}),
  ),
];

/** Stripe: the secret is used verbatim, `whsec_` and all. */
export const stripeOracle: Oracle = {
  preset: 'stripe',
  signedBy: 'npm stripe',
  verifiedBy: 'npm stripe',
  source: 'stripe, webhooks.generateTestHeaderString and webhooks.constructEvent',
  secret: WHSEC,
  otherSecret: OTHER_WHSEC,
  covers: BODY_AND_TIME,
  sample: (timestamp) =>
    toJsonDelivery('https://hooks.example.com/stripe', timestamp, { id: 'evt_1', object: 'event', type: 'charge.succeeded' }),
  sign(delivery) {
    const { timestamp, body } = delivery;
    const header = stripe.webhooks.generateTestHeaderString({
      payload: body.toString(),
      secret: WHSEC.text,
      timestamp: Number(toSeconds(timestamp)),
    });
    return withHeaders(delivery, { 'stripe-signature': header });
  },
  verify: (signed, secret) =>
    isAccepted(() => stripe.webhooks.constructEvent(signed.body, getHeader(signed, 'stripe-signature'), secret.text)),
};

function readForm(body: Buffer): Record<string, string | string[]> {
  const form = new URLSearchParams(body.toString());
  return Object.fromEntries(
    [...new Set(form.keys())].map((name) => {
      const [first = '', ...others] = form.getAll(name);
      return [name, others.length === 0 ? first : [first, ...others]];
    }),
  );
}

function signTwilio(delivery: Delivery, url: string, form: Record<string, string | string[]>): SignedDelivery {
  return withHeaders(
    { ...delivery, url },
    {
      'i-twilio-idempotency-token': delivery.id,
      'x-twilio-signature': twilio.getExpectedTwilioSignature(TOKEN.text, url, form),
    },
  );
}

const twilioForm = new URLSearchParams([
  ['CallSid', 'CA1234567890ABCDE'],
  ['Caller', '+14158675309'],
  ['Digits', '5678'],
  ['Digits', '1234'],
  ['Body', 'Grüße & mehr = 🎉'],
]);

/** Twilio, form-encoded (the URL and the sorted fields) and JSON (the URL, which carries the body's hash). */
export const twilioOracles: readonly Oracle[] = [
  {
    preset: 'twilio',
    form: 'form',
    signedBy: 'npm twilio',
    verifiedBy: 'npm twilio',
    source: 'twilio, getExpectedTwilioSignature and validateRequest',
    secret: TOKEN,
    otherSecret: OTHER_TOKEN,
    covers: BODY_AND_URL,
    sample: (timestamp) => ({
      ...toJsonDelivery('https://hooks.example.com/twilio?foo=1&bar=2', timestamp, {}),
      contentType: 'application/x-www-form-urlencoded',
      body: Buffer.from(twilioForm.toString()),
    }),
    sign: (delivery) => signTwilio(delivery, delivery.url, readForm(delivery.body)),
    verify: (signed, { text }) =>
      twilio.validateRequest(text, getHeader(signed, 'x-twilio-signature'), signed.url, readForm(signed.body)),
  },
  {
    preset: 'twilio',
    form: 'json',
    signedBy: 'npm twilio',
    verifiedBy: 'npm twilio',
    source: 'twilio, getExpectedTwilioSignature and validateRequestWithBody',
    secret: TOKEN,
    otherSecret: OTHER_TOKEN,
    covers: BODY_AND_URL,
    sample: (timestamp) => toJsonDelivery('https://hooks.example.com/twilio?foo=1', timestamp, { status: 'delivered' }),
    sign(delivery) {
      const hash = twilio.getExpectedBodyHash(delivery.body.toString());
      const url = `${delivery.url}${delivery.url.includes('?') ? '&' : '?'}bodySHA256=${hash}`;
      return signTwilio(delivery, url, {});
    },
    verify: (signed, { text }) =>
      twilio.validateRequestWithBody(text, getHeader(signed, 'x-twilio-signature'), signed.url, signed.body.toString()),
  },
];

/** WorkOS counts in milliseconds. */
export const workosOracle: Oracle = {
  preset: 'workos',
  signedBy: 'npm @workos-inc/node',
  verifiedBy: 'npm @workos-inc/node',
  source: '@workos-inc/node, webhooks.computeSignature and webhooks.verifyHeader',
  secret: TOKEN,
  otherSecret: OTHER_TOKEN,
  covers: BODY_AND_TIME,
  sample: (timestamp) => toJsonDelivery('https://hooks.example.com/workos', timestamp, { id: 'event_1', event: 'user.created' }),
  async sign(delivery) {
    const { timestamp, body } = delivery;
    const signature = await workos.webhooks.computeSignature(String(timestamp), body.toString(), TOKEN.text);
    return withHeaders(delivery, { 'workos-signature': `t=${timestamp}, v1=${signature}` });
  },
  verify: (signed, { text: secret }) =>
    isAccepted(() =>
      workos.webhooks.verifyHeader({ payload: signed.body.toString(), sigHeader: getHeader(signed, 'workos-signature'), secret }),
    ),
};

async function verifySanity(signed: SignedDelivery, secret: ReceiverKey): Promise<boolean> {
  return isValidSignature(signed.body.toString(), getHeader(signed, 'sanity-webhook-signature'), secret.text);
}

/** Sanity counts in milliseconds, in base64url without padding. */
export const sanityOracle: Oracle = {
  preset: 'sanity',
  signedBy: 'npm @sanity/webhook',
  verifiedBy: 'npm @sanity/webhook',
  source: '@sanity/webhook, encodeSignatureHeader and isValidSignature',
  secret: TOKEN,
  otherSecret: OTHER_TOKEN,
  covers: BODY_AND_TIME,
  sample: (timestamp) => toJsonDelivery('https://hooks.example.com/sanity', timestamp, { _id: 'resume', title: 'Über uns' }),
  sign: async (delivery) =>
    withHeaders(delivery, {
      'idempotency-key': delivery.id,
      'sanity-webhook-signature': await encodeSignatureHeader(delivery.body.toString(), delivery.timestamp, TOKEN.text),
    }),
  verify: verifySanity,
};
