import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ChartInput } from '../../chart/values.ts';
import { renderChart } from '../support/chart.ts';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import type { Kube } from '../support/cluster/kube-request.ts';
import { makePod } from '../support/cluster/pods.ts';
import { until } from '../support/gate.ts';
import { makeSidecar, makeSidecarVolumes } from '../support/sidecar.ts';

const IMAGE = 'registry.example.com/sidegate';
const LABEL = { 'sidegate.dev/inject': 'true' };
const sidecar = (over: Kube = {}): Kube => makeSidecar({ image: `${IMAGE}:1`, ...over });
const asContainer = (over: Kube = {}): Kube => makeSidecar({ image: `${IMAGE}:1`, ...over }, { isNative: false, pause: 5 });

/** What is left of it where a webhook took its restartPolicy, and what only sidecars may have, away. */
const endingSidecar = (): Kube => {
  const { restartPolicy, lifecycle, livenessProbe, readinessProbe, startupProbe, ...rest } = sidecar();
  return rest;
};

let cluster: Cluster;
let names = 0;

/** Installs the policies of a release for namespaces that carry its name. */
async function install(release: string, admission: ChartInput['admission']): Promise<void> {
  const objects = await renderChart({ admission: { mode: 'policy', ...admission } }, { release });
  const policies: Kube[] = objects.filter(({ kind }) => kind.startsWith('ValidatingAdmissionPolicy'));
  expect(policies).toHaveLength(4);
  for (const policy of policies) {
    // The control plane is shared with other tests: these policies are for these namespaces alone.
    if (policy['kind'].endsWith('Binding'))
      policy['spec'].matchResources = {
        namespaceSelector: { matchLabels: { release, ...policy['spec'].matchResources?.namespaceSelector.matchLabels } },
      };
    const { status, body } = await cluster.create(policy);
    expect(status, body.message).toBe(201);
  }
}

const create = (namespace: string, metadata: Kube, spec: Kube = {}, isDryRun = false): Promise<{ status: number; body: Kube }> =>
  cluster.create(makePod(`pod-${names++}`, { metadata, spec: { volumes: makeSidecarVolumes(), ...spec } }), {
    namespace,
    isDryRun,
  });
const containers = (...more: Kube[]): Kube => ({ containers: [...makePod('a')['spec'].containers, ...more] });
const merge = (namespace: string, name: string, patch: Kube): Promise<{ status: number; body: Kube }> =>
  cluster.request('PATCH', `/api/v1/namespaces/${namespace}/pods/${name}`, patch, {
    contentType: 'application/merge-patch+json',
  });

/** A policy is in force a moment after it was made. */
async function untilDenied(namespace: string, metadata: Kube): Promise<void> {
  await until(async () => (await create(namespace, metadata, {}, true)).status >= 400);
}

beforeAll(async () => {
  cluster = await useCluster('1.36');
  await install('any', { allowedImages: ['*'] });
  await install('listed', { allowedImages: [IMAGE, 'sidegate'] });
});
afterAll(() => cluster?.cleanUp());

test('the API server accepts the expressions', async () => {
  for (const name of ['any', 'listed'].flatMap((release) => [`${release}-sidegate-protected`, `${release}-sidegate-enforced`])) {
    const path = `/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/${name}`;
    await until(async () => (await cluster.ok('GET', path)).status?.typeChecking !== undefined);
    expect((await cluster.ok('GET', path)).status.typeChecking, name).toEqual({});
  }
});

describe('the policy `protected`', () => {
  let namespace: string;
  let old: string;

  beforeAll(async () => {
    namespace = await cluster.createNamespace({ release: 'any' });
    old = await cluster.createNamespace({ release: 'later' });
    await untilDenied(namespace, { labels: LABEL });
  });

  test.each([
    ['a pod without the label', {}, {}],
    ['a pod that declines', { labels: { 'sidegate.dev/inject': 'false' } }, {}],
    ['a labelled pod with a native sidecar', { labels: LABEL }, { initContainers: [sidecar()] }],
    ['a labelled pod with a sidecar in its containers', { labels: LABEL }, containers(asContainer())],
  ])('allows %s', async (_what, metadata, spec) => {
    const { status, body } = await create(namespace, metadata, spec);
    expect(status, body.message).toBe(201);
  });

  test.each([
    [
      'a labelled pod without a sidecar',
      { labels: LABEL },
      {},
      /no container `sidegate`, so its app would be unprotected.*create the pod again/,
    ],
    [
      'one that bears the mark of an injected pod',
      { labels: { ...LABEL, 'sidegate.dev/injected': 'true' } },
      {},
      /no container `sidegate`/,
    ],
    ['a label that is a mistake', { labels: { 'sidegate.dev/inject': 'yes' } }, {}, /inject: "yes", which is neither/],
    [
      'a sidecar that ends before the app starts',
      { labels: LABEL },
      { initContainers: [endingSidecar()] },
      /without `restartPolicy: Always`/,
    ],
  ])('denies %s, with the reason', async (_what, metadata, spec, message) => {
    const { status, body } = await create(namespace, metadata, spec);
    expect(body.message).toMatch(message);
    expect(body.message).toContain(`Pod ${namespace}/pod-`);
    expect([403, 422]).toContain(status);
  });

  test('denies the label on a pod that runs without the sidecar, and allows every other change of it', async () => {
    const { body } = await create(namespace, {});
    const { name } = body.metadata;
    const labelled = await merge(namespace, name, { metadata: { labels: LABEL } });
    expect(labelled.body.message).toContain('A running pod cannot get a sidecar');
    expect((await merge(namespace, name, { metadata: { labels: { other: 'x' } } })).status).toBe(200);
  });

  test('allows controllers to finish pods that are older than the policy', async () => {
    const { body } = await create(old, { labels: LABEL, finalizers: ['batch.kubernetes.io/job-tracking'] });
    const { name } = body.metadata;
    await cluster.ok(
      'PATCH',
      `/api/v1/namespaces/${old}`,
      { metadata: { labels: { release: 'any' } } },
      { contentType: 'application/merge-patch+json' },
    );
    await untilDenied(old, { labels: LABEL });
    expect((await merge(old, name, { metadata: { finalizers: null } })).status).toBe(200);
    expect((await merge(old, name, { metadata: { labels: { 'sidegate.dev/inject': null } } })).status).toBe(200);
  });

  test('ignores mirror pods, which the kubelet writes', async () => {
    const metadata = { labels: LABEL, annotations: { 'kubernetes.io/config.mirror': 'abc' } };
    const { status, body } = await create(namespace, metadata, { nodeName: 'a', volumes: [] });
    expect(status, body.message).toBe(201);
  });

  test('allows an update of the sidecar if any image is allowed', async () => {
    const { body } = await create(namespace, { labels: LABEL }, { initContainers: [sidecar()] });
    const initContainers = [{ ...body.spec.initContainers[0], image: 'other:2' }];
    expect((await merge(namespace, body.metadata.name, { spec: { initContainers } })).status).toBe(200);
  });
});

