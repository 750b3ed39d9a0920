/** Routes of the same host and path: together they own the path for all methods. */
import type { MatchConfig } from '../../config/schema/config.ts';

/** A match with its effective methods. */
export type RouteMatch = MatchConfig & { readonly methods: readonly string[] };

/** Something with a match; the table returns the same object. */
export interface Routable {
  readonly name: string;
  readonly match: RouteMatch;
  /** Equal for routes with equivalent gates (config/rules/gate-identity.ts). */
  readonly gateIdentity: string;
}

/** Routes that differ only in their methods. */
export interface RouteGroup<Route extends Routable> {
  /** Undefined: any host. */
  readonly host: string | undefined;
  readonly isExact: boolean;
  /** A prefix has no slash at its end, so '' is the prefix of every path. */
  readonly path: string;
  readonly routes: readonly Route[];
}

/** Groups routes, in the order of the config. */
export function toGroups<Route extends Routable>(routes: readonly Route[]): RouteGroup<Route>[] {
  const groups = new Map<string, RouteGroup<Route> & { readonly routes: Route[] }>();
  for (const route of routes) {
    const { path: exact, pathPrefix = '', host } = route.match;
    const isExact = exact !== undefined;
    // `/hooks/` and `/hooks` are the same prefix, and `/` is every path.
    const path = exact ?? (pathPrefix.endsWith('/') ? pathPrefix.slice(0, -1) : pathPrefix);
    const key = JSON.stringify([host, isExact, path]);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { host, isExact, path, routes: [route] });
    else group.routes.push(route);
  }
  return [...groups.values()];
}
