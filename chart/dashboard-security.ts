/** The dashboard Security: who gets in, who does not, and why. */
import type { Dashboard, Panel } from './dashboard-forms.ts';
import { OF_GATE, OF_ROUTE, quantile, rate, share } from './dashboard-selectors.ts';

const DECISIONS = 'sidegate_auth_decisions_total';
const judged = `sum(${rate(DECISIONS, OF_ROUTE)})`;
const decided = (matchers: string): string => `sum(${rate(DECISIONS, `${OF_ROUTE},${matchers}`)})`;

const FIRST: readonly Panel[] = [
  {
    kind: 'stat',
    title: 'Let in',
    description:
      'Share of judged requests whose senders proved themselves, repeats included. Falls to 0 when a secret is rotated on one side only.',
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
    title: 'Routes that reject all',
    description: 'Routes that refused requests in 15 minutes and let none in. Any is an outage for its sender.',
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
    title: 'Wrong signatures',
    description: 'Share of judged requests with a signature that does not fit. From 20 % on an alert fires.',
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
    title: 'Outside the time',
    description:
      'Share of judged requests that were signed too long ago or in the future. From 5 % on an alert fires: look at clocks.',
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
    description: 'Attempts a second with a wrong password or by somebody who is banned. From 1 on an alert fires.',
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
    title: 'Seen before',
    description:
      'Share of genuine deliveries that were handled before and did not reach the app again. From 25 % on an alert fires.',
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
    title: 'Passed unchecked',
    description: 'Deliveries of the last hour that were let through without a look for repeats, as the store was down.',
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
    title: 'Only observing',
    description: 'Routes with mode: observe, which let everything through.',
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
    title: 'Refused, by reason',
    description: 'What the gates turned away. The reasons are those of the log lines.',
    unit: 'reqps',
    width: 12,
    stack: true,
    queries: [{ expr: `sum by (reason) (${rate(DECISIONS, `${OF_ROUTE},decision="deny"`)}) > 0`, legend: '{{reason}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Refused, by route',
    description: 'One route alone: its secret or its sender. All of them: a clock, or a proxy in front.',
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
    title: 'Let in, by reason',
    description: 'ok reached the app; duplicate, stale and handshake were answered by the gate.',
    unit: 'reqps',
    queries: [{ expr: `sum by (reason) (${rate(DECISIONS, `${OF_ROUTE},decision="allow"`)})`, legend: '{{reason}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Would have been refused',
    description: 'What routes with mode: observe let through all the same.',
    unit: 'reqps',
    queries: [
      { expr: `sum by (route, reason) (${rate(DECISIONS, `${OF_ROUTE},decision="observe"`)})`, legend: '{{route}}: {{reason}}' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Why signatures are wrong',
    description: 'What the gate found out about refused deliveries; docs/explain.md has each cause and how to mend it.',
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
    description: 'Arrival less signed time. All three lines moved alike: a clock. The upper one alone: delays, or replays.',
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
    title: 'Replays and repeats',
    description:
      'replayed_under_new_id above 0: somebody captured deliveries, or a sender makes events twice. id_reused: a sender changes events between retries.',
    unit: 'ops',
    width: 12,
    queries: [
      {
        expr: `sum by (outcome) (${rate('sidegate_dedup_operations_total', `${OF_GATE},outcome=~"duplicate|replayed_under_new_id|id_reused|unidentified|bypassed"`)})`,
        legend: '{{outcome}}',
      },
    ],
  },
];

const KEYS: readonly Panel[] = [
  {
    kind: 'table',
    title: 'Keys: when each was last needed',
    description: 'Newest first. A key that is not here was not needed since its gates started; before you remove one, ask /keys.',
    unit: 'dateTimeFromNow',
    queries: [
      {
        expr: `sort_desc(max by (cluster, namespace, workload, route, key) (sidegate_secret_last_used_timestamp_seconds{${OF_ROUTE}}) * 1000 > 0)`,
      },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Keys: what each proved genuine',
    description: 'During a rotation the old key falls to 0 while the new one takes over.',
    unit: 'ops',
    width: 12,
    queries: [{ expr: `sum by (route, key) (${rate('sidegate_key_matches_total', OF_ROUTE)})`, legend: '{{route}}: {{key}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Questions of other proxies, by reason',
    description: 'What the forward-auth endpoint was asked, and why it said no.',
    unit: 'reqps',
    queries: [{ expr: `sum by (reason) (${rate('sidegate_authz_requests_total', OF_ROUTE)})`, legend: '{{reason}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Passwords checked',
    description: 'miss costs a hash each. pending that grows: more guesses come than can be hashed.',
    unit: 'none',
    queries: [
      { expr: `sum by (outcome) (${rate('sidegate_password_checks_total', OF_GATE)})`, legend: '{{outcome}} a second' },
      { expr: `sum(sidegate_password_checks_pending{${OF_GATE}})`, legend: 'pending' },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Users that can log in',
    description: 'The lowest of all pods. At 0 the realm answers 503. rejected: entries of a users file that cannot be used.',
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
    title: 'Admin port: turned away',
    description: 'Callers of the admin port who may not ask for what they asked.',
    unit: 'reqps',
    queries: [{ expr: `sum by (reason) (${rate('sidegate_admin_denied_total', OF_GATE)})`, legend: '{{reason}}' }],
  },
];

/** The dashboard. */
export const security: Dashboard = {
  uid: 'sidegate-security',
  title: 'Sidegate / Security',
  description: 'Who gets in, who does not, and why.',
  rows: [
    { title: 'Now', panels: FIRST },
    { title: 'Decisions', panels: DECIDED },
    { title: 'Time and repeats', panels: TIMES },
    { title: 'Keys and passwords', panels: KEYS },
  ],
};
