import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { injectFiles } from '../../src/cli/inject.ts';
import { CHART, type Rendered, renderChart } from '../support/chart.ts';
import { makeGatedPod } from '../support/cluster/gate-pods.ts';
import type { Kube } from '../support/cluster/kube-request.ts';
import { makePod } from '../support/cluster/pods.ts';
import { findTool } from '../support/cluster/program.ts';
import { recordIo } from '../support/io.ts';

const CONFIG = resolve(import.meta.dirname, '..', 'golden', 'inject', 'config', 'plain.yaml');
const CI = readdirSync(join(CHART, 'ci')).map((name) => basename(name, '-values.yaml'));

/** The reasons against each pod, by the version of the Pod Security Standards. */
function judge(level: 'baseline' | 'restricted', pods: readonly Kube[]): Record<string, string>[] {
  const { status, stdout, stderr } = spawnSync(findTool('pod-security-v1.36.3'), [level], {
    input: JSON.stringify(pods),
    encoding: 'utf8',
  });
  expect(status, stderr).toBe(0);
  return JSON.parse(stdout);
}

async function inject(pod: Kube, kubeVersion: string): Promise<Kube> {
  const { io, stdout, stderr } = recordIo({ stdin: Readable.from([JSON.stringify(pod)]) as NodeJS.ReadableStream });
  const code = await injectFiles({ config: CONFIG, filename: ['-'], namespace: 'default', kubeVersion, format: 'json' }, io);
  expect(code, stderr()).toBe(0);
  const injected: Kube = JSON.parse(stdout());
  expect([...(injected.spec.initContainers ?? []), ...injected.spec.containers].map(({ name }) => name)).toContain('sidegate');
  return injected;
}

/** The pods that a chart's objects become. */
function toPods(objects: readonly Rendered[]): Kube[] {
  return objects.flatMap((object: Kube) => {
    if (object.kind === 'Pod') return [object];
    return object.kind === 'Deployment' ? [object.spec.template] : [];
  });
}

describe('by the checks of the API server, in all versions of the Pod Security Standards', () => {
  test('a pod without settings is not restricted, and one on the network of the node is not even baseline', () => {
    const bare = { metadata: { name: 'bare' }, spec: { containers: [{ name: 'app', image: 'app:1' }] } };
    const [reasons = {}] = judge('restricted', [bare]);
    expect(Object.keys(reasons)).toHaveLength(37);
    expect(reasons['v1.36']).toContain('runAsNonRoot != true');
    const [other = {}] = judge('baseline', [makePod('host', { spec: { ...makePod('host').spec, hostNetwork: true } })]);
    expect(other['v1.36']).toContain('host namespaces');
  });

  test.each([
    ['service', '1.36'],
    ['rename', '1.36'],
    ['same-port', '1.36'],
    ['same-port:HOST', '1.36'],
    ['env:PORT', '1.36'],
    ['service', '1.28'],
    ['rename', '1.28'],
  ])('a restricted pod stays restricted with the sidecar: %s, for Kubernetes %s', async (interception, kubeVersion) => {
    const env = [{ name: 'PORT', value: '8080' }];
    const injected = await inject(makeGatedPod('billing', interception, { container: { env } }), kubeVersion);
    expect(judge('restricted', [injected])).toEqual([{}]);
  });

  test.each(CI)(
    'every pod of the chart with the values of ci/%s is restricted, except on the network of the node',
    async (name) => {
      const objects = await renderChart({}, { files: [join(CHART, 'ci', `${name}-values.yaml`)], tests: true });
      const pods = toPods(objects);
      expect(pods.length).toBeGreaterThan(0);
      const ofTest = pods.filter(({ metadata }) => metadata.labels['sidegate.dev/inject'] === 'true');
      const judged = judge('restricted', [...pods, ...(await Promise.all(ofTest.map((pod) => inject(pod, '1.36'))))]);
      const reasons = new Set(judged.flatMap((each) => Object.values(each)));
      expect([...reasons]).toEqual(name === 'host-network' ? ['host namespaces (hostNetwork=true)'] : []);
    },
  );
});
