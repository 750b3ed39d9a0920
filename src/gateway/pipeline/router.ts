/**
 * Finds the route of a request. Routes with its host come before those without a host; among these the exact path wins, then the
 * longest prefix, then the routes that ask for the most headers. These own all methods. A path that an app could interpret as another
 * route's is rejected.
 */
import { findConnectionOptions, type HeaderFields, toFoldedName } from '../../core/headers.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import type { ParsedHead } from '../../core/request.ts';
import type { AmbiguousForm, RequestTarget } from '../../core/target.ts';
import { NOTHING_KEPT } from '../../http/path-forms.ts';
import { isAuthority } from '../../http/server/head-check.ts';
import { PathConflicts, PathForms } from './path-conflicts.ts';
import { type Routable, type RouteGroup, type RouteVariant, toGroups } from './route-groups.ts';

/** Each costs a lookup, and no real chain of proxies is this long. */
const MAX_FORWARDED_HOSTS = 8;

/** The parts of a request that select its route. */
interface RouteQuery {
  readonly method: string;
  /** The Host field as received, port and case included. */
  readonly host: string | undefined;
  readonly target: RequestTarget;
  /** Only the presence of a header counts, never its value. */
  readonly headers: HeaderFields;
  /** X-Forwarded-Host from a trusted proxy: an app may use it instead of Host, and any name of the list. */
  readonly forwardedHost?: string | undefined;
}

/** The query for the route of a request. */
export function toRouteQuery({ method, target, headers, client }: ParsedHead): RouteQuery {
  const forwardedHost = client.viaTrustedProxy ? headers.all('x-forwarded-host').at(-1) : undefined;
  return { method, host: headers.get('host'), target, headers, forwardedHost };
}

/** The groups of one host, or of no host. */
interface HostTable<Route extends Routable> {
  readonly exact: ReadonlyMap<string, RouteGroup<Route>>;
  /** Longest first. */
  readonly prefixes: readonly RouteGroup<Route>[];
}

/** Routes compiled for lookup; immutable, a reload builds a new table. */
export class RouteTable<Route extends Routable> {
  readonly routes: readonly Route[];
  readonly #hosts = new Map<string, HostTable<Route>>();
  readonly #anyHost: HostTable<Route>;
  readonly #conflicts: PathConflicts<Route>;

  constructor(routes: readonly Route[]) {
    this.routes = routes;
    const groups = toGroups(routes);
    for (const host of new Set(groups.map((group) => group.host)))
      if (host !== undefined) this.#hosts.set(host, toHostTable(groups, host));
    this.#anyHost = toHostTable(groups, undefined);
    this.#conflicts = new PathConflicts(groups);
  }

