/** The dashboard Security: allowed and rejected requests, and the reasons. */
import type { Dashboard, Panel } from './dashboard-forms.ts';
import { OF_GATE, OF_ROUTE, quantile, rate, share } from './dashboard-selectors.ts';

const DECISIONS = 'sidegate_auth_decisions_total';
const judged = `sum(${rate(DECISIONS, OF_ROUTE)})`;
const decided = (matchers: string): string => `sum(${rate(DECISIONS, `${OF_ROUTE},${matchers}`)})`;

const FIRST: readonly Panel[] = [
  {
    kind: 'stat',
    title: 'Allowed',
    description:
      'Share of checked requests that passed authentication, including duplicates. Falls to 0 if a secret is rotated on one side only.',
    unit: 'percentunit',
    queries: [{ expr: share(decided('decision="allow"'), judged) }],
    steps: [
      [0, 'red'],
      [0.5, 'orange'],
      [0.9, 'yellow'],
      [0.95, 'green'],
    ],
  },
  {
    kind: 'stat',
    title: 'Routes that reject everything',
    description: 'Routes that rejected all requests of the last 15 minutes. Each is an outage for its sender.',
    unit: 'none',
    queries: [
      {
        expr: `count((sum by (cluster, namespace, workload, route) (increase(${DECISIONS}{${OF_ROUTE},decision="allow"}[15m])) == 0) and (sum by (cluster, namespace, workload, route) (increase(${DECISIONS}{${OF_ROUTE},decision="deny"}[15m])) > 0)) or vector(0)`,
      },
    ],
    steps: [
      [0, 'green'],
      [1, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Invalid signatures',
    description: 'Share of checked requests with an invalid signature. An alert fires above 20 %.',
    unit: 'percentunit',
    queries: [{ expr: share(decided('reason="bad_signature"'), judged) }],
    steps: [
      [0, 'green'],
      [0.05, 'yellow'],
      [0.2, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Timestamps outside the tolerance',
    description:
      'Share of checked requests that were signed too long ago or in the future. An alert fires above 5 %: check the clocks.',
    unit: 'percentunit',
    queries: [{ expr: share(decided('reason=~"timestamp_old|timestamp_future"'), judged) }],
    steps: [
      [0, 'green'],
      [0.01, 'yellow'],
      [0.05, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Wrong passwords',
    description: 'Attempts per second with a wrong password or from a banned client. An alert fires above 1.',
    unit: 'reqps',
    queries: [{ expr: `${decided('reason=~"bad_credentials|banned"')} or vector(0)` }],
    steps: [
      [0, 'green'],
      [0.2, 'yellow'],
      [1, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Duplicates',
    description: 'Share of valid deliveries that were already handled and not forwarded again. An alert fires above 25 %.',
    unit: 'percentunit',
    queries: [
      {
        expr: share(
          `sum(${rate('sidegate_dedup_operations_total', `${OF_GATE},outcome="duplicate"`)})`,
          `sum(${rate('sidegate_dedup_operations_total', `${OF_GATE},outcome=~"new|taken_over|duplicate"`)})`,
        ),
      },
    ],
    steps: [
      [0, 'green'],
      [0.1, 'yellow'],
      [0.25, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Forwarded unchecked',
    description: 'Deliveries of the last hour that were forwarded without a check for duplicates, because the store was down.',
    unit: 'none',
    decimals: 0,
    queries: [{ expr: `sum(increase(sidegate_dedup_operations_total{${OF_GATE},outcome="bypassed"}[1h]))` }],
    steps: [
      [0, 'green'],
      [1, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Routes in observe mode',
    description: 'Routes with mode: observe, which forward everything.',
    unit: 'none',
    queries: [
      { expr: `count(sum by (cluster, namespace, workload, route) (sidegate_route_observed{${OF_ROUTE}}) > 0) or vector(0)` },
    ],
    steps: [
      [0, 'green'],
      [1, 'orange'],
    ],
  },
];

const DECIDED: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Rejected, by reason',
    description: 'Rejected requests. The reasons are those of the log lines.',
    unit: 'reqps',
    width: 12,
    stack: true,
    queries: [{ expr: `sum by (reason) (${rate(DECISIONS, `${OF_ROUTE},decision="deny"`)}) > 0`, legend: '{{reason}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Rejected, by route',
    description:
      'If only one route is affected, check its secret and its sender. If all are, check the clock and proxies in front.',
    unit: 'reqps',
    width: 12,
    stack: true,
    queries: [
      {
        expr: `sum by (namespace, route) (${rate(DECISIONS, `${OF_ROUTE},decision="deny"`)}) > 0`,
        legend: '{{namespace}}/{{route}}',
      },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Allowed, by reason',
    description: 'ok was forwarded to the app. sidegate responded to duplicate, stale and handshake.',
    unit: 'reqps',
    queries: [{ expr: `sum by (reason) (${rate(DECISIONS, `${OF_ROUTE},decision="allow"`)})`, legend: '{{reason}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Would be rejected without observe mode',
    description: 'Requests that routes with mode: observe forwarded although they would reject them with mode: enforce.',
    unit: 'reqps',
    queries: [
      { expr: `sum by (route, reason) (${rate(DECISIONS, `${OF_ROUTE},decision="observe"`)})`, legend: '{{route}}: {{reason}}' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Causes of invalid signatures',
    description: 'Likely causes of rejected deliveries. docs/explain.md lists each cause and its fix.',
    unit: 'none',
    queries: [
      {
        expr: `sum by (route, cause) (increase(sidegate_explained_total{${OF_ROUTE}}[$__rate_interval])) > 0`,
        legend: '{{route}}: {{cause}}',
      },
    ],
  },
];

const SKEW = 'sidegate_timestamp_skew_seconds';
const TIMES: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Timestamp skew',
    description:
      'Arrival time minus signed time. If all three lines move together, a clock is wrong. If only the upper one moves, deliveries are delayed or replayed.',
    unit: 's',
    width: 12,
    queries: [
      { expr: quantile(0.95, SKEW, OF_ROUTE), legend: 'p95' },
      { expr: quantile(0.5, SKEW, OF_ROUTE), legend: 'p50' },
      { expr: quantile(0.05, SKEW, OF_ROUTE), legend: 'p5' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Replays and duplicates',
    description:
      'replayed_under_new_id above 0: an attacker replays captured deliveries, or a sender creates events twice. id_reused: a sender changes events between retries, or an attacker used up an ID. kinds_exhausted: an attacker invents kinds, or webhook.kinds is missing.',
    unit: 'ops',
    width: 12,
    queries: [
      {
        expr: `sum by (outcome) (${rate('sidegate_dedup_operations_total', `${OF_GATE},outcome=~"duplicate|replayed_under_new_id|id_reused|kinds_exhausted|unidentified|bypassed"`)})`,
        legend: '{{outcome}}',
      },
    ],
  },
];

const KEYS: readonly Panel[] = [
  {
    kind: 'table',
    title: 'Keys: time since last use',
    description:
      'Most recent first. A key that is missing here was not used since its gates started. Check /keys before you remove one.',
    unit: 'dateTimeFromNow',
    queries: [
      {
        expr: `sort_desc(max by (cluster, namespace, workload, route, key) (sidegate_secret_last_used_timestamp_seconds{${OF_ROUTE}}) * 1000 > 0)`,
      },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Keys: verified deliveries',
    description: 'Deliveries by the key that verified them. During a rotation the old key falls to 0 while the new one rises.',
    unit: 'ops',
    width: 12,
    queries: [{ expr: `sum by (route, key) (${rate('sidegate_key_matches_total', OF_ROUTE)})`, legend: '{{route}}: {{key}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Forward-auth decisions, by reason',
    description: 'Decisions of the forward-auth endpoint, with the reason of each rejection.',
    unit: 'reqps',
    queries: [{ expr: `sum by (reason) (${rate('sidegate_authz_requests_total', OF_ROUTE)})`, legend: '{{reason}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Password checks',
    description: 'Each miss computes a hash. If pending grows, more guesses arrive than can be hashed.',
    unit: 'none',
    queries: [
      { expr: `sum by (outcome) (${rate('sidegate_password_checks_total', OF_GATE)})`, legend: '{{outcome}} a second' },
      { expr: `sum(sidegate_password_checks_pending{${OF_GATE}})`, legend: 'pending' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Users that can log in',
    description: 'Minimum of all pods. At 0 the realm responds with 503. rejected: unusable entries of a users file.',
    unit: 'none',
    queries: [
      { expr: `min by (namespace, realm) (sidegate_users_usable{${OF_GATE}})`, legend: '{{namespace}}/{{realm}}' },
      {
        expr: `max by (namespace, realm) (sidegate_users_rejected{${OF_GATE}}) > 0`,
        legend: '{{namespace}}/{{realm}}: rejected',
      },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Client CRLs: time until the first one expires',
    description: 'Below 0, every client certificate of that CA is rejected. An alert fires a day before.',
    unit: 's',
    queries: [
      {
        expr: `min by (namespace, section) (sidegate_client_crl_next_update_timestamp_seconds{${OF_GATE}}) - time()`,
        legend: '{{namespace}}/{{section}}',
      },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Admin port: rejected',
    description: 'Unauthorized requests to the admin port.',
    unit: 'reqps',
    queries: [{ expr: `sum by (reason) (${rate('sidegate_admin_denied_total', OF_GATE)})`, legend: '{{reason}}' }],
  },
];

/** The dashboard. */
export const security: Dashboard = {
  uid: 'sidegate-security',
  title: 'Sidegate / Security',
  description: 'Allowed and rejected requests, and the reasons.',
  rows: [
    { title: 'Current status', panels: FIRST },
    { title: 'Decisions', panels: DECIDED },
    { title: 'Time and duplicates', panels: TIMES },
    { title: 'Keys and passwords', panels: KEYS },
  ],
};
