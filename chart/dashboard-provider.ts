/** The dashboard Sending: events of the apps, the queue, and the endpoints. */
import type { Dashboard, Panel } from './dashboard-forms.ts';
import { OF_GATE, quantile, rate, share } from './dashboard-selectors.ts';

const P = 'sidegate_provider_';
const OF_ENDPOINT = `${OF_GATE},endpoint=~"$endpoint"`;
const ATTEMPTS = `${P}attempts_total`;
const attempts = `sum(${rate(ATTEMPTS, OF_ENDPOINT)})`;
const waiting = `${P}queue_deliveries{${OF_GATE},state="waiting"}`;
/** With a queue in PostgreSQL all replicas export the same figures; embedded queues of several replicas are shown by the largest one. */
const largest = (expr: string): string => `max by (cluster, namespace, workload) (${expr})`;
const BY_WORKLOAD = '{{namespace}}/{{workload}}';

const FIRST: readonly Panel[] = [
  {
    kind: 'stat',
    title: 'Accepted',
    description: 'New events per second that the apps posted. Repeated events are not counted.',
    unit: 'ops',
    queries: [{ expr: `sum(${rate(`${P}events_total`, `${OF_GATE},result="stored"`)})` }],
    steps: [[0, 'blue']],
  },
  {
    kind: 'stat',
    title: 'Not accepted',
    description:
      'Requests of the last hour that got 503 because the queue was full, unavailable or busy. The app must repeat them.',
    unit: 'none',
    decimals: 0,
    queries: [
      {
        expr: `sum(increase(${P}rejected_requests_total{${OF_GATE},reason=~"queue_full|queue_unavailable|busy"}[1h])) or vector(0)`,
      },
    ],
    steps: [
      [0, 'green'],
      [1, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Delivered',
    description: 'Share of attempts that the endpoints acknowledged with 2xx.',
    unit: 'percentunit',
    queries: [{ expr: share(`sum(${rate(ATTEMPTS, `${OF_ENDPOINT},outcome="delivered"`)})`, attempts) }],
    steps: [
      [0, 'red'],
      [0.5, 'orange'],
      [0.9, 'yellow'],
      [0.99, 'green'],
    ],
  },
  {
    kind: 'stat',
    title: 'Waiting',
    description: 'Deliveries that are not finished, including those that wait for a later attempt.',
    unit: 'short',
    queries: [{ expr: `sum(${largest(waiting)})` }],
    steps: [[0, 'blue']],
  },
  {
    kind: 'stat',
    title: 'Oldest due',
    description: 'How long the oldest due delivery has been waiting. An alert fires at 5 minutes if no endpoint is failing.',
    unit: 's',
    queries: [{ expr: `max(${P}queue_oldest_due_age_seconds{${OF_GATE}})` }],
    steps: [
      [0, 'green'],
      [60, 'yellow'],
      [300, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Queue in use',
    description:
      'Share of the larger of both bounds, events or bytes. An alert fires at 80 %. At 100 % the API responds with 503.',
    unit: 'percentunit',
    queries: [
      {
        expr: `max(${P}queue_events{${OF_GATE}} / ${P}queue_events_limit{${OF_GATE}} >= ${P}queue_bytes{${OF_GATE}} / ${P}queue_bytes_limit{${OF_GATE}} or ${P}queue_bytes{${OF_GATE}} / ${P}queue_bytes_limit{${OF_GATE}})`,
      },
    ],
    steps: [
      [0, 'green'],
      [0.5, 'yellow'],
      [0.8, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Failing endpoints',
    description: 'Endpoints that are only probed, because their last attempts failed in a row.',
    unit: 'none',
    queries: [{ expr: `sum(${largest(`${P}endpoints{${OF_GATE},state="failing"}`)})` }],
    steps: [
      [0, 'green'],
      [1, 'orange'],
    ],
  },
  {
    kind: 'stat',
    title: 'Disabled endpoints',
    description: 'Endpoints that get no events: disabled by an operator, by a 410, or after days of failures.',
    unit: 'none',
    queries: [{ expr: `sum(${largest(`${P}endpoints{${OF_GATE},state="disabled"}`)})` }],
    steps: [
      [0, 'green'],
      [1, 'yellow'],
    ],
  },
];

const APP: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Events of the apps',
    description: 'stored: new events; duplicate: events that were posted again with the same ID.',
    unit: 'ops',
    queries: [{ expr: `sum by (result) (${rate(`${P}events_total`, OF_GATE)})`, legend: '{{result}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Requests that were not accepted, by reason',
    description:
      'queue_full, queue_unavailable and busy get 503, and the app must repeat them. The others are mistakes of the app.',
    unit: 'reqps',
    stack: true,
    queries: [{ expr: `sum by (reason) (${rate(`${P}rejected_requests_total`, OF_GATE)}) > 0`, legend: '{{reason}}' }],
  },
  {
    kind: 'timeseries',
    title: 'From the event to its acknowledgement',
    description: 'Time from the creation of an event to its acknowledgement by an endpoint, with all retries.',
    unit: 's',
    queries: [0.99, 0.95, 0.5].map((part) => ({
      expr: quantile(part, `${P}delivery_delay_seconds`, OF_GATE),
      legend: `p${part * 100}`,
    })),
  },
];

const QUEUE: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Waiting deliveries',
    description:
      'Deliveries that are not finished, by workload. An alert fires if more than 1,000 grow by more than 10 % an hour.',
    unit: 'short',
    queries: [{ expr: largest(waiting), legend: BY_WORKLOAD }],
  },
  {
    kind: 'timeseries',
    title: 'Oldest due delivery',
    description: 'Its waiting time. It grows while an endpoint fails, while no pod sends, or while the attempts cannot keep up.',
    unit: 's',
    queries: [{ expr: largest(`${P}queue_oldest_due_age_seconds{${OF_GATE}}`), legend: BY_WORKLOAD }],
  },
  {
    kind: 'timeseries',
    title: 'Dead and skipped deliveries',
    description:
      'dead: all attempts failed; skipped: the endpoint was disabled. Both can be retried until provider.queue.deadRetention.',
    unit: 'short',
    queries: [
      {
        expr: `max by (namespace, workload, state) (${P}queue_deliveries{${OF_GATE},state=~"dead|skipped"})`,
        legend: `${BY_WORKLOAD}: {{state}}`,
      },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Undelivered events, share of the bound',
    description: 'Events with a delivery that waits. Delivered, dead and skipped events are not counted.',
    unit: 'percentunit',
    queries: [
      { expr: largest(`${P}queue_events{${OF_GATE}} / ${P}queue_events_limit{${OF_GATE}}`), legend: `${BY_WORKLOAD}: events` },
      { expr: largest(`${P}queue_bytes{${OF_GATE}} / ${P}queue_bytes_limit{${OF_GATE}}`), legend: `${BY_WORKLOAD}: bytes` },
      {
        expr: `max by (namespace, workload, share) (${P}queue_share_used_ratio{${OF_GATE}})`,
        legend: `${BY_WORKLOAD}: fullest {{share}}, of its share`,
      },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Queue available',
    description: 'Minimum of all pods. At 0 a pod cannot store events, and its API responds with 503.',
    unit: 'none',
    queries: [{ expr: `min by (namespace, workload) (${P}queue_up{${OF_GATE}})`, legend: BY_WORKLOAD }],
  },
  {
    kind: 'timeseries',
    title: 'Full in',
    description:
      'When the queue is full if the undelivered events go on growing as in the last ten minutes. Empty: they do not grow.',
    unit: 's',
    queries: [
      {
        expr: `min by (namespace, workload) (${P}queue_full_in_seconds{${OF_GATE}}) < 1e9`,
        legend: BY_WORKLOAD,
      },
    ],
  },
];

const ENDPOINTS: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Attempts, by outcome',
    description: 'All outcomes except delivered are failures; aborted attempts are repeated by another pod after a shutdown.',
    unit: 'ops',
    width: 12,
    stack: true,
    queries: [{ expr: `sum by (outcome) (${rate(ATTEMPTS, OF_ENDPOINT)}) > 0`, legend: '{{outcome}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Failed attempts, by endpoint',
    description:
      'An alert fires if more than half of the attempts to an endpoint fail. api: all endpoints that were created with the API.',
    unit: 'ops',
    width: 12,
    stack: true,
    queries: [
      {
        expr: `topk(10, sum by (endpoint) (${rate(ATTEMPTS, `${OF_ENDPOINT},outcome!~"delivered|aborted"`)}) > 0)`,
        legend: '{{endpoint}}',
      },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Waiting deliveries, by endpoint',
    description: 'The ten endpoints with the largest backlog. One that fails or is slow does not delay the others.',
    unit: 'short',
    queries: [{ expr: `topk(10, max by (endpoint) (${P}endpoint_waiting{${OF_ENDPOINT}}) > 0)`, legend: '{{endpoint}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Duration of attempts',
    description: 'Attempts end at the timeout of the endpoint at the latest (15 s by default).',
    unit: 's',
    queries: [0.99, 0.95, 0.5].map((part) => ({
      expr: quantile(part, `${P}attempt_duration_seconds`, OF_GATE),
      legend: `p${part * 100}`,
    })),
  },
  {
    kind: 'timeseries',
    title: 'Attempts in flight',
    description:
      'fast: younger than a second, at most provider.maxConcurrency in a pod; all together at most provider.maxConnections.',
    unit: 'none',
    queries: [{ expr: `sum by (speed) (${P}attempts_in_flight{${OF_GATE}})`, legend: '{{speed}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Finished deliveries, by result',
    description:
      'delivered; dead: given up after all attempts; skipped: due for an endpoint that was disabled or deleted. Canceled ones are not counted.',
    unit: 'ops',
    queries: [{ expr: `sum by (result) (${rate(`${P}deliveries_total`, OF_ENDPOINT)})`, legend: '{{result}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Endpoints, by state',
    description: 'enabled, failing (only probed) and disabled.',
    unit: 'none',
    queries: [
      { expr: `sum by (state) (max by (cluster, namespace, workload, state) (${P}endpoints{${OF_GATE}}))`, legend: '{{state}}' },
    ],
  },
];

/** The dashboard. */
export const provider: Dashboard = {
  uid: 'sidegate-provider',
  title: 'Sidegate / Sending',
  description: 'The sending side: events of the apps, the queue, and the endpoints.',
  variable: { name: 'endpoint', query: `label_values(${ATTEMPTS}{cluster=~"$cluster",namespace=~"$namespace"}, endpoint)` },
  rows: [
    { title: 'Now', panels: FIRST },
    { title: 'Events of the apps', panels: APP },
    { title: 'Queue', panels: QUEUE },
    { title: 'Endpoints', panels: ENDPOINTS },
  ],
};
