/** The config sections that a reload cannot change: sockets and shared stores are built from them once. */
import type { Config } from '../../config/schema/config.ts';
import type { Problem } from '../../config/schema/problem.ts';

const FIXED_SECTIONS = [
  'listen',
  'proxy',
  'authz',
  'admin',
  'store',
  'limits',
  'shutdown',
  'explain',
  'journal',
  'tracing',
  'log',
] as const;

/** Why `after` cannot replace `before` while the gate runs; undefined if it can. */
export function findFixedChange(before: Config, after: Config, file: string): Problem | undefined {
  const changed = FIXED_SECTIONS.filter((section) => JSON.stringify(before[section]) !== JSON.stringify(after[section]));
  const [path] = changed;
  if (path === undefined) return undefined;
  const message = `changing ${changed.join(', ')} requires a restart`;
  return { severity: 'error', file, path, message, hint: 'restart the gate, or revert the change' };
}
