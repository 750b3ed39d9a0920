/** Microsoft Graph: each notification contains the clientState of its subscription. */
import type { SchemeDescription } from '../schemes/description.ts';
import { FIVE_MINUTES, JSON_ONLY } from './defaults.ts';

/** Change and lifecycle notifications: https://learn.microsoft.com/graph/change-notifications-delivery-webhooks. */
export const microsoftGraph: SchemeDescription = {
  name: 'microsoft-graph',
  from: {
    title: 'Microsoft Graph',
    docs: 'https://learn.microsoft.com/graph/change-notifications-delivery-webhooks',
    key: 'the clientState that the subscription is created with',
  },
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
};
