/**
 * Finds routes that an app could take a request for although the router chose another one. The router compares paths byte for byte;
 * the app behind an open `/` may decode `/%61dmin` and serve what the route of `/admin` guards.
 */
import { isPlainPath, type Kept, PATH_DISTINCTIONS, type PathDistinction, toPathForms } from '../../core/path-forms.ts';
import type { Routable, RouteGroup } from './route-groups.ts';

/** What is known of a group when the table is built. */
interface PathSafety {
  /** No other group can be meant by any path of this one. */
  readonly isSafe: boolean;
  /** No other group can be meant by a path that has only one form. */
  readonly isSafeIfPlain: boolean;
}

/** The forms of each group's path. */
type Keys<Route extends Routable> = ReadonlyMap<RouteGroup<Route>, readonly string[]>;

/** Groups by the forms of their paths, as apps see them that make the distinctions in `kept`. */
interface FormTable<Route extends Routable> {
  readonly kept: Kept;
  /** The groups whose apps make exactly these distinctions: only these can be meant. */
  readonly members: ReadonlySet<RouteGroup<Route>>;
  readonly keys: Keys<Route>;
  readonly exact: ReadonlyMap<string, readonly RouteGroup<Route>[]>;
  readonly prefixes: ReadonlyMap<string, readonly RouteGroup<Route>[]>;
  /** Of the deepest prefix, in segments. */
  readonly maxDepth: number;
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
  readonly #safety: ReadonlyMap<RouteGroup<Route>, PathSafety>;

  constructor(groups: readonly RouteGroup<Route>[]) {
    this.#tables = toFormTables(groups);
    this.#safety = new Map(groups.map((group) => [group, this.#judge(group, groups)]));
  }

  /** No app can take `path`, which `group` owns, for a path of a group with other gates. */
  isSafe(group: RouteGroup<Route>, path: string): boolean {
    const safety = this.#safety.get(group);
    return safety !== undefined && (safety.isSafe || (safety.isSafeIfPlain && isPlainPath(path)));
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

  #judge(group: RouteGroup<Route>, groups: readonly RouteGroup<Route>[]): PathSafety {
    const near = groups
      .filter((other) => isRival(group, other))
      .filter((other) => this.#tables.some((table) => table.members.has(other) && canMeet(group, other, table)));
    if (near.length === 0) return { isSafe: true, isSafeIfPlain: true };
    return { isSafe: false, isSafeIfPlain: near.every(({ path }) => path === '' || isPlainPath(path)) };
  }
}

/** An app could run a handler of `other` for a path of `group`, and they ask something else of it. */
function isRival<Route extends Routable>(group: RouteGroup<Route>, other: RouteGroup<Route>): boolean {
  if (other === group || isAround(group, other) || (other.host !== group.host && group.host !== undefined)) return false;
  return group.routes.some((route) => route.match.methods.some((method) => !asksTheSame(other, route, method)));
}

function asksTheSame<Route extends Routable>(other: RouteGroup<Route>, route: Route, method: string): boolean {
  const taker = other.routes.find(({ match }) => match.methods.includes(method));
  return taker?.gateIdentity === route.gateIdentity;
}

/** The wider route is there for all that `group` does not take; to go by `group` instead is what the config says. */
function isAround<Route extends Routable>(group: RouteGroup<Route>, { isExact, path }: RouteGroup<Route>): boolean {
  return !isExact && isAtOrBelow(group.path, path) && (group.isExact || group.path !== path);
}

/** Some path of `group` has a form that `other` takes. */
function canMeet<Route extends Routable>(
  group: RouteGroup<Route>,
  other: RouteGroup<Route>,
  { keys, kept }: FormTable<Route>,
): boolean {
  const own = group.path === '' ? [''] : [...(toPathForms(group.path, kept) ?? [group.path])];
  return (keys.get(other) ?? []).some((key) =>
    own.some((top) => key === top || (!group.isExact && isAtOrBelow(key, top)) || (!other.isExact && isAtOrBelow(top, key))),
  );
}

function isAtOrBelow(path: string, prefix: string): boolean {
  return path.startsWith(prefix) && (path.length === prefix.length || path[prefix.length] === '/');
}

/** The forms of a group's path. An app with a handler for `/a.json` does not run it for `/a`. */
function toKeys<Route extends Routable>({ path }: RouteGroup<Route>, kept: Kept): string[] {
  return path === '' ? [''] : [...(toPathForms(path, new Set([...kept, 'extension'])) ?? [path])];
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
  const keys = new Map(groups.map((group) => [group, toKeys(group, kept)]));
  for (const [group, own] of keys) {
    for (const key of own) {
      const map = group.isExact ? exact : prefixes;
      map.set(key, [...(map.get(key) ?? []), group]);
      if (!group.isExact) maxDepth = Math.max(maxDepth, key.split('/').length - 1);
    }
  }
  return { kept, members, keys, exact, prefixes, maxDepth };
}

/** What the apps of all routes of a group are known to tell apart. */
function toKept<Route extends Routable>({ routes }: RouteGroup<Route>): PathDistinction[] {
  return PATH_DISTINCTIONS.filter((each) => routes.every(({ match }) => match.trustAppToDistinguish.includes(each)));
}

/** A group that takes the form and asks something else. */
function findRival<Route extends Routable>(
  table: FormTable<Route>,
  form: string,
  { group, route, method, host }: Found<Route>,
): RouteGroup<Route> | undefined {
  const isRivalHere = (other: RouteGroup<Route>): boolean =>
    other !== group &&
    table.members.has(other) &&
    (other.host === group.host || (group.host === undefined && other.host === host)) &&
    !isAround(group, other) &&
    !asksTheSame(other, route, method);
  const rival = table.exact.get(form)?.find(isRivalHere);
  let end = 0;
  for (let depth = 0; depth <= table.maxDepth && rival === undefined; depth++) {
    const found = table.prefixes.get(form.slice(0, end))?.find(isRivalHere);
    if (found !== undefined || end === form.length) return found;
    const next = form.indexOf('/', end + 1);
    end = next === -1 ? form.length : next;
  }
  return rival;
}
