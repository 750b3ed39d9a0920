/** The rules that hold between several parts of the config, and the warnings about choices that weaken the gate. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import { isOverlapping, isReachedBy } from '../../core/listen-address.ts';
import { parseTarget } from '../../core/target.ts';
import { type Config, type MatchConfig, methodsOf, type RouteConfig } from '../schema/config.ts';
import { error, type Path, type Rating, warning } from './rating.ts';
import { checkAppProbes } from './validate-app-probes.ts';
import { checkAuthz } from './validate-authz.ts';
import { checkBasic, checkRealms } from './validate-basic.ts';
import { checkNeighbours } from './validate-neighbours.ts';
import { checkProxy } from './validate-proxy.ts';
import { checkTrustedRanges } from './validate-ranges.ts';
import { checkTraces } from './validate-trace.ts';
import { checkRetention, checkWebhook } from './validate-webhook.ts';

/** Everything wrong or risky in a config whose parts are well-formed. */
export function validate(config: Config, now: EpochMilliseconds): Rating[] {
  return toRules(config, now).flatMap((rule) => rule());
}

/** Each rule by itself, in the order in which they are reported. */
export function toRules(config: Config, now: EpochMilliseconds): (() => readonly Rating[])[] {
  return [
    () => checkAddresses(config),
    () => checkRevocationLists(config),
    () => checkAppProbes(config),
    () => checkStore(config),
    ...config.routes.flatMap((route, index) => toRouteRules(route, ['routes', index], config, now)),
    () => checkProxy(config, now),
    () => checkAuthz(config),
    () => checkTraces(config),
    () => checkRealms(config),
    () => checkOverlaps(config.routes),
    () => checkNeighbours(config.routes),
  ];
}

function checkAddresses({ listen, admin }: Config): Rating[] {
  const found: Rating[] = [];
  if (isOverlapping(listen.address, admin.address)) {
    found.push(error(['admin', 'address'], 'the admin port is the data port', 'metrics and health need a port of their own'));
  }
  const message = 'everybody is a trusted proxy, so anybody can claim to be any client';
  found.push(...checkTrustedRanges(listen.trustedProxies, ['listen', 'trustedProxies'], message));
  const impersonation = 'every client is trusted for its own identity headers, so any client can claim to be any user';
  found.push(...checkTrustedRanges(listen.trustedIdentityProxies, ['listen', 'trustedIdentityProxies'], impersonation));
  found.push(...checkTrustedRanges(listen.proxyProtocol?.from ?? [], ['listen', 'proxyProtocol', 'from'], message));
  return found;
}

function checkRevocationLists({ listen, proxy, authz }: Config): Rating[] {
  const sections = Object.entries({ listen, proxy, authz });
  const alone = sections.filter(([, port]) => port?.tls?.clientCrlFile !== undefined && port.tls.clientCaFile === undefined);
  const message = 'without client CAs no client is asked for a certificate, so nothing is checked against these lists';
  return alone.map(([name]) =>
    error([name, 'tls', 'clientCrlFile'], message, `set ${name}.tls.clientCaFile, or remove this key`),
  );
}

function checkStore({ store }: Config): Rating[] {
  const { redis } = store;
  if (redis === undefined) return [];
  const path = ['store', 'redis'];
  const ways = [redis.url, redis.urlFile, redis.sentinel, redis.cluster].filter((way) => way !== undefined).length;
  const found: Rating[] = [];
  if (ways !== 1)
    found.push(error(path, `Redis is named in ${ways} ways`, 'give exactly one of url, urlFile, sentinel and cluster'));
  if (redis.url !== undefined && !isRedisUrl(redis.url))
    found.push(error([...path, 'url'], 'this is no redis:// or rediss:// URL', 'for example redis://127.0.0.1:6379'));
  if (redis.url !== undefined && isRedisUrl(redis.url) && new URL(redis.url).password !== '') {
    found.push(warning([...path, 'url'], 'the config holds a password', 'use urlFile, passwordFile or passwordEnv'));
  }
  if (redis.passwordFile !== undefined && redis.passwordEnv !== undefined)
    found.push(error([...path, 'passwordEnv'], 'the password is named twice', 'give passwordFile or passwordEnv'));
  if (redis.cluster !== undefined && redis.db !== undefined)
    found.push(error([...path, 'db'], 'a Cluster has no databases', 'leave db out'));
  return found;
}

function isRedisUrl(text: string): boolean {
  return URL.canParse(text) && ['redis:', 'rediss:'].includes(new URL(text).protocol) && new URL(text).hostname !== '';
}

