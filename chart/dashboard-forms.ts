/** Types of dashboards and panels, and their conversion to Grafana's JSON, which lays out panels from left to right. */

/** One expression of a panel. */
export interface Query {
  readonly expr: string;
  /** The name of the line; `{{label}}` is replaced by the label's value. */
  readonly legend?: string;
}

/** Color from this value on. */
type Step = readonly [from: number, color: 'green' | 'yellow' | 'orange' | 'red' | 'blue'];

/** One panel. */
export interface Panel {
  readonly kind: 'stat' | 'timeseries' | 'table' | 'heatmap';
  readonly title: string;
  /** The meaning of the values, and how to interpret them. */
  readonly description: string;
  /** Grafana's name of the unit. */
  readonly unit: string;
  readonly queries: readonly Query[];
  /** The thresholds of colors, if some values are better than others. */
  readonly steps?: readonly Step[];
  /** Columns of 24. */
  readonly width?: number;
  readonly stack?: boolean;
  /** Points link to the traces of single requests. */
  readonly exemplars?: boolean;
  readonly decimals?: number;
}

/** Panels under a heading. */
export interface Row {
  readonly title: string;
  readonly panels: readonly Panel[];
}

/** A dashboard. */
export interface Dashboard {
  /** Must never change, because links contain it. */
  readonly uid: string;
  readonly title: string;
  readonly description: string;
  /** The third variable, after cluster and namespace. Default: the route. */
  readonly variable?: Variable;
  readonly rows: readonly Row[];
}

/** A variable that is filled by a query. */
interface Variable {
  readonly name: string;
  readonly query: string;
}

const COLUMNS = 24;
const HEIGHTS: Readonly<Record<Panel['kind'], number>> = { stat: 4, timeseries: 8, table: 8, heatmap: 8 };
const WIDTHS: Readonly<Record<Panel['kind'], number>> = { stat: 3, timeseries: 8, table: 12, heatmap: 12 };
const SOURCE = { type: 'prometheus', uid: '$datasource' };

const VARIABLES: readonly Variable[] = [
  { name: 'cluster', query: 'label_values(sidegate_build_info, cluster)' },
  { name: 'namespace', query: 'label_values(sidegate_build_info{cluster=~"$cluster"}, namespace)' },
];
const ROUTE: Variable = {
  name: 'route',
  query: 'label_values(sidegate_route_ready{cluster=~"$cluster",namespace=~"$namespace"}, route)',
};

/** Converts a dashboard to the text of its JSON file. */
export function renderDashboard({ uid, title, description, variable = ROUTE, rows }: Dashboard): string {
  const model = {
    uid,
    title,
    description,
    tags: ['sidegate'],
    schemaVersion: 39,
    version: 1,
    editable: true,
    graphTooltip: 1,
    refresh: '30s',
    time: { from: 'now-3h', to: 'now' },
    timezone: 'browser',
    links: [{ type: 'dashboards', title: 'Sidegate', tags: ['sidegate'], asDropdown: true, keepTime: true, includeVars: true }],
    templating: { list: [toSourceVariable(), ...[...VARIABLES, variable].map(toVariable)] },
    annotations: { list: [toReloads()] },
    panels: toPanels(rows),
  };
  return `${JSON.stringify(model, null, 2)}\n`;
}

