import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { DASHBOARD_FILES } from '../chart/dashboards.ts';
import { ChartValues } from '../chart/values.ts';
import { createProgram } from '../src/cli/program.ts';
import { readDashboards, readRules } from './support/monitoring.ts';
import { toGroupedLabels, toSelectors } from './support/promql.ts';

const ROOT = join(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const { runbookUrl: DEFAULT_RUNBOOK_URL } = ChartValues.parse({}).monitoring.rules;
const alerts = readRules().filter(({ alert }) => alert !== undefined);
const names = [...new Set(alerts.map(({ alert = '' }) => alert))];

describe('every alert', () => {
  test('has a page with its meaning, what to check and what to do; and every page has its alert', () => {
    expect(readdirSync(join(ROOT, 'docs', 'runbooks')).sort()).toEqual(names.map((name) => `${name}.md`).sort());
    for (const name of names) {
      const headings = read(`docs/runbooks/${name}.md`).match(/^#.*$/gm);
      expect(headings).toEqual([`# ${name}`, '## What to look at', '## What to do']);
    }
  });

  test.each(alerts.map((rule) => [rule.alert, rule] as const))('%s has a severity, a summary and a link', (name, rule) => {
    expect(['critical', 'warning', 'info']).toContain(rule.labels?.['severity']);
    expect(Object.keys(rule.annotations ?? {}).sort()).toEqual(['description', 'runbook_url', 'summary']);
    expect(rule.annotations?.['runbook_url']).toBe(`${DEFAULT_RUNBOOK_URL}/${name}.md`);
  });

  test('uses only labels that its expression keeps', () => {
    for (const { alert, expr, annotations = {} } of alerts) {
      const kept = toGroupedLabels(expr);
      const used = [
        ...Object.values(annotations)
          .join(' ')
          .matchAll(/\$labels\.(\w+)/g),
      ].map(([, label = '']) => label);
      // Without any grouping, all labels of the target are left.
      if (!/\b(?:by|without)\b/.test(expr)) continue;
      expect(
        used.filter((label) => !kept.includes(label)),
        alert,
      ).toEqual([]);
    }
  });

  test('has tests that it fires and stays quiet, also without data', () => {
    const folder = join(ROOT, 'test', 'promtool');
    const titles = readdirSync(folder).flatMap((file) =>
      (parse(readFileSync(join(folder, file), 'utf8')) as { tests: { name: string }[] }).tests.map(({ name }) => name),
    );
    for (const name of names) {
      const own = titles.filter((title) => title.includes(name));
      expect(
        own.some((title) => /^\w+ (?:fires|warns)/.test(title) && title.startsWith(name)),
        `${name} fires`,
      ).toBe(true);
      expect(
        own.some((title) => title.startsWith(`${name} stays quiet`)),
        `${name} stays quiet`,
      ).toBe(true);
      expect(
        own.some((title) => title.endsWith('without any data')),
        `${name} without data`,
      ).toBe(true);
    }
  });
});

test('the page on monitoring lists every alert with its severity, and no others', () => {
  const rows = [...read('docs/monitoring.md').matchAll(/^\| \[(\w+)\]\(runbooks\/\w+\.md\) \| ([^|]+) \|/gm)];
  expect(rows.map(([, name]) => name).sort()).toEqual([...names].sort());
  for (const [, name = '', severities] of rows) {
    const own = alerts.filter(({ alert }) => alert === name).map(({ labels }) => labels?.['severity']);
    expect(severities, name).toBe([...new Set(own)].join(', '));
  }
});

describe('the pages of the alerts', () => {
  test('name only existing commands and options of sidegate', () => {
    const program = createProgram(
      { stdin: process.stdin, env: {}, stdout: () => undefined, stderr: () => undefined },
      () => undefined,
    );
    for (const name of names) {
      for (const [, command = '', rest = ''] of read(`docs/runbooks/${name}.md`).matchAll(/`sidegate ([a-z-]+)([^`]*)`/g)) {
        const group = program.commands.find((each) => each.name() === command);
        const [, subcommand] = /^ ([a-z]+)/.exec(rest) ?? [];
        const isGroup = group !== undefined && group.commands.length > 0;
        const found = isGroup ? group.commands.find((each) => each.name() === subcommand) : group;
        expect(found, `${name}: sidegate ${command}${rest}`).toBeDefined();
        for (const [option] of rest.matchAll(/--[a-z-]+/g)) expect(found?.options.map(({ long }) => long)).toContain(option);
      }
    }
  });

  test('name only existing metrics', () => {
    const known = read('docs/metrics.md');
    for (const name of names) {
      for (const [, metric = ''] of read(`docs/runbooks/${name}.md`).matchAll(/\b(sidegate_(?!injector)[a-z_]+)/g))
        expect(known, name).toContain(`\`${metric.replace(/_(?:bucket|count|sum)$/, '')}\``);
    }
  });
});

describe('the dashboards', () => {
  test('are generated from their panels', () => {
    const files = Object.keys(DASHBOARD_FILES);
    expect(readdirSync(join(ROOT, 'chart', 'sidegate', 'dashboards')).sort()).toEqual(
      files.map((file) => file.split('/').at(-1)).sort(),
    );
    for (const [file, render] of Object.entries(DASHBOARD_FILES)) expect(read(file), file).toBe(render());
  });

  test('keep the IDs that links use, with variables for source, cluster, namespace, and route or endpoint', () => {
    const boards = readDashboards();
    expect(boards.map(({ uid }) => uid)).toEqual(['sidegate-fleet', 'sidegate-provider', 'sidegate-routes', 'sidegate-security']);
    for (const { uid, templating } of boards)
      expect(templating.list.map(({ name }) => name)).toEqual([
        'datasource',
        'cluster',
        'namespace',
        uid === 'sidegate-provider' ? 'endpoint' : 'route',
      ]);
  });

  test.each(readDashboards().map((board) => [board.title, board] as const))(
    '%s begins with a summary row, and has a description and a unit for each panel',
    (_title, { panels }) => {
      expect(panels.slice(0, 9).map(({ type }) => type)).toEqual(['row', ...Array.from({ length: 8 }, () => 'stat')]);
      expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
      for (const { type, title, description, fieldConfig } of panels.filter((panel) => panel.type !== 'row')) {
        expect(description?.length, `${type} ${title}`).toBeGreaterThan(20);
        expect(fieldConfig?.defaults.unit, title).toBeTruthy();
      }
    },
  );

  test('have no overlapping panels', () => {
    for (const { panels } of readDashboards()) {
      const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
        Array.from({ length: w * h }, (_, i) => `${x + (i % w)}/${y + Math.floor(i / w)}`),
      );
      expect(new Set(cells).size).toBe(cells.length);
      expect(panels.every(({ gridPos: { x, w } }) => x + w <= 24)).toBe(true);
    }
  });

  test('compute rates over the interval of the graph', () => {
    for (const { title, panels } of readDashboards())
      for (const { expr } of panels.flatMap(({ targets = [] }) => targets))
        for (const [range] of expr.matchAll(/\brate\([^[]*\[([^\]]+)\]/g)) expect(range, title).toContain('[$__rate_interval]');
  });
});

describe('the PromQL parser', () => {
  test('finds each metric with its matchers, but no functions, keywords or groupings', () => {
    expect(
      toSelectors(
        'sum by (a, b) (rate(x_total{c="}[", d=~"e|f"}[5m] offset 1d)) / on (g) group_left (h) y:z > 0.5 and time() or vector(0)',
      ),
    ).toEqual([
      {
        metric: 'x_total',
        matchers: [
          { label: 'c', operator: '=', value: '}[' },
          { label: 'd', operator: '=~', value: 'e|f' },
        ],
      },
      { metric: 'y:z', matchers: [] },
    ]);
    expect(toGroupedLabels('sum by (a, b) (x) * on (c) y')).toEqual(['a', 'b', 'c']);
  });
});
