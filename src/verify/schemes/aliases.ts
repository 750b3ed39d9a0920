/** Other names of senders, under which people look for a preset. */

/** Name → preset. */
const ALIASES: Readonly<Record<string, string>> = {
  'amazon-sns': 'aws-sns',
  atlassian: 'jira',
  calcom: 'cal-com',
  checkout: 'checkout-com',
  cloudflare: 'cloudflare-stream',
  codeberg: 'forgejo',
  coinbase: 'coinbase-commerce',
  commercelayer: 'commerce-layer',
  customerio: 'customer-io',
  facebook: 'meta',
  frame: 'frame-io',
  frontapp: 'front',
  graph: 'microsoft-graph',
  'hcp-terraform': 'terraform-cloud',
  incident: 'incident-io',
  'event-grid': 'azure-event-grid',
  eventgrid: 'azure-event-grid',
  instagram: 'meta',
  intuit: 'quickbooks',
  lemonsqueezy: 'lemon-squeezy',
  'mailchimp-transactional': 'mandrill',
  mailchimp: 'mandrill',
  maxio: 'chargify',
  messenger: 'meta',
  'microsoft-365': 'microsoft-graph',
  moderntreasury: 'modern-treasury',
  qbo: 'quickbooks',
  sns: 'aws-sns',
  sonarcloud: 'sonarqube',
  standardwebhooks: 'standard-webhooks',
  terraform: 'terraform-cloud',
  tfe: 'terraform-cloud',
  twitter: 'x',
};

/** The preset of a sender under one of its other names. */
export function findAlias(name: string): string | undefined {
  const key = name.toLowerCase().replaceAll(/[ _.]/g, '-');
  return Object.hasOwn(ALIASES, key) ? ALIASES[key] : undefined;
}
