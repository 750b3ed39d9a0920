/** All metric families: name, help, labels and buckets. */
import { Gauge, type Registry } from '@prometheus-io/client';
import { CounterFamily, GaugeFamily, HistogramFamily } from './series.ts';

/** The properties of a route that decide which series it has from the start. */
export interface RouteLabels {
  readonly name: string;
  readonly scheme: string;
  readonly keys: readonly string[];
  readonly methods: readonly string[];
  /** In observe mode: it forwards all requests and only reports what it would have rejected. */
  readonly isObserved?: boolean;
  /** Other proxies may use it through the forward-auth endpoint. */
  readonly authz?: boolean;
  /** Its senders sign a timestamp. */
  readonly signsTime?: boolean;
  /** It requires a password. */
  readonly asksPassword?: boolean;
  /** It forwards events in order. */
  readonly isOrdered?: boolean;
}

// Each bucket costs one series per route, and a gate with ten routes has a budget of 600 series (docs/metrics.md).
/** Seconds, based on OpenTelemetry's recommendation for HTTP: fast apps, and the timeouts of senders. */
const HTTP_BUCKETS = [0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10];
/** The same for the app's part, which the request duration includes. */
const APP_BUCKETS = [0.005, 0.05, 0.25, 1, 5];
/** For operations that should take microseconds. */
const OWN_BUCKETS = [0.0005, 0.0025, 0.01, 0.025, 0.1];
/** For an auth request of another proxy: microseconds, or the time of a password hash. */
const AUTHZ_BUCKETS = [0.001, 0.005, 0.025, 0.1, 1];
/** Seconds, on both sides of 0: a wrong local clock shifts the distribution, replays form a tail. */
const SKEW_BUCKETS = [-5, 5, 60, 300];

/** The metric families with a route label. */
export function createFamilies(registers: Registry[]) {
  const route = ['route'];
  return {
    requests: new CounterFamily({
      name: 'sidegate_http_requests_total',
      help: 'Responses sent, by configured route (`_unmatched`: no route matched), method and status.',
      labelNames: ['route', 'method', 'code'],
      registers,
    }),
    serverErrors: new CounterFamily({
      name: 'sidegate_http_server_errors_total',
      help: 'Responses with status 5xx, from the app or from the gate. Exported from the start, so that alerts see the first one.',
      labelNames: route,
      registers,
    }),
    decisions: new CounterFamily({
      name: 'sidegate_auth_decisions_total',
      help: 'Decisions on requests. A duplicate counts as `allow`, because its sender was verified. `observe`: forwarded although it would have been rejected.',
      labelNames: ['route', 'scheme', 'decision', 'reason'],
      registers,
    }),
    ...createAuthzFamilies(registers),
    ...createExplainFamilies(registers),
    upstreamErrors: new CounterFamily({
      name: 'sidegate_upstream_errors_total',
      help: 'Failed requests to the app.',
      labelNames: ['route', 'kind'],
      registers,
    }),
    duration: new HistogramFamily({
      name: 'sidegate_http_request_duration_seconds',
      help: 'Time from the end of the request head to the end of the response.',
      labelNames: route,
      buckets: HTTP_BUCKETS,
      registers,
    }),
    upstream: new HistogramFamily({
      name: 'sidegate_upstream_duration_seconds',
      help: 'Time that the app took.',
      labelNames: route,
      buckets: APP_BUCKETS,
      registers,
    }),
    overhead: new HistogramFamily({
      name: 'sidegate_overhead_seconds',
      help: 'The request duration minus the time that the app took.',
      labelNames: route,
      buckets: OWN_BUCKETS,
      registers,
    }),
    skew: new HistogramFamily({
      name: 'sidegate_timestamp_skew_seconds',
      help: 'Time of arrival minus the signed timestamp; positive: the timestamp is in the past.',
      labelNames: route,
      buckets: SKEW_BUCKETS,
      registers,
    }),
    ...createKeyFamilies(registers),
    observed: new GaugeFamily({
      name: 'sidegate_route_observed',
      help: '1 while the route forwards all requests and only reports what it would have rejected (mode: observe).',
      labelNames: route,
      registers,
    }),
    ready: new GaugeFamily({
      name: 'sidegate_route_ready',
      help: '1 while all secrets of the route are usable.',
      labelNames: route,
      registers,
    }),
  };
}

/** The use of keys and user sources. */
function createKeyFamilies(registers: Registry[]) {
  return {
    keyUsed: new GaugeFamily({
      name: 'sidegate_secret_last_used_timestamp_seconds',
      help: 'When this key, or user source, last verified a request; 0: not since the start.',
      labelNames: ['route', 'key'],
      registers,
    }),
    keyMatches: new CounterFamily({
      name: 'sidegate_key_matches_total',
      help: 'Requests that this key, or user source, verified.',
      labelNames: ['route', 'key'],
      registers,
    }),
  };
}

/** The same for the forward-auth endpoint: auth requests do not count as requests of the data port. */
function createAuthzFamilies(registers: Registry[]) {
  return {
    authzRequests: new CounterFamily({
      name: 'sidegate_authz_requests_total',
      help: 'Responses of the forward-auth endpoint, by route and method of the original request, status and reason.',
      labelNames: ['route', 'method', 'code', 'reason'],
      registers,
    }),
    authzDuration: new HistogramFamily({
      name: 'sidegate_authz_request_duration_seconds',
      help: 'Time from the end of the head of an auth request to the end of the response.',
      labelNames: ['route'],
      buckets: AUTHZ_BUCKETS,
      registers,
    }),
  };
}