describe('the policy `enforced`', () => {
  let namespace: string;

  beforeAll(async () => {
    namespace = await cluster.createNamespace({ release: 'any', 'sidegate.dev/enforce': 'true' });
    await untilDenied(namespace, {});
  });

  test('denies a pod without the label, with the text to add', async () => {
    const { status, body } = await create(namespace, {});
    expect(status).toBe(403);
    expect(body.message).toMatch(/labeled sidegate\.dev\/enforce: "true"\. Set the label sidegate\.dev\/inject/);
    expect((await create(namespace, { labels: { 'sidegate.dev/inject': 'false' } })).status).toBe(403);
  });

  test('allows a pod with the sidecar, with any labels', async () => {
    expect((await create(namespace, {}, { initContainers: [sidecar()] })).status).toBe(201);
  });
});

describe('with a list of images', () => {
  let namespace: string;
  let enforced: string;

  beforeAll(async () => {
    namespace = await cluster.createNamespace({ release: 'listed' });
    enforced = await cluster.createNamespace({ release: 'listed', 'sidegate.dev/enforce': 'true' });
    await untilDenied(namespace, { labels: LABEL });
    await untilDenied(enforced, {});
  });

  test.each([IMAGE, `${IMAGE}:1.2`, `${IMAGE}@sha256:${'0'.repeat(64)}`, `${IMAGE}:1@sha256:${'0'.repeat(64)}`, 'sidegate:1'])(
    'allows the image %s',
    async (image) => {
      for (const where of [namespace, enforced])
        expect((await create(where, { labels: LABEL }, { initContainers: [sidecar({ image })] })).status).toBe(201);
    },
  );

  test.each([
    'busybox',
    'sidegate-fake:1',
    'sidegate:5000/evil:1',
    `${IMAGE}/evil:1`,
    `${IMAGE}2:1`,
    `evil.example.com/${IMAGE}:1`,
  ])('denies the image %s', async (image) => {
    for (const where of [namespace, enforced]) {
      const { status, body } = await create(where, { labels: LABEL }, { initContainers: [sidecar({ image })] });
      expect(body.message).toContain(`a container \`sidegate\` from ${image}, which is not an allowed image`);
      expect(status).toBe(403);
    }
  });

  test('denies one valid sidecar and one forged one', async () => {
    const { body } = await create(enforced, {}, containers(asContainer({ image: 'busybox' })));
    expect(body.message).toContain('from busybox');
  });

  test('denies an update of a running sidecar to another image, and allows a newer tag', async () => {
    for (const where of [namespace, enforced]) {
      const { body } = await create(where, { labels: LABEL }, { initContainers: [sidecar()] });
      const update = (image: string): Promise<{ status: number; body: Kube }> =>
        merge(where, body.metadata.name, { spec: { initContainers: [{ ...body.spec.initContainers[0], image }] } });
      expect((await update('busybox:1')).body.message).toContain('from busybox:1');
      expect((await update(`${IMAGE}:2`)).status).toBe(200);
      expect((await merge(where, body.metadata.name, { metadata: { labels: { other: 'x' } } })).status).toBe(200);
    }
  });
});

test('only warns during a roll-out', async () => {
  await install('soft', { protectActions: ['Warn', 'Audit'] });
  const namespace = await cluster.createNamespace({ release: 'soft' });
  await until(async () => {
    const { status, warnings } = await cluster.create(makePod('soft', { metadata: { labels: LABEL } }), {
      namespace,
      isDryRun: true,
    });
    expect(status).toBe(201);
    return warnings.some((warning) => warning.includes('its app would be unprotected'));
  });
});
