/** The rules of `match`: every route matches some requests, and no request matches two routes. */
import { decideFieldAction, type FieldAction, type FieldSettings } from '../../core/field-policy.ts';
import { parseTarget } from '../../core/head.ts';
import { error, type Fault, type Path, type Problem, warning } from '../../core/problem.ts';
import { fieldSettingsOf, type LimitsConfig, type MatchConfig, methodsOf, type RouteConfig } from '../schema/config.ts';

const PROXY_CLAIM = 'proxies set it, and sidegate removes it from the requests of clients';
/** Why a field that the app does not receive as the client sent it cannot select a route. */
const NOT_FORWARDED: Readonly<Record<Exclude<FieldAction, 'pass'>, string>> = {
  hopByHop: 'it is hop-by-hop, so each proxy in between removes or changes it',
  own: 'only sidegate sets it',
  rewritten: 'sidegate sets or removes it in each request',
  trace: 'sidegate sets it for the app',
  foreignTrace: 'sidegate removes it, because clients must not write into the traces of the app, unless trace.trust is always',
  withheld: 'sidegate removes it after the check of the password, unless basic.forwardAuthorization is true',
  methodOverride: 'sidegate removes it, because it can change the method, unless forwardMethodOverride is true',
  otherSpelling: 'sidegate removes it, because apps may read it as a header of the signature',
  override: PROXY_CLAIM,
  identity: PROXY_CLAIM,
  certificate: PROXY_CLAIM,
  unchecked: PROXY_CLAIM,
  clientAddress: PROXY_CLAIM,
  route: PROXY_CLAIM,
  checkedHere: PROXY_CLAIM,
};

/** No request for this path is short enough. */
export function checkTargetLength({ match }: RouteConfig, { maxTarget }: Pick<LimitsConfig, 'maxTarget'>, path: Path): Problem[] {
  const { length } = match.path ?? match.pathPrefix ?? '';
  if (length <= maxTarget) return [];
  const hint = `set limits.maxTarget to at least ${length}`;
  return [error(path, `the path has ${length} characters, and limits.maxTarget is ${maxTarget}`, hint)];
}

/** A match that no request can have, or that does not select what it says. */
export function* checkMatch(route: RouteConfig, path: Path): Iterable<Problem> {
  const { match } = route;
  const { path: exact, pathPrefix } = match;
  if (exact !== undefined && pathPrefix !== undefined) {
    yield error(path, 'both path and pathPrefix are set', 'remove one of them');
    return;
  }
  const text = exact ?? pathPrefix;
  if (text === undefined) {
    const hint = 'path: /hooks/name for one path, or pathPrefix: /hooks for all paths below it';
    yield error(path, 'neither path nor pathPrefix is set', hint);
    return;
  }
  const at = [...path, exact === undefined ? 'pathPrefix' : 'path'];
  const target = parseTarget(text);
  if ('problem' in target)
    yield error(
      at,
      text.startsWith('/') ? `no request can have this path: ${target.problem}` : 'a path must start with /',
      'write it exactly as in the request',
    );
  else if (target.query !== undefined) yield error(at, 'a path must not contain a query');
  else {
    const rejected = target.ambiguities.filter((form) => !match.allowInPath.includes(form));
    if (rejected.length > 0)
      yield error(
        at,
        `no request can have this path: it contains ${rejected.join(', ')}`,
        'list it in allowInPath, or write the path without it',
      );
  }
  if (match.allowInPath.length > 0)
    yield warning([...path, 'allowInPath'], 'the app may interpret such a path differently from sidegate');
  const pattern = match.literal === true ? undefined : findPattern(text);
  if (pattern !== undefined) yield error(at, pattern.problem, pattern.hint);
  yield* checkMethods(match, [...path, 'methods']);
  yield* checkHeaders(match, fieldSettingsOf(route), path);
}

/** Methods are case-sensitive (RFC 9110 §9.1), and no name stands for all of them. */
function* checkMethods({ methods = [] }: MatchConfig, path: Path): Iterable<Problem> {
  for (const [index, method] of methods.entries()) {
    const at = [...path, index];
    const upper = method.toUpperCase();
    if (ALL_METHODS.has(upper))
      yield error(at, `"${method}" is not a method`, 'list each method, such as GET and POST, or remove methods for the default');
    else if (method !== upper) yield error(at, `methods are case-sensitive, and no client sends "${method}"`, `write ${upper}`);
  }
}

