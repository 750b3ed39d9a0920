/** All metrics (docs/metrics.md). */
import { Gauge, Registry } from '@prometheus-io/client';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { type BuildOptions, createBuildInfo } from './build-info.ts';
import { createFamilies, createGateFamilies, type RouteLabels } from './families.ts';
import {
  ADMIN_DENIALS,
  type AdminDenialLabel,
  type DedupOutcome,
  ESCAPE_SCOPES,
  type EscapeScope,
  FORGOTTEN_STATES,
  type ForgottenLabel,
  type LimitLabel,
  type OrderOutcome,
  PASSWORD_CHECKS,
  type PasswordCheckLabel,
  SPAN_OUTCOMES,
  type SpanOutcome,
  WATCHED_DEDUP_OUTCOMES,
  WATCHED_ORDER_OUTCOMES,
} from './labels.ts';
import { type ExpositionFormat, toExposition } from './openmetrics.ts';
import { collectProcessMetrics } from './process-metrics.ts';
import { type RouteMetrics, RouteSeries } from './route-metrics.ts';

/** The gate's metrics. */
export interface Metrics {
  /** Exports the series of these routes, starting at 0, and removes those of all other routes. */
  setRoutes(routes: readonly RouteLabels[]): void;
  /** The series of a route; `undefined`: of requests that matched no route. */
  route(name: string | undefined): RouteMetrics;
  dedup(outcome: DedupOutcome): void;
  dedupDuration(duration: Milliseconds): void;
  order(outcome: OrderOutcome): void;
  storeUp(isUp: boolean): void;
  passwordCheck(outcome: PasswordCheckLabel): void;
  /** `read` returns the number of pending password checks; called on each scrape. */
  watchPendingPasswords(read: () => number): void;
  /** Counts the bytes of a finished tunnel or request; `rule`: the name of the rule that allowed it. */
  proxyBytes(rule: string, totals: { readonly bytesSent: number; readonly bytesReceived: number }): void;
  /** Whether the users of all realms were read without errors. */
  usersReload(isSuccessful: boolean): void;
  /** How many users of a realm can log in, and how many cannot. */
  users(realm: string, count: { readonly usable: number; readonly rejected: number }): void;
  /** Removes the series of all other realms. */
  keepRealms(realms: ReadonlySet<string>): void;
  /** When the first revocation list of a port's client CAs expires; undefined: never. */
  crlNextUpdate(section: string, at: EpochMilliseconds | undefined): void;
  idForgotten(was: ForgottenLabel): void;
  escapedError(scope: EscapeScope): void;
  adminDenied(reason: AdminDenialLabel): void;
  traceSpans(outcome: SpanOutcome, count: number): void;
  inFlight(delta: 1 | -1): void;
  queued(delta: 1 | -1): void;
  connections(delta: 1 | -1): void;
  limitHit(limit: LimitLabel): void;
  /** `read` returns the bytes of buffered request bodies; called on each scrape. */
  watchBufferedBytes(read: () => number): void;
  /** Records the outcome of loading a config; `hash`: of the active config. */
  reload(isSuccessful: boolean, at: EpochMilliseconds, hash: string): void;
  /** Renders the metrics: in the Prometheus text format, or as OpenMetrics, which includes exemplars. */
  exposition(format?: ExpositionFormat): Promise<{ contentType: string; text: string }>;
}

/** Options of the metrics. */
export interface MetricsOptions extends BuildOptions {
  /** Includes process_* and nodejs_*. */
  readonly processMetrics: boolean;
}

