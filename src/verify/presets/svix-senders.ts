/** Senders that use Standard Webhooks or Svix: the same signature, each with its own names, documents and hints about keys. */
import type { SchemeDescription } from '../schemes/description.ts';
import { standardWebhooks, svix } from './standard-webhooks.ts';

type SvixSender = Omit<NonNullable<SchemeDescription['from']>, 'key'> & { readonly key?: string };

const SIGNING_SECRET = "the endpoint's signing secret, whsec_… and base64";

function toSender(base: SchemeDescription, name: string, { key = SIGNING_SECRET, ...from }: SvixSender): SchemeDescription {
  return { ...base, name, from: { ...from, key } };
}

/** Sends the names of the specification, and may send those of Svix, as all libraries of Svix accept both. */
const EITHER: SchemeDescription = { ...standardWebhooks, acceptsTwins: true };

/** All of them. */
export const SVIX_SENDERS: readonly SchemeDescription[] = [
  toSender(svix, 'clerk', {
    title: 'Clerk',
    docs: 'https://clerk.com/docs/guides/development/webhooks/syncing',
    key: `${SIGNING_SECRET}; not the secret key sk_…`,
  }),
  toSender(svix, 'resend', {
    title: 'Resend',
    docs: 'https://resend.com/docs/webhooks/verify-webhooks-requests',
    key: `${SIGNING_SECRET}; not the API key re_…`,
  }),
  toSender(standardWebhooks, 'openai', {
    title: 'OpenAI',
    docs: 'https://platform.openai.com/docs/guides/webhooks',
    key: `${SIGNING_SECRET}, which is shown once; not the API key sk-…`,
  }),
  toSender(standardWebhooks, 'supabase', {
    title: 'Supabase (auth hooks)',
    docs: 'https://supabase.com/docs/guides/auth/auth-hooks',
    key: "the hook's secret without v1, at its start: whsec_… and base64",
  }),
  toSender(standardWebhooks, 'replicate', {
    title: 'Replicate',
    docs: 'https://replicate.com/docs/topics/webhooks/verify-webhook',
    key: 'the signing key of the account, whsec_… and base64, from GET /v1/webhooks/default/secret; not the API token r8_…',
  }),
  toSender(standardWebhooks, 'render', {
    title: 'Render',
    docs: 'https://render.com/docs/webhooks',
    key: "the webhook's signing secret, whsec_… and base64; not the API key rnd_…",
  }),
  toSender(EITHER, 'incident-io', {
    title: 'incident.io',
    docs: 'https://api-docs.incident.io/tag/Webhooks',
  }),
  toSender(EITHER, 'lithic', {
    title: 'Lithic',
    docs: 'https://docs.lithic.com/docs/events-api',
    key: "the event subscription's secret, whsec_… and base64; not the API key",
  }),
  toSender(svix, 'stytch', {
    title: 'Stytch',
    docs: 'https://stytch.com/docs/guides/dashboard/webhooks',
    key: `${SIGNING_SECRET}; not the project's secret`,
  }),
  // Its secret has no prefix.
  {
    ...toSender(standardWebhooks, 'brex', {
      title: 'Brex',
      docs: 'https://developer.brex.com/docs/webhooks',
      key: "the webhook's secret in base64, from GET /v1/webhooks/secrets; not the API token",
    }),
    secret: { encoding: 'base64' },
  },
];
