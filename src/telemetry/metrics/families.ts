/** All metric families: names, help, labels and buckets. */
import { Gauge, type Registry } from '@prometheus-io/client';
import { CounterFamily, GaugeFamily, HistogramFamily } from './series.ts';

/** What is known of a route before its first request. */
export interface RouteLabels {
  readonly name: string;
  readonly scheme: string;
  readonly keys: readonly string[];
  readonly methods: readonly string[];
  /** It lets everything through, and only tells what it would have refused. */
  readonly isObserved?: boolean;
  /** Other proxies may ask about it. */
  readonly authz?: boolean;
  /** Its senders sign a time. */
  readonly signsTime?: boolean;
  /** It asks for passwords. */
  readonly asksPassword?: boolean;
  /** Its events are kept in order. */
  readonly isOrdered?: boolean;
}

// Each bucket costs a series a route, and the whole gate has 600 for ten routes (docs/metrics.md).
/** Seconds, from OTel's advice for HTTP: fast apps, and the time limits of senders. */
const HTTP_BUCKETS = [0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10];
/** The same for the app's part, which the whole encloses. */
const APP_BUCKETS = [0.005, 0.05, 0.25, 1, 5];
/** For what should take microseconds. */
const OWN_BUCKETS = [0.0005, 0.0025, 0.01, 0.025, 0.1];
/** For a question of another proxy: microseconds, or a password's hash. */
const AUTHZ_BUCKETS = [0.001, 0.005, 0.025, 0.1, 1];
/** Both sides of 0 (seconds): a wrong clock of ours shows as a shift, a replay as a tail. */
const SKEW_BUCKETS = [-5, 5, 60, 300];

