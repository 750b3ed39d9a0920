/** Values of monitoring: what Prometheus scrapes, alerts by, and what Grafana shows. Off until asked for, as most of it needs CRDs. */
import { z } from 'zod';
import { freeForm, freeList, objectName, textMap } from './values-forms.ts';

const span = (): z.ZodString => z.string().regex(/^(?:\d+(?:ms|s|m|h))*$/);
const enabled = (what: string): z.ZodDefault<z.ZodBoolean> => z.boolean().default(false).describe(what);
const labels = (why: string): z.ZodDefault<ReturnType<typeof textMap>> => textMap().default({}).describe(`Labels of it, ${why}.`);
const annotations = (): z.ZodDefault<ReturnType<typeof textMap>> => textMap().default({}).describe('Annotations of it.');
const namespace = (): z.ZodDefault<z.ZodString> =>
  objectName().default('').describe("Its namespace, where it is not the release's.");

const scrape = {
  labels: labels('such as those that your Prometheus selects monitors by'),
  annotations: annotations(),
  namespace: namespace(),
  interval: span().default('').describe('How often it is scraped, such as `30s`. Empty: as Prometheus has it.'),
  scrapeTimeout: span().default('').describe('How long a scrape may take. Empty: as Prometheus has it.'),
  relabelings: freeList().default([]).describe('Further relabelings of targets, after its own.'),
  metricRelabelings: freeList().default([]).describe('Relabelings of samples.'),
};

const podMonitor = z.strictObject({
  enabled: enabled('Whether there is a PodMonitor for the sidecars of all namespaces.'),
  ...scrape,
  selector: freeForm()
    .default({})
    .describe('Which pods, as a label selector. Empty: all; of them only ports `sidegate-admin` of containers `sidegate` count.'),
});

const serviceMonitor = z.strictObject({
  enabled: enabled(
    'Whether there is a ServiceMonitor for the injector, and a Service for it. Not with `admission.mode: policy`.',
  ),
  ...scrape,
});

const rules = z.strictObject({
  enabled: enabled('Whether there is a PrometheusRule with the alerts of `rules/` and the series that they go by.'),
  labels: labels('such as those that your Prometheus selects rules by'),
  annotations: annotations(),
  namespace: namespace(),
  exclude: z
    .array(z.string().regex(/^Sidegate[A-Za-z]+$/))
    .default([])
    .describe(
      'Names of alerts to leave out: `SidegatePodUnprotected` without kube-state-metrics; `SidegateInjectionFailedOpen` and `SidegateWebhookSlow` where the API server is not scraped.',
    ),
  alertLabels: textMap().default({}).describe('Labels that all alerts get beside `severity`, such as a team.'),
  runbookUrl: z
    .string()
    .regex(/^https?:\/\/[^\s/](?:\S*[^\s/])?$/)
    .default('https://sidegate.dev/docs/runbooks')
    .describe(
      'URL of the folder with the runbooks, without a slash at its end. `runbook_url` of an alert is `<runbookUrl>/<alert>.md`. Set it to your own copy of `docs/runbooks` where your operators cannot reach the default.',
    ),
});

const dashboards = z.strictObject({
  enabled: enabled('Whether there is a ConfigMap for each dashboard.'),
  labels: textMap().default({ grafana_dashboard: '1' }).describe("Labels of the ConfigMaps: what Grafana's sidecar looks for."),
  annotations: textMap()
    .default({})
    .describe('Annotations of the ConfigMaps, such as the folder: `{ grafana_folder: Sidegate }`.'),
  namespace: namespace(),
  operator: z
    .strictObject({
      enabled: enabled('Whether each dashboard is a GrafanaDashboard, too, which takes it from its ConfigMap.'),
      instanceSelector: freeForm()
        .default({ matchLabels: { dashboards: 'grafana' } })
        .describe('Which Grafanas get it.'),
      folder: z.string().default('Sidegate').describe('The folder that it is put in.'),
      labels: labels('of the GrafanaDashboards'),
    })
    .prefault({})
    .describe('For the Grafana operator.'),
});

/** All of it. */
export const monitoring = z.strictObject({
  podMonitor: podMonitor.prefault({}).describe('Scrapes the sidecars; needs the Prometheus operator.'),
  serviceMonitor: serviceMonitor.prefault({}).describe('Scrapes the injector; needs the Prometheus operator.'),
  rules: rules.prefault({}).describe('Alerts; needs the Prometheus operator. Without one: docs/monitoring.md.'),
  dashboards: dashboards.prefault({}).describe('Dashboards for Grafana: Security, Routes and Fleet.'),
});
