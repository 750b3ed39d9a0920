/** Senders that use Standard Webhooks or Svix: the same signature, each with its own names, documents and hints about keys. */
import type { SchemeDescription } from '../schemes/description.ts';
import { sender } from './shapes.ts';
import { standardWebhooks, svix } from './standard-webhooks.ts';

const SIGNING_SECRET = "the endpoint's signing secret, whsec_… and base64";

/** Sends the names of the specification, and may send those of Svix, as all libraries of Svix accept both. */
const EITHER: SchemeDescription = { ...standardWebhooks, acceptsTwins: true };

/** All of them. */
export const SVIX_SENDERS: readonly SchemeDescription[] = [
  sender('clerk', 'Clerk', {
    docs: 'https://clerk.com/docs/guides/development/webhooks/syncing',
    key: `${SIGNING_SECRET}; not the secret key sk_…`,
    ...svix,
  }),
  sender('resend', 'Resend', {
    docs: 'https://resend.com/docs/webhooks/verify-webhooks-requests',
    key: `${SIGNING_SECRET}; not the API key re_…`,
    ...svix,
  }),
  sender('openai', 'OpenAI', {
    docs: 'https://platform.openai.com/docs/guides/webhooks',
    key: `${SIGNING_SECRET}, which is shown once; not the API key sk-…`,
    ...standardWebhooks,
  }),
  sender('supabase', 'Supabase (auth hooks)', {
    docs: 'https://supabase.com/docs/guides/auth/auth-hooks',
    key: "the hook's secret without v1, at its start: whsec_… and base64",
    ...standardWebhooks,
  }),
  sender('replicate', 'Replicate', {
    docs: 'https://replicate.com/docs/topics/webhooks/verify-webhook',
    key: 'the signing key of the account, whsec_… and base64, from GET /v1/webhooks/default/secret; not the API token r8_…',
    ...standardWebhooks,
  }),
  sender('render', 'Render', {
    docs: 'https://render.com/docs/webhooks',
    key: "the webhook's signing secret, whsec_… and base64; not the API key rnd_…",
    ...standardWebhooks,
  }),
  sender('incident-io', 'incident.io', {
    docs: 'https://api-docs.incident.io/tag/Webhooks',
    key: SIGNING_SECRET,
    ...EITHER,
  }),
  sender('lithic', 'Lithic', {
    docs: 'https://docs.lithic.com/docs/events-api',
    key: "the event subscription's secret, whsec_… and base64; not the API key",
    ...EITHER,
  }),
  sender('stytch', 'Stytch', {
    docs: 'https://stytch.com/docs/guides/dashboard/webhooks',
    key: `${SIGNING_SECRET}; not the project's secret`,
    ...svix,
  }),
  // Its secret has no prefix.
  sender('brex', 'Brex', {
    docs: 'https://developer.brex.com/docs/webhooks',
    key: "the webhook's secret in base64, from GET /v1/webhooks/secrets; not the API token",
    ...standardWebhooks,
    secret: { encoding: 'base64' },
  }),
];
