/** The dashboard Fleet: versions, configs and stores of all gates, and the injection of new pods. */
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
    description: 'Number of sidegate versions in use. More than one outside an upgrade means that some pods were not restarted.',
    unit: 'none',
    queries: [{ expr: `count(count by (version) (sidegate_build_info{${OF_GATE}}))` }],
    steps: [
      [0, 'green'],
      [2, 'yellow'],
    ],
  },
  {
    kind: 'stat',
    title: 'Config rejected',
    description: 'Gates that could not reload a changed config or users file and keep the old one. A restart would fail.',
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
    description: 'Workloads whose pods use different configs.',
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
    title: 'Store unreachable',
    description: 'Gates that cannot reach their store of event IDs.',
    unit: 'none',
    queries: [{ expr: `count(sidegate_dedup_up{${OF_GATE}} == 0) or vector(0)` }],
    steps: [
      [0, 'green'],
      [1, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Missing secrets',
    description: 'Routes whose secrets are missing or invalid. They respond with 503.',
    unit: 'none',
    queries: [{ expr: `count(sidegate_route_ready{${OF_GATE}} == 0) or vector(0)` }],
    steps: [
      [0, 'green'],
      [1, 'red'],
    ],
  },
  {
    kind: 'stat',
    title: 'Pods without sidecar',
    description:
      'Running pods with the injection label but without a sidecar. Needs kube-state-metrics with the label allowed; 0 without it.',
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
    description: "Time until the injector's certificate expires. It is renewed after two thirds of its lifetime.",
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
    description: 'Number of pods by namespace and version.',
    unit: 'none',
    queries: [{ expr: `count by (cluster, namespace, version, revision) (sidegate_build_info{${OF_GATE}})` }],
  },
  {
    kind: 'table',
    title: 'Configs',
    description: 'Number of pods by workload and config hash.',
    unit: 'none',
    queries: [{ expr: `count by (cluster, namespace, workload, hash) (sidegate_config_info{${OF_GATE}})` }],
  },
  {
    kind: 'timeseries',
    title: 'CPU',
    description: 'CPU cores in use, the ten busiest pods.',
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
    description: `Resident memory, the ten largest pods. Compare it with the memory limit of the container (default: ${DEFAULT_MEMORY_LIMIT}).`,
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
    description: 'Delay before the process handles an event. Above 50 ms it needs more CPU.',
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
    title: 'Buffered bodies',
    description: 'Bytes of request bodies in memory. limits.maxBufferedBytes limits them.',
    unit: 'bytes',
    queries: [{ expr: `topk(10, sidegate_buffered_bytes{${OF_GATE}})`, legend: '{{namespace}}/{{pod}}' }],
  },
];

const STORE: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Claim latency',
    description: 'Time that Redis takes to claim an event ID. The in-memory store takes almost none.',
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
    description: 'new and confirmed should be equal. settle_lost: an event was handled, but its retry will be handled again.',
    unit: 'ops',
    queries: [{ expr: `sum by (outcome) (${rate('sidegate_dedup_operations_total', OF_GATE)}) > 0`, legend: '{{outcome}}' }],
  },
  {
    kind: 'timeseries',
    title: 'Gates that cannot reach their store',
    description: 'Number of pods by workload. Empty is good.',
    unit: 'none',
    queries: [
      { expr: `count by (namespace, workload) (sidegate_dedup_up{${OF_GATE}} == 0)`, legend: '{{namespace}}/{{workload}}' },
    ],
  },
];

const INJECTOR: readonly Panel[] = [
  {
    kind: 'timeseries',
    title: 'Admission reviews',
    description: "By result and reason. denied: an invalid annotation; the API server's error names it.",
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
    title: 'Review duration',
    description: "Time that the injector takes, out of the API server's time limit.",
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
    title: 'Webhook calls that failed open',
    description:
      'Pods that the API server created without calling the injector. Metric of the API server: empty if it is not scraped.',
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
    title: 'Certificate: time until expiry',
    description: 'Falls to a third of the lifetime; then the certificate is renewed.',
    unit: 's',
    queries: [{ expr: `min by (cluster, namespace, pod) (${ENDS}{${OF_CLUSTER}}) - time()`, legend: '{{namespace}}/{{pod}}' }],
  },
];

/** The dashboard. */
export const fleet: Dashboard = {
  uid: 'sidegate-fleet',
  title: 'Sidegate / Fleet',
  description: 'Versions, configs and stores of all gates, and the injection of new pods.',
  rows: [
    { title: 'Current status', panels: FIRST },
    { title: 'Gates', panels: RUNS },
    { title: 'Store', panels: STORE },
    { title: 'Injector', panels: INJECTOR },
  ],
};
