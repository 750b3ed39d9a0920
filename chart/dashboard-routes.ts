/** The dashboard Routes: rate, errors and duration of each route, and whose time it is. */
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
    description: 'Requests answered a second, those of strangers included.',
    unit: 'reqps',
    queries: [{ expr: requests }],
    steps: [[0, 'blue']],
  },
  {
    kind: 'stat',
    title: 'Server errors',
    description: "Share answered by a 5xx, the app's or the gate's. The budget is 0.1 %.",
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
    title: 'Budget spent, 3 days',
    description: 'Pace at which the error budget of 99.9 % is spent: at 1 it lasts exactly as long as it must.',
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
    description: 'One of a hundred requests takes this long or longer. Compare with the time limit of the sender.',
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
    description: "The app's share of the p99 beside it.",
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
    title: 'Gate, p99',
    description: 'What is not with the app: the store, the gate, a password hash, the upload. From 25 ms on an alert fires.',
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
    description: 'Share of requests to the app that found nobody, or no answer in time. From 5 % on an alert fires.',
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
    title: 'Waiting for a place',
    description: 'Verified requests that wait until the app takes fewer: more than a few means that it is too slow.',
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
    description: '_unmatched is what no route took.',
    unit: 'reqps',
    queries: [{ expr: `sum by (namespace, route) (${rate(`${DURATION}_count`, OF_ROUTE)})`, legend: '{{namespace}}/{{route}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Errors, by route',
    description: 'Share answered by a 5xx. Dashed: the budget of 0.1 %, and the pace that pages somebody.',
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
    description: 'From the request head to the end of the answer. The points are single requests: they lead to their traces.',
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
    title: 'Answers, by status',
    description: '4xx: senders that were refused. 5xx: the app, or the gate on its behalf.',
    unit: 'reqps',
    stack: true,
    queries: [{ expr: `sum by (code) (${rate('sidegate_http_requests_total', OF_ROUTE)})`, legend: '{{code}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Whose time, p99',
    description: 'The app above the gate is as it should be.',
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
    description: 'The slowest routes first.',
    unit: 's',
    queries: [{ expr: `topk(10, ${quantile(0.99, DURATION, OF_ROUTE, 'namespace, route')})`, legend: '{{namespace}}/{{route}}' }],
  },
];

const BEHIND: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Failures with the app',
    description: 'connect: nobody listens. timeout: no answer in time. reset: it broke off. protocol: what it said is no HTTP.',
    unit: 'ops',
    queries: [
      { expr: `sum by (route, kind) (${rate('sidegate_upstream_errors_total', OF_ROUTE)}) > 0`, legend: '{{route}}: {{kind}}' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'At once',
    description: 'Requests that are with an app or wait for it, and open connections.',
    unit: 'none',
    queries: [
      { expr: `sum(sidegate_http_requests_in_flight{${OF_GATE}})`, legend: 'with an app' },
      { expr: `sum(sidegate_http_requests_queued{${OF_GATE}})`, legend: 'waiting' },
      { expr: `sum(sidegate_connections{${OF_GATE}})`, legend: 'connections' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Limits that were hit',
    description: 'Requests and connections that ran into a limit of the config.',
    unit: 'ops',
    queries: [{ expr: `sum by (limit) (${rate('sidegate_limit_hits_total', OF_GATE)}) > 0`, legend: '{{limit}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Questions of other proxies',
    description: 'The forward-auth endpoint, by route and answer.',
    unit: 'reqps',
    queries: [
      { expr: `sum by (route, code) (${rate('sidegate_authz_requests_total', OF_ROUTE)})`, legend: '{{route}}: {{code}}' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Questions of other proxies, p99',
    description: 'How long they wait for a yes or no.',
    unit: 's',
    exemplars: true,
    queries: [{ expr: quantile(0.99, 'sidegate_authz_request_duration_seconds', OF_ROUTE), legend: 'p99' }],
  },
  {
    kind: 'timeseries',
    title: 'Forward proxy',
    description: 'Bytes through it, by the rule that allowed the destination.',
    unit: 'Bps',
    queries: [
      { expr: `sum by (rule, direction) (${rate('sidegate_proxy_bytes_total', OF_GATE)})`, legend: '{{rule}} {{direction}}' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Ordered events',
    description:
      'stale: an older event that a newer one had overtaken. busy: waited for another one. unordered: its content names no resource or version.',
    unit: 'ops',
    queries: [{ expr: `sum by (outcome) (${rate('sidegate_order_operations_total', OF_GATE)}) > 0`, legend: '{{outcome}}' }],
  },
];

/** The dashboard. */
export const routes: Dashboard = {
  uid: 'sidegate-routes',
  title: 'Sidegate / Routes',
  description: 'Rate, errors and duration of each route, and whose time it is.',
  rows: [
    { title: 'Now', panels: FIRST },
    { title: 'Rate, errors, duration', panels: RED },
    { title: 'Behind and beside', panels: BEHIND },
  ],
};
