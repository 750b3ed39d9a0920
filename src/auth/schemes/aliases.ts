/** Other names of senders, under which people look for a preset. */

/** Name → preset. */
const ALIASES: Readonly<Record<string, string>> = {
  'amazon-sns': 'aws-sns',
  calcom: 'cal-com',
  checkout: 'checkout-com',
  coinbase: 'coinbase-commerce',
  commercelayer: 'commerce-layer',
  customerio: 'customer-io',
  facebook: 'meta',
  frontapp: 'front',
  graph: 'microsoft-graph',
  instagram: 'meta',
  intuit: 'quickbooks',
  lemonsqueezy: 'lemon-squeezy',
  mailchimp: 'mandrill',
  'mailchimp-transactional': 'mandrill',
  maxio: 'chargify',
  messenger: 'meta',
  'microsoft-365': 'microsoft-graph',
  qbo: 'quickbooks',
  sns: 'aws-sns',
  standardwebhooks: 'standard-webhooks',
  twitter: 'x',
};

/** The preset of a sender under one of its other names. */
export function findAlias(name: string): string | undefined {
  const key = name.toLowerCase().replaceAll(/[ _.]/g, '-');
  return Object.hasOwn(ALIASES, key) ? ALIASES[key] : undefined;
}