function toRouteRules(route: RouteConfig, path: Path, config: Config, now: EpochMilliseconds): (() => readonly Rating[])[] {
  const at = [...path, 'webhook'];
  return [
    () => checkMatch(route.match, [...path, 'match']),
    () => checkUpstream(route, path, config),
    () => (route.webhook === undefined ? [] : checkWebhook(route.webhook, route, at, now)),
    () => (route.webhook === undefined ? [] : checkRetention(route.webhook, config.limits.bodyTimeout, at)),
    () => (route.basic === undefined ? [] : checkBasic(route.basic, config, [...path, 'basic'], now)),
    () => checkClientCertificate(route, path, config),
    () => checkProof(route, path),
  ];
}

function checkUpstream({ upstream }: RouteConfig, path: Path, { listen, admin }: Config): Rating[] {
  const found: Rating[] = [];
  const at = [...path, 'upstream'];
  const hint = 'name the port the app listens on';
  if (isReachedBy(listen.address, upstream)) found.push(error(at, 'the app is the gate itself', hint));
  if (isReachedBy(admin.address, upstream))
    found.push(error(at, 'the app is the admin port, which trusts its own machine', hint));
  return found;
}

function checkClientCertificate({ clientCertificate }: RouteConfig, path: Path, { listen }: Config): Rating[] {
  if (clientCertificate === undefined || listen.tls?.clientCaFile !== undefined) return [];
  const message = 'nobody vouches for client certificates, so each request would be refused';
  return [error([...path, 'clientCertificate'], message, 'give listen.tls.clientCaFile')];
}

function checkProof({ webhook, basic, clientCertificate, allow, mode }: RouteConfig, path: Path): Rating[] {
  const found: Rating[] = [];
  const asks = [webhook, basic, clientCertificate].some((section) => section !== undefined);
  if (!asks && allow === undefined)
    found.push(
      error(
        path,
        'the route asks for nothing',
        'give webhook, basic or clientCertificate; a route open to everybody says allow: anyone',
      ),
    );
  if (mode === 'observe')
    found.push(
      warning(
        [...path, 'mode'],
        'everything is let through: the gate only tells what it would have refused',
        'mode: enforce, once nothing genuine would be refused',
      ),
    );
  if (asks && allow !== undefined)
    found.push(error([...path, 'allow'], 'the route asks for proof and is open to anyone', 'remove one of the two'));
  return found;
}

function checkMatch(match: MatchConfig, path: Path): Rating[] {
  const { path: exact, pathPrefix } = match;
  if (exact !== undefined && pathPrefix !== undefined) return [error(path, 'both path and pathPrefix', 'give one of them')];
  const text = exact ?? pathPrefix;
  if (text === undefined)
    return [error(path, 'neither path nor pathPrefix', 'path: /hooks/name for one path, pathPrefix: /hooks for all below')];
  const at = [...path, exact === undefined ? 'pathPrefix' : 'path'];
  const found: Rating[] = [];
  const target = parseTarget(text);
  if ('problem' in target)
    found.push(
      error(at, `no request can have this path: ${target.problem}`, 'a path starts with / and is written as it is sent'),
    );
  else if (target.query !== undefined) found.push(error(at, 'a path has no query'));
  else {
    const closed = target.ambiguities.filter((form) => !match.allowInPath.includes(form));
    if (closed.length > 0)
      found.push(
        error(
          at,
          `no request can have this path: it has ${closed.join(', ')}`,
          'list it in allowInPath, or write the path plainly',
        ),
      );
  }
  if (match.allowInPath.length > 0)
    found.push(warning([...path, 'allowInPath'], 'the app may read such a path differently from the gate'));
  return found;
}

/** Two routes that take the same requests, or have one name. */
function checkOverlaps(routes: readonly RouteConfig[]): Rating[] {
  const found: Rating[] = [];
  const names = new Set<string>();
  const taken = new Map<string, string>();
  for (const [index, route] of routes.entries()) {
    const { name, match } = route;
    if (names.has(name)) found.push(error(['routes', index, 'name'], `two routes are named ${name}`));
    names.add(name);
    for (const method of methodsOf(route)) {
      const id = JSON.stringify([match.host, match.path, match.pathPrefix?.replace(/\/$/, ''), method]);
      const other = taken.get(id);
      if (other !== undefined)
        found.push(
          error(['routes', index, 'match'], `route ${other} takes the same requests`, 'only the first would ever be used'),
        );
      else taken.set(id, name);
    }
  }
  return found;
}
