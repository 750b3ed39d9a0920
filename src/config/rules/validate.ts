/** The rules across several parts of the config, and the warnings about insecure settings. */

import { isIP } from 'node:net';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { isLoopbackOnly, isOverlapping, isReachedBy } from '../../core/listen-address.ts';
import { error, type Path, type Problem, warning } from '../../core/problem.ts';
import { compileAddressRules, PUBLIC_ONLY } from '../../http/dial/address-rules.ts';
import { parseDestinationRule } from '../../http/dial/destination.ts';
import { type Config, isDecidedByHead, type LimitsConfig, type RouteConfig, type WebhookConfig } from '../schema/config.ts';
import type { SocketAddress } from '../schema/scalars.ts';
import { REDIS_URL_HINT } from '../schema/store-schema.ts';
import { checkBasic, checkRealms, checkUsers } from './validate-basic.ts';
import { checkMatch, checkOverlaps, checkTargetLength } from './validate-match.ts';
import { checkNeighbors } from './validate-neighbors.ts';
import { checkInbox, checkProvider, checkTrustedRanges } from './validate-provider.ts';
import { checkLeases, checkRetention, checkWebhook } from './validate-webhook.ts';

/** Operators expect to read an event soon after it happened. */
const MAX_LOG_FLUSH_MS: Milliseconds = 10_000;

/** Everything wrong or risky in a config whose parts are well-formed. */
export function validate(config: Config, now: EpochMilliseconds): Problem[] {
  return toRules(config, now).flatMap((rule) => [...rule()]);
}

/** The rules, in the order in which their problems are reported. */
export function toRules(config: Config, now: EpochMilliseconds): (() => Iterable<Problem>)[] {
  return [
    () => checkPurpose(config),
    () => checkAddresses(config),
    () => checkClientCertificates(config),
    () => checkAppProbes(config),
    () => checkStore(config),
    () => checkWorkers(config),
    ...config.routes.flatMap((route, index) => toRouteRules(route, ['routes', index], config, now)),
    () => checkProxy(config, now),
    () => (config.admin.basic === undefined ? [] : checkUsers(config.admin.basic, ['admin', 'basic'], now)),
    () => checkProvider(config, now),
    () => checkAuthz(config),
    () => checkTraces(config),
    () => checkLog(config),
    () => checkRealms(config),
    () => checkNames(config.routes),
    () => checkOverlaps(config.routes),
    () => checkNeighbors(config.routes),
  ];
}

/** A config must do something: the usual cause of one that does not is a key at the wrong level. */
function checkPurpose({ routes, proxy, provider }: Config): Problem[] {
  if (routes.length > 0 || proxy !== undefined || provider !== undefined) return [];
  const example = 'for example routes: [ { name: orders, match: { path: /hooks/orders }, upstream: http://127.0.0.1:3000 } ]';
  return [error(['routes'], 'without routes every request would be rejected; add at least one route', example)];
}

function checkLog({ log }: Config): Problem[] {
  if (log.flush <= MAX_LOG_FLUSH_MS) return [];
  return [error(['log', 'flush'], 'lines of the log may wait for 10s at most', 'flush: 250ms')];
}

function* checkAddresses({ listen, admin }: Config): Iterable<Problem> {
  if (isOverlapping(listen.address, admin.address)) {
    yield error(['admin', 'address'], 'the admin port equals the data port', 'choose a separate port for metrics and health');
  }
  const message = 'every client is a trusted proxy, so anyone can claim any client address';
  yield* checkTrustedRanges(listen.trustedProxies, ['listen', 'trustedProxies'], message);
  const impersonation = 'identity headers of every client are trusted, so anyone can claim to be any user';
  yield* checkTrustedRanges(listen.trustedIdentityProxies, ['listen', 'trustedIdentityProxies'], impersonation);
  yield* checkTrustedRanges(listen.proxyProtocol?.from ?? [], ['listen', 'proxyProtocol', 'from'], message);
}

function* checkClientCertificates({ listen, proxy, authz, provider }: Config): Iterable<Problem> {
  const sections = Object.entries({ listen, proxy, authz, provider });
  const withoutCa = sections.filter(([, port]) => port?.tls?.clientCrlFile !== undefined && port.tls.clientCaFile === undefined);
  const message = 'without client CAs no client is asked for a certificate, so these lists are never used';
  for (const [name] of withoutCa)
    yield error([name, 'tls', 'clientCrlFile'], message, `set ${name}.tls.clientCaFile, or remove this key`);
  for (const [name, port] of sections)
    if (name !== 'listen' && port?.tls?.clientCaFile !== undefined && port.tls.clientCertificate === 'request')
      yield warning(
        [name, 'tls', 'clientCertificate'],
        'no route of this port checks certificates, so clients without one are served as well',
        'require',
      );
}

