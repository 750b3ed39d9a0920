/** Senders that do not sign: those that send a token, and those that another gate of the route authenticates. */
import type { SchemeDescription } from '../schemes/description.ts';
import { FIVE_MINUTES, JSON_ONLY, JSON_OR_FORM, sender, TOKEN, tokenIn } from './shapes.ts';

/** The sender is not known, so both usual types are accepted. */
const ANY_SENDER = { ...TOKEN, contentTypes: JSON_OR_FORM } as const;

export const UNSIGNED: readonly SchemeDescription[] = [
  /**
   * GitLab's secret token: https://docs.gitlab.com/user/project/integrations/webhooks. Webhooks with a signing token use Standard
   * Webhooks instead.
   */
  sender('gitlab', 'GitLab (secret token)', {
    docs: 'https://docs.gitlab.com/user/project/integrations/webhooks',
    key: 'the secret token that was entered when the webhook was created; with a signing token use scheme: standard-webhooks',
    ...TOKEN,
    signature: tokenIn('X-Gitlab-Token'),
    id: { header: 'Idempotency-Key' },
    comparedHeaders: ['X-Gitlab-Instance'],
  }),
  /**
   * Microsoft Graph: each notification contains the clientState of its subscription. Change and lifecycle notifications:
   * https://learn.microsoft.com/graph/change-notifications-delivery-webhooks.
   */
  sender('microsoft-graph', 'Microsoft Graph', {
    docs: 'https://learn.microsoft.com/graph/change-notifications-delivery-webhooks',
    key: 'the clientState that the subscription is created with',
    signature: {
      header: '',
      content: '$.value[*].clientState',
      encoding: 'text',
      forms: [{ prefix: '', algorithm: 'token' }],
    },
    signed: [],
    separator: '',
    id: { json: '$.value[*].id' },
    secret: { encoding: 'utf8' },
    tolerance: FIVE_MINUTES,
    contentTypes: JSON_ONLY,
    handshake: 'microsoft-graph',
  }),
];

/** For any sender. */
export const UNSIGNED_IN_GENERAL: readonly SchemeDescription[] = [
  /** `Authorization: Bearer …` (RFC 6750 §2.1). */
  {
    ...ANY_SENDER,
    name: 'bearer',
    signature: { header: 'Authorization', encoding: 'text', forms: [{ prefix: 'Bearer ', algorithm: 'token' }] },
  },
  /** The usual header of API keys. */
  { ...ANY_SENDER, name: 'api-key', signature: tokenIn('X-API-Key') },
  /** The route's `basic` or `clientCertificate` authenticates the sender; this scheme only covers the body, IDs and duplicates. */
  { ...ANY_SENDER, name: 'unsigned' },
];
