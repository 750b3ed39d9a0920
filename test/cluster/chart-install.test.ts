import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CHART, renderChart } from '../support/chart.ts';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';

const CI = join(CHART, 'ci');
/** Objects of operators that this control plane has not; the API server knows no such kind. */
const FOREIGN = /^(?:cert-manager\.io|monitoring\.coreos\.com|grafana\.integreatly\.org)\//;
const VALUES = readdirSync(CI).filter((name) => name.endsWith('-values.yaml'));

describe.each(['1.36', '1.34'] as const)('Kubernetes %s', (version) => {
  let cluster: Cluster;
  let namespace: string;

  beforeAll(async () => {
    cluster = await useCluster(version);
    namespace = await cluster.createNamespace({}, 'sidegate-system');
  });
  afterAll(() => cluster?.cleanUp());

  // The policy mode says by itself that it needs 1.36.
  test.each(VALUES.filter((name) => version !== '1.34' || !name.startsWith('policy-')))(
    'takes all objects of %s by strict server-side apply in a dry run',
    async (name) => {
      const objects = await renderChart({}, { namespace, kubeVersion: `${version}.0`, files: [join(CI, name)] });
      const own = objects.filter(({ apiVersion }) => !FOREIGN.test(apiVersion));
      expect(own.length).toBeGreaterThan(3);
      for (const object of own) {
        const { status, body } = await cluster.apply(object, { namespace, isDryRun: true });
        expect(status, `${object.kind} ${object.metadata.name}: ${body.message}`).toBeLessThan(300);
      }
    },
  );
});