function* checkStore({ store }: Config): Iterable<Problem> {
  const { redis } = store;
  if (redis === undefined) return;
  const path = ['store', 'redis'];
  const ways = [redis.url, redis.urlFile, redis.sentinel, redis.cluster].filter((way) => way !== undefined).length;
  if (ways !== 1)
    yield error(
      path,
      ways === 0 ? 'no address of Redis is configured' : 'the address of Redis is configured more than once',
      'set exactly one of url, urlFile, sentinel and cluster',
    );
  if (redis.url !== undefined && !isRedisUrl(redis.url))
    yield error([...path, 'url'], 'not a redis:// or rediss:// URL', REDIS_URL_HINT);
  if (redis.url !== undefined && isRedisUrl(redis.url) && new URL(redis.url).password !== '') {
    yield warning([...path, 'url'], 'the config contains a password', 'use urlFile, passwordFile or passwordEnv');
  }
  if (redis.passwordFile !== undefined && redis.passwordEnv !== undefined)
    yield error([...path, 'passwordEnv'], 'the password is configured twice', 'set either passwordFile or passwordEnv');
  if (redis.cluster !== undefined && redis.db !== undefined)
    yield error([...path, 'db'], 'a Redis Cluster has no numbered databases', 'remove db');
}

function isRedisUrl(text: string): boolean {
  return URL.canParse(text) && ['redis:', 'rediss:'].includes(new URL(text).protocol) && new URL(text).hostname !== '';
}

function toRouteRules(route: RouteConfig, path: Path, config: Config, now: EpochMilliseconds): (() => Iterable<Problem>)[] {
  const at = [...path, 'webhook'];
  return [
    () => checkMatch(route, [...path, 'match']),
    () => checkTargetLength(route, config.limits, [...path, 'match']),
    () => checkUpstream(route, path, config),
    () => (route.webhook === undefined ? [] : checkWebhook(route.webhook, route, at, now)),
    () => (route.webhook === undefined ? [] : checkRetention(route.webhook, config.limits.bodyTimeout, at)),
    () => (route.webhook === undefined ? [] : checkLeases(route.webhook, route, config, at)),
    () => checkResend(route, path),
    () => (route.webhook === undefined ? [] : checkStoreBody(route.webhook, [...at, 'storeBody'], config)),
    () => (route.basic === undefined ? [] : checkBasic(route.basic, config, [...path, 'basic'], now)),
    () => checkClientCertificate(route, path, config),
    () => checkInbox(route, path, config),
    () => checkProof(route, path),
  ];
}

function* checkUpstream(
  { upstream }: RouteConfig,
  path: Path,
  { listen, admin, proxy, authz, provider }: Config,
): Iterable<Problem> {
  const at = [...path, 'upstream'];
  const hint = 'use the port that the app listens on';
  if (isReachedBy(listen.address, upstream)) yield error(at, 'the upstream points to sidegate itself', hint);
  if (isReachedBy(admin.address, upstream))
    yield error(at, 'the upstream points to the admin port, which trusts requests from loopback', hint);
  for (const [name, port] of Object.entries({ proxy, authz }))
    if (port !== undefined && isReachedBy(port.address, upstream))
      yield error(at, `the upstream points to the ${name} port of sidegate`, hint);
  // With the interception mode env, the app has moved to 8482, which is also the default port of the API.
  if (provider?.roles.includes('accept') === true && isReachedBy(provider.address, upstream))
    yield error(
      at,
      'the upstream points to the API of provider, which trusts requests from loopback',
      `${hint}, or set provider.address to another port, such as 127.0.0.1:8483`,
    );
}

/** By default, only the sender repeats a delivery. */
function checkResend({ resend, webhook }: RouteConfig, path: Path): Problem[] {
  if (resend !== 'always' || webhook === undefined || webhook.dedup === 'off' || webhook.ack === 'onAccept') return [];
  const message =
    'the app can get a delivery twice: it may have handled the delivery before it closed a kept-alive connection, and sidegate sends it again';
  return [warning([...path, 'resend'], message, 'remove resend: the sender then retries')];
}

function checkClientCertificate({ clientCertificate }: RouteConfig, path: Path, { listen }: Config): Problem[] {
  if (clientCertificate === undefined || listen.tls?.clientCaFile !== undefined) return [];
  const message = 'no client CA is configured, so every request would be rejected';
  return [error([...path, 'clientCertificate'], message, 'set listen.tls.clientCaFile')];
}

