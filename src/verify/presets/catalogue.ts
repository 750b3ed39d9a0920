/** All presets, by their names in the config. */
import type { SchemeDescription } from '../schemes/description.ts';
import { awsSns, paypal, paypalSandbox, wise } from './certificates.ts';
import { CODE_HOSTING } from './code-hosting.ts';
import { COMMERCE } from './commerce.ts';
import {
  adyenPlatforms,
  github,
  line,
  linear,
  meta,
  pagerduty,
  shopify,
  shopifyEvents,
  whatsapp,
  woocommerce,
  x,
} from './content-hmac.ts';
import { CUSTOMER_CONTACT } from './customer-contact.ts';
import { FORMS } from './forms.ts';
import { HEADER_TOKENS } from './header-tokens.ts';
import { appleAppStore, azureCloudEvents, azureEventGrid, googlePubsub, monday, netlify, plaid, vonage, wix } from './jwt.ts';
import { discord, sendgrid } from './key-pairs.ts';
import { MEDIA_AND_VOICE } from './media-and-voice.ts';
import { PAYMENTS } from './payments.ts';
import { adyenPayments, alipay, box, braintree, contentful, docusign, dropboxSign, mailgun } from './signed-fields.ts';
import { hubspot, square, twilio } from './signed-url.ts';
import { polar, standardWebhooks, svix } from './standard-webhooks.ts';
import { SVIX_SENDERS } from './svix-senders.ts';
import { elevenlabs, paddle, sanity, slack, stripe, twitch, webflow, workos, zoom } from './time-and-content.ts';
import { apiKey, bearer, gitlab, microsoftGraph, unsigned } from './unsigned.ts';
import { WORK_TOOLS } from './work-tools.ts';

/** The presets of single senders, in any order. */
const SENDERS: readonly SchemeDescription[] = [
  adyenPayments,
  adyenPlatforms,
  alipay,
  appleAppStore,
  awsSns,
  azureCloudEvents,
  azureEventGrid,
  box,
  braintree,
  contentful,
  discord,
  docusign,
  dropboxSign,
  elevenlabs,
  github,
  gitlab,
  googlePubsub,
  hubspot,
  line,
  linear,
  mailgun,
  meta,
  microsoftGraph,
  monday,
  netlify,
  pagerduty,
  paddle,
  paypal,
  paypalSandbox,
  plaid,
  polar,
  sanity,
  sendgrid,
  shopify,
  shopifyEvents,
  slack,
  square,
  stripe,
  twilio,
  twitch,
  vonage,
  webflow,
  whatsapp,
  wise,
  wix,
  woocommerce,
  workos,
  x,
  zoom,
  ...COMMERCE,
  ...CUSTOMER_CONTACT,
  ...FORMS,
  ...PAYMENTS,
  ...CODE_HOSTING,
  ...HEADER_TOKENS,
  ...MEDIA_AND_VOICE,
  ...SVIX_SENDERS,
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
  bearer,
  apiKey,
  unsigned,
];

/** Finds a preset by its name. */
export function findPreset(name: string): SchemeDescription | undefined {
  return PRESETS.find((preset) => preset.name === name);
}
