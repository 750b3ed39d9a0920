/** Findings that may stay. */
export interface Allowed {
  /** Relative to the root of the project. */
  readonly file: string;
  /** As the finding quotes it. */
  readonly found: string;
  readonly reason: string;
}

export const ALLOWED: readonly Allowed[] = [
  { file: 'docs/handshakes.md', found: 'Graph', reason: 'Microsoft Graph is a product' },
  { file: 'docs/handshakes.md', found: 'Event', reason: 'Azure Event Grid is a product' },
  { file: 'docs/handshakes.md', found: 'Grid', reason: 'Azure Event Grid is a product' },
  { file: 'docs/how-to/redis.md', found: 'Sentinel', reason: 'Redis Sentinel is a product' },
  { file: 'docs/how-to/redis.md', found: 'Cluster', reason: 'Redis Cluster is a product' },
];
