import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CHART, isBuiltIn, templateChart, toObjects } from '../support/chart.ts';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';

const CI = readdirSync(join(CHART, 'ci')).map((name) => basename(name, '-values.yaml'));

describe.each(['1.34', '1.36'] as const)('an API server of version %s', (version) => {
  let cluster: Cluster;
  let namespace: string;

  beforeAll(async () => {
    cluster = await useCluster(version);
    namespace = await cluster.createNamespace();
  });
  afterAll(() => cluster?.cleanUp());

  test.each(CI.filter((name) => name !== 'policy' || version === '1.36'))(
    'accepts every object of ci/%s, with strict field validation and without a warning',
    async (name) => {
      const files = [join(CHART, 'ci', `${name}-values.yaml`)];
      const options = { namespace, kubeVersion: `${version}.0`, files, tests: true };
      const { stdout, stderr } = await templateChart({}, options);
      expect(stderr).toBe('');
      const objects = toObjects(stdout).filter(isBuiltIn);
      expect(objects.length).toBeGreaterThan(3);
      const tests = objects.filter(({ metadata }) => metadata.annotations?.['helm.sh/hook'] === 'test');
      // Where a selector limits the injection and no namespace is named, there is no self-test.
      expect(tests.map(({ kind }) => kind)).toEqual(name === 'on' ? [] : ['Pod']);
      for (const object of objects) {
        const { status, body, warnings } = await cluster.apply({ ...object }, { isDryRun: true });
        expect(status, `${object.kind} ${object.metadata.name}: ${body.message}`).toBeLessThan(300);
        expect(warnings, `${object.kind} ${object.metadata.name}`).toEqual([]);
      }
    },
  );
});
