import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import { makePod } from '../support/cluster/pods.ts';
import { until } from '../support/gate.ts';

describe.each(['1.36', '1.34'] as const)('the control plane of Kubernetes %s', (version) => {
  let cluster: Cluster;
  let namespace: string;

  beforeAll(async () => {
    cluster = await useCluster(version);
    namespace = await cluster.createNamespace({ 'pod-security.kubernetes.io/enforce': 'restricted' });
  });
  afterAll(() => cluster?.cleanUp());

  test('has the requested version', async () => {
    expect((await cluster.ok('GET', '/version')).gitVersion).toMatch(new RegExp(`^v${version.replace('.', '\\.')}\\.\\d+$`));
  });

  test('allows a compliant pod and denies another one if PodSecurity restricted is enforced', async () => {
    expect((await cluster.create(makePod('careful'), { namespace })).status).toBe(201);
    const careless = await cluster.create(makePod('careless', { container: { securityContext: {} } }), { namespace });
    expect(careless.status).toBe(403);
    expect(careless.body.message).toContain('violates PodSecurity "restricted:latest"');
  });

  test('rejects a field that does not exist', async () => {
    const { status, body } = await cluster.apply(makePod('misspelt', { spec: { restartPolize: 'Always' } }), { namespace });
    expect(status).toBe(500);
    expect(body.message).toContain('restartPolize');
  });

  test('allows a user without roles nothing, and a service account what it is bound to', async () => {
    const secrets = `/api/v1/namespaces/${namespace}/secrets`;
    expect((await cluster.request('GET', secrets, undefined, { token: cluster.connection.users.nobody })).status).toBe(403);
    const token = await cluster.serviceAccountToken(namespace, 'default');
    expect((await cluster.request('GET', secrets, undefined, { token })).status).toBe(403);
    const rbac = { apiVersion: 'rbac.authorization.k8s.io/v1', metadata: { name: 'reader', namespace } };
    await cluster.apply({ ...rbac, kind: 'Role', rules: [{ apiGroups: [''], resources: ['secrets'], verbs: ['list'] }] });
    await cluster.apply({
      ...rbac,
      kind: 'RoleBinding',
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'reader' },
      subjects: [{ kind: 'ServiceAccount', name: 'default', namespace }],
    });
    // The authorizer learns of roles by a watch.
    await until(async () => (await cluster.request('GET', secrets, undefined, { token })).status === 200);
  });
});
