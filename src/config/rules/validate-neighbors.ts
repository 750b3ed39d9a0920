/** Routes whose paths contain or resemble each other: how requests for one are kept from bypassing the gates of another. */
import { mayShareTarget } from '../../core/listen-address.ts';
import { type Problem, warning } from '../../core/problem.ts';
import { type PathDistinction, toPathForms } from '../../http/path-forms.ts';
import { methodsOf, type RouteConfig } from '../schema/config.ts';
import { toGateIdentity } from './gate-identity.ts';

/** Requests by these methods change nothing (RFC 9110 §9.2.1). */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

/** The requests that a route matches, regardless of the method. */
interface MatchSpace {
  readonly route: RouteConfig;
  readonly index: number;
  readonly host: string | undefined;
  readonly isExact: boolean;
  /** A prefix is stored without its trailing slash. */
  readonly path: string;
  readonly gates: string;
  /** The headers that a request must have or not have. */
  readonly headers: string;
}

/** Warnings about routes that the router cannot distinguish, and about settings that disable its protections. */
export function* checkNeighbors(routes: readonly RouteConfig[]): Iterable<Problem> {
  const spaces = toMatchSpaces(routes);
  const index = new PathIndex(spaces);
  const forms = new FormIndex(spaces);
  for (const check of [checkSettings, checkSpace, checkChoice, checkMethodChoice, checkFunctions, checkBelow, checkHosts])
    for (const space of spaces) yield* check(space, index, forms);
}

function* checkSettings({ route, index }: MatchSpace): Iterable<Problem> {
  const { trustAppToDistinguish } = route.match;
  if (trustAppToDistinguish.length > 0) {
    const message = `a client can bypass this route's gates by spelling the path differently if the app ignores ${trustAppToDistinguish.join(', ')}`;
    yield warning(['routes', index, 'match', 'trustAppToDistinguish'], message, 'test it: docs/path-interpretation.md');
  }
  if (route.forwardMethodOverride) {
    const message = 'the app may handle a request as another method than the one that the route matched';
    yield warning(['routes', index, 'forwardMethodOverride'], message, 'remove forwardMethodOverride');
  }
}

function* checkSpace(space: MatchSpace, index: PathIndex, forms: FormIndex): Iterable<Problem> {
  const similar = forms.findSimilar(space);
  const isForAnyHost = isGuarded(space) && space.host === undefined;
  const others = new Set([...similar, ...(isForAnyHost ? index.findContaining(space.path) : [])]);
  for (const other of [...others].sort(byIndex)) {
    if (other.gates === space.gates) continue;
    const { name } = other.route;
    if (similar.has(other) && !contains(other, space)) {
      const message = `requests for this path are rejected (ambiguous_target): apps may interpret it as the path of route ${name}, which checks differently`;
      const hint = 'use the same checks on both routes, or choose paths that are less similar';
      yield warning(['routes', space.index, 'match'], message, hint);
    }
    if (isForAnyHost && other.host !== undefined && contains(other, space)) {
      const message = `does not apply to Host ${other.host}: route ${name} matches the path there, and checks differently`;
      yield warning(['routes', space.index, 'match'], message, `add a route with host: ${other.host} for this path`);
    }
  }
}

/** Any client can send a header or omit it, so it can choose an open route in place of a guarded one with the same path. */
function checkChoice(space: MatchSpace, index: PathIndex): Problem[] {
  if (isGuarded(space)) return [];
  const other = index
    .at(space.path)
    .find((each) => isGuarded(each) && isOnSamePath(each, space) && each.headers !== space.headers);
  if (other === undefined) return [];
  const message = `clients choose between this open route and route ${other.route.name} by a header, so the app must not do here what that route protects`;
  return [warning(['routes', space.index, 'match'], message, 'give both routes the same checks, or different paths')];
}

