/** Senders that do not sign: those that send a token, and those that another gate of the route authenticates. */
import type { SchemeDescription } from '../description.ts';
import { FIVE_MINUTES, JSON_ONLY, JSON_OR_FORM } from './defaults.ts';

const TOKEN = {
  signed: [],
  separator: '',
  secret: { encoding: 'utf8' },
  tolerance: FIVE_MINUTES,
  contentTypes: JSON_OR_FORM,
} as const;

/** `Authorization: Bearer …` (RFC 6750 §2.1). */
export const bearer: SchemeDescription = {
  ...TOKEN,
  name: 'bearer',
  signature: { header: 'Authorization', encoding: 'text', forms: [{ prefix: 'Bearer ', algorithm: 'token' }] },
};

/** The usual header of API keys. */
export const apiKey: SchemeDescription = {
  ...TOKEN,
  name: 'api-key',
  signature: { header: 'X-API-Key', encoding: 'text', forms: [{ prefix: '', algorithm: 'token' }] },
};

/**
 * GitLab's secret token: https://docs.gitlab.com/user/project/integrations/webhooks. Webhooks with a signing token use Standard
 * Webhooks instead.
 */
export const gitlab: SchemeDescription = {
  ...TOKEN,
  name: 'gitlab',
  from: {
    title: 'GitLab (secret token)',
    docs: 'https://docs.gitlab.com/user/project/integrations/webhooks',
    key: 'the secret token that was entered when the webhook was created; with a signing token use scheme: standard-webhooks',
  },
  signature: { header: 'X-Gitlab-Token', encoding: 'text', forms: [{ prefix: '', algorithm: 'token' }] },
  id: { header: 'Idempotency-Key' },
  contentTypes: JSON_ONLY,
};

/** The route's `basic` or `clientCertificate` authenticates the sender; this scheme only covers the body, IDs and duplicates. */
export const unsigned: SchemeDescription = { ...TOKEN, name: 'unsigned' };
