/** Routes whose paths contain or resemble each other: how requests for one are kept from bypassing the gates of another. */
import { isDeepStrictEqual } from 'node:util';
import { mayShareTarget } from '../../core/listen-address.ts';
import { type PathDistinction, toPathForms } from '../../core/path-forms.ts';
import { methodsOf, type RouteConfig } from '../schema/config.ts';
import { toGateIdentity } from './gate-identity.ts';
import { type Rating, warning } from './rating.ts';

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
}

/** Warnings about routes that the router cannot distinguish, and about settings that disable its protections. */
export function checkNeighbors(routes: readonly RouteConfig[]): Rating[] {
  const spaces = toMatchSpaces(routes);
  return [
    ...spaces.flatMap(checkSettings),
    ...spaces.flatMap((space) => checkSpace(space, spaces)),
    ...spaces.flatMap((space) => checkChoice(space, spaces)),
    ...spaces.flatMap((space) => checkMethodChoice(space, spaces)),
    ...spaces.flatMap((space) => checkBelow(space, spaces)),
    ...spaces.flatMap((space) => checkHosts(space, spaces)),
  ];
}

function checkSettings({ route, index }: MatchSpace): Rating[] {
  const { trustAppToDistinguish } = route.match;
  const found: Rating[] = [];
  if (trustAppToDistinguish.length > 0) {
    const message = `a client can bypass this route's gates by spelling the path differently if the app ignores ${trustAppToDistinguish.join(', ')}`;
    found.push(warning(['routes', index, 'match', 'trustAppToDistinguish'], message, 'test it: docs/path-interpretation.md'));
  }
  if (route.forwardMethodOverride) {
    const message = 'the app may handle a request as another method than the one that the route matched';
    found.push(warning(['routes', index, 'forwardMethodOverride'], message, 'remove forwardMethodOverride'));
  }
  return found;
}

function checkSpace(space: MatchSpace, spaces: readonly MatchSpace[]): Rating[] {
  const found: Rating[] = [];
  for (const other of spaces) {
    if (other.gates === space.gates) continue;
    const { name } = other.route;
    if (isMistakenFor(space, other)) {
      const message = `requests for this path are rejected (ambiguous_target): apps may interpret it as the path of route ${name}, whose gates differ`;
      const hint = 'use the same gates on both routes, or choose paths that are less similar';
      found.push(warning(['routes', space.index, 'match'], message, hint));
    }
    if (isGuarded(space) && space.host === undefined && other.host !== undefined && contains(other, space)) {
      const message = `does not apply to Host ${other.host}: route ${name} matches the path there, and its gates differ`;
      found.push(warning(['routes', space.index, 'match'], message, `add a route with host: ${other.host} for this path`));
    }
  }
  return found;
}

/** Any client can send a header or omit it, so it can choose an open route in place of a guarded one with the same path. */
function checkChoice(space: MatchSpace, spaces: readonly MatchSpace[]): Rating[] {
  if (isGuarded(space)) return [];
  const other = spaces.find((each) => isGuarded(each) && isOnSamePath(each, space) && !hasSameHeaders(each, space));
  if (other === undefined) return [];
  const message = `clients choose between this open route and route ${other.route.name} by a header, so the app must not do here what that route protects`;
  return [warning(['routes', space.index, 'match'], message, 'give both routes the same checks, or different paths')];
}

/** Without a check, a client may change by one method what it cannot read, or change, by another one. Open reading is usual. */
function checkMethodChoice(space: MatchSpace, spaces: readonly MatchSpace[]): Rating[] {
  const writes = isGuarded(space) ? [] : methodsOf(space.route).filter((method) => !SAFE_METHODS.has(method));
  if (writes.length === 0) return [];
  const other = spaces.find((each) => isGuarded(each) && isOnSamePath(each, space) && hasSameHeaders(each, space));
  if (other === undefined) return [];
  const message = `anyone can send ${writes.join(', ')} to the path for which route ${other.route.name} protects ${methodsOf(other.route).join(', ')}`;
  return [warning(['routes', space.index, 'match'], message, 'give both routes the same checks, or accept only GET without one')];
}

/** A check of one exact path is usually meant for all paths below it as well, unless it is the one path of a webhook. */
function checkBelow(space: MatchSpace, spaces: readonly MatchSpace[]): Rating[] {
  const { route, index, host, path, isExact } = space;
  if (!isGuarded(space) || route.webhook !== undefined || !isExact || path.length <= 1) return [];
  if (rejectsBelow(space)) return [];
  const below = `${path.replace(/\/$/, '')}/`;
  const matching = spaces.filter((other) => (other.host ?? host) === host && !other.isExact && contains(other, { path: below }));
  // The most specific host comes first, then the longest path.
  const [other] = matching.sort((a, b) => Number(b.host === host) - Number(a.host === host) || b.path.length - a.path.length);
  if (other === undefined || isGuarded(other) || other.route.match.pathPrefix === below) return [];
  const proof = route.basic === undefined ? 'client certificate' : 'password';
  const message = `only ${path} itself requires the ${proof}: paths below it select the open route ${other.route.name}`;
  const hint = `write pathPrefix: ${path}; if you want them open, add an open route with pathPrefix: ${below} for them`;
  return [warning(['routes', index, 'match', 'path'], message, hint)];
}

