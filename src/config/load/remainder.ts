/** Removes the invalid parts of a config, so that the remainder can still be checked. */

import type { Path } from '../../core/problem.ts';
import type { Config } from '../schema/config.ts';

/** The file's values, without the parts that the schema rejects. */
interface Remainder {
  readonly value: unknown;
  /** Paths of the values that were removed, or replaced by placeholders. */
  readonly removed: readonly Path[];
}

type Mutable = Record<PropertyKey, unknown>;

/** Depths of the paths to remove: a setting within a section, or the whole section if the setting is required. */
export const REMOVAL_DEPTHS = [2, 1] as const;

/** Removes the setting (`depth` 2) or section (1) of each issue; undefined if nothing would be left to check. */
export function removeRejected(value: unknown, issues: readonly { readonly path: Path }[], depth: number): Remainder | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const paths = issues.map(({ path }) => path.slice(0, path[0] === 'routes' ? depth + 1 : depth));
  const copy = structuredClone(value) as Mutable;
  const routes = copy['routes'];
  if (!Array.isArray(routes) || paths.some((path) => path.length === 0 || (path[0] === 'routes' && path.length === 1)))
    return undefined;
  for (const path of paths) {
    const [section, index, key] = path;
    if (section !== 'routes' || typeof index !== 'number') removeAt(copy, path);
    else routes[index] = withoutKey(routes[index], index, key);
  }
  return { value: copy, removed: paths };
}

/** Whether a path is in a removed part. The upstream of a route can be inherited from the top level. */
export function isRemoved(path: Path, removed: readonly Path[]): boolean {
  const isOfUpstream = path.at(-1) === 'upstream';
  return removed.some((start) => start.every((step, index) => path[index] === step) || (isOfUpstream && start[0] === 'upstream'));
}

function removeAt(from: Mutable, [section, key]: Path): void {
  const inner = from[section as string];
  if (key === undefined || typeof inner !== 'object' || inner === null) delete from[section as string];
  else delete (inner as Mutable)[key];
}

/** A route keeps its index, a name and a match, because other problems refer to it by index. */
function withoutKey(route: unknown, index: number, key: PropertyKey | undefined): Mutable {
  const placeholder = { name: `removed-${index}`, match: { path: `/removed/${index}` } };
  if (key === undefined || typeof route !== 'object' || route === null) return { ...placeholder, allow: 'anyone' };
  const { [key]: _, ...rest } = route as Mutable;
  return key === 'name' || key === 'match' ? { ...rest, [key]: placeholder[key] } : rest;
}

/** A copy of the config that calls `onRead` when a removed value is read: what a rule finds from such a value may be wrong. */
export function watchRemoved(config: Config, removed: readonly Path[], onRead: () => void): Config {
  const watched = { ...config, routes: config.routes.map((route) => ({ ...route })) } as unknown as Mutable;
  for (const path of removed) {
    const isOfRoute = path[0] === 'routes';
    const parent = (isOfRoute ? (watched['routes'] as Mutable[])[path[1] as number] : watched) as Mutable;
    const [key, setting] = isOfRoute ? path.slice(2) : path;
    if (key === undefined) for (const each of Object.keys(parent)) watchKey(parent, each, onRead);
    else if (setting === undefined) watchKey(parent, key, onRead);
    else {
      const section = { ...(parent[key] as Mutable | undefined) };
      watchKey(section, setting, onRead);
      Object.defineProperty(parent, key, { value: section, enumerable: true, configurable: true });
    }
  }
  return watched as unknown as Config;
}

function watchKey(of: Mutable, key: PropertyKey, onRead: () => void): void {
  const value = of[key];
  Object.defineProperty(of, key, {
    enumerable: true,
    configurable: true,
    get() {
      onRead();
      return value;
    },
  });
}

/** Removes the sections that rules found errors in, so that the files of the other sections can be read. */
export function withoutFaulty(config: Config, errors: readonly Path[]): Config {
  const isFaulty = (...start: Path): boolean => errors.some((path) => start.every((step, index) => path[index] === step));
  const routes = config.routes.map((route, index) => ({
    ...route,
    webhook: isFaulty('routes', index, 'webhook') ? undefined : route.webhook,
    basic: isFaulty('routes', index, 'basic') ? undefined : route.basic,
  }));
  return {
    ...config,
    routes,
    store: isFaulty('store') ? { ...config.store, redis: undefined } : config.store,
    listen: isFaulty('listen', 'tls') ? { ...config.listen, tls: undefined } : config.listen,
    proxy: isFaulty('proxy') ? undefined : config.proxy,
    authz: isFaulty('authz') ? undefined : config.authz,
    identity: isFaulty('identity') ? undefined : config.identity,
    tracing: isFaulty('tracing') ? undefined : config.tracing,
  };
}
