/** Senders that sign with a JSON Web Token, in a header or as the body. */
import type { Algorithm, SchemeDescription, SignatureDescription } from '../schemes/description.ts';
import { FIVE_MINUTES, JSON_ONLY, JSON_OR_FORM, minutes, sender } from './shapes.ts';

const COMMON = {
  separator: '',
  secret: { encoding: 'utf8' },
  publicKey: { encoding: 'base64', format: 'spki' },
  tolerance: FIVE_MINUTES,
  contentTypes: JSON_ONLY,
} as const;

/** The token of a header without a prefix; an empty header stands for the body. */
function tokenIn(header: string, algorithm: Algorithm, prefix = ''): SignatureDescription {
  return { header, encoding: 'jwt', forms: [{ prefix, algorithm }] };
}

/**
 * Azure Event Grid, Event Grid schema: https://learn.microsoft.com/azure/event-grid/secure-webhook-delivery. The token is one of Microsoft
 * Entra ID, of version 1.0, which signs those of all tenants with the same keys. `appid` is Event Grid itself in every tenant.
 */
const azureEventGrid: SchemeDescription = sender('azure-event-grid', 'Azure Event Grid (Microsoft Entra ID)', {
  docs: 'https://learn.microsoft.com/azure/event-grid/secure-webhook-delivery',
  key: "none: Microsoft's keys are fetched; jwt.audience is the application ID URI of the webhook, jwt.claims.iss names your tenant",
  ...COMMON,
  handshake: 'event-grid',
  signature: tokenIn('Authorization', 'rsa-sha256', 'Bearer '),
  signed: [],
  id: { json: '$[*].id' },
  jwksUrl: 'https://login.microsoftonline.com/common/discovery/keys',
  jwt: {
    claims: { '$.appid': ['4962773b-9cdb-44cf-a8bf-237846a00ab7'] },
    mustSet: ['audience', '$.iss'],
    requiresExpiry: true,
  },
});

