/** Every panel of the dashboards, asked of a real Prometheus: Grafana itself is not among the programs of the tests. */
import { createServer } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createInjectorMetrics } from '../../src/kubernetes/admission/injector-metrics.ts';
import { ADMISSIONS } from '../../src/kubernetes/admission/reviewer.ts';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useGate, useServer } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { exercise, startCertificateGate, startMonitoredGate } from '../support/monitored-gate.ts';
import { readDashboards, readRuleFiles, toExpressions } from '../support/monitoring.ts';
import { startPrometheus, type TestPrometheus } from '../support/prometheus.ts';
import { renderProviderMetrics } from '../support/provider-exposition.ts';

/** A rate needs two samples, and the recorded series need some of their own. */
const SCRAPES = 4;
/** What filters: most such panels are empty while all is well. */
const COMPARISONS = / (?:[<>]=?|[=!]=) (?:bool )?-?\d[\d.e]*/g;
const IDENTITY = { cluster: 'test', namespace: 'shop', workload: 'web', pod: 'web-0' };

/** Series of the API server and of kube-state-metrics, with a pod that has no sidecar. */
const OF_OTHERS = `
apiserver_admission_webhook_fail_open_count{name="inject.sidegate.dev"} 1
apiserver_admission_webhook_admission_duration_seconds_bucket{name="inject.sidegate.dev",le="0.5"} 1
apiserver_admission_webhook_admission_duration_seconds_bucket{name="inject.sidegate.dev",le="+Inf"} 1
apiserver_admission_webhook_admission_duration_seconds_count{name="inject.sidegate.dev"} 1
kube_pod_labels{label_sidegate_dev_inject="true"} 1
kube_pod_status_phase{phase="Running"} 1
kube_pod_container_info{container="app"} 1
kube_pod_init_container_info{container="setup"} 1
`;

const app = useApp();
const gate = useGate(() => startMonitoredGate(app.port));
const certificateGate = useGate(() => startCertificateGate(app.port));
const others = useServer(
  createServer((_request, response) => {
    const metrics = createInjectorMetrics({ version: '1', revision: undefined, processMetrics: true, admissions: ADMISSIONS });
    metrics.serverLasts(0, 4_000_000_000_000);
    metrics.caEnds(4_000_000_000_000);
    metrics.admission('patched', 'injected', 1);
    response.setHeader('Content-Type', 'text/plain; version=0.0.4');
    void Promise.all([metrics.exposition(), renderProviderMetrics()]).then(([{ text }, provider]) =>
      response.end(`${text}\n${provider}\n${OF_OTHERS}`),
    );
  }),
);
let prometheus: TestPrometheus;
beforeAll(async () => {
  await exercise(gate, app.port, Date.now());
  const ports = [gate.adminPort, certificateGate.adminPort, others.port];
  prometheus = await startPrometheus(
    {
      global: { scrape_interval: '500ms', evaluation_interval: '500ms' },
      rule_files: ['*.rules.yaml'],
      scrape_configs: [
        {
          job_name: 'sidegate',
          static_configs: ports.map((port) => ({ targets: [`127.0.0.1:${port}`], labels: IDENTITY })),
        },
      ],
    },
    Object.fromEntries([...readRuleFiles()].map(([name, file]) => [name.replace('.yaml', '.rules.yaml'), file])),
  );
}, 60_000);
afterAll(() => prometheus?.stop());

const count = async (query: string): Promise<number> =>
  (await prometheus.ask<{ result: unknown[] }>('/query', { query })).result.length;

test('every query of every panel returns data, without the comparisons that hide what is well', async () => {
  await until(async () => (await count(`count_over_time(up[1m]) >= ${SCRAPES}`)) === 3);
  // The error ratio of a route is only recorded while it has traffic.
  await until(async () => {
    await send(gate.port, makeDelivery());
    return (await count('sidegate:errors:ratio_rate3d')) > 0;
  });
  const expressions = readDashboards().flatMap((board) => toExpressions(board).map((expr) => [board.title, expr] as const));
  expect(expressions.length).toBeGreaterThan(100);
  let empty = expressions;
  const findEmpty = async (): Promise<string[]> => {
    const found: (typeof empty)[number][] = [];
    for (const each of empty) if ((await count(each[1].replaceAll(COMPARISONS, ''))) === 0) found.push(each);
    empty = found;
    return empty.map(([title, expr]) => `${title}: ${expr}`);
  };
  // On a busy machine, a scrape takes longer than its interval, and leaves no values until the next one.
  await expect.poll(findEmpty, { timeout: 20_000 }).toEqual([]);
}, 60_000);
