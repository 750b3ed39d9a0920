/** Builds the admin port from its config: token, endpoints, server. */
import { hostname } from 'node:os';
import { createForgetEndpoint, type ForgettingRoute } from '../admin/api/forget.ts';
import { createHealthEndpoints, type HealthParts } from '../admin/api/health.ts';
import { createAttemptsEndpoint, createCapturesEndpoints, createJournalEndpoint } from '../admin/api/journal.ts';
import { createHandshakesEndpoints, createKeysEndpoint, type KeyedRoute } from '../admin/api/keys.ts';
import { createAppHealthEndpoints, createLeaveEndpoint } from '../admin/api/kubelet.ts';
import type { ConsoleParts } from '../admin/console/console.ts';
import { ConsoleLoader } from '../admin/console-loader.ts';
import { RateHistory } from '../admin/rate-history.ts';
import { type AdminAccess, type AdminEndpoint, AdminRouter } from '../admin/router.ts';
import { AdminServer } from '../admin/server.ts';
import { type AdminConfig, type Config, type RouteConfig, realmsOf, remembersIds } from '../config/schema/config.ts';
import { readSecret } from '../config/sources/secrets.ts';
import type { Milliseconds } from '../core/clock.ts';
import { toErrorSummary } from '../core/errors.ts';
import { toLocalTarget } from '../core/listen-address.ts';
import { type Problem, unwrap } from '../core/problem.ts';
import type { Secret } from '../core/secret.ts';
import type { Captures } from '../diagnostics/explain/captures.ts';
import { findTokenProblem } from '../http/server/port-access.ts';
import type { SeenIds } from '../state/seen-ids.ts';
import type { SharedStreams } from '../state/shared-streams.ts';
import type { AttemptJournal } from '../telemetry/journal/attempt-journal.ts';
import type { Journal } from '../telemetry/journal/journal.ts';
import type { KeyEvidence } from '../telemetry/log/key-evidence.ts';
import type { Attempts } from '../users/attempts.ts';
import type { OfferedTokens } from '../verify/handshakes/offered-tokens.ts';
import type { KeyRing } from '../verify/schemes/keys.ts';
import { listSecrets } from './explain.ts';
import type { GateLogger } from './log-events.ts';
import type { GateRouteLabels, Metrics } from './metrics.ts';
import { buildPortPassword, type Realms, toPortLabels } from './realms.ts';
import type { Reloads } from './reloads.ts';

/** The result of reading the token; undefined if there was an error. */
export interface AdminTokenRead {
  readonly token: Secret | undefined;
  readonly problems: readonly Problem[];
}

/** The dependencies of the admin port. */
export interface AdminParts extends HealthParts {
  /** The app ends after the pause: connections are closed before. */
  readonly leave: (pause: Milliseconds) => void;
  readonly logger: GateLogger;
  readonly metrics: Metrics;
  readonly journal: Journal;
  readonly attemptJournal: AttemptJournal;
  readonly captures: Captures;
  readonly services: {
    readonly routeParts: { readonly keyEvidence: KeyEvidence; readonly offeredTokens: OfferedTokens };
    readonly store: { readonly seenIds: SeenIds; readonly attempts: Attempts; readonly streams: SharedStreams | undefined };
    readonly realms: Realms;
    readonly provider: { readonly provider: { readonly operations: ConsoleParts['outgoing'] } } | undefined;
    readonly reloads: Reloads;
  };
  readonly config: () => Config;
  readonly version: string;
  readonly access: AdminAccess;
  /** Resolves when the other workers have reported what they recorded; undefined without any. */
  readonly collect: (() => Promise<void>) | undefined;
  /** The active routes, with their keys. */
  readonly routes: () => readonly AdminRoute[];
}

/** A route as the admin port sees it. */
interface AdminRoute {
  readonly config: RouteConfig;
  readonly ring: KeyRing;
}

const PATH = ['admin', 'token', 'secret'];
/** The route label of logins to the console; no configured name can be the same. */
const NAME = '_admin';
/** The route of the forward proxy's requests in the journal. */
const PROXY = '_proxy';

/** Reads the token, if the config has one. */
export async function readAdminToken({ token }: AdminConfig): Promise<AdminTokenRead> {
  if (token === undefined) return { token: undefined, problems: [] };
  const problems: Problem[] = [];
  const read = unwrap(await readSecret(token.secret), PATH, problems);
  const valid = read && unwrap(findTokenProblem(read.secret) ?? read, PATH, problems);
  return { token: valid?.secret, problems };
}

/** The files to watch. */
export function toAdminFiles({ token }: AdminConfig): string[] {
  return token !== undefined && 'file' in token.secret ? [token.secret.file] : [];
}

/** The config's routes, each with its keys. */
export function toAdminRoutes({ routes }: Config, rings: ReadonlyMap<string, KeyRing>): AdminRoute[] {
  return routes.flatMap((config) => {
    const ring = rings.get(config.name);
    return ring === undefined ? [] : [{ config, ring }];
  });
}

