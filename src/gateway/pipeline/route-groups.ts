/** Routes of the same host and path: together they own the path for all methods. */
import type { MatchConfig } from '../../config/schema/config.ts';

/** A match with its effective methods. */
type RouteMatch = MatchConfig & { readonly methods: readonly string[] };

/** Something with a match; the table returns the same object. */
export interface Routable {
  readonly name: string;
  readonly match: RouteMatch;
  /** Equal for routes with equivalent gates (config/rules/gate-identity.ts). */
  readonly gateIdentity: string;
}

/** Routes of a group that differ only in their methods. */
export interface RouteVariant<Route extends Routable> {
  /** Lower-case names of headers that a request must have. */
  readonly headers: readonly string[];
  /** Lower-case names of headers that a request must not have. */
  readonly withoutHeaders: readonly string[];
  readonly routes: readonly Route[];
}

/** Routes that differ only in their headers and methods. */
export interface RouteGroup<Route extends Routable> {
  /** Undefined: any host. */
  readonly host: string | undefined;
  readonly isExact: boolean;
  /** A prefix has no slash at its end, so '' is the prefix of every path. */
  readonly path: string;
  readonly routes: readonly Route[];
  /** The most specific first; no request matches two of them that are equally specific (config/rules/validate-match.ts). */
  readonly variants: readonly RouteVariant<Route>[];
  /** Names of all headers that its variants ask for; undefined for the usual group, which asks for none. */
  readonly headerNames: ReadonlySet<string> | undefined;
}

/** Groups routes, in the order of the config. */
export function toGroups<Route extends Routable>(routes: readonly Route[]): RouteGroup<Route>[] {
  const groups = new Map<string, Pick<RouteGroup<Route>, 'host' | 'isExact' | 'path'> & { readonly routes: Route[] }>();
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
  return [...groups.values()].map((group) => {
    const variants = toVariants(group.routes);
    const names = variants.flatMap(({ headers, withoutHeaders }) => [...headers, ...withoutHeaders]);
    return { ...group, variants, headerNames: names.length === 0 ? undefined : new Set(names) };
  });
}

function toVariants<Route extends Routable>(routes: readonly Route[]): RouteVariant<Route>[] {
  const variants = new Map<string, RouteVariant<Route> & { readonly routes: Route[] }>();
  for (const route of routes) {
    const headers = [...(route.match.headers ?? [])].sort();
    const withoutHeaders = [...(route.match.withoutHeaders ?? [])].sort();
    const key = JSON.stringify([headers, withoutHeaders]);
    const variant = variants.get(key);
    if (variant === undefined) variants.set(key, { headers, withoutHeaders, routes: [route] });
    else variant.routes.push(route);
  }
  return [...variants.values()].sort((a, b) => countConditions(b) - countConditions(a));
}

function countConditions({ headers, withoutHeaders }: Omit<RouteVariant<Routable>, 'routes'>): number {
  return headers.length + withoutHeaders.length;
}
