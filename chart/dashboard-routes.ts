/** The dashboard Routes: rate, errors and duration of each route, and the share of the app. */
import type { Dashboard, Panel } from './dashboard-forms.ts';
import { OF_GATE, OF_ROUTE, quantile, rate, share } from './dashboard-selectors.ts';

const DURATION = 'sidegate_http_request_duration_seconds';
const UPSTREAM = 'sidegate_upstream_duration_seconds';
const OVERHEAD = 'sidegate_overhead_seconds';
const requests = `sum(${rate(`${DURATION}_count`, OF_ROUTE)})`;
const errors = `sum(${rate('sidegate_http_server_errors_total', OF_ROUTE)})`;

const FIRST: readonly Panel[] = [
  {
    kind: 'stat',
    title: 'Requests',
    description: 'Completed requests per second, including unauthenticated ones.',
    unit: 'reqps',
    queries: [{ expr: requests }],
    steps: [[0, 'blue']],
  },
  {
    kind: 'stat',
    title: 'Server errors',
    description: 'Share of responses with a 5xx, from the app or from sidegate. The budget is 0.1 %.',
    unit: 'percentunit',
    queries: [{ expr: share(errors, requests) }],
    steps: [
      [0, 'green'],
      [0.001, 'yellow'],
      [0.0144, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Error budget burn rate, 3 days',
    description: 'Rate at which the error budget of 0.1 % is spent. At 1 it lasts exactly for its period.',
    unit: 'none',
    decimals: 2,
    queries: [{ expr: `max(sidegate:errors:ratio_rate3d{${OF_ROUTE}}) / 0.001` }],
    steps: [
      [0, 'green'],
      [0.8, 'yellow'],
      [1, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'p99',
    description: '1 % of the requests take at least this long. Compare it with the timeout of the sender.',
    unit: 's',
    queries: [{ expr: quantile(0.99, DURATION, OF_ROUTE) }],
    steps: [
      [0, 'green'],
      [2.5, 'yellow'],
      [5, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'App, p99',
    description: 'Time spent in the app, p99.',
    unit: 's',
    queries: [{ expr: quantile(0.99, UPSTREAM, OF_ROUTE) }],
    steps: [
      [0, 'green'],
      [2.5, 'yellow'],
      [5, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'sidegate, p99',
    description: 'Time spent outside the app: in the store, sidegate, a password hash, the upload. An alert fires above 25 ms.',
    unit: 's',
    queries: [{ expr: quantile(0.99, OVERHEAD, OF_ROUTE) }],
    steps: [
      [0, 'green'],
      [0.01, 'yellow'],
      [0.025, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'App unreachable',
    description: 'Share of requests to the app whose connection failed or timed out. An alert fires above 5 %.',
    unit: 'percentunit',
    queries: [
      {
        expr: share(
          `sum(${rate('sidegate_upstream_errors_total', `${OF_ROUTE},kind=~"connect|timeout"`)})`,
          `sum(${rate(`${UPSTREAM}_count`, OF_ROUTE)})`,
        ),
      },
    ],
    steps: [
      [0, 'green'],
      [0.01, 'yellow'],
      [0.05, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Queued requests',
    description:
      'Verified requests that wait because the app already handles limits.maxInFlight requests. More than a few means that the app is too slow.',
    unit: 'none',
    queries: [{ expr: `sum(sidegate_http_requests_queued{${OF_GATE}})` }],
    steps: [
      [0, 'green'],
      [1, 'yellow'],
      [32, 'red'],
    ],
  },
];

const RED: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Rate, by route',
    description: '_unmatched: requests that match no route.',
    unit: 'reqps',
    queries: [{ expr: `sum by (namespace, route) (${rate(`${DURATION}_count`, OF_ROUTE)})`, legend: '{{namespace}}/{{route}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Errors, by route',
    description: 'Share of responses with a 5xx. Dashed: the budget of 0.1 %, and the rate that triggers a page.',
    unit: 'percentunit',
    queries: [
      {
        expr: share(
          `sum by (namespace, route) (${rate('sidegate_http_server_errors_total', OF_ROUTE)})`,
          `sum by (namespace, route) (${rate(`${DURATION}_count`, OF_ROUTE)})`,
        ),
        legend: '{{namespace}}/{{route}}',
      },
    ],
    steps: [
      [0, 'green'],
      [0.001, 'yellow'],
      [0.0144, 'red'],
    ],
  },
  {
    kind: 'timeseries',
    title: 'Duration',
    description: 'From the request head to the end of the response. The points are single requests that link to their traces.',
    unit: 's',
    exemplars: true,
    queries: [
      { expr: quantile(0.99, DURATION, OF_ROUTE), legend: 'p99' },
      { expr: quantile(0.95, DURATION, OF_ROUTE), legend: 'p95' },
      { expr: quantile(0.5, DURATION, OF_ROUTE), legend: 'p50' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Responses, by status',
    description: '4xx: rejected senders. 5xx: failures of the app, or of sidegate.',
    unit: 'reqps',
    stack: true,
    queries: [{ expr: `sum by (code) (${rate('sidegate_http_requests_total', OF_ROUTE)})`, legend: '{{code}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Time in app and sidegate, p99',
    description: 'Normally the app takes longer than sidegate.',
    unit: 's',
    exemplars: true,
    queries: [
      { expr: quantile(0.99, UPSTREAM, OF_ROUTE), legend: 'app' },
      { expr: quantile(0.99, OVERHEAD, OF_ROUTE), legend: 'gate' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'p99, by route',
    description: 'Duration of requests, slowest routes first.',
    unit: 's',
    queries: [{ expr: `topk(10, ${quantile(0.99, DURATION, OF_ROUTE, 'namespace, route')})`, legend: '{{namespace}}/{{route}}' }],
  },
];

const BEHIND: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Upstream errors',
    description:
      'connect: connection refused. timeout: no response in time. reset: the connection was reset. protocol: the response is not valid HTTP.',
    unit: 'ops',
    queries: [
      { expr: `sum by (route, kind) (${rate('sidegate_upstream_errors_total', OF_ROUTE)}) > 0`, legend: '{{route}}: {{kind}}' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'In flight',
    description: 'Requests that the app handles or that wait for it, and open connections.',
    unit: 'none',
    queries: [
      { expr: `sum(sidegate_http_requests_in_flight{${OF_GATE}})`, legend: 'with an app' },
      { expr: `sum(sidegate_http_requests_queued{${OF_GATE}})`, legend: 'waiting' },
      { expr: `sum(sidegate_connections{${OF_GATE}})`, legend: 'connections' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Limits exceeded',
    description: 'Requests and connections that exceeded a configured limit.',
    unit: 'ops',
    queries: [{ expr: `sum by (limit) (${rate('sidegate_limit_hits_total', OF_GATE)}) > 0`, legend: '{{limit}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Forward-auth requests',
    description: 'Requests to the forward-auth endpoint, by route and decision.',
    unit: 'reqps',
    queries: [
      { expr: `sum by (route, code) (${rate('sidegate_authz_requests_total', OF_ROUTE)})`, legend: '{{route}}: {{code}}' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Forward-auth duration, p99',
    description: 'Time until the endpoint responds.',
    unit: 's',
    exemplars: true,
    queries: [{ expr: quantile(0.99, 'sidegate_authz_request_duration_seconds', OF_ROUTE), legend: 'p99' }],
  },
  {
    kind: 'timeseries',
    title: 'Forward proxy',
    description: 'Bytes transferred, by the rule that allowed the destination.',
    unit: 'Bps',
    queries: [
      { expr: `sum by (rule, direction) (${rate('sidegate_proxy_bytes_total', OF_GATE)})`, legend: '{{rule}} {{direction}}' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Ordered events',
    description:
      'stale: an event that arrived after a newer one. busy: it waited for another event of its resource. unordered: its body names no resource or version.',
    unit: 'ops',
    queries: [{ expr: `sum by (outcome) (${rate('sidegate_order_operations_total', OF_GATE)}) > 0`, legend: '{{outcome}}' }],
  },
];

/** The dashboard. */
export const routes: Dashboard = {
  uid: 'sidegate-routes',
  title: 'Sidegate / Routes',
  description: 'Rate, errors and duration of each route, and the share of the app.',
  rows: [
    { title: 'Current status', panels: FIRST },
    { title: 'Rate, errors, duration', panels: RED },
    { title: 'App, limits, forward auth and forward proxy', panels: BEHIND },
  ],
};
