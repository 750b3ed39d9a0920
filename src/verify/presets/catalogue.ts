/** All presets, by their names in the config. */
import type { SchemeDescription } from '../schemes/description.ts';
import { CERTIFICATES } from './certificates.ts';
import { CODE_HOSTING } from './code-hosting.ts';
import { COMMERCE } from './commerce.ts';
import { CONTENT_HMAC } from './content-hmac.ts';
import { CUSTOMER_CONTACT } from './customer-contact.ts';
import { FORMS } from './forms.ts';
import { HEADER_TOKENS } from './header-tokens.ts';
import { JWT } from './jwt.ts';
import { KEY_PAIRS } from './key-pairs.ts';
import { MEDIA_AND_VOICE } from './media-and-voice.ts';
import { PAYMENTS } from './payments.ts';
import { SIGNED_FIELDS } from './signed-fields.ts';
import { SIGNED_URL } from './signed-url.ts';
import { polar, standardWebhooks, svix } from './standard-webhooks.ts';
import { SVIX_SENDERS } from './svix-senders.ts';
import { TIME_AND_CONTENT } from './time-and-content.ts';
import { UNSIGNED, UNSIGNED_IN_GENERAL } from './unsigned.ts';
import { WORK_TOOLS } from './work-tools.ts';

/** The presets of single senders, in any order. */
const SENDERS: readonly SchemeDescription[] = [
  polar,
  ...CERTIFICATES,
  ...CODE_HOSTING,
  ...COMMERCE,
  ...CONTENT_HMAC,
  ...CUSTOMER_CONTACT,
  ...FORMS,
  ...HEADER_TOKENS,
  ...JWT,
  ...KEY_PAIRS,
  ...MEDIA_AND_VOICE,
  ...PAYMENTS,
  ...SIGNED_FIELDS,
  ...SIGNED_URL,
  ...SVIX_SENDERS,
  ...TIME_AND_CONTENT,
  ...UNSIGNED,
  ...WORK_TOOLS,
];

/**
 * All presets; the config accepts no other name except `custom`. Each is verified against its sender's test vectors or library, or
 * against independent signers that were written from its document.
 */
export const PRESETS: readonly SchemeDescription[] = [
  standardWebhooks,
  svix,
  ...[...SENDERS].sort((a, b) => (a.name < b.name ? -1 : 1)),
  ...UNSIGNED_IN_GENERAL,
];

/** Finds a preset by its name. */
export function findPreset(name: string): SchemeDescription | undefined {
  return PRESETS.find((preset) => preset.name === name);
}
