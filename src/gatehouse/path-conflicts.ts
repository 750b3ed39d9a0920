/**
 * Finds routes that an app could take a request for although the router chose another one. The router compares paths byte for byte;
 * the app behind an open `/` may decode `/%61dmin` and serve what the route of `/admin` guards.
 */
import { isPlainPath, type Kept, PATH_DISTINCTIONS, type PathDistinction, toPathForms } from '../core/path-forms.ts';
import type { Routable, RouteGroup } from './route-groups.ts';

/** What is known of a group when the table is built. */
interface Standing {
  /** No other group can be meant by any path of this one. */
  readonly isSafe: boolean;
  /** No other group can be meant by a path that has only one form. */
  readonly isSafeIfPlain: boolean;
}

/** Groups by the forms of their paths, as apps see them that make the distinctions in `kept`. */
interface FormTable<Route extends Routable> {
  readonly kept: Kept;
  /** The groups whose apps make exactly these distinctions: only these can be meant. */
  readonly members: ReadonlySet<RouteGroup<Route>>;
  readonly exact: ReadonlyMap<string, readonly RouteGroup<Route>[]>;
  readonly prefixes: ReadonlyMap<string, readonly RouteGroup<Route>[]>;
  /** Of the deepest prefix, in segments. */
  readonly maxDepth: number;
}

/** A group that a form of the path leads to. */
interface Meant<Route extends Routable> {
  readonly group: RouteGroup<Route>;
  /** Longer is more specific. */
  readonly length: number;
}

/** What the router found. */
interface Found<Route extends Routable> {
  readonly group: RouteGroup<Route>;
  readonly route: Route;
  readonly method: string;
  /** Normalized. */
  readonly host: string | undefined;
}

/** Compiled with the route table; most requests cost one look at a map. */
export class PathConflicts<Route extends Routable> {
  readonly #tables: readonly FormTable<Route>[];
  readonly #standings: ReadonlyMap<RouteGroup<Route>, Standing>;

  constructor(groups: readonly RouteGroup<Route>[]) {
    this.#tables = toFormTables(groups);
    this.#standings = new Map(groups.map((group) => [group, this.#judge(group, groups)]));
  }

  /** No app can take `path`, which `group` owns, for a path of a group with other gates. */
  isSafe(group: RouteGroup<Route>, path: string): boolean {
    const standing = this.#standings.get(group);
    return standing !== undefined && (standing.isSafe || (standing.isSafeIfPlain && isPlainPath(path)));
  }

  /** Where else an app may take `path` to lead, for the log; undefined where the gates are the same wherever it leads. */
  find(found: Found<Route>, path: string): string | undefined {
    for (const table of this.#tables) {
      const forms = toPathForms(path, table.kept);
      if (forms === undefined) return `route ${found.route.name}, or anywhere: the path can be decoded in too many ways`;
      for (const form of forms) {
        const rival = findRival(table, form, found);
        if (rival !== undefined) return `route ${found.route.name}, or ${rival.routes[0]?.name} as ${form === '' ? '/' : form}`;
      }
    }
    return undefined;
  }

  #judge(group: RouteGroup<Route>, groups: readonly RouteGroup<Route>[]): Standing {
    const rivals = groups.filter((other) => other !== group && isRival(group, other));
    const near = rivals.filter((other) =>
      this.#tables.some((table) => table.members.has(other) && isBelow(group, other, table.kept)),
    );
    if (near.length === 0) return { isSafe: true, isSafeIfPlain: true };
    return { isSafe: false, isSafeIfPlain: near.every(({ path }) => path === '' || isPlainPath(path)) };
  }
}

/** Could `other` own a path that `group` owns, and asks it something else? */
function isRival<Route extends Routable>(group: RouteGroup<Route>, other: RouteGroup<Route>): boolean {
  if (other.host !== group.host && group.host !== undefined) return false;
  return group.routes.some((route) => route.match.methods.some((method) => !asksTheSame(other, route, method)));
}

function asksTheSame<Route extends Routable>(other: RouteGroup<Route>, route: Route, method: string): boolean {
  const taker = other.routes.find(({ match }) => match.methods.includes(method));
  return taker?.gateIdentity === route.gateIdentity;
}

/** Some form of `other`'s path stands at or below some form of `group`'s. */
function isBelow<Route extends Routable>(group: RouteGroup<Route>, other: RouteGroup<Route>, kept: Kept): boolean {
  const above = toKeys(group, kept);
  return toKeys(other, kept).some((key) =>
    above.some((top) => (group.isExact ? key === top && other.isExact : isAtOrBelow(key, top))),
  );
}

function isAtOrBelow(path: string, prefix: string): boolean {
  return path.startsWith(prefix) && (path.length === prefix.length || path[prefix.length] === '/');
}

/** The forms of a group's path. */
function toKeys<Route extends Routable>({ path }: RouteGroup<Route>, kept: Kept): string[] {
  return path === '' ? [''] : [...(toPathForms(path, kept) ?? [path])];
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
  const kept: Kept = new Set(first === undefined ? [] : toKept(first));
  const exact = new Map<string, RouteGroup<Route>[]>();
  const prefixes = new Map<string, RouteGroup<Route>[]>();
  let maxDepth = 0;
  for (const group of groups) {
    for (const key of toKeys(group, kept)) {
      const map = group.isExact ? exact : prefixes;
      map.set(key, [...(map.get(key) ?? []), group]);
      if (!group.isExact) maxDepth = Math.max(maxDepth, key.split('/').length - 1);
    }
  }
  return { kept, members, exact, prefixes, maxDepth };
}

/** What the apps of all routes of a group are known to tell apart. */
function toKept<Route extends Routable>({ routes }: RouteGroup<Route>): PathDistinction[] {
  return PATH_DISTINCTIONS.filter((each) => routes.every(({ match }) => match.trustAppToDistinguish.includes(each)));
}

/** A group that takes the form at least as specifically as `group` does, and asks something else. */
function findRival<Route extends Routable>(
  table: FormTable<Route>,
  form: string,
  { group, route, method, host }: Found<Route>,
): RouteGroup<Route> | undefined {
  const meant = findMeant(table, form);
  let own = -1;
  for (const each of meant) if (each.group === group && each.length > own) own = each.length;
  for (const { group: other, length } of meant) {
    if (other === group || !table.members.has(other) || asksTheSame(other, route, method)) continue;
    if (other.host === group.host ? length >= own : other.host !== undefined && other.host === host) return other;
  }
  return undefined;
}

function findMeant<Route extends Routable>({ exact, prefixes, maxDepth }: FormTable<Route>, form: string): Meant<Route>[] {
  const found: Meant<Route>[] = [];
  for (const group of exact.get(form) ?? []) found.push({ group, length: Number.POSITIVE_INFINITY });
  let end = 0;
  for (let depth = 0; depth <= maxDepth && end !== -1; depth++) {
    for (const group of prefixes.get(form.slice(0, end)) ?? []) found.push({ group, length: end });
    if (end === form.length) break;
    const next = form.indexOf('/', end + 1);
    end = next === -1 ? form.length : next;
  }
  return found;
}