/** Frameworks run a function of a protected page for a POST to any path (the server actions of Next.js), and most open routes only serve files. */
function checkFunctions(space: MatchSpace, index: PathIndex): Problem[] {
  const { route, index: at } = space;
  if (isGuarded(space) || route.match.methods !== undefined) return [];
  const isAround = (other: MatchSpace): boolean =>
    isGuardedApp(other) && !other.isExact && other.host === space.host && mayShareTarget(other.route.upstream, route.upstream);
  const other = index.findContaining(space.path).find(isAround);
  if (other === undefined) return [];
  const message = `anyone can send POST and other methods to this route, and some apps run functions of pages that route ${other.route.name} protects for any path (server actions)`;
  return [warning(['routes', at, 'match'], message, 'write methods: [GET], or list the methods that it needs')];
}

/** Without a check, a client may change by one method what it cannot read, or change, by another one. Open reading is usual. */
function checkMethodChoice(space: MatchSpace, index: PathIndex): Problem[] {
  const writes = isGuarded(space) ? [] : writesOf(space);
  if (writes.length === 0) return [];
  const other = index
    .at(space.path)
    .find((each) => isGuarded(each) && isOnSamePath(each, space) && each.headers === space.headers);
  if (other === undefined) return [];
  const message = `anyone can send ${writes.join(', ')} to the path for which route ${other.route.name} protects ${methodsOf(other.route).join(', ')}`;
  return [warning(['routes', space.index, 'match'], message, 'give both routes the same checks, or accept only GET without one')];
}

/** A check of one exact path is usually meant for all paths below it as well, unless it is the one path of a webhook. */
function checkBelow(space: MatchSpace, paths: PathIndex): Problem[] {
  const { route, index, host, path, isExact } = space;
  if (!isGuarded(space) || route.webhook !== undefined || !isExact || path.length <= 1) return [];
  if (rejectsBelow(space)) return [];
  const below = `${path.replace(/\/$/, '')}/`;
  const matching = paths.findContaining(below).filter((other) => (other.host ?? host) === host && !other.isExact);
  // The most specific host comes first, then the longest path.
  const [other] = matching.sort(
    (a, b) => Number(b.host === host) - Number(a.host === host) || b.path.length - a.path.length || byIndex(a, b),
  );
  if (other === undefined || isGuarded(other) || other.route.match.pathPrefix === below) return [];
  const proof = route.basic === undefined ? 'client certificate' : 'password';
  const message = `only ${path} itself requires the ${proof}: paths below it select the open route ${other.route.name}`;
  const hint = `write pathPrefix: ${path}; if you want them open, add an open route with pathPrefix: ${below} for them`;
  return [warning(['routes', index, 'match', 'path'], message, hint)];
}

/** A path below a script is another name of the script (http/path-forms.ts), but `/index.php/a/b` is none of `/index.php/a`. */
function rejectsBelow({ path, route }: MatchSpace): boolean {
  const kept = new Set(route.match.trustAppToDistinguish);
  const own = toPathForms(path, new Set([...kept, 'extension', 'otherNames']));
  const below = toPathForms(`${path.replace(/\/$/, '')}/x`, kept);
  return [...(below ?? [])].some((form) => own?.has(form));
}

/** A client chooses the Host of its request, and most apps ignore it. */
function checkHosts(space: MatchSpace, index: PathIndex): Problem[] {
  const [other] = isGuarded(space) ? index.findRelated(space, (each) => !isGuarded(each) && isOnOtherHost(each, space)) : [];
  if (other === undefined) return [];
  const message = `only the Host separates this route from the open route ${other.route.name}: with ${other.host === undefined ? 'any other Host' : `Host ${other.host}`}, anyone can send the same path to the same app`;
  return [warning(['routes', space.index, 'match'], message, HOST_HINT)];
}

const HOST_HINT =
  'unless the app distinguishes hosts, give both routes the same checks, or the hosts different upstreams: docs/path-interpretation.md';

/** Whether a request for a path of the guarded route can select the other one by another Host, and reach the same app. */
function isOnOtherHost(other: MatchSpace, guarded: MatchSpace): boolean {
  if (other.host === guarded.host || other.gates === guarded.gates) return false;
  // A route for any host inside one with a host: checkSpace.
  const isInside = contains(other, guarded) ? guarded.host !== undefined : !guarded.isExact && contains(guarded, other);
  return isInside && mayShareTarget(other.route.upstream, guarded.route.upstream);
}