/** The causes of rejections, as far as they were analysed. */
function createExplainFamilies(registers: Registry[]) {
  return {
    explained: new CounterFamily({
      name: 'sidegate_explained_total',
      help: 'Causes of rejected signatures, as found by the analysis; `skipped`: not analysed.',
      labelNames: ['route', 'cause'],
      registers,
    }),
  };
}

/** The metric families with a route label. */
export type Families = ReturnType<typeof createFamilies>;

/** The operations of the store, for all routes together. */
function createStoreFamilies(registers: Registry[]) {
  return {
    dedup: new CounterFamily({
      name: 'sidegate_dedup_operations_total',
      help: 'Claims and settlements of event IDs.',
      labelNames: ['outcome'],
      registers,
    }),
    dedupDuration: new HistogramFamily({
      name: 'sidegate_dedup_duration_seconds',
      help: 'Duration of a claim in the store.',
      buckets: OWN_BUCKETS,
      registers,
    }),
    order: new CounterFamily({
      name: 'sidegate_order_operations_total',
      help: 'Events of routes with `order`, by outcome.',
      labelNames: ['outcome'],
      registers,
    }),
    dedupUp: new Gauge({ name: 'sidegate_dedup_up', help: '1 while the store is available.', registers }),
  };
}

/** The metrics without a route label. */
export function createGateFamilies(registers: Registry[]) {
  return {
    ...createStoreFamilies(registers),
    inFlight: new GaugeFamily({ name: 'sidegate_http_requests_in_flight', help: 'Requests that an app is handling.', registers }),
    queued: new GaugeFamily({
      name: 'sidegate_http_requests_queued',
      help: 'Verified requests that wait for capacity.',
      registers,
    }),
    connections: new GaugeFamily({
      name: 'sidegate_connections',
      help: 'Open connections on all ports except the admin port.',
      registers,
    }),
    passwordChecks: new CounterFamily({
      name: 'sidegate_password_checks_total',
      help: 'Password checks: answered from the cache (hit), by hashing (miss), or by sharing the hash of a concurrent request (joined).',
      labelNames: ['outcome'],
      registers,
    }),
    proxyBytes: new CounterFamily({
      name: 'sidegate_proxy_bytes_total',
      help: 'Bytes through the forward proxy: of tunnels, and the bodies of other requests and responses; by the rule that allowed them.',
      labelNames: ['rule', 'direction'],
      registers,
    }),
    ...createUserFamilies(registers),
    ...createAdminFamilies(registers),
    spans: new CounterFamily({
      name: 'sidegate_trace_spans_total',
      help: 'Spans of sampled requests, by outcome.',
      labelNames: ['outcome'],
      registers,
    }),
    limits: new CounterFamily({
      name: 'sidegate_limit_hits_total',
      help: 'Requests and connections that reached a limit.',
      labelNames: ['limit'],
      registers,
    }),
    reloadSuccessful: new Gauge({
      name: 'sidegate_config_last_reload_successful',
      help: '1 if the last attempt to load the config succeeded.',
      registers,
    }),
    reloadAt: new Gauge({
      name: 'sidegate_config_last_reload_success_timestamp_seconds',
      help: 'When the active config was loaded.',
      registers,
    }),
    configInfo: new Gauge({
      name: 'sidegate_config_info',
      help: 'Hash of the active config; always 1.',
      labelNames: ['hash'],
      registers,
    }),
  };
}

/** The users of each realm, client certificates and escaped errors. */
function createUserFamilies(registers: Registry[]) {
  return {
    usersReload: new Gauge({
      name: 'sidegate_users_last_reload_successful',
      help: '1 if the users of all realms were read without an error.',
      registers,
    }),
    usersUsable: new GaugeFamily({
      name: 'sidegate_users_usable',
      help: 'Users of the realm that can log in; 0: a users file is missing or empty, and every request of the realm gets 503.',
      labelNames: ['realm'],
      registers,
    }),
    usersRejected: new GaugeFamily({
      name: 'sidegate_users_rejected',
      help: 'Users of the realm that cannot log in, because their entry is invalid or its hash needs too much memory.',
      labelNames: ['realm'],
      registers,
    }),
    crlNextUpdate: new GaugeFamily({
      name: 'sidegate_client_crl_next_update_timestamp_seconds',
      help: 'When the first revocation list of client CAs expires; from then on, clients with a certificate of that CA are rejected.',
      labelNames: ['section'],
      registers,
    }),
    escapedErrors: new CounterFamily({
      name: 'sidegate_escaped_errors_total',
      help: 'Unhandled exceptions. Each is a bug in sidegate. `guarded`: closed at most one connection. `process`: stops the process.',
      labelNames: ['scope'],
      registers,
    }),
  };
}

/** Actions and denials of the admin port. */
function createAdminFamilies(registers: Registry[]) {
  return {
    forgottenIds: new CounterFamily({
      name: 'sidegate_forgotten_ids_total',
      help: 'Event IDs forgotten on request, by their previous state.',
      labelNames: ['was'],
      registers,
    }),
    adminDenials: new CounterFamily({
      name: 'sidegate_admin_denied_total',
      help: 'Unauthorized requests to the admin port.',
      labelNames: ['reason'],
      registers,
    }),
  };
}
