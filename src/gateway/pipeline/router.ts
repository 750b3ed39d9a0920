/**
 * Finds the route of a request. Routes with its host come before those without a host; among these the exact path wins, then the
 * longest prefix, then the routes that ask for the most headers. These own all methods. A path that an app could interpret as another
 * route's is rejected.
 */

import {
  type AmbiguousForm,
  findConnectionOptions,
  type HeaderFields,
  type RequestTarget,
  toFoldedName,
} from '../../core/head.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import type { ParsedHead } from '../../core/request.ts';
import {
  createFormBudget,
  type FormBudget,
  hasOtherNames,
  isPlainPath,
  type KeptDistinctions,
  NOTHING_KEPT,
  PATH_DISTINCTIONS,
  type PathDistinction,
  toPathForms,
} from '../../http/path-forms.ts';
import { isAuthority } from '../../http/server/strict-server.ts';
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

/** The routes of the current config. */
export class CurrentRoutes<Route extends Routable> {
  #table = new RouteTable<Route>([]);

  /** Requests in flight finish with the routes that they started with. */
  replace(routes: readonly Route[]): void {
    this.#table = new RouteTable(routes);
  }

  /** The route of a request, or why there is none. */
  readonly find = (head: ParsedHead): Route | Refusal => this.#table.find(toRouteQuery(head));
}

