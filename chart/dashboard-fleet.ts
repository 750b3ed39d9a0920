/** The dashboard Fleet: what runs, by which config, with which store, and whether new pods get their sidecar. */
import { DEFAULT_MEMORY_LIMIT } from '../src/kubernetes/injector/kubernetes-values.ts';
import type { Dashboard, Panel } from './dashboard-forms.ts';
import { OF_GATE, quantile, rate } from './dashboard-selectors.ts';

const OF_CLUSTER = 'cluster=~"$cluster"';
const ENDS = 'sidegate_injector_certificate_not_after_timestamp_seconds';

const FIRST: readonly Panel[] = [
  {
    kind: 'stat',
    title: 'Gates',
    description: 'Sidecars that are scraped.',
    unit: 'none',
    queries: [{ expr: `count(sidegate_config_info{${OF_GATE}})` }],
    steps: [[0, 'blue']],
  },
  {
    kind: 'stat',
    title: 'Versions',
    description:
      'How many versions of the gate run. More than one, other than during an upgrade: pods that were not restarted since.',
    unit: 'none',
    queries: [{ expr: `count(count by (version) (sidegate_build_info{${OF_GATE}}))` }],
    steps: [
      [0, 'green'],
      [2, 'yellow'],
    ],
  },
  {
    kind: 'stat',
    title: 'Config refused',
    description:
      'Gates that could not take up a changed config or changed users, and serve on by the old ones. A restart would fail.',
    unit: 'none',
    queries: [
      {
        expr: `count(sidegate_config_last_reload_successful{${OF_GATE}} == 0 or sidegate_users_last_reload_successful{${OF_GATE}} == 0) or vector(0)`,
      },
    ],
    steps: [
      [0, 'green'],
      [1, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Config skew',
    description: 'Workloads whose pods serve by different configs.',
    unit: 'none',
    queries: [
      {
        expr: `count(count by (cluster, namespace, workload) (count by (cluster, namespace, workload, hash) (sidegate_config_info{${OF_GATE},workload!=""})) > 1) or vector(0)`,
      },
    ],
    steps: [
      [0, 'green'],
      [1, 'orange'],
    ],
  },
  {
    kind: 'stat',
    title: 'Without store',
    description: 'Gates that do not reach their store of event ids.',
    unit: 'none',
    queries: [{ expr: `count(sidegate_dedup_up{${OF_GATE}} == 0) or vector(0)` }],
    steps: [
      [0, 'green'],
      [1, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Without secrets',
    description: 'Routes whose secrets are gone or broken: they answer 503.',
    unit: 'none',
    queries: [{ expr: `count(sidegate_route_ready{${OF_GATE}} == 0) or vector(0)` }],
    steps: [
      [0, 'green'],
      [1, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Without sidecar',
    description:
      'Running pods that are labelled for a sidecar and have none. Needs kube-state-metrics with the label allowed; 0 without it.',
    unit: 'none',
    queries: [
      {
        expr: `count((kube_pod_labels{${OF_GATE},label_sidegate_dev_inject="true"} and on (cluster, namespace, pod) kube_pod_status_phase{phase=~"Pending|Running"} == 1) unless on (cluster, namespace, pod) (kube_pod_init_container_info{container="sidegate"} or kube_pod_container_info{container="sidegate"})) or vector(0)`,
      },
    ],
    steps: [
      [0, 'green'],
      [1, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Webhook certificate',
    description: 'How long the certificate is good that the injector serves. It is renewed after two thirds of its life.',
    unit: 's',
    queries: [{ expr: `min(${ENDS}{${OF_CLUSTER}} - time())` }],
    steps: [
      [0, 'red'],
      [86_400, 'yellow'],
      [2 * 86_400, 'green'],
    ],
  },
];

const RUNS: readonly Panel[] = [
  {
    kind: 'table',
    title: 'Versions',
    description: 'How many pods of each namespace run which version.',
    unit: 'none',
    queries: [{ expr: `count by (cluster, namespace, version, revision) (sidegate_build_info{${OF_GATE}})` }],
  },
  {
    kind: 'table',
    title: 'Configs',
    description: 'How many pods of each workload serve by which config.',
    unit: 'none',
    queries: [{ expr: `count by (cluster, namespace, workload, hash) (sidegate_config_info{${OF_GATE}})` }],
  },
  {
    kind: 'timeseries',
    title: 'CPU',
    description: 'Cores in use, the busiest ten.',
    unit: 'none',
    queries: [
      {
        expr: `topk(10, ${rate('process_cpu_seconds_total', OF_GATE)} and on (namespace, pod) sidegate_build_info)`,
        legend: '{{namespace}}/{{pod}}',
      },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Memory',
    description: `Resident, the largest ten. Compare with the limit of the container, ${DEFAULT_MEMORY_LIMIT} where nothing else is set.`,
    unit: 'bytes',
    queries: [
      {
        expr: `topk(10, process_resident_memory_bytes{${OF_GATE}} and on (namespace, pod) sidegate_build_info)`,
        legend: '{{namespace}}/{{pod}}',
      },
    ],
  },
  {
    kind: 'timeseries',
    title: 'Event loop lag, p99',
    description: 'How late the gate gets to its work. Above 50 ms it wants more CPU than it has.',
    unit: 's',
    queries: [
      {
        expr: `topk(10, nodejs_eventloop_lag_p99_seconds{${OF_GATE}} and on (namespace, pod) sidegate_build_info)`,
        legend: '{{namespace}}/{{pod}}',
      },
    ],
    steps: [
      [0, 'green'],
      [0.05, 'yellow'],
      [0.2, 'red'],
    ],
  },
  {
    kind: 'timeseries',
    title: 'Content held',
    description: 'Bytes of requests in memory; limits.maxBufferedBytes bounds them.',
    unit: 'bytes',
    queries: [{ expr: `topk(10, sidegate_buffered_bytes{${OF_GATE}})`, legend: '{{namespace}}/{{pod}}' }],
  },
];

const STORE: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Round trip of a claim',
    description: 'How long Redis takes; in memory it takes nothing.',
    unit: 's',
    queries: [
      { expr: quantile(0.99, 'sidegate_dedup_duration_seconds', OF_GATE), legend: 'p99' },
      { expr: quantile(0.5, 'sidegate_dedup_duration_seconds', OF_GATE), legend: 'p50' },
    ],
    steps: [
      [0, 'green'],
      [0.01, 'yellow'],
      [0.1, 'red'],
    ],
  },
  {
    kind: 'timeseries',
    title: 'Operations',
    description: 'new and confirmed go side by side. settle_lost: an event was handled, and its retry will be handled again.',
    unit: 'ops',
    queries: [{ expr: `sum by (outcome) (${rate('sidegate_dedup_operations_total', OF_GATE)}) > 0`, legend: '{{outcome}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Gates without their store',
    description: 'How many pods of each workload do not reach it. Empty is good.',
    unit: 'none',
    queries: [
      { expr: `count by (namespace, workload) (sidegate_dedup_up{${OF_GATE}} == 0)`, legend: '{{namespace}}/{{workload}}' },
    ],
  },
];

const INJECTOR: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Pods it was asked about',
    description: 'By what became of them and why. denied: an annotation that cannot be; the pod is told which.',
    unit: 'ops',
    queries: [
      {
        expr: `sum by (result, reason) (${rate('sidegate_injector_admissions_total', OF_CLUSTER)}) > 0`,
        legend: '{{result}}: {{reason}}',
      },
    ],
  },
  {
    kind: 'timeseries',
    title: 'How long it takes',
    description: "Its own share of the API server's time limit.",
    unit: 's',
    queries: [
      { expr: quantile(0.99, 'sidegate_injector_admission_duration_seconds', OF_CLUSTER), legend: 'p99' },
      { expr: quantile(0.5, 'sidegate_injector_admission_duration_seconds', OF_CLUSTER), legend: 'p50' },
    ],
    steps: [
      [0, 'green'],
      [0.25, 'yellow'],
      [1, 'red'],
    ],
  },
  {
    kind: 'timeseries',
    title: 'Calls that failed open',
    description: 'Pods that the API server created without asking it. Its own series: empty where it is not scraped.',
    unit: 'none',
    queries: [
      {
        expr: `sum(increase(apiserver_admission_webhook_fail_open_count{${OF_CLUSTER},name="inject.sidegate.dev"}[$__rate_interval]))`,
        legend: 'failed open',
      },
    ],
    steps: [
      [0, 'green'],
      [1, 'red'],
    ],
  },
  {
    kind: 'timeseries',
    title: 'Certificate: time left',
    description: 'A saw: it falls to a third of its life and is renewed.',
    unit: 's',
    queries: [{ expr: `min by (cluster, namespace, pod) (${ENDS}{${OF_CLUSTER}}) - time()`, legend: '{{namespace}}/{{pod}}' }],
  },
];

/** The dashboard. */
export const fleet: Dashboard = {
  uid: 'sidegate-fleet',
  title: 'Sidegate / Fleet',
  description: 'What runs, by which config, with which store, and whether new pods get their sidecar.',
  rows: [
    { title: 'Now', panels: FIRST },
    { title: 'Gates', panels: RUNS },
    { title: 'Store', panels: STORE },
    { title: 'Injector', panels: INJECTOR },
  ],
};