function toSourceVariable(): object {
  return { name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus', current: {}, hide: 0 };
}

/** `All` also matches a missing label: with a single cluster, series have no label `cluster`. */
function toVariable({ name, query }: Variable): object {
  return {
    name,
    label: name[0]?.toUpperCase() + name.slice(1),
    type: 'query',
    datasource: SOURCE,
    query: { query, refId: name },
    definition: query,
    refresh: 2,
    sort: 1,
    multi: true,
    includeAll: true,
    allValue: '.*',
    current: { text: ['All'], value: ['$__all'] },
  };
}

/** Annotations at config reloads, because most incidents begin with a change. */
function toReloads(): object {
  return {
    name: 'Config reloaded',
    datasource: SOURCE,
    enable: true,
    iconColor: 'blue',
    expr: 'changes(sidegate_config_last_reload_success_timestamp_seconds{cluster=~"$cluster",namespace=~"$namespace"}[1m]) > 0',
    titleFormat: 'Config reloaded',
    textFormat: '{{namespace}}/{{pod}}',
    step: '60s',
  };
}

function toPanels(rows: readonly Row[]): object[] {
  const out: object[] = [];
  let top = 0;
  for (const { title, panels } of rows) {
    out.push({
      id: out.length + 1,
      type: 'row',
      title,
      collapsed: false,
      panels: [],
      gridPos: { x: 0, y: top, w: COLUMNS, h: 1 },
    });
    top += 1;
    let left = 0;
    let height = 0;
    for (const panel of panels) {
      const [w, h] = [panel.width ?? WIDTHS[panel.kind], HEIGHTS[panel.kind]];
      if (left + w > COLUMNS) [left, top, height] = [0, top + height, 0];
      out.push(toPanel(panel, out.length + 1, { x: left, y: top, w, h }));
      left += w;
      height = Math.max(height, h);
    }
    top += height;
  }
  return out;
}

function toPanel(panel: Panel, id: number, gridPos: object): object {
  const { kind, title, description, queries } = panel;
  const isInstant = kind === 'stat' || kind === 'table';
  const targets = queries.map(({ expr, legend = '__auto' }, i) => ({
    refId: String.fromCharCode('A'.charCodeAt(0) + i),
    datasource: SOURCE,
    expr,
    legendFormat: legend,
    instant: isInstant,
    range: !isInstant,
    ...(kind === 'table' || kind === 'heatmap' ? { format: kind } : {}),
    ...(panel.exemplars === true ? { exemplar: true } : {}),
  }));
  return {
    id,
    type: kind,
    title,
    description,
    datasource: SOURCE,
    gridPos,
    targets,
    fieldConfig: toFields(panel),
    ...toOptions(panel),
  };
}

function toFields({ kind, unit, steps, stack, decimals }: Panel): object {
  const thresholds = { mode: 'absolute', steps: (steps ?? [[0, 'green']]).map(toStep) };
  const custom = {
    lineWidth: 1,
    fillOpacity: stack === true ? 30 : 5,
    showPoints: 'never',
    stacking: { mode: stack === true ? 'normal' : 'none', group: 'A' },
    thresholdsStyle: { mode: steps === undefined ? 'off' : 'dashed' },
  };
  return {
    defaults: {
      unit,
      min: unit === 's' || unit === 'dateTimeFromNow' ? null : 0,
      ...(decimals === undefined ? {} : { decimals }),
      color: { mode: kind === 'timeseries' ? 'palette-classic' : 'thresholds' },
      thresholds,
      custom: kind === 'timeseries' ? custom : {},
      noValue: kind === 'stat' ? '–' : null,
    },
    overrides: [],
  };
}

function toStep([value, color]: Step, index: number): object {
  return { value: index === 0 ? null : value, color };
}

function toOptions({ kind }: Panel): object {
  if (kind === 'stat')
    return {
      options: {
        colorMode: 'background',
        graphMode: 'none',
        reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
      },
    };
  if (kind === 'timeseries')
    return {
      options: {
        legend: { displayMode: 'list', placement: 'bottom', showLegend: true },
        tooltip: { mode: 'multi', sort: 'desc' },
      },
    };
  if (kind === 'heatmap')
    return { options: { calculate: false, color: { scheme: 'Oranges', steps: 64 }, yAxis: { unit: 's' }, cellGap: 1 } };
  return {
    options: { showHeader: true, cellHeight: 'sm' },
    transformations: [{ id: 'organize', options: { excludeByName: { Time: true } } }],
  };
}