function* checkProof({ webhook, basic, clientCertificate, allow, mode }: RouteConfig, path: Path): Iterable<Problem> {
  const hasCheck = [webhook, basic, clientCertificate].some((section) => section !== undefined);
  if (!hasCheck && allow === undefined)
    yield error(
      path,
      'the route has no check',
      'add webhook, basic or clientCertificate; to allow unauthenticated access, set allow: anyone',
    );
  if (mode === 'observe')
    yield warning(
      [...path, 'mode'],
      'every request is forwarded: sidegate only reports what it would have rejected',
      'set mode: enforce once no valid request would be rejected',
    );
  if (hasCheck && allow !== undefined)
    yield error([...path, 'allow'], 'the route has a check and also allows anyone', 'remove one of the two');
}

/** Two routes that have the same name. */
function* checkNames(routes: readonly RouteConfig[]): Iterable<Problem> {
  const names = new Set<string>();
  for (const [index, { name }] of routes.entries()) {
    if (names.has(name)) yield error(['routes', index, 'name'], `two routes are named ${name}`);
    names.add(name);
  }
}

/** Everything wrong or risky in the endpoint's section. */
function* checkAuthz({ authz, listen, admin, proxy, routes }: Config): Iterable<Problem> {
  if (authz === undefined) return;
  const { port } = authz.address;
  if (port !== 0 && [listen.address.port, admin.address.port, proxy?.address.port].includes(port))
    yield error(['authz', 'address'], 'another listener of sidegate uses this port', 'choose a separate port for the endpoint');
  if (authz.tls === undefined && !isLoopbackOnly(authz.address))
    yield warning(
      ['authz', 'address'],
      'passwords may cross the network in clear text between the proxy and this port',
      'set authz.tls, or listen on loopback next to the proxy',
    );
  const message = 'this range allows every caller, so anyone can guess passwords and claim any client address';
  yield* checkTrustedRanges(authz.trustedCallers, ['authz', 'trustedCallers'], message);
  const unseen = 'every route verifies request bodies or client certificates, which this endpoint never receives';
  if (!routes.some(isDecidedByHead)) yield warning(['authz'], unseen, 'add a route with basic');
}

/** Everything wrong or risky in the proxy's section. */
function* checkProxy({ proxy, listen, admin }: Config, now: EpochMilliseconds): Iterable<Problem> {
  if (proxy === undefined) return;
  yield* checkUsers(proxy.basic, ['proxy', 'basic'], now);
  const { port } = proxy.address;
  if (port !== 0 && [listen.address.port, admin.address.port].includes(port))
    yield error(['proxy', 'address'], 'another listener of sidegate uses this port', 'choose a separate port for the proxy');
  if (proxy.requireTls && proxy.tls === undefined)
    yield error(
      ['proxy', 'requireTls'],
      'no client can connect over TLS, so every client would be rejected',
      'set proxy.tls, or set requireTls: false for a proxy on loopback',
    );
  if (!proxy.requireTls && !isLoopbackOnly(proxy.address))
    yield warning(['proxy', 'requireTls'], 'passwords may cross the network in clear text', 'remove requireTls');
  const findProblem = compileAddressRules({ ...PUBLIC_ONLY, nat64Prefixes: proxy.nat64Prefixes });
  for (const [index, text] of proxy.allow.entries()) {
    const path: Path = ['proxy', 'allow', index];
    const rule = parseDestinationRule(text);
    if (rule === undefined) yield error(path, `${JSON.stringify(text)} is not a destination`, 'write host:port or *.host:port');
    else if (proxy.denyPrivate && isIP(rule.host) !== 0 && findProblem(rule.host) !== undefined)
      yield warning(path, 'denyPrivate rejects this address', 'remove the entry, or set denyPrivate: false');
  }
  if (proxy.allow.length === 0) yield warning(['proxy', 'allow'], 'no destination is allowed', 'list destinations as host:port');
  if (!proxy.denyPrivate)
    yield warning(['proxy', 'denyPrivate'], 'an allowed name may resolve to any address in the internal network');
}

/** Warnings about routes that continue the traces of unverified callers. */
function checkTraces({ routes }: Config): Problem[] {
  return routes.flatMap(({ trace, allow, mode }, index) => {
    if (trace.trust !== 'always' || (allow === undefined && mode === 'enforce')) return [];
    const path: Path = ['routes', index, 'trace', 'trust'];
    const message = 'unverified clients are allowed here, so they can add to the traces of the app and force sampling';
    return [warning(path, message, 'remove trust, unless only your own callers can reach sidegate')];
  });
}

