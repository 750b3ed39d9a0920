/** GitHub, and what signs like it: an HMAC over the raw content alone. */
import type { SchemeDescription } from '../description.ts';
import { FIVE_MINUTES, JSON_OR_FORM } from './defaults.ts';

/** GitHub: https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries. */
export const github: SchemeDescription = {
  name: 'github',
  signature: { header: 'X-Hub-Signature-256', encoding: 'hex', forms: [{ prefix: 'sha256=', algorithm: 'hmac-sha256' }] },
  signed: ['body'],
  separator: '',
  id: { header: 'X-GitHub-Delivery' },
  secret: { encoding: 'utf8' },
  tolerance: FIVE_MINUTES,
  contentTypes: JSON_OR_FORM,
};