function isOnSamePath(a: MatchSpace, b: MatchSpace): boolean {
  return a.host === b.host && a.isExact === b.isExact && a.path === b.path;
}

/** Describes, for each guarded route inside a wider one with other gates, how requests for the two are kept apart. */
export function describeNeighbors(routes: readonly RouteConfig[]): string[] {
  const spaces = toMatchSpaces(routes);
  const index = new PathIndex(spaces);
  const notes = spaces.filter(isGuarded).flatMap((space) => {
    const [wider] = index.findContaining(space.path).filter((other) => isWider(other, space));
    return wider === undefined || wider.gates === space.gates ? [] : [describe(space, wider)];
  });
  return [...notes, ...spaces.flatMap((space) => describeHosts(space, index))];
}

/** One note for each route: a config can have many hosts. Open routes have a warning, and a route for any host is described as a wider one. */
function describeHosts(space: MatchSpace, index: PathIndex): string[] {
  const [first, ...more] = isGuarded(space)
    ? index.findRelated(space, (other) => other.host !== undefined && isGuarded(other) && isOnOtherHost(other, space))
    : [];
  if (first === undefined) return [];
  const others = more.length === 0 ? '' : ` and of ${more.length} more`;
  return [
    `route ${space.route.name} is separated from route ${first.route.name}, which checks differently, only by its Host: with the Host of that route${others}, the same path reaches the same app, which must distinguish hosts`,
  ];
}

function describe(space: MatchSpace, wider: MatchSpace): string {
  const { route, host, path, isExact } = space;
  const { name } = wider.route;
  const kept = route.match.trustAppToDistinguish;
  const parts = [
    `other spellings of ${path === '' ? '/' : path} get 400 (ambiguous_target)${toExceptions(kept)}`,
    `methods other than ${methodsOf(route).join(', ')} get 405`,
    ...(isExact && path !== '/' && !rejectsBelow(space)
      ? [`paths below it go to route ${name}: if the app runs the same handler for them (app.use in Express), write pathPrefix`]
      : []),
    ...(host === undefined || wider.host !== undefined
      ? []
      : [`with a Host other than ${host}, route ${name} matches the path: the app must distinguish hosts`]),
    ...(isGuarded(wider) ||
    !isGuardedApp(space) ||
    writesOf(wider).length === 0 ||
    !mayShareTarget(wider.route.upstream, route.upstream)
      ? []
      : [`functions of its pages that the app runs for any path (server actions) are open to clients of route ${name}`]),
  ];
  return `routes ${route.name} and ${name} overlap but check differently: ${parts.join('; ')}`;
}

function toExceptions(kept: readonly PathDistinction[]): string {
  return kept.length === 0 ? '' : `, unless it differs in ${kept.join(', ')} (trustAppToDistinguish)`;
}

function toMatchSpaces(routes: readonly RouteConfig[]): MatchSpace[] {
  return routes.map((route, index) => {
    const { path: exact, pathPrefix = '', host } = route.match;
    const path = exact ?? (pathPrefix.endsWith('/') ? pathPrefix.slice(0, -1) : pathPrefix);
    const headers = JSON.stringify([route.match.headers, route.match.withoutHeaders]);
    return { route, index, host, isExact: exact !== undefined, path, gates: toGateIdentity(route), headers };
  });
}

function isGuarded({ route }: MatchSpace): boolean {
  return route.allow === undefined;
}

/** The pages of an app, not a webhook. */
function isGuardedApp(space: MatchSpace): boolean {
  return isGuarded(space) && space.route.webhook === undefined;
}

/** The methods that may change something. */
function writesOf({ route }: MatchSpace): string[] {
  return methodsOf(route).filter((method) => !SAFE_METHODS.has(method));
}

