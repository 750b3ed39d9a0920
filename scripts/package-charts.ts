/**
 * Packages both charts: `node scripts/package-charts.ts --destination FOLDER [--image REPOSITORY@sha256:…]`. With an image, the chart
 * `sidegate` names it in Chart.yaml, where Artifact Hub reads it, and installs it by this digest unless values name another.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { parseDocument, stringify } from 'yaml';
import { CLUSTER_TOOLS, toBinFolder } from '../test/prepare/cluster-tools.ts';

const CHARTS = join(import.meta.dirname, '..', 'chart');
/** The platforms that the release builds (.github/workflows/release.yml). */
const PLATFORMS = ['linux/amd64', 'linux/arm64'];

export interface Packaging {
  readonly destination: string;
  /** The published image, by digest. */
  readonly image?: string | undefined;
}

/** Returns the paths of the packages: `sidegate`, then `sidegate-lib`. */
export function packageCharts({ destination, image }: Packaging): string[] {
  if (image !== undefined && !/^[^@\s]+@sha256:[0-9a-f]{64}$/.test(image))
    throw new Error(`--image ${image}: must be REPOSITORY@sha256: and 64 hex digits`);
  return ['sidegate', 'sidegate-lib'].map((name) => packageChart(name, destination, name === 'sidegate' ? image : undefined));
}

function packageChart(name: string, destination: string, image: string | undefined): string {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-chart-'));
  try {
    const chart = join(folder, name);
    cpSync(join(CHARTS, name), chart, { recursive: true });
    if (image !== undefined) addImage(join(chart, 'Chart.yaml'), image);
    const printed = execFileSync(findHelm(), ['package', chart, '--destination', destination], { encoding: 'utf8' });
    return join(destination, basename(printed.trim().split('\n').at(-1) ?? ''));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function addImage(file: string, image: string): void {
  const document = parseDocument(readFileSync(file, 'utf8'));
  const images = stringify([{ name: 'sidegate', image, platforms: PLATFORMS }]);
  document.setIn(['annotations', 'artifacthub.io/images'], images);
  writeFileSync(file, document.toString());
}

/** Helm as the cluster tests built it, or the one of this machine. */
export function findHelm(): string {
  const built = CLUSTER_TOOLS.filter(({ name }) => name.startsWith('helm-')).map(({ name }) => join(toBinFolder(), name));
  const helm = built.find(existsSync) ?? 'helm';
  if (spawnSync(helm, ['version']).status !== 0)
    throw new Error('helm is missing: install it, or run `node test/prepare/prepare-test.ts cluster`, which builds it');
  return helm;
}

if (import.meta.main) {
  const { values } = parseArgs({ options: { destination: { type: 'string', default: '.' }, image: { type: 'string' } } });
  for (const file of packageCharts(values)) console.log(file);
}