function toRouteQuery({ method, target, headers, client }: ParsedHead): RouteQuery {
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

// Requests that an app could interpret as ones of another route than the router chose. The router compares paths byte for byte, but the app
// behind an open `/` may decode `/%61dmin` and serve what the route of `/admin` protects.

/** The properties of a group that are computed when the table is built. */
interface PathSafety<Route extends Routable> {
  /** Those with a group as whose path an app could interpret one of this group; with none of them, every path is safe. */
  readonly tables: readonly FormTable<Route>[];
  /** No path that has only one form can be interpreted as one of another group. */
  readonly isSafeIfPlain: boolean;
}

/** The forms of one path, for each set of distinctions. A request may be looked up for several hosts, and the time is limited for all. */
class PathForms {
  readonly path: string;
  /** Most paths need none. */
  #found: Map<KeptDistinctions, ReadonlySet<string> | undefined> | undefined;
  #budget: FormBudget | undefined;

  constructor(path: string) {
    this.path = path;
  }

  /** See `toPathForms`. */
  get(kept: KeptDistinctions): ReadonlySet<string> | undefined {
    this.#found ??= new Map();
    this.#budget ??= createFormBudget();
    if (!this.#found.has(kept)) this.#found.set(kept, toPathForms(this.path, kept, this.#budget));
    return this.#found.get(kept);
  }
}

/** The forms of each group's path. */
type Keys<Route extends Routable> = ReadonlyMap<RouteGroup<Route>, readonly string[]>;

/** Which forms are paths of a prefix, so that a wider prefix does not own them. `/_next/data/1/admin.json` below `/_next` has the form `/admin`. */
interface Subtree {
  readonly forms: ReadonlySet<string>;
  /** With all paths below them. */
  readonly tops: readonly string[];
}

/** Groups by the forms of their paths, as interpreted by apps that make the distinctions in `kept`. */
interface FormTable<Route extends Routable> {
  readonly kept: KeptDistinctions;
  /** The groups whose apps make exactly these distinctions: only these can conflict. */
  readonly members: ReadonlySet<RouteGroup<Route>>;
  readonly keys: Keys<Route>;
  /** The forms of each group's path, and the root if another name of a path below it can be any path. */
  readonly tops: Keys<Route>;
  readonly subtrees: ReadonlyMap<RouteGroup<Route>, Subtree>;
  readonly exact: ReadonlyMap<string, readonly RouteGroup<Route>[]>;
  readonly prefixes: ReadonlyMap<string, readonly RouteGroup<Route>[]>;
  /** Segments of the deepest prefix. */
  readonly maxDepth: number;
}

/** The router's result. */
interface FoundRoute<Route extends Routable> {
  readonly group: RouteGroup<Route>;
  readonly route: Route;
  readonly method: string;
  /** Normalized. */
  readonly host: string | undefined;
}

/** Compiled with the route table; most requests cost one map lookup. */
class PathConflicts<Route extends Routable> {
  readonly #tables: readonly FormTable<Route>[];
  readonly #safety: ReadonlyMap<RouteGroup<Route>, PathSafety<Route>>;

  constructor(groups: readonly RouteGroup<Route>[]) {
    this.#tables = toFormTables(groups);
    this.#safety = new Map(groups.map((group) => [group, this.#assess(group)]));
  }

  /** Whether no app can interpret `path`, which `group` owns, as a path of a group with other gates. */
  isSafe(group: RouteGroup<Route>, path: string): boolean {
    const safety = this.#safety.get(group);
    return safety !== undefined && (safety.tables.length === 0 || (safety.isSafeIfPlain && isPlainPath(path)));
  }

  /** The conflict, for the log: the other route that an app may choose for the path; undefined if all candidates have the same gates. */
  find(found: FoundRoute<Route>, path: PathForms): string | undefined {
    for (const table of this.#safety.get(found.group)?.tables ?? []) {
      const forms = path.get(table.kept);
      if (forms === undefined) return `route ${found.route.name}, or any other: the path can be decoded in too many ways`;
      for (const form of forms) {
        const conflict = findConflict(table, form, found);
        if (conflict !== undefined)
          return `route ${found.route.name}, or ${conflict.routes[0]?.name} as ${form === '' ? '/' : form}`;
      }
    }
    return undefined;
  }

  #assess(group: RouteGroup<Route>): PathSafety<Route> {
    const tables: FormTable<Route>[] = [];
    let isSafeIfPlain = true;
    for (const table of this.#tables) {
      // The cheaper check first: this is done for each pair of groups.
      const rivals = [...table.members].filter((other) => canOverlap(group, other, table) && mayConflict(group, other));
      if (rivals.length > 0) tables.push(table);
      isSafeIfPlain &&= rivals.every(({ path }) => path === '' || isPlainPath(path));
    }
    return { tables, isSafeIfPlain };
  }
}

/** An app could run a handler of `other` for a path of `group`, and the two have different gates. */
function mayConflict<Route extends Routable>(group: RouteGroup<Route>, other: RouteGroup<Route>): boolean {
  if (other === group || (group.isExact && isFallback(group, other))) return false;
  // A form that leaves the group may belong to one without a host.
  if (other.host !== group.host && group.host !== undefined && (group.isExact || other.host !== undefined)) return false;
  return group.routes.some((route) => route.match.methods.some((method) => !hasSameGates(other, route, method)));
}

/** Whichever of its routes the headers of a request select. */
function hasSameGates<Route extends Routable>(other: RouteGroup<Route>, route: Route, method: string): boolean {
  const handlers = other.routes.filter(({ match }) => match.methods.includes(method));
  return handlers.length > 0 && handlers.every(({ gateIdentity }) => gateIdentity === route.gateIdentity);
}

/** The wider prefix is the fallback for what `group` does not match: the config intends that `group` wins over it. */
function isFallback<Route extends Routable>(group: RouteGroup<Route>, { isExact, path }: RouteGroup<Route>): boolean {
  return !isExact && isAtOrBelow(group.path, path) && (group.isExact || group.path !== path);
}

/** Whether some path of `group` has a form that `other` matches. */
function canOverlap<Route extends Routable>(
  group: RouteGroup<Route>,
  other: RouteGroup<Route>,
  { keys, tops }: FormTable<Route>,
): boolean {
  const own = tops.get(group) ?? [];
  // `/ad/(S(x))min` begins with `/ad`, and another name of it is `/admin`.
  return (keys.get(other) ?? []).some((key) =>
    own.some((top) => key === top || (!group.isExact && key.startsWith(top)) || (!other.isExact && isAtOrBelow(top, key))),
  );
}

function isAtOrBelow(path: string, prefix: string): boolean {
  return path.startsWith(prefix) && (path.length === prefix.length || path[prefix.length] === '/');
}

/** The forms of a group's path. An app with a handler for `/a.json` does not run it for `/a`, nor that of `/a.php/x` for `/a.php`. */
function toKeys<Route extends Routable>({ path }: RouteGroup<Route>, kept: KeptDistinctions): string[] {
  return path === '' ? [''] : [...(toPathForms(path, new Set([...kept, 'extension', 'otherNames'])) ?? [path])];
}

function toTops<Route extends Routable>({ path, isExact }: RouteGroup<Route>, kept: KeptDistinctions): string[] {
  const forms = path === '' ? [''] : [...(toPathForms(path, kept) ?? [path])];
  return !isExact && forms.some(hasOtherNames) ? [...forms, ''] : forms;
}

function toFormTables<Route extends Routable>(groups: readonly RouteGroup<Route>[]): FormTable<Route>[] {
  const members = new Map<string, Set<RouteGroup<Route>>>();
  for (const group of groups) {
    const key = toKept(group).join();
    const others = members.get(key);
    if (others === undefined) members.set(key, new Set([group]));
    else others.add(group);
  }
  return [...members.values()].map((each) => toFormTable(each, groups));
}

function toFormTable<Route extends Routable>(
  members: ReadonlySet<RouteGroup<Route>>,
  groups: readonly RouteGroup<Route>[],
): FormTable<Route> {
  const [first] = members;
  const distinctions = first === undefined ? [] : toKept(first);
  const kept = distinctions.length === 0 ? NOTHING_KEPT : new Set(distinctions);
  const exact = new Map<string, RouteGroup<Route>[]>();
  const prefixes = new Map<string, RouteGroup<Route>[]>();
  let maxDepth = 0;
  const keys = new Map(groups.map((group) => [group, toKeys(group, kept)]));
  const tops = new Map(groups.map((group) => [group, toTops(group, kept)]));
  const subtrees = new Map(groups.map((group) => [group, toSubtree(group, kept)]));
  for (const [group, forms] of keys) {
    for (const key of forms) {
      const map = group.isExact ? exact : prefixes;
      const others = map.get(key);
      if (others === undefined) map.set(key, [group]);
      else others.push(group);
      if (!group.isExact) maxDepth = Math.max(maxDepth, key.split('/').length - 1);
    }
  }
  return { kept, members, keys, tops, subtrees, exact, prefixes, maxDepth };
}

/** Of `/index.php/open`, `/open` is another name with all below it, but `/index.php` only for itself. */
function toSubtree<Route extends Routable>({ path }: RouteGroup<Route>, kept: KeptDistinctions): Subtree {
  const own = [...(toPathForms(path || '/', new Set([...kept, 'otherNames'])) ?? [path])];
  const forms = toPathForms(path || '/', kept) ?? new Set(own);
  return { forms, tops: own.concat([...forms].filter((form) => !own.some((each) => isAtOrBelow(each, form)))) };
}

function isWithin(form: string, subtree: Subtree | undefined): boolean {
  return subtree !== undefined && (subtree.forms.has(form) || subtree.tops.some((top) => isAtOrBelow(form, top)));
}

/** The distinctions that the apps of all routes of a group are known to make. */
function toKept<Route extends Routable>({ routes }: RouteGroup<Route>): PathDistinction[] {
  return PATH_DISTINCTIONS.filter((each) => routes.every(({ match }) => match.trustAppToDistinguish.includes(each)));
}

/** A group that matches the form and has different gates. The wider prefix counts if the form is not below the path of the found group. */
function findConflict<Route extends Routable>(
  table: FormTable<Route>,
  form: string,
  { group, route, method, host }: FoundRoute<Route>,
): RouteGroup<Route> | undefined {
  const isConflict = (other: RouteGroup<Route>): boolean =>
    other !== group && table.members.has(other) && !hasSameGates(other, route, method);
  const isDirect = (other: RouteGroup<Route>): boolean =>
    (other.host === group.host || (group.host === undefined && other.host === host)) &&
    !isFallback(group, other) &&
    isConflict(other);
  let end = 0;
  let conflict = table.exact.get(form)?.find(isDirect);
  for (let depth = 0; depth <= table.maxDepth && conflict === undefined; depth++) {
    conflict = table.prefixes.get(form.slice(0, end))?.find(isDirect);
    if (end === form.length) break;
    const next = form.indexOf('/', end + 1);
    end = next === -1 ? form.length : next;
  }
  if (conflict !== undefined || group.isExact || isWithin(form, table.subtrees.get(group))) return conflict;
  return findOwners(table, form, host).find(isConflict);
}

/** The groups that the router finds for the form, which is another path: those of the host go before those without one. */
function findOwners<Route extends Routable>(
  { exact, prefixes }: FormTable<Route>,
  form: string,
  host: string | undefined,
): readonly RouteGroup<Route>[] {
  for (const wanted of host === undefined ? [undefined] : [host, undefined]) {
    const find = (groups: readonly RouteGroup<Route>[] = []): readonly RouteGroup<Route>[] =>
      groups.filter((group) => group.host === wanted);
    let owners = find(exact.get(form));
    for (let end = form.length; owners.length === 0 && end >= 0; end = end === 0 ? -1 : form.lastIndexOf('/', end - 1))
      owners = find(prefixes.get(form.slice(0, end)));
    if (owners.length > 0) return owners;
  }
  return [];
}
