/** Senders whose library only verifies: signed here from the document, and proved by the library. */
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { validateSignature } from '@line/bot-sdk';
import { LinearWebhookClient } from '@linear/sdk/webhooks';
import { Paddle } from '@paddle/paddle-node-sdk';
import { EventWebhook } from '@sendgrid/eventwebhook';
import '@shopify/shopify-api/adapters/web-api';
import { ApiVersion, LogSeverity, shopifyApi } from '@shopify/shopify-api';
import { isValidSlackRequest } from '@slack/bolt';
import { AwsLambdaReceiver } from '@zoom/rivet/marketplace';
import { verifyKey } from 'discord-interactions';
import { WebflowClient } from 'webflow-api';
import { BODY, BODY_AND_TIME, getHeader, isAccepted, type Oracle, toJsonDelivery, withHeaders } from './oracle.ts';
import { hmac, signEcdsa, signEd25519, toEd25519, toSeconds } from './recipes.ts';

const SECRET = { text: '8f742231b10e8888abcd99yyyzzz85a5' };
const OTHER = { text: '5a58zzzyyy99dcba8888e01b132247f8' };

/** Slack. */
export const slackOracle: Oracle = {
  preset: 'slack',
  signedBy: 'node:crypto',
  verifiedBy: 'npm @slack/bolt',
  source: '@slack/bolt, verifySlackRequest',
  secret: SECRET,
  otherSecret: OTHER,
  covers: BODY_AND_TIME,
  sample: (timestamp) =>
    toJsonDelivery('https://hooks.example.com/slack', timestamp, { type: 'event_callback', event_id: 'Ev08MFMKH6', event: {} }),
  sign(delivery) {
    const seconds = toSeconds(delivery.timestamp);
    return withHeaders(delivery, {
      'x-slack-request-timestamp': seconds,
      'x-slack-signature': `v0=${hmac('sha256', SECRET.text, ['v0:', seconds, ':', delivery.body])}`,
    });
  },
  verify: (signed, { text }) =>
    isValidSlackRequest({
      signingSecret: text,
      body: signed.body.toString(),
      headers: {
        'x-slack-signature': getHeader(signed, 'x-slack-signature'),
        'x-slack-request-timestamp': Number(getHeader(signed, 'x-slack-request-timestamp')),
      },
    }),
};

function toShopify(preset: string, prefix: string, more: Readonly<Record<string, string>>): Oracle {
  return {
    preset,
    signedBy: 'node:crypto',
    verifiedBy: 'npm @shopify/shopify-api',
    source: '@shopify/shopify-api, webhooks.validate',
    secret: SECRET,
    otherSecret: OTHER,
    covers: BODY,
    sample: (timestamp) =>
      toJsonDelivery(`https://hooks.example.com/${preset}`, timestamp, { id: 820982911946154500, note: 'schön' }),
    sign: (delivery) =>
      withHeaders(delivery, {
        [`${prefix}topic`]: 'orders/create',
        [`${prefix}shop-domain`]: 'example.myshopify.com',
        [`${prefix}api-version`]: '2026-10',
        [`${prefix}webhook-id`]: delivery.id,
        [`${prefix}event-id`]: 'b54557e4',
        [`${prefix}hmac-sha256`]: hmac('sha256', SECRET.text, [delivery.body], 'base64'),
        ...more,
      }),
    async verify({ method, url, headers, body }, { text }) {
      const shopify = shopifyApi({
        apiKey: 'key',
        apiSecretKey: text,
        hostName: 'hooks.example.com',
        apiVersion: ApiVersion.July26,
        isEmbeddedApp: false,
        isTesting: true,
        logger: { log: () => undefined, level: LogSeverity.Error },
      });
      const rawRequest = new Request(url, { method, headers, body });
      return (await shopify.webhooks.validate({ rawBody: body.toString(), rawRequest })).valid;
    },
  };
}

/** Shopify's webhooks, and its newer events, which name their headers without `X-`. */
export const shopifyOracles: readonly Oracle[] = [
  toShopify('shopify', 'x-shopify-', {}),
  toShopify('shopify-events', 'shopify-', { 'shopify-action': 'create' }),
];

