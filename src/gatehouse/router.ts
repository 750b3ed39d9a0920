/** Finds the route of a request: exact paths first, then the longest prefix; a route that names a host before one that does not. */
import type { MatchConfig } from '../config/config.ts';
import { type Refusal, refuse } from '../core/refusal.ts';
import type { RequestTarget } from '../core/target.ts';

/** A match with the methods that count. */
export type RouteMatch = MatchConfig & { readonly methods: readonly string[] };

/** Something with a match; the table hands the very object back. */
export interface Routable {
  readonly match: RouteMatch;
}

/** What the table is asked. */
export interface RouteQuery {
  readonly method: string;
  /** The Host field as received, port and case included. */
  readonly host: string | undefined;
  readonly target: RequestTarget;
}

/** Routes compiled for look-up; immutable, a reload builds a new one. */
export class RouteTable<Route extends Routable> {
  readonly #exact = new Map<string, Route[]>();
  readonly #prefixes: { readonly prefix: string; readonly routes: Route[] }[] = [];
  readonly routes: readonly Route[];

  constructor(routes: readonly Route[]) {
    this.routes = routes;
    const prefixes = new Map<string, Route[]>();
    for (const route of routes) {
      const { path, pathPrefix } = route.match;
      if (path !== undefined) put(this.#exact, path, route);
      else if (pathPrefix !== undefined) put(prefixes, toSegments(pathPrefix), route);
    }
    for (const [prefix, group] of prefixes) this.#prefixes.push({ prefix, routes: hostsFirst(group) });
    for (const [path, group] of this.#exact) this.#exact.set(path, hostsFirst(group));
    this.#prefixes.sort((a, b) => b.prefix.length - a.prefix.length);
  }

  /** The route, or why there is none. */
  find(query: RouteQuery): Route | Refusal {
    const { path, ambiguities } = query.target;
    const allowed: string[] = [];
    let isClosed = false;
    for (const route of this.#candidates(path)) {
      if (route.match.host !== undefined && route.match.host !== toHostName(query.host)) continue;
      // Matching a path that the app may read differently would authorise one thing and forward another.
      if (!ambiguities.every((form) => route.match.allowInPath.includes(form))) isClosed = true;
      else if (route.match.methods.includes(query.method)) return route;
      else allowed.push(...route.match.methods);
    }
    if (allowed.length > 0) return { code: 'method_not_allowed', reason: 'method_not_allowed', allow: [...new Set(allowed)] };
    if (isClosed || ambiguities.length > 0) return refuse('malformed_request', 'path_ambiguous', ambiguities.join(', '));
    return refuse('route_not_found', 'route_not_found');
  }

  *#candidates(path: string): Generator<Route> {
    const exact = this.#exact.get(path);
    if (exact !== undefined) yield* exact;
    for (const { prefix, routes } of this.#prefixes) {
      // Whole segments only: `/hooks` must not open `/hooks-internal`.
      if (path.startsWith(prefix) && (path.length === prefix.length || path[prefix.length] === '/')) yield* routes;
    }
  }
}

/** `/hooks/` and `/hooks` are the same prefix, and `/` is every path. */
function toSegments(prefix: string): string {
  return prefix.endsWith('/') ? prefix.slice(0, -1) : prefix;
}

function put<Route>(map: Map<string, Route[]>, key: string, route: Route): void {
  const group = map.get(key);
  if (group === undefined) map.set(key, [route]);
  else group.push(route);
}

function hostsFirst<Route extends Routable>(group: readonly Route[]): Route[] {
  return [...group.filter((route) => route.match.host !== undefined), ...group.filter((route) => route.match.host === undefined)];
}

/** Without port, lower case; a root dot at the end is the same name. */
function toHostName(host: string | undefined): string | undefined {
  return host
    ?.replace(/:[0-9]*$/, '')
    .replace(/\.$/, '')
    .toLowerCase();
}
