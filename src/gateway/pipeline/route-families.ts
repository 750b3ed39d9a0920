/** The metric families of routes: name, help, labels and buckets. */
import type { Registry } from '@prometheus-io/client';
import { CounterFamily, GaugeFamily, HistogramFamily, OWN_BUCKETS } from '../../telemetry/metrics/series.ts';

/** Seconds, based on OpenTelemetry's recommendation for HTTP: fast apps, and the timeouts of senders. */
const HTTP_BUCKETS = [0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10];
/** The same for the app's part, which the request duration includes. */
const APP_BUCKETS = [0.005, 0.05, 0.25, 1, 5];
/** Seconds, on both sides of 0: a wrong local clock shifts the distribution, replays form a tail. */
const SKEW_BUCKETS = [-5, 5, 60, 300];

/** Registers the families. */
export function createRouteFamilies(registers: Registry[]) {
  const route = ['route'];
  return {
    ...createStateFamilies(registers),
    requests: new CounterFamily({
      name: 'sidegate_http_requests_total',
      help: 'Responses sent, by configured route (`_unmatched`: no route matched), method and status.',
      labelNames: ['route', 'method', 'code'],
      registers,
    }),
    serverErrors: new CounterFamily({
      name: 'sidegate_http_server_errors_total',
      help: 'Responses with status 5xx, from the app or from sidegate. Exported from the start, so that alerts see the first one.',
      labelNames: route,
      registers,
    }),
    decisions: new CounterFamily({
      name: 'sidegate_auth_decisions_total',
      help: 'Decisions on requests. A duplicate counts as `allow`, because its sender was verified. `observe`: forwarded although it would have been rejected.',
      labelNames: ['route', 'scheme', 'decision', 'reason'],
      registers,
    }),
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
  };
}

/** Keys, readiness and mode. */
function createStateFamilies(registers: Registry[]) {
  const route = ['route'];
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

/** The metric families with a route label. */
export type RouteFamilies = ReturnType<typeof createRouteFamilies>;
