/** What a reload cannot change: sections that are built once, into sockets and shared stores. */
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

/** Why `after` cannot take over from `before` while the gate runs; undefined where it can. */
export function findFixedChange(before: Config, after: Config, file: string): Problem | undefined {
  const changed = FIXED_SECTIONS.filter((section) => JSON.stringify(before[section]) !== JSON.stringify(after[section]));
  const [path] = changed;
  if (path === undefined) return undefined;
  const message = `a change of ${changed.join(', ')} takes a restart`;
  return { severity: 'error', file, path, message, hint: 'restart the gate, or undo the change' };
}
