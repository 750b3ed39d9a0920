import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { CHART, pick, type Rendered, renderChart, templateChart } from '../support/chart.ts';
import { makeFolder } from '../support/fixtures.ts';
import { type Rule, type RuleFile, readRules } from '../support/monitoring.ts';
import { run } from '../support/run.ts';

const KINDS = ['PodMonitor', 'ServiceMonitor', 'PrometheusRule', 'GrafanaDashboard'];
const ALL = {
  podMonitor: { enabled: true, labels: { release: 'prometheus' }, interval: '15s' },
  serviceMonitor: { enabled: true },
  rules: { enabled: true },
  dashboards: { enabled: true, annotations: { grafana_folder: 'Sidegate' }, operator: { enabled: true } },
};
const toRules = (object: Rendered): readonly Rule[] => (object['spec'] as RuleFile).groups.flatMap(({ rules }) => rules);
const isDashboard = ({ kind, metadata }: Rendered): boolean => kind === 'ConfigMap' && metadata.name.includes('-dashboard-');

describe('monitoring', () => {
  test('is disabled by default, because not every cluster has the kinds it needs', async () => {
    const objects = await renderChart();
    expect(objects.filter((object) => KINDS.includes(object.kind) || isDashboard(object))).toEqual([]);
  });

  test('renders the same bytes twice', async () => {
    const [first, second] = [await templateChart({ monitoring: ALL }), await templateChart({ monitoring: ALL })];
    expect(first.stderr).toBe('');
    expect(second.stdout).toBe(first.stdout);
  });

  test('scrapes the sidecars of every namespace by container and port name, with a workload label for the rules', async () => {
    const monitor = pick(await renderChart({ monitoring: ALL }), 'PodMonitor');
    expect(monitor.metadata.labels).toMatchObject({ release: 'prometheus', 'app.kubernetes.io/part-of': 'sidegate' });
    const spec = monitor['spec'] as { podMetricsEndpoints: { relabelings: Record<string, unknown>[] }[] };
    expect(spec).toMatchObject({
      namespaceSelector: { any: true },
      podMetricsEndpoints: [{ port: 'sidegate-admin', path: '/metrics', interval: '15s' }],
    });
    const [keep, ...rest] = spec.podMetricsEndpoints[0]?.relabelings ?? [];
    expect(keep).toMatchObject({ action: 'keep', regex: 'sidegate;sidegate-admin' });
    expect(rest.map(({ targetLabel }) => targetLabel)).toEqual(['workload', 'workload']);
    const regex = new RegExp(`^(?:${rest[1]?.['regex']})$`);
    expect('ReplicaSet;billing-api-7c9f4d8b5').toMatch(regex);
    expect(regex.exec('ReplicaSet;billing-api-7c9f4d8b5')?.[1]).toBe('billing-api');
    expect('StatefulSet;billing-api').not.toMatch(regex);
  });

  test('takes a label from the most specific value', async () => {
    const labels = { release: 'near' };
    const { rules, podMonitor, serviceMonitor, dashboards } = ALL;
    const monitoring = {
      podMonitor: { ...podMonitor, labels },
      serviceMonitor: { ...serviceMonitor, labels },
      rules: { ...rules, labels },
      dashboards: { ...dashboards, labels, operator: { enabled: true, labels } },
    };
    const objects = await renderChart({ commonLabels: { release: 'far', team: 'edge' }, monitoring });
    const found = objects.filter((object) => KINDS.includes(object.kind) || isDashboard(object));
    expect(found).toHaveLength(11);
    for (const { kind, metadata } of found)
      expect(metadata.labels, kind).toMatchObject({ release: 'near', team: 'edge', 'app.kubernetes.io/component': 'monitoring' });
  });

  test('scrapes the injector through a separate Service, if the injector is installed', async () => {
    const objects = await renderChart({ monitoring: ALL });
    const monitor = pick(objects, 'ServiceMonitor');
    const service = pick(objects, 'Service', 'sidegate-injector-metrics');
    const { matchLabels } = (monitor['spec'] as { selector: { matchLabels: Record<string, string> } }).selector;
    expect(service.metadata.labels).toMatchObject(matchLabels);
    const picked = objects.filter(
      ({ kind, metadata }) =>
        kind === 'Service' && Object.entries(matchLabels).every(([key, value]) => metadata.labels?.[key] === value),
    );
    expect(picked).toHaveLength(1);
    const withPolicy = await renderChart({ admission: { mode: 'policy' }, monitoring: ALL });
    expect(withPolicy.filter(({ kind, metadata }) => kind === 'ServiceMonitor' || metadata.name.endsWith('-metrics'))).toEqual(
      [],
    );
  });

  test('has every alert and record of the files, unchanged except for the URL of the runbooks', async () => {
    const runbookUrl = 'https://runbooks.example/sidegate';
    const rules = toRules(pick(await renderChart({ monitoring: { rules: { enabled: true, runbookUrl } } }), 'PrometheusRule'));
    const toFull = (rule: Rule): Rule =>
      rule.alert === undefined
        ? rule
        : { ...rule, annotations: { ...rule.annotations, runbook_url: `${runbookUrl}/${rule.alert}.md` } };
    expect([...rules].sort(byText)).toEqual(readRules().map(toFull).sort(byText));
  });

  test.each([
    ['the default', undefined, 'https://github.com/sidegate/sidegate/blob/main/docs/runbooks'],
    ['a folder', 'https://git.example.com/ops/sidegate/docs/runbooks', 'https://git.example.com/ops/sidegate/docs/runbooks'],
    ['a path in a query', 'https://git.example.com/ops?path=/docs/runbooks', 'https://git.example.com/ops?path=/docs/runbooks'],
  ])('gives every alert an absolute URL that ends in its existing runbook: %s', async (_, runbookUrl, base) => {
    const rules = { enabled: true, ...(runbookUrl === undefined ? {} : { runbookUrl }) };
    const alerts = toRules(pick(await renderChart({ monitoring: { rules } }), 'PrometheusRule')).filter(({ alert }) => alert);
    expect(alerts.length).toBeGreaterThan(15);
    for (const { alert, annotations } of alerts) {
      const url = annotations?.['runbook_url'] ?? '';
      expect(url).toBe(`${base}/${alert}.md`);
      expect(new URL(url).protocol).toBe('https:');
      expect(existsSync(join(CHART, '..', '..', 'docs', 'runbooks', url.slice(base.length))), url).toBe(true);
    }
  });

  test.each([
    'docs/runbooks',
    '/docs/runbooks',
    'git.example.com/docs',
    'https://',
    'https:///docs',
    'https://git.example.com/docs/',
    'https://git.example.com/a b',
    'javascript://x/docs',
  ])('rejects the runbook URL %s, which is not absolute or does not name a folder', async (runbookUrl) => {
    const { code, stderr } = await templateChart({ monitoring: { rules: { enabled: true, runbookUrl } } });
    expect(code).not.toBe(0);
    expect(stderr).toContain('/monitoring/rules/runbookUrl');
  });

  test('renders rules that Prometheus accepts', async () => {
    const file = join(makeFolder(), 'rules.yaml');
    writeFileSync(file, stringify(pick(await renderChart({ monitoring: ALL }), 'PrometheusRule')['spec']));
    const { code, stdout, stderr } = await run('promtool', ['check', 'rules', '--lint=all', '--lint-fatal', file]);
    expect(code, stdout + stderr).toBe(0);
  });

  test('omits excluded alerts, labels the others, and reports unknown alert names', async () => {
    const exclude = ['SidegatePodUnprotected', 'SidegateErrorBudgetBurn'];
    const rules = toRules(
      pick(
        await renderChart({ monitoring: { rules: { enabled: true, exclude, alertLabels: { team: 'edge' } } } }),
        'PrometheusRule',
      ),
    );
    expect(rules.filter(({ alert }) => alert !== undefined && exclude.includes(alert))).toEqual([]);
    for (const { alert, labels } of rules) expect(labels?.['team']).toBe(alert === undefined ? undefined : 'edge');
    const { code, stderr } = await templateChart({
      monitoring: { rules: { enabled: true, exclude: ['SidegatePodUnprotectd'] } },
    });
    expect(code).not.toBe(0);
    expect(stderr).toContain('monitoring.rules.exclude names SidegatePodUnprotectd, and there is no such alert');
  });

  test('puts each dashboard unchanged into a ConfigMap, for the sidecar of Grafana and for its operator', async () => {
    const objects = await renderChart({ monitoring: ALL });
    const maps = objects.filter(isDashboard);
    expect(maps.map(({ metadata }) => metadata.name)).toEqual([
      'sidegate-dashboard-fleet',
      'sidegate-dashboard-provider',
      'sidegate-dashboard-routes',
      'sidegate-dashboard-security',
    ]);
    for (const map of maps) {
      expect(map.metadata.labels).toMatchObject({ grafana_dashboard: '1' });
      expect(map.metadata.annotations).toEqual({ grafana_folder: 'Sidegate' });
      const [[file, text]] = Object.entries(map['data'] as Record<string, string>) as [[string, string]];
      expect(`${text.trim()}\n`).toBe(readFileSync(join(CHART, 'dashboards', file), 'utf8'));
      const board = pick(objects, 'GrafanaDashboard', map.metadata.name);
      expect(board['spec']).toMatchObject({ configMapRef: { name: map.metadata.name, key: file } });
    }
  });
});

function byText(a: Rule, b: Rule): number {
  const [one, other] = [JSON.stringify([a.alert, a.record, a.expr]), JSON.stringify([b.alert, b.record, b.expr])];
  return one < other ? -1 : 1;
}