/** Linear: the time is a field of the signed body, in milliseconds. */
export const linearOracle: Oracle = {
  preset: 'linear',
  signedBy: 'node:crypto',
  verifiedBy: 'npm @linear/sdk',
  source: '@linear/sdk, LinearWebhookClient.verify',
  secret: SECRET,
  otherSecret: OTHER,
  covers: BODY,
  sample: (timestamp) =>
    toJsonDelivery('https://hooks.example.com/linear', timestamp, {
      action: 'create',
      type: 'Issue',
      webhookTimestamp: timestamp,
    }),
  sign: (delivery) =>
    withHeaders(delivery, {
      'linear-delivery': delivery.id,
      'linear-timestamp': String(delivery.timestamp),
      'linear-signature': hmac('sha256', SECRET.text, [delivery.body]),
    }),
  verify: (signed, { text }) =>
    isAccepted(() => new LinearWebhookClient(text).verify(signed.body, getHeader(signed, 'linear-signature'))),
};

/** Zoom, by its own library's receiver for functions, which needs no port. */
export const zoomOracle: Oracle = {
  preset: 'zoom',
  signedBy: 'node:crypto',
  verifiedBy: 'npm @zoom/rivet',
  source: "@zoom/rivet, AwsLambdaReceiver; Zoom's sample zoom/webhook-sample",
  secret: SECRET,
  otherSecret: OTHER,
  covers: BODY_AND_TIME,
  sample: (timestamp) =>
    toJsonDelivery('https://hooks.example.com/zoom', timestamp, { event: 'meeting.started', event_ts: timestamp, payload: {} }),
  sign(delivery) {
    const seconds = toSeconds(delivery.timestamp);
    return withHeaders(delivery, {
      'x-zm-request-timestamp': seconds,
      'x-zm-signature': `v0=${hmac('sha256', SECRET.text, ['v0:', seconds, ':', delivery.body])}`,
    });
  },
  verify: async (signed, { text }) => (await askZoom(signed.headers, signed.body, text)).statusCode === 200,
};

/** What Zoom's library answers to a request; for the validation of an endpoint that is the hashed token. */
export async function askZoom(
  headers: Readonly<Record<string, string>>,
  body: Buffer,
  secret: string,
): Promise<{ readonly statusCode: number; readonly body: string }> {
  const handle = new AwsLambdaReceiver({ webhooksSecretToken: secret }).start();
  const event = { body: body.toString(), headers: { ...headers }, isBase64Encoded: false };
  return handle(event as Parameters<typeof handle>[0], {} as Parameters<typeof handle>[1]) as Promise<{
    statusCode: number;
    body: string;
  }>;
}

const discordKey = toEd25519(Buffer.from('f4d4957ffa5e2cc36dfdc4e6bb5d4585a83c0adade9a4ced55326aa6f4550516', 'hex'));
const otherDiscordKey = toEd25519(Buffer.from('c8f722a232fd1ed22775080daa17d59e4bbc522ec1be2de17042fc4ddf9cda9a', 'hex'));

function toRawPublicKey(key: typeof discordKey): string {
  const { x = '' } = createPublicKey(key).export({ format: 'jwk' });
  return Buffer.from(x, 'base64url').toString('hex');
}

/** Discord: ed25519 over the time and the body, in a row. */
export const discordOracle: Oracle = {
  preset: 'discord',
  signedBy: 'node:crypto',
  verifiedBy: 'npm discord-interactions',
  source: 'discord-interactions, verifyKey',
  secret: { text: toRawPublicKey(discordKey), encoding: 'hex' },
  otherSecret: { text: toRawPublicKey(otherDiscordKey), encoding: 'hex' },
  covers: BODY_AND_TIME,
  sample: (timestamp) =>
    toJsonDelivery('https://hooks.example.com/discord', timestamp, { id: '1', type: 2, data: { name: 'größe' }, version: 1 }),
  sign(delivery) {
    const seconds = toSeconds(delivery.timestamp);
    return withHeaders(delivery, {
      'x-signature-timestamp': seconds,
      'x-signature-ed25519': signEd25519(discordKey, Buffer.concat([Buffer.from(seconds), delivery.body])),
    });
  },
  verify: (signed, { text }) =>
    verifyKey(signed.body, getHeader(signed, 'x-signature-ed25519'), getHeader(signed, 'x-signature-timestamp'), text),
};

/** Paddle Billing. */
export const paddleOracle: Oracle = {
  preset: 'paddle',
  signedBy: 'node:crypto',
  verifiedBy: 'npm @paddle/paddle-node-sdk',
  source: '@paddle/paddle-node-sdk, webhooks.isSignatureValid',
  secret: { text: 'pdl_ntfset_01gkpop8s0v5n4jqj7p3v2vzjw' },
  otherSecret: OTHER,
  covers: BODY_AND_TIME,
  sample: (timestamp) =>
    toJsonDelivery('https://hooks.example.com/paddle', timestamp, {
      event_id: 'evt_01',
      event_type: 'transaction.paid',
      data: {},
    }),
  sign(delivery) {
    const seconds = toSeconds(delivery.timestamp);
    const signature = hmac('sha256', paddleOracle.secret.text, [seconds, ':', delivery.body]);
    return withHeaders(delivery, { 'paddle-signature': `ts=${seconds};h1=${signature}` });
  },
  verify: (signed, { text }) =>
    new Paddle('none').webhooks.isSignatureValid(signed.body.toString(), text, getHeader(signed, 'paddle-signature')),
};