/** Creates the metrics in a new registry. */
export function createMetrics(options: MetricsOptions): Metrics {
  const registry = new Registry();
  const registers = [registry];
  const families = createFamilies(registers);
  const gate = createGateFamilies(registers);
  createBuildInfo(registers, options);
  if (options.processMetrics) collectProcessMetrics(registry);

  for (const outcome of WATCHED_DEDUP_OUTCOMES) gate.dedup.series(outcome);
  const passwordChecks = new Map(PASSWORD_CHECKS.map((outcome) => [outcome, gate.passwordChecks.series(outcome)]));
  initialiseSeries(gate);
  const dedupDuration = gate.dedupDuration.series();
  const inFlight = gate.inFlight.series();
  const queued = gate.queued.series();
  const connections = gate.connections.series();
  const routes = new Map<string, RouteSeries>();
  const unmatched = new RouteSeries(families, undefined);

  return {
    setRoutes(next) {
      if (next.some(({ isOrdered }) => isOrdered)) for (const outcome of WATCHED_ORDER_OUTCOMES) gate.order.series(outcome);
      const names = new Map(next.map(({ name, scheme }) => [name, scheme]));
      for (const [name, series] of routes) {
        if (names.get(name) === series.scheme) continue;
        series.remove();
        routes.delete(name);
      }
      for (const labels of next) {
        routes.get(labels.name)?.forgetKeys(labels.keys);
        const series = routes.get(labels.name) ?? new RouteSeries(families, labels);
        series.initialise(labels);
        routes.set(labels.name, series);
      }
    },
    route: (name) => (name === undefined ? unmatched : (routes.get(name) ?? unmatched)),
    dedup: (outcome) => gate.dedup.series(outcome).add(),
    dedupDuration: (duration) => dedupDuration.observe(duration / 1000),
    order: (outcome) => gate.order.series(outcome).add(),
    storeUp: (isUp) => gate.dedupUp.set(isUp ? 1 : 0),
    idForgotten: (was) => gate.forgottenIds.series(was).add(),
    escapedError: (scope) => gate.escapedErrors.series(scope).add(),
    adminDenied: (reason) => gate.adminDenials.series(reason).add(),
    traceSpans: (outcome, count) => gate.spans.series(outcome).add(count),
    inFlight: (delta) => inFlight.add(delta),
    queued: (delta) => queued.add(delta),
    connections: (delta) => connections.add(delta),
    limitHit: (limit) => gate.limits.series(limit).add(),
    passwordCheck: (outcome) => passwordChecks.get(outcome)?.add(),
    proxyBytes(rule, { bytesSent, bytesReceived }) {
      gate.proxyBytes.series(rule, 'sent').add(bytesSent);
      gate.proxyBytes.series(rule, 'received').add(bytesReceived);
    },
    usersReload: (isSuccessful) => gate.usersReload.set(isSuccessful ? 1 : 0),
    ...createRealmSeries(gate),
    ...createCrlSeries(gate),
    watchPendingPasswords: (read) =>
      watchGauge('sidegate_password_checks_pending', 'Password checks that are running or waiting.', registers, read),
    watchBufferedBytes: (read) => watchGauge('sidegate_buffered_bytes', 'Bytes of buffered request bodies.', registers, read),
    reload(isSuccessful, at, hash) {
      gate.reloadSuccessful.set(isSuccessful ? 1 : 0);
      if (!isSuccessful) return;
      gate.reloadAt.set(at / 1000);
      gate.configInfo.reset();
      gate.configInfo.set({ hash }, 1);
    },
    exposition: (format = 'text') => toExposition(registry, format),
  };
}

function createRealmSeries({ usersUsable, usersRejected }: GateFamilies): Pick<Metrics, 'users' | 'keepRealms'> {
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

function createCrlSeries({ crlNextUpdate: family }: GateFamilies): Pick<Metrics, 'crlNextUpdate'> {
  return {
    crlNextUpdate(section, at) {
      if (at === undefined) family.remove(section);
      else family.series(section).value = at / 1000;
    },
  };
}

type GateFamilies = ReturnType<typeof createGateFamilies>;

/** Exports series at 0 before their first event. */
function initialiseSeries(gate: GateFamilies): void {
  for (const was of FORGOTTEN_STATES) gate.forgottenIds.series(was);
  for (const scope of ESCAPE_SCOPES) gate.escapedErrors.series(scope);
  for (const reason of ADMIN_DENIALS) gate.adminDenials.series(reason);
  for (const outcome of SPAN_OUTCOMES) gate.spans.series(outcome);
  gate.usersReload.set(1);
}

function watchGauge(name: string, help: string, registers: Registry[], read: () => number): void {
  new Gauge({
    name,
    help,
    registers,
    collect() {
      this.set(read());
    },
  });
}
