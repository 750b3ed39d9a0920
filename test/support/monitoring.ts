/** The alerts and dashboards of the chart, as tests read them. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parse } from 'yaml';

/** An alert, or a series that is recorded. */
export interface Rule {
  readonly alert?: string;
  readonly record?: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** A file of rules. */
export interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

/** A panel, as far as tests look at it. */
export interface PanelModel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string }[];
  readonly fieldConfig?: { readonly defaults: { readonly unit?: string } };
}

/** A dashboard in Grafana's form. */
export interface DashboardModel {
  readonly uid: string;
  readonly title: string;
  readonly templating: { readonly list: readonly { readonly name: string; readonly query: unknown }[] };
  readonly annotations: { readonly list: readonly { readonly expr: string }[] };
  readonly panels: readonly PanelModel[];
}

const ROOT = resolve(import.meta.dirname, '..', '..');
/** The folder of the rules. */
export const RULES = join(ROOT, 'chart', 'sidegate', 'rules');

/** The files of rules, by name. */
export function readRuleFiles(): ReadonlyMap<string, RuleFile> {
  return new Map(readdirSync(RULES).map((name) => [name, parse(readFileSync(join(RULES, name), 'utf8')) as RuleFile]));
}

/** All of their rules. */
export function readRules(): Rule[] {
  return [...readRuleFiles().values()].flatMap(({ groups }) => groups.flatMap(({ rules }) => rules));
}

/** The dashboards. */
export function readDashboards(): DashboardModel[] {
  const folder = join(ROOT, 'chart', 'sidegate', 'dashboards');
  return readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as DashboardModel);
}

/** All that a dashboard asks Prometheus, with each variable at All. */
export function toExpressions({ panels, annotations }: DashboardModel): string[] {
  return [...panels.flatMap(({ targets = [] }) => targets), ...annotations.list].map(({ expr }) =>
    expr.replaceAll('$__rate_interval', '1m').replaceAll(/\$(?:cluster|namespace|route|endpoint)\b/g, '.*'),
  );
}
