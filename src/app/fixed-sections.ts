/** The config sections that a reload cannot change: sockets and shared stores are built from them once. */
import type { Config } from '../config/schema/config.ts';
import type { Problem } from '../config/schema/problem.ts';

const FIXED_SECTIONS = [
  'workers',
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

/** Keys of the provider's section that a reload can change. */
const RELOADED_PROVIDER_KEYS: ReadonlySet<string> = new Set([
  'schedule',
  'timeout',
  'concurrency',
  'endpoints',
  'token',
  'rotationGrace',
  'encryption',
]);

/** Why `after` cannot replace `before` while the gate runs; undefined if it can. */
export function findFixedChange(before: Config, after: Config, file: string): Problem | undefined {
  const changed = FIXED_SECTIONS.filter((section) => JSON.stringify(before[section]) !== JSON.stringify(after[section]));
  const [path] = changed;
  if (path === undefined) return findFixedProviderChange(before, after, file);
  const message = `changing ${changed.join(', ')} requires a restart`;
  return { severity: 'error', file, path, message, hint: 'restart the gate, or revert the change' };
}

/** The data port exists only if there are routes, and the provider's queue and ports are opened once. */
function findFixedProviderChange(before: Config, after: Config, file: string): Problem | undefined {
  const restart = { severity: 'error', file, hint: 'restart the gate, or revert the change' } as const;
  if ((before.routes.length === 0) !== (after.routes.length === 0))
    return { ...restart, path: 'routes', message: 'adding the first route, or removing the last one, requires a restart' };
  const [old, next] = [before.provider, after.provider].map((provider) => Object.entries(provider ?? {}));
  if ((before.provider === undefined) !== (after.provider === undefined))
    return { ...restart, path: 'provider', message: 'adding or removing provider requires a restart' };
  if (before.provider?.encryption !== undefined && after.provider?.encryption === undefined)
    return { ...restart, path: 'provider', message: 'removing provider.encryption requires a restart' };
  const fixed = (entries: [string, unknown][] = []): [string, unknown][] =>
    entries.filter(([key]) => !RELOADED_PROVIDER_KEYS.has(key));
  const changed = fixed(next).find(([key, value]) => JSON.stringify(value) !== JSON.stringify(new Map(old).get(key)));
  if (changed === undefined) return undefined;
  return { ...restart, path: `provider.${changed[0]}`, message: `changing provider.${changed[0]} requires a restart` };
}
