/** All presets, by their names in the config. */
import type { SchemeDescription } from './description.ts';
import { awsSns } from './presets/aws-sns.ts';
import { paypal, paypalSandbox, wise } from './presets/certificates.ts';
import { CODE_HOSTING } from './presets/code-hosting.ts';
import { COMMERCE } from './presets/commerce.ts';
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
} from './presets/content-hmac.ts';
import { CUSTOMER_CONTACT } from './presets/customer-contact.ts';
import { FORMS } from './presets/forms.ts';
import { HEADER_TOKENS } from './presets/header-tokens.ts';
import {
  appleAppStore,
  azureCloudEvents,
  azureEventGrid,
  googlePubsub,
  monday,
  netlify,
  plaid,
  vonage,
  wix,
} from './presets/jwt.ts';
import { discord, sendgrid } from './presets/key-pairs.ts';
import { MEDIA_AND_VOICE } from './presets/media-and-voice.ts';
import { microsoftGraph } from './presets/microsoft-graph.ts';
import { PAYMENTS } from './presets/payments.ts';
import { adyenPayments, alipay, box, braintree, contentful, docusign, dropboxSign, mailgun } from './presets/signed-fields.ts';
import { hubspot, square, twilio } from './presets/signed-url.ts';
import { polar, standardWebhooks, svix } from './presets/standard-webhooks.ts';
import { SVIX_SENDERS } from './presets/svix-senders.ts';
import { elevenlabs, paddle, sanity, slack, stripe, twitch, webflow, workos, zoom } from './presets/time-and-content.ts';
import { apiKey, bearer, gitlab, unsigned } from './presets/unsigned.ts';
import { WORK_TOOLS } from './presets/work-tools.ts';

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
