/** Values of monitoring: Prometheus monitors and alerts, and Grafana dashboards. Disabled by default, because most of it needs CRDs. */
import { z } from 'zod';
import { freeList, labelSelector, objectName, textMap } from './values-forms.ts';

const span = (): z.ZodString => z.string().regex(/^(?:\d+(?:ms|s|m|h))*$/);
const enabled = (what: string): z.ZodDefault<z.ZodBoolean> => z.boolean().default(false).describe(what);
const labels = (why: string): z.ZodDefault<ReturnType<typeof textMap>> => textMap().default({}).describe(`Labels, ${why}.`);
const annotations = (): z.ZodDefault<ReturnType<typeof textMap>> => textMap().default({}).describe('Annotations.');
const namespace = (): z.ZodDefault<z.ZodString> => objectName().default('').describe('Namespace. Empty: the release namespace.');

const scrape = {
  labels: labels('such as those that your Prometheus selects monitors by'),
  annotations: annotations(),
  namespace: namespace(),
  interval: span().default('').describe("Scrape interval, such as `30s`. Empty: Prometheus' default."),
  scrapeTimeout: span().default('').describe("Scrape timeout. Empty: Prometheus' default."),
  relabelings: freeList().default([]).describe('Additional relabelings of targets, applied last.'),
  metricRelabelings: freeList().default([]).describe('Relabelings of samples.'),
};

const podMonitor = z.strictObject({
  enabled: enabled(
    'Creates a PodMonitor for the sidecars of all namespaces, and one for the Deployment `deliver` if it is enabled.',
  ),
  ...scrape,
  selector: labelSelector()
    .default({})
    .describe('Label selector for the pods. Empty: all. Only ports `sidegate-admin` of containers `sidegate` are scraped.'),
});

const serviceMonitor = z.strictObject({
  enabled: enabled('Creates a ServiceMonitor and a metrics Service for the injector. Not with `admission.mode: policy`.'),
  ...scrape,
});

const rules = z.strictObject({
  enabled: enabled('Creates a PrometheusRule with the alerts of `rules/` and their recording rules.'),
  labels: labels('such as those that your Prometheus selects rules by'),
  annotations: annotations(),
  namespace: namespace(),
  exclude: z
    .array(z.string().regex(/^Sidegate[A-Za-z]+$/))
    .default([])
    .describe(
      'Alerts to omit: `SidegatePodUnprotected` without kube-state-metrics; `SidegateInjectionFailedOpen` and `SidegateWebhookSlow` where the API server is not scraped.',
    ),
  alertLabels: textMap().default({}).describe('Labels of all alerts in addition to `severity`, such as a team.'),
  runbookUrl: z
    .string()
    .regex(/^https?:\/\/[^\s/](?:\S*[^\s/])?$/)
    .default('https://github.com/sidegate/sidegate/blob/main/docs/runbooks')
    .describe(
      'URL of the folder with the runbooks, without a slash at its end. `runbook_url` of an alert is `<runbookUrl>/<alert>.md`. Set it to your own copy of `docs/runbooks` where your operators cannot reach the default.',
    ),
});

const dashboards = z.strictObject({
  enabled: enabled('Creates a ConfigMap for each dashboard.'),
  labels: textMap().default({ grafana_dashboard: '1' }).describe("Labels of the ConfigMaps, which Grafana's sidecar selects by."),
  annotations: textMap()
    .default({})
    .describe('Annotations of the ConfigMaps, such as the folder: `{ grafana_folder: Sidegate }`.'),
  namespace: namespace(),
  operator: z
    .strictObject({
      enabled: enabled('Creates a GrafanaDashboard for each dashboard, which refers to its ConfigMap.'),
      instanceSelector: labelSelector()
        .default({ matchLabels: { dashboards: 'grafana' } })
        .describe('Label selector for the Grafana instances.'),
      folder: z.string().default('Sidegate').describe('Folder of the dashboards.'),
      labels: labels('of the GrafanaDashboards'),
    })
    .prefault({})
    .describe('Objects for the Grafana operator.'),
});

/** All values of monitoring. */
export const monitoring = z.strictObject({
  podMonitor: podMonitor.prefault({}).describe('Scrapes the sidecars; needs the Prometheus operator.'),
  serviceMonitor: serviceMonitor.prefault({}).describe('Scrapes the injector; needs the Prometheus operator.'),
  rules: rules.prefault({}).describe('Alerts; needs the Prometheus operator. docs/monitoring.md explains the setup without it.'),
  dashboards: dashboards.prefault({}).describe('Dashboards for Grafana: Security, Routes, Fleet and Sending.'),
});