/** The labels of the series of logins to the console. */
export function toAdminLabels({ admin }: Config): GateRouteLabels[] {
  return toPortLabels(NAME, admin.basic);
}

/** Builds the admin port; it does not listen yet. */
export function buildAdmin({ address, appProbes, basic }: AdminConfig, parts: AdminParts): AdminServer {
  const { access, clock, metrics } = parts;
  const { collect } = parts;
  const own = createEndpoints(parts);
  const complete = collect === undefined ? own : own.map((endpoint) => toComplete(endpoint, collect));
  const endpoints = [...complete, ...createAppHealthEndpoints(appProbes, clock)];
  const router = new AdminRouter(endpoints, access, metrics.adminDenied);
  return new AdminServer(address, clock, router, new ConsoleLoader(toConsoleParts(basic, parts)));
}

/** Endpoints that show what was recorded wait for the other workers; probes do not. */
function toComplete(endpoint: AdminEndpoint, collect: () => Promise<void>): AdminEndpoint {
  if (endpoint.isOpen !== false) return endpoint;
  return {
    ...endpoint,
    async respond(request) {
      await collect();
      return endpoint.respond(request);
    },
  };
}

function toConsoleParts(basic: AdminConfig['basic'], parts: AdminParts): ConsoleParts {
  const { clock, logger, metrics, journal, captures, access, routes, services, config, version } = parts;
  const { realms, store, provider } = services;
  return {
    clock,
    rates: createRateHistory(parts),
    journal,
    access,
    version,
    password: basic && buildPortPassword(NAME, basic, { clock, metrics, realms, attempts: store.attempts }),
    outgoing: provider?.provider.operations,
    storeKind: () => (config().store.redis === undefined ? 'memory' : 'redis'),
    realms: () => realmsOf(config()).map(({ realm }) => realm),
    findRealm: (route) => toRealm(config(), route),
    attempts: store.attempts,
    shared: store.streams,
    onShared: metrics.deliveriesShared,
    onLifted: (realm, of) => logger.info('ban_lifted', { realm, of }),
    replica: hostname(),
    registers: metrics.registers,
    routes: () => routes().map(({ config }) => config),
    keyUse: (route, key) => metrics.route(route).keyUse(key),
    config: () => services.reloads.active,
    secrets: () => listSecrets(routes().map(({ config, ring }) => [config.name, ring])),
    address: () => (config().listen.address.port === 0 ? undefined : toLocalTarget(config().listen.address)),
    isCaptured: (requestId) => captures.find(requestId) !== undefined,
    onDenied: metrics.adminDenied,
    onStreamDropped: metrics.streamDropped,
    onError: (operation, error) => logger.error('internal_error', { operation, ...toErrorSummary(error) }),
  };
}

function createRateHistory({ clock, config, metrics }: AdminParts): RateHistory {
  return new RateHistory({
    clock,
    // Not the active routes: the first sample is before they are built.
    routes: () => config().routes.map(({ name }) => name),
    totals: (name) => {
      const route = metrics.route(name);
      // In observe mode, requests that would be rejected are forwarded.
      const allowed = route.decided('allow') + route.decided('observe');
      return { allowed, rejected: route.decided('deny'), errors: route.errors() };
    },
  });
}

/** The realm of a route, or of the forward proxy. */
function toRealm({ routes, proxy }: Config, name: string): string | undefined {
  return name === PROXY ? proxy?.basic.realm : routes.find((route) => route.name === name)?.basic?.realm;
}

/** The endpoints that every gate's admin port has (docs/admin.md). */
export function createEndpoints(parts: Omit<AdminParts, 'access' | 'collect'>): AdminEndpoint[] {
  const { clock, logger, metrics, journal, attemptJournal, captures, services, routes } = parts;
  return [
    ...createHealthEndpoints(parts),
    createLeaveEndpoint(parts),
    createJournalEndpoint(journal),
    createAttemptsEndpoint(attemptJournal),
    createKeysEndpoint({
      clock,
      evidence: services.routeParts.keyEvidence,
      routes: () => routes().flatMap((route) => toKeyedRoute(route, metrics)),
    }),
    ...createCapturesEndpoints(captures),
    ...createHandshakesEndpoints(services.routeParts.offeredTokens),
    createForgetEndpoint({ store: services.store.seenIds, logger, metrics, routes: () => routes().map(toForgettingRoute) }),
  ];
}

function toKeyedRoute({ config: { name, webhook }, ring }: AdminRoute, metrics: Metrics): KeyedRoute[] {
  return webhook === undefined || webhook.keys.length + webhook.jwks.length === 0
    ? []
    : [{ name, keys: [...webhook.jwks, ...webhook.keys], ring, use: (key) => metrics.route(name).keyUse(key) }];
}

function toForgettingRoute({ config }: AdminRoute): ForgettingRoute {
  return { name: config.name, remembersIds: remembersIds(config) };
}