const sendgridKey = createPrivateKey({
  format: 'jwk',
  key: {
    kty: 'EC',
    crv: 'P-256',
    x: 'Mw35Ge5DiKpDDP5XohpA55n0dxaCJbJIk0opFHFlsGo',
    y: 'm-yGn4nHuHMEg5cxNx7R-pRDd-_e9ZF3NnYRqSbdHY0',
    d: '-uAUzzQdWHH2Ty_S2pUOPCqPcP7qGN-kW7hhVmS9cOs',
  },
});

/** SendGrid's events: ECDSA over the time and the body, in a row. */
export const sendgridOracle: Oracle = {
  preset: 'sendgrid',
  signedBy: 'node:crypto',
  verifiedBy: 'npm @sendgrid/eventwebhook',
  source: '@sendgrid/eventwebhook, verifySignature',
  secret: { text: createPublicKey(sendgridKey).export({ format: 'der', type: 'spki' }).toString('base64'), encoding: 'base64' },
  otherSecret: {
    text: 'MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqTxd43gyp8IOEto2LdIfjRQrIbsd4SXZkLW6jDutdhXSJCWHw8REntlo7aNDthvj+y7GjUuFDb/R1NGe1OPzpA==',
    encoding: 'base64',
  },
  covers: BODY_AND_TIME,
  sample: (timestamp) =>
    toJsonDelivery('https://hooks.example.com/sendgrid', timestamp, [
      { event: 'delivered', sg_event_id: 'ZGVsaXZlcmVk', email: 'a@b.example' },
    ]),
  sign(delivery) {
    const seconds = toSeconds(delivery.timestamp);
    return withHeaders(delivery, {
      'x-twilio-email-event-webhook-timestamp': seconds,
      'x-twilio-email-event-webhook-signature': signEcdsa(sendgridKey, Buffer.concat([Buffer.from(seconds), delivery.body])),
    });
  },
  verify(signed, { text }) {
    const library = new EventWebhook();
    const signature = getHeader(signed, 'x-twilio-email-event-webhook-signature');
    const timestamp = getHeader(signed, 'x-twilio-email-event-webhook-timestamp');
    return library.verifySignature(library.convertPublicKeyToECDSA(text), signed.body, signature, timestamp);
  },
};

/** LINE. */
export const lineOracle: Oracle = {
  preset: 'line',
  signedBy: 'node:crypto',
  verifiedBy: 'npm @line/bot-sdk',
  source: '@line/bot-sdk, validateSignature',
  secret: SECRET,
  otherSecret: OTHER,
  covers: BODY,
  sample: (timestamp) =>
    toJsonDelivery('https://hooks.example.com/line', timestamp, {
      destination: 'U1',
      events: [{ type: 'message', webhookEventId: '01H810YECXQQZ37VAXPF6H9E6T', timestamp }],
    }),
  sign: (delivery) => withHeaders(delivery, { 'x-line-signature': hmac('sha256', SECRET.text, [delivery.body], 'base64') }),
  verify: (signed, { text }) => validateSignature(signed.body, text, getHeader(signed, 'x-line-signature')),
};

/** Webflow counts in milliseconds. */
export const webflowOracle: Oracle = {
  preset: 'webflow',
  signedBy: 'node:crypto',
  verifiedBy: 'npm webflow-api',
  source: 'webflow-api, webhooks.verifySignature',
  secret: SECRET,
  otherSecret: OTHER,
  covers: BODY_AND_TIME,
  sample: (timestamp) =>
    toJsonDelivery('https://hooks.example.com/webflow', timestamp, {
      triggerType: 'form_submission',
      payload: { name: 'Kontakt' },
    }),
  sign(delivery) {
    const milliseconds = String(delivery.timestamp);
    return withHeaders(delivery, {
      'x-webflow-timestamp': milliseconds,
      'x-webflow-signature': hmac('sha256', SECRET.text, [milliseconds, ':', delivery.body]),
    });
  },
  verify: ({ headers, body }, { text: secret }) =>
    new WebflowClient({ accessToken: 'none' }).webhooks.verifySignature({
      headers: { ...headers },
      body: body.toString(),
      secret,
    }),
};