export const JWT: readonly SchemeDescription[] = [
  /** Plaid: https://plaid.com/docs/api/webhooks/webhook-verification, which requires tokens to be at most five minutes old. */
  sender('plaid', 'Plaid', {
    docs: 'https://plaid.com/docs/api/webhooks/webhook-verification',
    key: 'the JWK that /webhook_verification_key/get returns for the kid of a delivery; not a client secret',
    ...COMMON,
    signature: tokenIn('Plaid-Verification', 'ecdsa-p256'),
    signed: ['body'],
    timestamp: { from: { claim: '$.iat' }, unit: 's' },
    jwt: { bodyHash: { claim: '$.request_body_sha256', digest: 'sha256', encoding: 'hex' } },
  }),
  /**
   * Google Cloud Pub/Sub, push: https://cloud.google.com/pubsub/docs/authenticate-push-subscriptions. Tokens are used for several messages,
   * up to an hour. Google signs those of all customers with the same keys.
   */
  sender('google-pubsub', 'Google Cloud Pub/Sub (push)', {
    docs: 'https://cloud.google.com/pubsub/docs/authenticate-push-subscriptions',
    key: "none: Google's keys are fetched; jwt.audience and jwt.claims.email are those of the subscription",
    ...COMMON,
    signature: tokenIn('Authorization', 'rsa-sha256', 'Bearer '),
    signed: [],
    id: { json: '$.message.messageId' },
    // With a dead-letter topic.
    perAttempt: [{ json: '$.deliveryAttempt' }],
    jwksUrl: 'https://www.googleapis.com/oauth2/v3/certs',
    jwt: {
      issuers: ['https://accounts.google.com', 'accounts.google.com'],
      claims: { '$.email_verified': [true] },
      mustSet: ['audience', '$.email'],
      requiresExpiry: true,
    },
  }),
  azureEventGrid,
  /** Azure Event Grid, CloudEvents schema: another Content-Type, one event in each delivery, and a handshake by OPTIONS. */
  sender('azure-event-grid-cloudevents', 'Azure Event Grid (Microsoft Entra ID, CloudEvents)', {
    docs: 'https://learn.microsoft.com/azure/event-grid/cloud-event-schema',
    key: "none: Microsoft's keys are fetched; jwt.audience is the application ID URI of the webhook, jwt.claims.iss names your tenant",
    ...azureEventGrid,
    handshake: 'cloudevents',
    id: { json: '$.id' },
    contentTypes: ['application/cloudevents+json'],
  }),
  /** Vonage, Messages and Voice: https://developer.vonage.com/en/getting-started/concepts/webhooks. */
  sender('vonage', 'Vonage', {
    docs: 'https://developer.vonage.com/en/getting-started/concepts/webhooks',
    key: "the account's signature secret (dashboard, API settings), as is; not the API secret",
    ...COMMON,
    signature: tokenIn('Authorization', 'hmac-sha256', 'Bearer '),
    signed: ['body'],
    timestamp: { from: { claim: '$.iat' }, unit: 's' },
    id: { claim: '$.jti' },
    jwt: { issuers: ['Vonage'], bodyHash: { claim: '$.payload_hash', digest: 'sha256', encoding: 'hex', query: 'json' } },
    contentTypes: JSON_OR_FORM,
    // The default of answer_url is GET.
    methods: ['POST', 'GET'],
  }),
  /** Netlify, deploy notifications: https://docs.netlify.com/deploy/deploy-notifications. */
  sender('netlify', 'Netlify', {
    docs: 'https://docs.netlify.com/deploy/deploy-notifications',
    key: 'the JWS secret token that was entered with the notification',
    ...COMMON,
    signature: tokenIn('X-Webhook-Signature', 'hmac-sha256'),
    signed: ['body'],
    jwt: { issuers: ['netlify'], bodyHash: { claim: '$.sha256', digest: 'sha256', encoding: 'hex' } },
  }),
  /** monday.com, apps: https://developer.monday.com/apps/docs/integration-authorization. */
  sender('monday', 'monday.com (apps)', {
    docs: 'https://developer.monday.com/apps/docs/integration-authorization',
    key: "the app's signing secret; for webhooks of the app's lifecycle its client secret",
    ...COMMON,
    signature: tokenIn('Authorization', 'hmac-sha256'),
    signed: [],
    id: { json: '$.event.triggerUuid' },
    handshake: 'monday',
    jwt: { requiresExpiry: true },
  }),
  /** Wix, apps: https://dev.wix.com/docs/build-apps/develop-your-app/api-integrations/events-and-webhooks/about-webhooks. */
  sender('wix', 'Wix', {
    docs: 'https://dev.wix.com/docs/build-apps/develop-your-app/api-integrations/events-and-webhooks/about-webhooks',
    key: "the app's public key (Webhooks, Get Public Key), in PEM",
    ...COMMON,
    signature: tokenIn('', 'rsa-sha256'),
    signed: ['body'],
    id: { claim: '$.data' },
    jwt: { content: '$', requiresExpiry: true },
    tolerance: minutes(5),
    contentTypes: ['text/plain'],
  }),
  /**
   * Apple, App Store Server Notifications V2: https://developer.apple.com/documentation/appstoreservernotifications. Others have
   * certificates under the same root, so the chain must have the extensions that Apple requires, and the token the bundle ID of the app.
   */
  sender('apple-app-store', 'Apple (App Store Server Notifications V2)', {
    docs: 'https://developer.apple.com/documentation/appstoreservernotifications/app-store-server-notifications-v2',
    key: 'the certificate Apple Root CA - G3 (www.apple.com/certificateauthority), in PEM; jwt.audience is the bundle ID of the app',
    ...COMMON,
    signature: tokenIn('', 'ecdsa-p256'),
    signed: ['body'],
    id: { claim: '$.notificationUUID' },
    jwt: {
      content: '$.signedPayload',
      audienceAt: ['$.data.bundleId', '$.summary.bundleId', '$.externalPurchaseToken.bundleId', '$.appData.bundleId'],
      mustSet: ['audience'],
      chain: { extensions: ['1.2.840.113635.100.6.11.1', '1.2.840.113635.100.6.2.1'] },
    },
  }),
];
