/** Senders that sign nothing: a header contains a secret that was agreed on, so anyone who has read a request can send any other. */
import type { SchemeDescription } from '../schemes/description.ts';
import { sender, TOKEN, tokenIn } from './shapes.ts';

/** All of them. */
export const HEADER_TOKENS: readonly SchemeDescription[] = [
  sender('telegram', 'Telegram (Bot API)', {
    docs: 'https://core.telegram.org/bots/api#setwebhook',
    key: "the secret_token that was passed to setWebhook; not the bot's token",
    ...TOKEN,
    signature: tokenIn('X-Telegram-Bot-Api-Secret-Token'),
    id: { json: '$.update_id' },
  }),
  sender('okta', 'Okta (event hooks)', {
    docs: 'https://developer.okta.com/docs/concepts/event-hooks',
    key: 'the authentication secret of the hook, with Authorization as its authentication field',
    ...TOKEN,
    handshake: 'okta',
    signature: tokenIn('Authorization'),
    id: { json: '$.eventId' },
  }),
  /** A delivery has several log events. */
  sender('auth0', 'Auth0 (custom log streams)', {
    docs: 'https://auth0.com/docs/customize/log-streams/custom-log-streams',
    key: "the stream's authorization token, as it was entered, with JSON array as its content format; not a client secret",
    ...TOKEN,
    signature: tokenIn('Authorization'),
    id: { json: '$[*].log_id' },
  }),
  /** Hugging Face: https://huggingface.co/docs/hub/webhooks. Its deliveries have no ID. */
  sender('huggingface', 'Hugging Face', {
    docs: 'https://huggingface.co/docs/hub/webhooks#webhook-secret',
    key: "the webhook's secret, as it was entered; not an access token hf_…",
    ...TOKEN,
    signature: tokenIn('X-Webhook-Secret'),
  }),
  /** Most of its requests wait for the response of the app. */
  sender('vapi', 'Vapi', {
    docs: 'https://docs.vapi.ai/server-url/server-authentication',
    key: 'the secret of the server URL; with a bearer token use scheme: bearer',
    ...TOKEN,
    signature: tokenIn('X-Vapi-Secret'),
  }),
  sender('cloudflare-notifications', 'Cloudflare (notifications)', {
    docs: 'https://developers.cloudflare.com/notifications/get-started/configure-webhooks',
    key: "the webhook destination's secret, as it was entered; not an API token",
    ...TOKEN,
    signature: tokenIn('cf-webhook-auth'),
  }),
  sender('ringcentral', 'RingCentral', {
    docs: 'https://developers.ringcentral.com/guide/notifications/webhooks/receiving',
    key: 'the verificationToken that the subscription was created with; not the client secret',
    ...TOKEN,
    handshake: 'ringcentral',
    signature: tokenIn('Verification-Token'),
    id: { json: '$.uuid' },
  }),
];