/** A path below a script is another name of the script (core/path-forms.ts), but `/index.php/a/b` is none of `/index.php/a`. */
function rejectsBelow({ path, route }: MatchSpace): boolean {
  const kept = new Set(route.match.trustAppToDistinguish);
  const own = toPathForms(path, new Set([...kept, 'extension', 'otherNames']));
  const below = toPathForms(`${path.replace(/\/$/, '')}/x`, kept);
  return [...(below ?? [])].some((form) => own?.has(form));
}

/** A client chooses the Host of its request, and most apps ignore it. */
function checkHosts(space: MatchSpace, spaces: readonly MatchSpace[]): Rating[] {
  const other = isGuarded(space) ? spaces.find((each) => !isGuarded(each) && isOnOtherHost(each, space)) : undefined;
  if (other === undefined) return [];
  const message = `only the Host separates this route from the open route ${other.route.name}: with ${other.host === undefined ? 'any other Host' : `Host ${other.host}`}, anyone can send the same path to the same app`;
  return [warning(['routes', space.index, 'match'], message, HOST_HINT)];
}

const HOST_HINT =
  'unless the app distinguishes hosts, give both routes the same checks, or the hosts different upstreams: docs/path-interpretation.md';

/** Whether a request for a path of the guarded route can select the other one by another Host, and reach the same app. */
function isOnOtherHost(other: MatchSpace, guarded: MatchSpace): boolean {
  if (other.host === guarded.host || other.gates === guarded.gates) return false;
  // A route without a host and a route with one: checkSpace.
  if (guarded.host === undefined) return false;
  const isSameApp = mayShareTarget(other.route.upstream, guarded.route.upstream);
  return isSameApp && (contains(other, guarded) || (!guarded.isExact && contains(guarded, other)));
}

function isOnSamePath(a: MatchSpace, b: MatchSpace): boolean {
  return a.host === b.host && a.isExact === b.isExact && a.path === b.path;
}

function hasSameHeaders({ route: { match } }: MatchSpace, { route }: MatchSpace): boolean {
  const { headers, withoutHeaders } = route.match;
  return isDeepStrictEqual([match.headers, match.withoutHeaders], [headers, withoutHeaders]);
}

/** Describes, for each guarded route inside a wider one with other gates, how requests for the two are kept apart. */
export function describeNeighbors(routes: readonly RouteConfig[]): string[] {
  const spaces = toMatchSpaces(routes);
  const notes = spaces.filter(isGuarded).flatMap((space) => {
    const wider = spaces.filter((other) => isWider(other, space)).sort((a, b) => b.path.length - a.path.length)[0];
    return wider === undefined || wider.gates === space.gates ? [] : [describe(space, wider)];
  });
  return [...notes, ...spaces.flatMap((space) => describeHosts(space, spaces))];
}

/** One note for each route: a config can have many hosts. Open routes have a warning, and a route for any host is described as a wider one. */
function describeHosts(space: MatchSpace, spaces: readonly MatchSpace[]): string[] {
  const [first, ...more] = isGuarded(space)
    ? spaces.filter((other) => other.host !== undefined && isGuarded(other) && isOnOtherHost(other, space))
    : [];
  if (first === undefined) return [];
  const others = more.length === 0 ? '' : ` and of ${more.length} more`;
  return [
    `route ${space.route.name} is separated from route ${first.route.name}, whose gates differ, only by its Host: with the Host of that route${others}, the same path reaches the same app, which must distinguish hosts`,
  ];
}

function describe(space: MatchSpace, wider: MatchSpace): string {
  const { route, host, path, isExact } = space;
  const { name } = wider.route;
  const kept = route.match.trustAppToDistinguish;
  const parts = [
    `a path that an app may interpret as ${path === '' ? '/' : path} is rejected (400 ambiguous_target)${toExceptions(kept)}`,
    `methods other than ${methodsOf(route).join(', ')} are rejected (405)`,
    ...(isExact && path !== '/' && !rejectsBelow(space)
      ? [`paths below it select route ${name}: if the app runs the same handler for them (app.use in Express), write pathPrefix`]
      : []),
    ...(host === undefined || wider.host !== undefined
      ? []
      : [`with a Host other than ${host}, route ${name} matches the path: the app must distinguish hosts`]),
  ];
  return `route ${route.name} is inside route ${name}, whose gates differ: ${parts.join('; ')}`;
}

function toExceptions(kept: readonly PathDistinction[]): string {
  return kept.length === 0 ? '' : `, unless it differs in ${kept.join(', ')} (trustAppToDistinguish)`;
}

function toMatchSpaces(routes: readonly RouteConfig[]): MatchSpace[] {
  return routes.map((route, index) => {
    const { path: exact, pathPrefix = '', host } = route.match;
    const path = exact ?? (pathPrefix.endsWith('/') ? pathPrefix.slice(0, -1) : pathPrefix);
    return { route, index, host, isExact: exact !== undefined, path, gates: toGateIdentity(route) };
  });
}

function isGuarded({ route }: MatchSpace): boolean {
  return route.allow === undefined;
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

/** Whether an app may interpret the path of `space` as one of `other`, although it is not inside it (gateway/pipeline/path-conflicts.ts). */
function isMistakenFor(space: MatchSpace, other: MatchSpace): boolean {
  if (space.host !== other.host || contains(other, space)) return false;
  const kept = new Set(other.route.match.trustAppToDistinguish);
  const keys = [...(toPathForms(other.path, new Set([...kept, 'extension', 'otherNames'])) ?? [])];
  const forms = [...(toPathForms(space.path, kept) ?? [])];
  return keys.some((key) => forms.some((form) => contains({ isExact: other.isExact, path: key }, { path: form })));
}
