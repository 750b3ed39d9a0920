/** Routes whose paths contain or resemble each other: what keeps the requests of one from passing by the gates of another. */
import { type PathDistinction, toPathForms } from '../../core/path-forms.ts';
import { methodsOf, type RouteConfig } from '../schema/config.ts';
import { toGateIdentity } from './gate-identity.ts';
import { type Rating, warning } from './rating.ts';

/** Which requests a route takes, but for their methods. */
interface Place {
  readonly route: RouteConfig;
  readonly index: number;
  readonly host: string | undefined;
  readonly isExact: boolean;
  /** A prefix has no slash at its end. */
  readonly path: string;
  readonly gates: string;
}

/** Warnings about routes that no rule of the router can keep apart, and about settings that give the rules up. */
export function checkNeighbours(routes: readonly RouteConfig[]): Rating[] {
  const places = toPlaces(routes);
  return [...places.flatMap(checkSettings), ...places.flatMap((place) => checkPlace(place, places))];
}

function checkSettings({ route, index }: Place): Rating[] {
  const { trustAppToDistinguish } = route.match;
  const found: Rating[] = [];
  if (trustAppToDistinguish.length > 0) {
    const message = `whoever spells the path differently passes by this route's gates, if the app does ignore ${trustAppToDistinguish.join(', ')}`;
    found.push(warning(['routes', index, 'match', 'trustAppToDistinguish'], message, 'test it: docs/path-interpretation.md'));
  }
  if (route.forwardMethodOverride) {
    const message = 'the app may run another method than the one that the route was chosen by';
    found.push(warning(['routes', index, 'forwardMethodOverride'], message, 'leave forwardMethodOverride out'));
  }
  return found;
}

function checkPlace(place: Place, places: readonly Place[]): Rating[] {
  const found: Rating[] = [];
  for (const other of places) {
    if (other.gates === place.gates) continue;
    const { name } = other.route;
    if (isTakenFor(place, other)) {
      const message = `requests for this path are rejected (ambiguous_target): apps may take it for the path of route ${name}, whose gates differ`;
      const hint = 'give both routes the same gates, or spell their paths less alike';
      found.push(warning(['routes', place.index, 'match'], message, hint));
    }
    if (isGuarded(place) && place.host === undefined && other.host !== undefined && contains(other, place)) {
      const message = `does not apply to Host ${other.host}: there route ${name} takes the path, and its gates differ`;
      found.push(warning(['routes', place.index, 'match'], message, `give a route with host: ${other.host} for this path, too`));
    }
  }
  return found;
}

/** For each guarded route inside a wider one with other gates: how they are kept apart. */
export function describeNeighbours(routes: readonly RouteConfig[]): string[] {
  const places = toPlaces(routes);
  return places.filter(isGuarded).flatMap((place) => {
    const wider = places.filter((other) => isWider(other, place)).sort((a, b) => b.path.length - a.path.length)[0];
    return wider === undefined || wider.gates === place.gates ? [] : [describe(place, wider)];
  });
}

function describe({ route, host, path }: Place, wider: Place): string {
  const { name } = wider.route;
  const kept = route.match.trustAppToDistinguish;
  const parts = [
    `a path that an app may take for ${path === '' ? '/' : path} is rejected (400 ambiguous_target)${toExceptions(kept)}`,
    `methods other than ${methodsOf(route).join(', ')} are rejected (405)`,
    ...(host === undefined || wider.host !== undefined
      ? []
      : [`with a Host other than ${host}, route ${name} takes the path: the app must tell hosts apart`]),
  ];
  return `route ${route.name} is inside route ${name}, whose gates differ: ${parts.join('; ')}`;
}

function toExceptions(kept: readonly PathDistinction[]): string {
  return kept.length === 0 ? '' : `, unless it differs in ${kept.join(', ')} (trustAppToDistinguish)`;
}

function toPlaces(routes: readonly RouteConfig[]): Place[] {
  return routes.map((route, index) => {
    const { path: exact, pathPrefix = '', host } = route.match;
    const path = exact ?? (pathPrefix.endsWith('/') ? pathPrefix.slice(0, -1) : pathPrefix);
    return { route, index, host, isExact: exact !== undefined, path, gates: toGateIdentity(route) };
  });
}

function isGuarded({ route }: Place): boolean {
  return route.allow === undefined;
}

/** Takes every path of the other, but less specifically. */
function isWider(wider: Place, { host, isExact, path }: Place): boolean {
  if (wider.host !== undefined && wider.host !== host) return false;
  const isSamePath = wider.path === path && wider.isExact === isExact;
  return isSamePath ? wider.host !== host : contains(wider, { path });
}

function contains(wider: Pick<Place, 'isExact' | 'path'>, { path }: Pick<Place, 'path'>): boolean {
  if (wider.isExact) return wider.path === path;
  return path.startsWith(wider.path) && (path.length === wider.path.length || path[wider.path.length] === '/');
}

/** Neither path is inside the other as they stand, yet an app may take one for the other (gateway/pipeline/path-conflicts.ts). */
function isTakenFor(place: Place, other: Place): boolean {
  if (place.host !== other.host || contains(other, place)) return false;
  const kept = new Set(other.route.match.trustAppToDistinguish);
  const keys = [...(toPathForms(other.path, new Set([...kept, 'extension'])) ?? [])];
  const forms = [...(toPathForms(place.path, kept) ?? [])];
  return keys.some((key) => forms.some((form) => contains({ isExact: other.isExact, path: key }, { path: form })));
}