  /** The route, or why there is none. */
  find(query: RouteQuery): Route | Refusal {
    const forms = new PathForms(query.target.path);
    const found = this.#findByHost(query, forms);
    if (query.forwardedHost === undefined || found instanceof Refusal) return found;
    // Empty members do not count (RFC 9110 §5.6.1): a proxy that adds a name to a field that its client did not send writes one.
    const names = query.forwardedHost
      .split(',')
      .map((name) => name.trim())
      .filter((name) => name !== '');
    if (names.length > MAX_FORWARDED_HOSTS)
      return refuse('ambiguous_target', 'ambiguous_target', 'too many names in X-Forwarded-Host');
    // Proxies pass on what a client wrote, and apps build links from it: `evil.example/?` would lead to another path or host.
    if (!names.every(isAuthority)) return refuse('malformed_request', 'malformed', 'X-Forwarded-Host is malformed');
    if (this.#hosts.size === 0) return found;
    for (const host of names) {
      const other = this.#findByHost({ ...query, host }, forms);
      const isSame = other instanceof Refusal ? other.code === 'route_not_found' : other.gateIdentity === found.gateIdentity;
      if (!isSame)
        return refuse('ambiguous_target', 'ambiguous_target', `route ${found.name} by Host, another by X-Forwarded-Host`);
    }
    return found;
  }

  #findByHost(query: RouteQuery, forms: PathForms): Route | Refusal {
    const { method, target } = query;
    const { path, ambiguities } = target;
    const host = this.#hosts.size === 0 ? undefined : toHostName(query.host);
    const group = this.#findGroup(path, host);
    const variant = group?.headerNames === undefined ? group : findVariant(group, group.headerNames, query.headers);
    if (variant instanceof Refusal) return variant;
    if (group === undefined || variant === undefined) {
      if (ambiguities.length > 0) return toAmbiguousPath(ambiguities);
      return refuse('route_not_found', 'route_not_found', group && 'no route of this path matches the headers');
    }
    const route = findRoute(variant.routes, method, ambiguities);
    if (route === undefined) return toRefusal(variant.routes, ambiguities);
    // Forms that the route allows may hide others: `%252e%252e` is a dot segment for an app that decodes twice.
    if (ambiguities.length > 0 && forms.get(NOTHING_KEPT) === undefined) return toAmbiguousPath(ambiguities);
    if (this.#conflicts.isSafe(group, path)) return route;
    const conflict = this.#conflicts.find({ group, route, method, host }, forms);
    return conflict === undefined ? route : refuse('ambiguous_target', 'ambiguous_target', conflict);
  }

  #findGroup(path: string, host: string | undefined): RouteGroup<Route> | undefined {
    const table = host === undefined ? undefined : this.#hosts.get(host);
    return (table === undefined ? undefined : findIn(table, path)) ?? findIn(this.#anyHost, path);
  }
}

function toHostTable<Route extends Routable>(groups: readonly RouteGroup<Route>[], host: string | undefined): HostTable<Route> {
  const own = groups.filter((group) => group.host === host);
  return {
    exact: new Map(own.filter(({ isExact }) => isExact).map((group) => [group.path, group])),
    prefixes: own.filter(({ isExact }) => !isExact).sort((a, b) => b.path.length - a.path.length),
  };
}

function findIn<Route extends Routable>({ exact, prefixes }: HostTable<Route>, path: string): RouteGroup<Route> | undefined {
  const group = exact.get(path);
  if (group !== undefined) return group;
  for (const each of prefixes) {
    const { length } = each.path;
    // Whole segments only: `/hooks` must not match `/hooks-internal`.
    if (path.startsWith(each.path) && (path.length === length || path[length] === '/')) return each;
  }
  return undefined;
}

/**
 * An app may read another spelling of a header as the header, and a proxy in between removes a header that Connection names. Then the app
 * would see another request than the route was found for, so such requests are rejected.
 */
function findVariant<Route extends Routable>(
  { variants }: RouteGroup<Route>,
  asked: ReadonlySet<string>,
  headers: HeaderFields,
): RouteVariant<Route> | Refusal | undefined {
  const named = findConnectionOptions(headers);
  for (const name of asked) if (named?.has(name) === true) return toAmbiguousHeader(name, 'is named by Connection');
  for (const name of headers.names) {
    const folded = toFoldedName(name);
    if (folded !== name && !asked.has(name) && asked.has(folded)) return toAmbiguousHeader(folded, 'has another spelling');
  }
  return variants.find(
    (each) =>
      each.headers.every((name) => headers.get(name) !== undefined) &&
      each.withoutHeaders.every((name) => headers.get(name) === undefined),
  );
}

function toAmbiguousHeader(name: string, problem: string): Refusal {
  return refuse('ambiguous_target', 'ambiguous_target', `the header ${name}, which selects the route, ${problem}`);
}

function findRoute<Route extends Routable>(
  routes: readonly Route[],
  method: string,
  ambiguities: readonly AmbiguousForm[],
): Route | undefined {
  for (const route of routes) if (route.match.methods.includes(method) && allowsForms(route, ambiguities)) return route;
  return undefined;
}

/** Matching a path that the app may interpret differently would authorize one resource and forward another. */
function allowsForms({ match }: Routable, ambiguities: readonly AmbiguousForm[]): boolean {
  return ambiguities.every((form) => match.allowInPath.includes(form));
}

function toRefusal(routes: readonly Routable[], ambiguities: readonly AmbiguousForm[]): Refusal {
  const allow = routes.filter((route) => allowsForms(route, ambiguities)).flatMap(({ match }) => match.methods);
  if (allow.length === 0) return toAmbiguousPath(ambiguities);
  return refuse('method_not_allowed', 'method_not_allowed', { allow: [...new Set(allow)] });
}

function toAmbiguousPath(ambiguities: readonly AmbiguousForm[]): Refusal {
  return refuse('malformed_request', 'path_ambiguous', ambiguities.join(', '));
}

/** Without port and trailing dots, which denote the same name; lower case. */
function toHostName(host: string | undefined): string | undefined {
  if (host === undefined) return undefined;
  const colon = host.endsWith(']') ? -1 : host.lastIndexOf(':');
  let end = colon === -1 ? host.length : colon;
  while (end > 0 && host[end - 1] === '.') end--;
  return host.slice(0, end).toLowerCase();
}
