/** The charts as Helm renders them, without a cluster. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseAllDocuments, stringify } from 'yaml';
import type { ChartInput } from '../../chart/values.ts';
import { toBinFolder } from '../prepare/cluster-tools.ts';
import { type Ended, run } from './run.ts';

/** A rendered object, as far as every one is alike. */
export interface Rendered {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

/** How a chart is rendered. */
export interface RenderOptions {
  /** The chart's folder; left out: chart/sidegate. */
  readonly chart?: string;
  readonly release?: string;
  readonly namespace?: string;
  /** The version of the cluster that is rendered for. */
  readonly kubeVersion?: string;
  /** What `helm test` makes, too. */
  readonly tests?: boolean;
  /** Default: HELM. */
  readonly program?: string;
  /** Files with values, applied before `values`. */
  readonly files?: readonly string[];
}

/** The folder of the repository's chart. */
export const CHART = resolve(import.meta.dirname, '..', '..', 'chart', 'sidegate');

/** Helm, as the toolchain of this suite has built it. */
export const HELM = join(toBinFolder(), 'helm-v4.3.1');
/** The newest release of the major version before. */
export const HELM_3 = join(toBinFolder(), 'helm-v3.22.0');

/** Runs Helm to its end, with a separate configuration folder. */
export function helm(...args: readonly string[]): Promise<Ended> {
  return runHelm(HELM, args);
}

/** The same with another Helm, and with variables. */
export async function runHelm(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Ended> {
  if (!existsSync(program)) throw new Error(`${program} is missing; npm test -- cluster builds it`);
  const home = mkdtempSync(join(tmpdir(), 'sidegate-helm-'));
  try {
    return await run(program, args, { HOME: home, ...env });
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

/** What `helm template` makes of some values, as it ended. */
export async function templateChart(
  values: ChartInput | Readonly<Record<string, unknown>>,
  options: RenderOptions = {},
): Promise<Ended> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-values-'));
  try {
    const file = join(folder, 'values.yaml');
    writeFileSync(file, stringify(values));
    const {
      chart = CHART,
      release = 'sidegate',
      namespace = 'sidegate-system',
      kubeVersion = '1.36.3',
      files = [],
      tests = false,
      program = HELM,
    } = options;
    const more = [...files, file].flatMap((each) => ['--values', each]);
    if (!tests) more.push('--skip-tests');
    const args = ['template', release, chart, '--namespace', namespace, '--kube-version', kubeVersion, ...more];
    return await runHelm(program, args);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The objects that the chart becomes; throws what Helm says where it cannot be rendered. */
export async function renderChart(values: ChartInput = {}, options: RenderOptions = {}): Promise<readonly Rendered[]> {
  const { code, stdout, stderr } = await templateChart(values, options);
  if (code !== 0) throw new Error(stderr);
  return toObjects(stdout);
}

/** The objects of a text of several documents. */
export function toObjects(text: string): readonly Rendered[] {
  return parseAllDocuments(text).flatMap((document) => {
    const object = document.toJS() as Rendered | null;
    return object === null ? [] : [object];
  });
}

/** Kinds of other projects, which an API server does not have by itself. */
const FOREIGN = ['cert-manager.io/', 'monitoring.coreos.com/', 'grafana.integreatly.org/'];

/** Whether Kubernetes itself defines the kind of an object. */
export function isBuiltIn({ apiVersion }: Pick<Rendered, 'apiVersion'>): boolean {
  return !FOREIGN.some((group) => apiVersion.startsWith(group));
}

/** The one object of a kind, or of a kind and a name. */
export function pick(objects: readonly Rendered[], kind: string, name?: string): Rendered {
  const found = objects.filter((object) => object.kind === kind && (name === undefined || object.metadata.name === name));
  const [object] = found;
  if (object === undefined || found.length > 1) throw new Error(`${found.length} ${kind} ${name ?? ''}`);
  return object;
}
