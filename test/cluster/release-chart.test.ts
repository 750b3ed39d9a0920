import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import type { ChartInput } from '../../chart/values.ts';
import { findHelm, packageCharts } from '../../scripts/package-charts.ts';
import { HELM_3, pick, type Rendered, renderChart } from '../support/chart.ts';
import { useFolder } from '../support/fixtures.ts';

const REPOSITORY = 'ghcr.io/sidegate/sidegate';
const DIGEST = `sha256:${'a'.repeat(64)}`;
const OTHER = `sha256:${'b'.repeat(64)}`;
const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '..', '..', 'package.json'), 'utf8')) as {
  version: string;
};

describe('the packaged chart', () => {
  const folder = useFolder();
  const packages: string[] = [];

  beforeAll(() => {
    packages.push(...packageCharts({ destination: folder, image: `${REPOSITORY}@${DIGEST}` }));
  });

  /** The image of the injector, which the policies also allow for sidecars. */
  async function toImage(values: ChartInput, program?: string): Promise<string> {
    const objects = await renderChart(values, { chart: packages[0] ?? '', ...(program === undefined ? {} : { program }) });
    const deployment = pick(objects, 'Deployment', 'sidegate-injector') as Rendered & { spec: DeploymentSpec };
    const [{ image } = { image: '' }] = deployment.spec.template.spec.containers;
    expect(JSON.stringify(pick(objects, 'ValidatingAdmissionPolicy', 'sidegate-protected'))).toContain(image);
    return image;
  }

  test.each<[string, ChartInput, string]>([
    ['the digest of the release by default', {}, `${REPOSITORY}@${DIGEST}`],
    ['another tag', { image: { tag: '1.0.0' } }, `${REPOSITORY}:1.0.0`],
    ['another digest', { image: { digest: OTHER } }, `${REPOSITORY}@${OTHER}`],
    ['the tag of the version in a mirror', { image: { repository: 'a.example/sidegate' } }, `a.example/sidegate:${version}`],
    ['a digest in a mirror', { image: { repository: 'a.example/sidegate', digest: OTHER } }, `a.example/sidegate@${OTHER}`],
  ])('installs %s', async (_, values, image) => {
    expect(await toImage(values)).toBe(image);
  });

  test('installs the digest of the release with Helm 3, too', async () => {
    expect(await toImage({}, HELM_3)).toBe(`${REPOSITORY}@${DIGEST}`);
  });

  test('has the version of the npm package, and the annotations of Artifact Hub', () => {
    for (const file of packages) {
      const chart = parse(execFileSync(findHelm(), ['show', 'chart', file], { encoding: 'utf8' })) as Chart;
      expect(chart).toMatchObject({ version, appVersion: version });
      expect(chart.annotations).toMatchObject({ 'artifacthub.io/license': 'Apache-2.0', 'artifacthub.io/category': 'security' });
      for (const name of ['changes', 'links'])
        expect((parse(chart.annotations[`artifacthub.io/${name}`] ?? '') as unknown[]).length, name).toBeGreaterThan(0);
    }
    const { annotations } = parse(execFileSync(findHelm(), ['show', 'chart', packages[0] ?? ''], { encoding: 'utf8' })) as Chart;
    expect(parse(annotations['artifacthub.io/images'] ?? '')).toEqual([
      { name: 'sidegate', image: `${REPOSITORY}@${DIGEST}`, platforms: ['linux/amd64', 'linux/arm64'] },
    ]);
  });

  test.each([`${REPOSITORY}:1.0.0`, `${REPOSITORY}@sha256:abc`, DIGEST])('cannot be made with the image %s', (image) => {
    expect(() => packageCharts({ destination: folder, image })).toThrow('must be REPOSITORY@sha256: and 64 hex digits');
  });
});

test('the chart of a checkout installs the tag of its version', async () => {
  const deployment = pick(await renderChart(), 'Deployment', 'sidegate-injector');
  expect(JSON.stringify(deployment)).toContain(`"image":"${REPOSITORY}:${version}"`);
});

interface DeploymentSpec {
  readonly template: { readonly spec: { readonly containers: readonly { readonly image: string }[] } };
}

interface Chart {
  readonly annotations: Readonly<Record<string, string>>;
}
