/** Every scheme by the name it has in the config. */
import type { Scheme } from './scheme.ts';
import { standardWebhooks } from './standard-webhooks.ts';

/** The schemes there are; the config admits no other name. */
export const SCHEMES: Readonly<Record<'standard-webhooks', Scheme>> = { 'standard-webhooks': standardWebhooks };
