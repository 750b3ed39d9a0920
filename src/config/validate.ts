/** The rules that hold between several parts of the config, and the warnings about choices that weaken the gate. */
import type { EpochMilliseconds, Milliseconds } from '../core/clock.ts';
import { parseTarget } from '../core/target.ts';
import type { Config, DedupConfig, MatchConfig, RouteConfig } from './config.ts';
import type { Finding } from './issues.ts';
import type { Problem } from './problem.ts';
import type { SocketAddress } from './scalars.ts';

/** A finding and how much it matters. */
export type Rating = Finding & { readonly severity: Problem['severity'] };

type Path = readonly PropertyKey[];

const SENDER_RETRY_HORIZON_MS: Milliseconds = 259_200_000;
const EVERYBODY = new Set(['0.0.0.0/0', '::/0']);

/** Everything wrong or risky in a config whose parts are well-formed. */
export function validate(config: Config, now: EpochMilliseconds): Rating[] {
  return [
    ...checkAddresses(config),
    ...checkStore(config),
    ...config.routes.flatMap((route, index) => checkRoute(route, ['routes', index], config, now)),
    ...checkOverlaps(config.routes),
  ];
}

function error(path: Path, message: string, hint?: string): Rating {
  return { severity: 'error', path, message, ...(hint === undefined ? undefined : { hint }) };
}

function warning(path: Path, message: string, hint?: string): Rating {
  return { severity: 'warning', path, message, ...(hint === undefined ? undefined : { hint }) };
}

function checkAddresses({ listen, admin }: Config): Rating[] {
  const found: Rating[] = [];
  if (listen.address.port !== 0 && isSame(listen.address, admin.address)) {
    found.push(error(['admin', 'address'], 'the admin port is the data port', 'metrics and health need a port of their own'));
  }
  for (const [index, range] of listen.trustedProxies.entries()) {
    if (EVERYBODY.has(range))
      found.push(
        warning(
          ['listen', 'trustedProxies', index],
          'everybody is a trusted proxy, so anybody can claim to be any client',
          'name the ranges your proxies are in',
        ),
      );
  }
  return found;
}

function isSame(a: SocketAddress, b: SocketAddress): boolean {
  const isWildcard = [a.host, b.host].some((host) => host === '0.0.0.0' || host === '::');
  return a.port === b.port && (a.host === b.host || isWildcard);
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

function checkRoute(route: RouteConfig, path: Path, config: Config, now: EpochMilliseconds): Rating[] {
  const { webhook } = route;
  const found = [...checkMatch(route.match, [...path, 'match']), ...checkKeys(route, [...path, 'webhook', 'keys'], now)];
  if (isSame(route.upstream, config.listen.address))
    found.push(error([...path, 'upstream'], 'the app is the gate itself', 'name the port the app listens on'));
  if (webhook.dedup === 'off') {
    found.push(
      warning(
        [...path, 'webhook', 'dedup'],
        'repeats and replays within the tolerance reach the app',
        'leave dedup out for its safe defaults',
      ),
    );
  } else {
    found.push(...checkDedup(webhook.dedup, route, [...path, 'webhook', 'dedup']));
  }
  const unsigned = 'the signature does not cover it, so whoever holds one genuine delivery can vary it';
  if (webhook.allowQuery) found.push(warning([...path, 'webhook', 'allowQuery'], `a query string is let through: ${unsigned}`));
  if (webhook.allowContentEncoding)
    found.push(warning([...path, 'webhook', 'allowContentEncoding'], `a Content-Encoding is let through: ${unsigned}`));
  if (webhook.allowDotInId)
    found.push(
      warning(
        [...path, 'webhook', 'allowDotInId'],
        'with dots in the id, bytes can move between id, timestamp and body under one signature',
      ),
    );
  return found;
}

function checkDedup(dedup: DedupConfig, route: RouteConfig, path: Path): Rating[] {
  const found: Rating[] = [];
  const { tolerance } = route.webhook;
  if (dedup.retention < 2 * tolerance) {
    found.push(
      error(
        [...path, 'retention'],
        'an id is forgotten while its delivery can still be replayed',
        'at least twice the tolerance: a timestamp that far ahead stays good for as long again',
      ),
    );
  } else if (dedup.retention < SENDER_RETRY_HORIZON_MS) {
    found.push(
      warning(
        [...path, 'retention'],
        'senders may retry for three days; a retry after the retention is handled again',
        'retention: 3d',
      ),
    );
  }
  if (dedup.lease <= route.timeout + route.connectTimeout) {
    found.push(
      error(
        [...path, 'lease'],
        'the lease ends while the app may still be at work, so a retry would overlap it',
        'above timeout + connectTimeout',
      ),
    );
  }
  if (dedup.inProgress === 'wait' && dedup.waitAtMost >= dedup.lease)
    found.push(warning([...path, 'waitAtMost'], 'waiting outlasts the lease'));
  if (dedup.onStoreError === 'forward')
    found.push(
      warning(
        [...path, 'onStoreError'],
        'while the store is down, repeats and replays reach the app',
        'refuse answers 503, and the sender comes again',
      ),
    );
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

function checkKeys(route: RouteConfig, path: Path, now: EpochMilliseconds): Rating[] {
  const found: Rating[] = [];
  const seen = new Set<string>();
  for (const [index, key] of route.webhook.keys.entries()) {
    if (seen.has(key.name))
      found.push(error([...path, index, 'name'], `two keys are named ${key.name}`, 'names tell them apart in logs and metrics'));
    seen.add(key.name);
    if (key.notAfter !== undefined && key.notAfter <= now)
      found.push(warning([...path, index, 'notAfter'], 'the key has expired', 'remove it'));
  }
  return found;
}

/** Two routes that take the same requests, or have one name. */
function checkOverlaps(routes: readonly RouteConfig[]): Rating[] {
  const found: Rating[] = [];
  const names = new Set<string>();
  const taken = new Map<string, string>();
  for (const [index, { name, match }] of routes.entries()) {
    if (names.has(name)) found.push(error(['routes', index, 'name'], `two routes are named ${name}`));
    names.add(name);
    for (const method of match.methods) {
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