const ALL_METHODS = new Set(['*', 'ANY', 'ALL']);

/**
 * nginx, Traefik, Express and Kubernetes read these as patterns. Here a route with one matches only requests that
 * have the pattern itself as their path, so that those it is meant for select another route.
 */
const PATTERN = /[*{}()^|<>[\]]|\$(?=\/|$)|,(?=\/)|(?<=\/):|(?<=\/|\.)\+(?=\/|$)/;

function findPattern(path: string): Fault | undefined {
  const at = path.search(PATTERN);
  if (at === -1) return undefined;
  const prefix = path.slice(0, at).replace(/\/?\.?$/, '') || '/';
  return {
    problem: `paths are literal, and "${path.charAt(at)}" would match only itself`,
    hint: `pathPrefix: ${prefix} matches ${prefix === '/' ? 'all paths' : `${prefix} and all paths below it`}; if requests really have this character in their path, set match.literal: true`,
  };
}

/** Only a header that reaches the app as it was sent can select a route: the app must see what the route was selected by. */
function checkHeaders({ headers = [], withoutHeaders = [] }: MatchConfig, settings: FieldSettings, path: Path): Problem[] {
  const lists = Object.entries({ headers, withoutHeaders });
  const managed = lists.flatMap(([key, names]) =>
    names.flatMap((name, index) => {
      const problem = findHeaderProblem(name, settings);
      return problem === undefined ? [] : [error([...path, key, index], `a route cannot be matched by ${name}: ${problem}`)];
    }),
  );
  const both = withoutHeaders.filter((name) => headers.includes(name));
  const contradictions = both.map((name) =>
    error([...path, 'withoutHeaders'], `no request can match: ${name} is also in headers`, 'remove it from one of the lists'),
  );
  return [...managed, ...contradictions];
}

function findHeaderProblem(name: string, settings: FieldSettings): string | undefined {
  if (name === 'host') return 'every request has it; use match.host';
  const action = decideFieldAction(name, settings);
  return action === 'pass' ? undefined : NOT_FORWARDED[action];
}

/** Two routes that match the same requests, or of which neither is the more specific one. */
export function* checkOverlaps(routes: readonly RouteConfig[]): Iterable<Problem> {
  const groups = new Map<string, RouteConfig[]>();
  for (const [index, route] of routes.entries()) {
    const { host, path, pathPrefix } = route.match;
    const id = JSON.stringify([host, path, pathPrefix?.replace(/\/$/, '')]);
    const others = groups.get(id) ?? [];
    let fault: Fault | undefined;
    for (const other of others) fault ??= findOverlap(route, other);
    others.push(route);
    groups.set(id, others);
    if (fault !== undefined) yield error(['routes', index, 'match'], fault.problem, fault.hint);
  }
}

function findOverlap(route: RouteConfig, other: RouteConfig): Fault | undefined {
  const conditions = toConditions(route.match);
  const others = toConditions(other.match);
  if (conditions.some((each) => others.includes(toOpposite(each)))) return undefined;
  const isWider = conditions.every((each) => others.includes(each));
  const isNarrower = others.every((each) => conditions.includes(each));
  if (isWider && isNarrower) {
    const methods = methodsOf(other);
    const isSame = methodsOf(route).some((method) => methods.includes(method));
    return isSame
      ? { problem: `route ${other.name} matches the same requests`, hint: 'change the match of one of them' }
      : undefined;
  }
  if (isWider || isNarrower) return undefined;
  return {
    problem: `a request with the headers of this route and of route ${other.name} would match both`,
    hint: 'list the headers of one of them in withoutHeaders of the other',
  };
}

function toConditions({ headers = [], withoutHeaders = [] }: MatchConfig): string[] {
  return [...headers.map((name) => `+${name}`), ...withoutHeaders.map((name) => `-${name}`)];
}

function toOpposite(condition: string): string {
  return (condition.startsWith('+') ? '-' : '+') + condition.slice(1);
}