/** Redacting a larger one would delay other requests. */
const MAX_STORED_BODY_BYTES = 65_536;
/** Bodies may contain personal data, which must not stay longer than operators need it. */
const MAX_RETENTION_MS: Milliseconds = 86_400_000;
/** The memory of a body besides its content, and what is lost because it is allocated in blocks. */
const BODY_ROOM_BYTES = 2_048;

/** Everything wrong with `storeBody`. */
function* checkStoreBody({ storeBody }: WebhookConfig, path: Path, { journal }: Config): Iterable<Problem> {
  if (storeBody === undefined) return;
  const { maxBytes, retention } = storeBody;
  if (journal.size === 0)
    yield error(path, 'bodies are stored in the journal, which is disabled', 'remove storeBody, or set journal.size: 1000');
  if (maxBytes < 1 || maxBytes > MAX_STORED_BODY_BYTES)
    yield error([...path, 'maxBytes'], 'a stored body has 1 byte to 64Ki', 'maxBytes: 64Ki, or remove storeBody');
  else if (maxBytes + BODY_ROOM_BYTES > journal.maxBodyBytes)
    yield error(
      [...path, 'maxBytes'],
      'such a body does not fit into journal.maxBodyBytes, the memory of all stored bodies',
      'raise journal.maxBodyBytes, for example to 4Mi, or lower maxBytes',
    );
  if (retention < 1 || retention > MAX_RETENTION_MS)
    yield error([...path, 'retention'], 'a body is stored for 1ms to 1d', 'retention: 1h, or remove storeBody');
}

// The rules of app probes: no duplicates, and no probe of the gate itself.

const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

/** The address that the URL of a probe refers to. */
export function toProbeAddress(href: string): SocketAddress {
  const { hostname, port, protocol } = new URL(href);
  const host = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
  return { host, port: port === '' ? (DEFAULT_PORTS[protocol] ?? 0) : Number(port) };
}

/** Everything wrong with them. */
function* checkAppProbes({ admin, listen }: Config): Iterable<Problem> {
  const seen = new Set<string>();
  for (const [index, { container, kind, url }] of admin.appProbes.entries()) {
    const path = ['admin', 'appProbes', index];
    const id = `${container}/${kind}`;
    if (seen.has(id)) yield error(path, `${id} is configured twice`, 'each probe of a container has exactly one URL');
    seen.add(id);
    const target = toProbeAddress(url);
    if ([listen.address, admin.address].some((address) => isReachedBy(address, target)))
      yield error([...path, 'url'], 'this URL points to sidegate itself', 'use the port that the app listens on');
  }
}

// The rules of `workers`: what several threads can share, and what only one can do.

/** The limits that are divided among the workers, so that all of them together stay within the configured one. */
export const DIVIDED_LIMITS = [
  'maxConnections',
  'maxConnectionsPerClient',
  'maxRequestsPerClient',
  'maxUpgraded',
  'maxUpgradedPerClient',
  'maxInFlight',
  'maxInFlightPerClient',
  'maxInFlightUnverified',
  'maxQueued',
  'maxWaiting',
  'passwordThreads',
  'passwordQueue',
  'passwordMemory',
  'maxBufferedBytes',
  'maxLargeBodies',
] as const satisfies readonly (keyof LimitsConfig)[];

/** Everything that more than one worker cannot do. */
function* checkWorkers(config: Config): Iterable<Problem> {
  const { workers, store, limits, routes, proxy, authz } = config;
  if (workers === 1) return;
  if (store.redis === undefined)
    yield error(
      ['workers'],
      'without Redis each worker would remember only its own events, so that the app would get duplicates, and bans would not apply to all connections',
      'set store.redis, for example redis: { url: redis://127.0.0.1:6379 }, or remove workers',
    );
  if (routes.length === 0 && proxy === undefined && authz === undefined)
    yield warning(['workers'], 'only the first worker runs provider, so the others do nothing', 'remove workers');
  for (const name of DIVIDED_LIMITS) {
    const limit = limits[name];
    if (limit === undefined || limit === 0 || limit >= workers) continue;
    const message = `${limit} cannot be divided among ${workers} workers`;
    yield error(['limits', name], message, `set at least ${workers}, or lower workers`);
  }
  for (const [index, { webhook }] of routes.entries()) {
    const hint = (key: string): string => `remove ${key}, or set workers: 1`;
    if (webhook?.ack === 'onAccept')
      yield error(['routes', index, 'webhook', 'ack'], 'only the first worker has the queue of provider', hint('ack: onAccept'));
    if (webhook?.storeBody !== undefined)
      yield error(
        ['routes', index, 'webhook', 'storeBody'],
        'bodies are not stored with more than one worker',
        hint('storeBody'),
      );
  }
}
