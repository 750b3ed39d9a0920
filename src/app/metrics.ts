/** All metrics of a gate, each created by the area that owns it (docs/metrics.md). */
import { Registry } from '@prometheus-io/client';
import { type AdminMetrics, createAdminMetrics } from '../admin/admin-metrics.ts';
import type { EpochMilliseconds } from '../core/clock.ts';
import {
  type CaptureMetrics,
  createCaptureMetrics,
  createExplainMetrics,
  type ExplainMetrics,
} from '../diagnostics/explain/explain-metrics.ts';
import { createProxyMetrics, type ProxyMetrics } from '../gateway/egress-proxy/egress-proxy.ts';
import {
  type AuthRequestMetrics,
  type AuthRouteLabels,
  createAuthRequestMetrics,
} from '../gateway/forward-auth/auth-request-metrics.ts';
import {
  createRoutesMetrics,
  createStoreMetrics,
  type RouteLabels,
  type RoutesMetrics,
  type StoreMetrics,
} from '../gateway/pipeline/route-metrics.ts';
import { createServerMetrics, type ServerMetrics } from '../gateway/server-metrics.ts';
import { type BodyMetrics, createBodyMetrics } from '../telemetry/journal/body-metrics.ts';
import { createEscapedErrorMetrics, type EscapedErrorMetrics } from '../telemetry/log/escaped-errors.ts';
import { type Exposition, toExposition } from '../telemetry/metrics/openmetrics.ts';
import { collectProcessMetrics, createBuildInfo } from '../telemetry/metrics/process-metrics.ts';
import { createFamilies, type Families, watchGauge } from '../telemetry/metrics/series.ts';
import { createTracingMetrics, type TracingMetrics } from '../telemetry/tracing/tracer.ts';

/** The properties of a route that decide which series it has from the start. */
export interface GateRouteLabels extends RouteLabels, AuthRouteLabels {
  /** It forwards events in order. */
  readonly isOrdered?: boolean;
}

/** The gate's metrics. */
export interface Metrics
  extends RoutesMetrics,
    StoreMetrics,
    ServerMetrics,
    AuthRequestMetrics,
    ProxyMetrics,
    ExplainMetrics,
    CaptureMetrics,
    BodyMetrics,
    AdminMetrics,
    ConfigMetrics,
    TracingMetrics,
    EscapedErrorMetrics,
    Exposition {
  /** The registry, for metrics of parts that a config may not have. */
  readonly registers: readonly Registry[];
  /** Exports the series of these routes, starting at 0, and removes those of all other routes. */
  setRoutes(routes: readonly GateRouteLabels[]): void;
}

/** Creates the metrics in a new registry. */
export function createMetrics(options: {
  readonly version: string;
  /** The commit; undefined if it is unknown. */
  readonly revision?: string | undefined;
  /** Includes process_* and nodejs_*. */
  readonly processMetrics: boolean;
}): Metrics {
  const registry = new Registry();
  const registers = [registry];
  createBuildInfo(registers, options.version, options.revision);
  if (options.processMetrics) collectProcessMetrics(registry);
  const routes = createRoutesMetrics(registers);
  const store = createStoreMetrics(registers);
  const authRequests = createAuthRequestMetrics(registers);
  const explain = createExplainMetrics(registers);
  return {
    registers,
    ...routes,
    ...store,
    ...createServerMetrics(registers),
    ...authRequests,
    ...createProxyMetrics(registers),
    ...explain,
    ...createCaptureMetrics(registers),
    ...createBodyMetrics(registers),
    ...createAdminMetrics(registers),
    ...createConfigMetrics(registers),
    ...createTracingMetrics(registers),
    ...createEscapedErrorMetrics(registers),
    setRoutes(next) {
      if (next.some(({ isOrdered }) => isOrdered)) store.showOrder();
      for (const area of [routes, authRequests, explain]) area.setRoutes(next);
    },
    exposition: (format = 'text') => toExposition(registry, format),
  };
}

// The metrics of the loaded config, the users of each realm, and password checks.

/** How a password was checked: from the cache, by hashing, or by sharing the hash of a concurrent request. */
const PASSWORD_CHECKS = ['hit', 'miss', 'joined'] as const;
type PasswordCheckLabel = (typeof PASSWORD_CHECKS)[number];

export interface ConfigMetrics {
  /** Records the outcome of loading a config; `hash`: of the active config. */
  reload(isSuccessful: boolean, at: EpochMilliseconds, hash: string): void;
  passwordCheck(outcome: PasswordCheckLabel): void;
  /** `read` returns the number of pending password checks; called on each scrape. */
  watchPendingPasswords(read: () => number): void;
  /** Whether the users of all realms were read without errors. */
  usersReload(isSuccessful: boolean): void;
  /** How many users of a realm can log in, and how many cannot. */
  users(realm: string, count: { readonly usable: number; readonly rejected: number }): void;
  /** Removes the series of all other realms. */
  keepRealms(realms: ReadonlySet<string>): void;
}

/** Registers the metrics. */
function createConfigMetrics(registers: Registry[]): ConfigMetrics {
  const { counter, gauge } = createFamilies(registers);
  const checks = counter(
    'sidegate_password_checks_total{outcome}',
    'Password checks: answered from the cache (hit), by hashing (miss), or by sharing the hash of a concurrent request (joined).',
  );
  const loaded = gauge('sidegate_config_last_reload_successful', '1 if the last attempt to load the config succeeded.');
  const loadedAt = gauge('sidegate_config_last_reload_success_timestamp_seconds', 'When the active config was loaded.');
  const info = gauge('sidegate_config_info{hash}', 'Hash of the active config; always 1.');
  const usersRead = gauge('sidegate_users_last_reload_successful', '1 if the users of all realms were read without an error.');
  const passwordChecks = new Map(PASSWORD_CHECKS.map((outcome) => [outcome, checks.series(outcome)]));
  let activeHash = '';
  for (const family of [loaded, loadedAt]) family.series();
  usersRead.series().value = 1;
  return {
    reload(isSuccessful, at, hash) {
      loaded.series().value = isSuccessful ? 1 : 0;
      if (!isSuccessful) return;
      loadedAt.series().value = at / 1000;
      info.remove(activeHash);
      info.series(hash).value = 1;
      activeHash = hash;
    },
    passwordCheck: (outcome) => passwordChecks.get(outcome)?.add(),
    watchPendingPasswords: (read) =>
      watchGauge('sidegate_password_checks_pending', 'Password checks that are running or waiting.', registers, read),
    usersReload(isSuccessful) {
      usersRead.series().value = isSuccessful ? 1 : 0;
    },
    ...createRealmSeries(gauge),
  };
}

function createRealmSeries(gauge: Families['gauge']): Pick<ConfigMetrics, 'users' | 'keepRealms'> {
  const usersUsable = gauge(
    'sidegate_users_usable{realm}',
    'Users of the realm that can log in; 0: a users file is missing or empty, and every request of the realm gets 503.',
  );
  const usersRejected = gauge(
    'sidegate_users_rejected{realm}',
    'Users of the realm that cannot log in, because their entry is invalid or its hash needs too much memory.',
  );
  const realms = new Set<string>();
  return {
    users(realm, { usable, rejected }) {
      realms.add(realm);
      usersUsable.series(realm).value = usable;
      usersRejected.series(realm).value = rejected;
    },
    keepRealms(kept) {
      for (const realm of realms) {
        if (kept.has(realm)) continue;
        realms.delete(realm);
        usersUsable.remove(realm);
        usersRejected.remove(realm);
      }
    },
  };
}