/** The label sets of the metrics that belong to a route. */
export function createFamilies(registers: Registry[]) {
  const route = ['route'];
  return {
    requests: new CounterFamily({
      name: 'sidegate_http_requests_total',
      help: 'Requests answered, by configured route (`_unmatched`: none), method and status.',
      labelNames: ['route', 'method', 'code'],
      registers,
    }),
    serverErrors: new CounterFamily({
      name: 'sidegate_http_server_errors_total',
      help: "Requests answered by a 5xx, the app's or the gate's own; there from the start, so that the first one counts.",
      labelNames: route,
      registers,
    }),
    decisions: new CounterFamily({
      name: 'sidegate_auth_decisions_total',
      help: 'What the gates decided. A duplicate is allowed: its sender proved itself. Observe: let through although it would have been refused.',
      labelNames: ['route', 'scheme', 'decision', 'reason'],
      registers,
    }),
    ...createAuthzFamilies(registers),
    ...createExplainFamilies(registers),
    upstreamErrors: new CounterFamily({
      name: 'sidegate_upstream_errors_total',
      help: 'Exchanges with the app that failed.',
      labelNames: ['route', 'kind'],
      registers,
    }),
    duration: new HistogramFamily({
      name: 'sidegate_http_request_duration_seconds',
      help: 'From the request head to the end of the answer.',
      labelNames: route,
      buckets: HTTP_BUCKETS,
      registers,
    }),
    upstream: new HistogramFamily({
      name: 'sidegate_upstream_duration_seconds',
      help: 'Time spent with the app.',
      labelNames: route,
      buckets: APP_BUCKETS,
      registers,
    }),
    overhead: new HistogramFamily({
      name: 'sidegate_overhead_seconds',
      help: 'The request duration less the time spent with the app.',
      labelNames: route,
      buckets: OWN_BUCKETS,
      registers,
    }),
    skew: new HistogramFamily({
      name: 'sidegate_timestamp_skew_seconds',
      help: 'Time of arrival less signed timestamp; positive is old.',
      labelNames: route,
      buckets: SKEW_BUCKETS,
      registers,
    }),
    ...createKeyFamilies(registers),
    observed: new GaugeFamily({
      name: 'sidegate_route_observed',
      help: '1 while the route lets everything through and only tells what it would have refused (mode: observe).',
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

/** What keys, and sources of users, were needed for. */
function createKeyFamilies(registers: Registry[]) {
  return {
    keyUsed: new GaugeFamily({
      name: 'sidegate_secret_last_used_timestamp_seconds',
      help: 'When this key, or source of users, last let something in; 0: not since the start.',
      labelNames: ['route', 'key'],
      registers,
    }),
    keyMatches: new CounterFamily({
      name: 'sidegate_key_matches_total',
      help: 'What this key, or source of users, proved genuine.',
      labelNames: ['route', 'key'],
      registers,
    }),
  };
}

/** The same for the forward-auth endpoint: its questions are no requests of the data port. */
function createAuthzFamilies(registers: Registry[]) {
  return {
    authzRequests: new CounterFamily({
      name: 'sidegate_authz_requests_total',
      help: 'Questions of the forward-auth endpoint answered, by the route, method and reason of the request in question, and the status that the caller got.',
      labelNames: ['route', 'method', 'code', 'reason'],
      registers,
    }),
    authzDuration: new HistogramFamily({
      name: 'sidegate_authz_request_duration_seconds',
      help: 'From the head of a question to the end of the answer.',
      labelNames: ['route'],
      buckets: AUTHZ_BUCKETS,
      registers,
    }),
  };
}

/** The same for what is found out about refusals. */
function createExplainFamilies(registers: Registry[]) {
  return {
    explained: new CounterFamily({
      name: 'sidegate_explained_total',
      help: 'Why signatures were refused, as far as an analysis could tell; `skipped`: there was none.',
      labelNames: ['route', 'cause'],
      registers,
    }),
  };
}

/** The metric families with a route label. */
export type Families = ReturnType<typeof createFamilies>;

/** What the store is asked by all routes together. */
function createStoreFamilies(registers: Registry[]) {
  return {
    dedup: new CounterFamily({
      name: 'sidegate_dedup_operations_total',
      help: 'Claims and settlements of event ids.',
      labelNames: ['outcome'],
      registers,
    }),
    dedupDuration: new HistogramFamily({
      name: 'sidegate_dedup_duration_seconds',
      help: 'Round trip of a claim.',
      buckets: OWN_BUCKETS,
      registers,
    }),
    order: new CounterFamily({
      name: 'sidegate_order_operations_total',
      help: 'Events of routes with order, and what became of their places.',
      labelNames: ['outcome'],
      registers,
    }),
    dedupUp: new Gauge({ name: 'sidegate_dedup_up', help: '1 while the store answers.', registers }),
  };
}

/** The metrics of the gate as a whole. */
export function createGateFamilies(registers: Registry[]) {
  return {
    ...createStoreFamilies(registers),
    inFlight: new GaugeFamily({ name: 'sidegate_http_requests_in_flight', help: 'Requests that are with an app.', registers }),
    queued: new GaugeFamily({
      name: 'sidegate_http_requests_queued',
      help: 'Verified requests that wait for a place.',
      registers,
    }),
    connections: new GaugeFamily({
      name: 'sidegate_connections',
      help: 'Open connections on all ports but the admin port.',
      registers,
    }),
    passwordChecks: new CounterFamily({
      name: 'sidegate_password_checks_total',
      help: 'Credentials judged: known from before (hit), by a hash (miss), or by the hash of a request that sent the same (joined).',
      labelNames: ['outcome'],
      registers,
    }),
    proxyBytes: new CounterFamily({
      name: 'sidegate_proxy_bytes_total',
      help: 'Bytes through the forward proxy: of tunnels, and the content of other requests and answers; by the rule that let them through.',
      labelNames: ['rule', 'direction'],
      registers,
    }),
    ...createUserFamilies(registers),
    ...createAdminFamilies(registers),
    spans: new CounterFamily({
      name: 'sidegate_trace_spans_total',
      help: 'Spans of sampled requests, by what became of them.',
      labelNames: ['outcome'],
      registers,
    }),
    limits: new CounterFamily({
      name: 'sidegate_limit_hits_total',
      help: 'Requests and connections that ran into a limit.',
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
      help: 'When the config that serves was loaded.',
      registers,
    }),
    configInfo: new Gauge({
      name: 'sidegate_config_info',
      help: 'Hash of the config that serves.',
      labelNames: ['hash'],
      registers,
    }),
  };
}

/** The users of each realm. */
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
      help: 'Users of the realm that cannot log in, because their entry is broken or its hash needs too much memory.',
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
      help: 'Exceptions that nothing handled. Each is a bug of the gate; `guarded` cost at most one connection, `process` ends the gate.',
      labelNames: ['scope'],
      registers,
    }),
  };
}

/** What is done, and not answered, by the admin port. */
function createAdminFamilies(registers: Registry[]) {
  return {
    forgottenIds: new CounterFamily({
      name: 'sidegate_forgotten_ids_total',
      help: 'Ids that somebody asked to forget, by what they were.',
      labelNames: ['was'],
      registers,
    }),
    adminDenials: new CounterFamily({
      name: 'sidegate_admin_denied_total',
      help: 'Requests of the admin port whose caller may not ask.',
      labelNames: ['reason'],
      registers,
    }),
  };
}
