import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { send } from '../support/client.ts';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import { type InjectorInstallation, installInjector } from '../support/cluster/injector.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { exercise, startCertificateGate, startMonitoredGate, TRACE_ID, toSeries } from '../support/monitored-gate.ts';
import { RULES, readDashboards, readRuleFiles, readRules, toExpressions } from '../support/monitoring.ts';
import { startPrometheus, type TestPrometheus } from '../support/prometheus.ts';
import { type Matcher, type Selector, toGroupedLabels, toSelectors } from '../support/promql.ts';
import { renderProviderMetrics } from '../support/provider-exposition.ts';
import { run } from '../support/run.ts';

const UNIT_TESTS = resolve(import.meta.dirname, '..', 'promtool');
/** What a scrape adds. */
const OF_TARGETS = ['cluster', 'namespace', 'workload', 'pod', 'job', 'instance'];
/** What others export, with the labels that are asked of it: the API server, kube-state-metrics, Prometheus itself. */
const OF_OTHERS: Readonly<Record<string, readonly string[]>> = {
  apiserver_admission_webhook_fail_open_count: ['name'],
  apiserver_admission_webhook_admission_duration_seconds_bucket: ['name', 'le'],
  apiserver_admission_webhook_admission_duration_seconds_count: ['name'],
  kube_pod_labels: ['label_sidegate_dev_inject'],
  kube_pod_status_phase: ['phase'],
  kube_pod_init_container_info: ['container'],
  kube_pod_container_info: ['container'],
  up: [],
};

const app = useApp();
const gate = useGate(() => startMonitoredGate(app.port));
const certificateGate = useGate(() => startCertificateGate(app.port));
let cluster: Cluster;
let installation: InjectorInstallation | undefined;
let live: ReadonlyMap<string, readonly Readonly<Record<string, string>>[]>;
beforeAll(async () => {
  await exercise(gate, app.port, Date.now());
  cluster = await useCluster('1.36');
  installation = await installInjector(cluster, { checkInterval: '500ms', overlap: '1s' });
  installation.startController();
  const injector = await installation.start();
  await until(injector.isReady);
  const ofInjector = await (await fetch(`http://127.0.0.1:${injector.adminPort}/metrics`)).text();
  live = toLive(`${await gate.metrics()}\n${await certificateGate.metrics()}\n${await renderProviderMetrics()}\n${ofInjector}`);
}, 180_000);
afterAll(async () => {
  await installation?.stop();
  await cluster?.cleanUp();
});

