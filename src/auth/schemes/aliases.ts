/** Other names of senders, under which people look for a preset. */

/** Name → preset. */
const ALIASES: Readonly<Record<string, string>> = {
  'amazon-sns': 'aws-sns',
  facebook: 'meta',
  graph: 'microsoft-graph',
  instagram: 'meta',
  messenger: 'meta',
  'microsoft-365': 'microsoft-graph',
  sns: 'aws-sns',
  standardwebhooks: 'standard-webhooks',
  twitter: 'x',
};

/** The preset of a sender under one of its other names. */
export function findAlias(name: string): string | undefined {
  const key = name.toLowerCase().replaceAll(/[ _.]/g, '-');
  return Object.hasOwn(ALIASES, key) ? ALIASES[key] : undefined;
}