/** Whether `wider` matches every path of the other route, but less specifically. */
function isWider(wider: MatchSpace, { host, isExact, path }: MatchSpace): boolean {
  if (wider.host !== undefined && wider.host !== host) return false;
  const isSamePath = wider.path === path && wider.isExact === isExact;
  return isSamePath ? wider.host !== host : contains(wider, { path });
}

function contains(wider: Pick<MatchSpace, 'isExact' | 'path'>, { path }: Pick<MatchSpace, 'path'>): boolean {
  if (wider.isExact) return wider.path === path;
  return path.startsWith(wider.path) && (path.length === wider.path.length || path[wider.path.length] === '/');
}

/** The path, and each path that a prefix of it can have, longest first. */
function toAncestors(path: string): string[] {
  const ancestors = [path];
  for (let end = path.lastIndexOf('/'); end >= 0; end = end === 0 ? -1 : path.lastIndexOf('/', end - 1))
    ancestors.push(path.slice(0, end));
  return ancestors;
}

function byIndex(a: MatchSpace, b: MatchSpace): number {
  return a.index - b.index;
}

function addTo<K>(map: Map<K, MatchSpace[]>, key: K, space: MatchSpace): void {
  const spaces = map.get(key);
  if (spaces === undefined) map.set(key, [space]);
  else spaces.push(space);
}

/** Finds routes by their paths: a config can have thousands, and to compare each with all others would take minutes. */
class PathIndex {
  readonly #at = new Map<string, MatchSpace[]>();
  /** Those inside a path, and on it. */
  readonly #inside = new Map<string, MatchSpace[]>();

  constructor(spaces: readonly MatchSpace[]) {
    for (const space of spaces) {
      addTo(this.#at, space.path, space);
      for (const path of toAncestors(space.path)) addTo(this.#inside, path, space);
    }
  }

  /** In the order of the file, like all others. */
  at(path: string): readonly MatchSpace[] {
    return this.#at.get(path) ?? [];
  }

  /** The routes that contain the path, the longest first. */
  findContaining(path: string): MatchSpace[] {
    return toAncestors(path).flatMap((each) => this.at(each).filter((space) => contains(space, { path })));
  }

  /** Of the routes that contain the route or that it contains, those that match, in the order of the file. */
  findRelated({ path, isExact }: MatchSpace, isMatch: (space: MatchSpace) => boolean): MatchSpace[] {
    const [own, ...wider] = toAncestors(path).map((each) => this.at(each));
    const inside = isExact ? own : this.#inside.get(path);
    return [inside ?? [], ...wider].flatMap((spaces) => spaces.filter(isMatch)).sort(byIndex);
  }
}

/** Finds routes by the forms of their paths, for each set of differences that the app is trusted to see. */
class FormIndex {
  readonly #byTrust = new Map<
    string,
    { readonly kept: ReadonlySet<PathDistinction>; readonly spaces: Map<string, MatchSpace[]> }
  >();

  constructor(all: readonly MatchSpace[]) {
    for (const space of all) {
      const kept = new Set(space.route.match.trustAppToDistinguish);
      const id = [...kept].sort().join();
      const { spaces } = this.#byTrust.get(id) ?? { spaces: new Map<string, MatchSpace[]>() };
      this.#byTrust.set(id, { kept, spaces });
      for (const form of toPathForms(space.path, new Set([...kept, 'extension', 'otherNames'])) ?? [])
        addTo(spaces, toKey(space, form), space);
    }
  }

  /** The routes as whose path an app may interpret that of `space` (gateway/pipeline/router.ts). */
  findSimilar(space: MatchSpace): ReadonlySet<MatchSpace> {
    const found = [...this.#byTrust.values()].flatMap(({ kept, spaces }) =>
      [...(toPathForms(space.path, kept) ?? [])].flatMap((form) =>
        toAncestors(form).flatMap((path) =>
          (spaces.get(toKey(space, path)) ?? []).filter((other) => !other.isExact || path === form),
        ),
      ),
    );
    return new Set(found);
  }
}

function toKey({ host }: MatchSpace, path: string): string {
  return JSON.stringify([host, path]);
}