function toLive(exposition: string): Map<string, Record<string, string>[]> {
  const found = new Map<string, Record<string, string>[]>();
  for (const series of toSeries(exposition)) {
    const [, name = '', braces = ''] = /^([^{]+)(?:\{(.*)\})?$/.exec(series) ?? [];
    const labels = Object.fromEntries([...braces.matchAll(/(\w+)="([^"]*)"/g)].map(([, label, value]) => [label, value]));
    found.set(name, [...(found.get(name) ?? []), labels]);
  }
  return found;
}

describe('the rules', () => {
  test('are accepted by Prometheus, without warnings from its linter', async () => {
    const files = readdirSync(RULES).map((name) => join(RULES, name));
    const { code, stdout, stderr } = await run('promtool', ['check', 'rules', '--lint=all', '--lint-fatal', ...files]);
    expect(code, stdout + stderr).toBe(0);
  });

  test.each(readdirSync(UNIT_TESTS))('fire and stay quiet as %s expects', async (name) => {
    const { code, stdout, stderr } = await run('promtool', ['test', 'rules', join(UNIT_TESTS, name)]);
    expect(code, stdout + stderr).toBe(0);
  });
});

describe('the dashboards', () => {
  test('contain only queries that Prometheus can parse', async () => {
    const exprs = readDashboards().flatMap(toExpressions);
    const rules = exprs.map((expr, i) => ({ record: `panel:${i}`, expr }));
    const file = join(gate.folder, 'panels.yaml');
    writeFileSync(file, stringify({ groups: [{ name: 'panels', rules }] }));
    const { code, stdout, stderr } = await run('promtool', ['check', 'rules', file]);
    expect(code, stdout + stderr).toBe(0);
  });
});

describe('every series in a rule or a panel', () => {
  const recorded = readRules().flatMap(({ record }) => (record === undefined ? [] : [record]));
  const expressions = [...readRules().map(({ expr }) => expr), ...readDashboards().flatMap(toExpressions)];

  /** What is wrong with a selector; undefined where such series are there. */
  function findProblem({ metric, matchers }: Selector): string | undefined {
    const asked = matchers.filter(({ label }) => !OF_TARGETS.includes(label));
    const known = OF_OTHERS[metric];
    if (known !== undefined || recorded.includes(metric)) {
      const strange = asked.find(({ label }) => !(known ?? ['route']).includes(label));
      return strange === undefined ? undefined : `${metric} has no label ${strange.label}`;
    }
    const series = live.get(metric);
    if (series === undefined) return `nobody exports ${metric}`;
    return asked.map((matcher) => findMismatch(metric, matcher, series)).find((problem) => problem !== undefined);
  }

  function findMismatch(
    metric: string,
    { label, operator, value }: Matcher,
    series: readonly Readonly<Record<string, string>>[],
  ) {
    const values = new Set(series.map((labels) => labels[label]));
    if (values.has(undefined)) return `${metric} has no label ${label}`;
    if (operator.startsWith('!') || value === '.*') return undefined;
    const has = (pattern: string): boolean => series.some((labels) => new RegExp(`^(?:${pattern})$`).test(labels[label] ?? ''));
    const missing = operator === '=' ? (values.has(value) ? undefined : value) : value.split('|').find((each) => !has(each));
    return missing === undefined ? undefined : `no ${metric} has ${label}="${missing}"`;
  }

  test('exists on a busy gate, on a running injector, or is listed as a series of another program', () => {
    expect(expressions.length).toBeGreaterThan(80);
    const problems = expressions.flatMap((expr) =>
      toSelectors(expr).flatMap((selector) => {
        const problem = findProblem(selector);
        return problem === undefined ? [] : [`${problem}: ${expr}`];
      }),
    );
    expect(problems).toEqual([]);
  });

  test('has the labels that the expression groups by', () => {
    for (const expr of expressions) {
      const selectors = toSelectors(expr).filter(({ metric }) => live.has(metric));
      if (selectors.length === 0) continue;
      const labels = new Set([...OF_TARGETS, ...selectors.flatMap(({ metric }) => live.get(metric)?.flatMap(Object.keys) ?? [])]);
      expect(
        toGroupedLabels(expr).filter((label) => !labels.has(label)),
        expr,
      ).toEqual([]);
    }
  });
});

describe('a real Prometheus', () => {
  const LABELS = { namespace: 'shop', workload: 'web', pod: 'web-0' };
  let prometheus: TestPrometheus;
  /** Alerts wait before they fire; here they do not. */
  const rules = [...readRuleFiles()].map(([name, { groups }]) => [
    name,
    { groups: groups.map((group) => ({ ...group, rules: group.rules.map(({ for: _, ...rule }) => rule) })) },
  ]);
  beforeAll(async () => {
    prometheus = await startPrometheus(
      {
        global: { scrape_interval: '1s', evaluation_interval: '1s' },
        rule_files: ['*.rules.yaml'],
        scrape_configs: [
          { job_name: 'sidegate', static_configs: [{ targets: [`127.0.0.1:${gate.adminPort}`], labels: LABELS }] },
        ],
      },
      Object.fromEntries(rules.map(([name, file]) => [String(name).replace('.yaml', '.rules.yaml'), file as object])),
    );
  });
  afterAll(() => prometheus.stop());

  const query = async (expr: string): Promise<readonly { metric: Record<string, string>; value: [number, string] }[]> =>
    (await prometheus.ask<{ result: { metric: Record<string, string>; value: [number, string] }[] }>('/query', { query: expr }))
      .result;
  const firing = async (): Promise<readonly string[]> =>
    (await query('ALERTS{alertstate="firing"}')).map(({ metric }) => metric['alertname'] ?? '');

  test('scrapes a gate with exemplars, and accepts every sample', async () => {
    await until(async () => (await query('up == 1')).length === 1);
    const { activeTargets } = await prometheus.ask<{ activeTargets: { health: string; lastError: string }[] }>('/targets');
    expect(activeTargets).toMatchObject([{ health: 'up', lastError: '' }]);
    const [samples] = await until(async () => {
      const found = await query('scrape_samples_scraped');
      return found.length > 0 && found;
    });
    expect(Number(samples?.value[1])).toBe(toSeries(await gate.metrics()).length);
    const now = Date.now() / 1000;
    const exemplars = await prometheus.ask<{ exemplars: { labels: Record<string, string> }[] }[]>('/query_exemplars', {
      query: 'sidegate_http_request_duration_seconds_bucket{route="billing"}',
      start: String(now - 600),
      end: String(now + 600),
    });
    expect(exemplars.flatMap((series) => series.exemplars.map(({ labels }) => labels))).toContainEqual({ trace_id: TRACE_ID });
  });

  test('evaluates every rule and every panel without an error', async () => {
    const isEvaluated = ({ health }: { health: string }): boolean => health !== 'unknown';
    const all = await until(async () => {
      const { groups } = await prometheus.ask<{ groups: { rules: { name: string; health: string; lastError?: string }[] }[] }>(
        '/rules',
      );
      const rules = groups.flatMap((group) => group.rules);
      return rules.every(isEvaluated) && rules;
    });
    expect(all.length).toBe(readRules().length);
    expect(all.filter(({ health }) => health !== 'ok')).toEqual([]);
    for (const expr of readDashboards().flatMap(toExpressions)) await query(expr);
  });

  test('raises exactly one alert for forged deliveries, with its details', async () => {
    await until(async () => (await query('sidegate_auth_decisions_total{route="billing",reason="bad_signature"}')).length > 0);
    expect(await firing()).toEqual([]);
    const names = await until(async () => {
      const { headers, body } = makeDelivery({ secret: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oE' });
      await send(gate.port, { path: '/hooks/billing', headers, body });
      const now = await firing();
      return now.length > 0 && now;
    });
    expect(names).toEqual(['SidegateBadSignatures']);
    const { alerts } = await prometheus.ask<{ alerts: { labels: object; annotations: Record<string, string> }[] }>('/alerts');
    expect(alerts[0]?.labels).toMatchObject({ severity: 'warning', route: 'billing', namespace: 'shop', workload: 'web' });
    expect(alerts[0]?.annotations['summary']).toMatch(/^[\d.]+% of the signatures on route billing are wrong$/);
    expect(alerts[0]?.annotations['description']).toContain('route billing of shop/web');
  });
});

test('Prometheus accepts the scrape config of the docs', async () => {
  const page = readFileSync(resolve(import.meta.dirname, '..', '..', 'docs', 'monitoring.md'), 'utf8');
  const [, config = ''] = /```yaml\n(scrape_configs:.*?)```/s.exec(page) ?? [];
  const file = join(gate.folder, 'prometheus.yml');
  expect(config).toContain('kubernetes_sd_configs: [{ role: pod }]');
  // Debian builds Prometheus without the discovery of pods.
  writeFileSync(file, config.replace('kubernetes_sd_configs: [{ role: pod }]', 'static_configs: []'));
  const { code, stdout, stderr } = await run('promtool', ['check', 'config', '--syntax-only', file]);
  expect(code, stdout + stderr).toBe(0);
});

test('the linter of Prometheus accepts the metrics in the text format', async () => {
  const file = join(gate.folder, 'metrics.txt');
  writeFileSync(file, await gate.metrics());
  const { code, stderr } = await run('sh', ['-c', `promtool check metrics < ${file}`]);
  const remarks = stderr.split('\n').filter((line) => line.includes('sidegate_'));
  expect(remarks).toEqual([]);
  expect([0, 3], stderr).toContain(code);
});
