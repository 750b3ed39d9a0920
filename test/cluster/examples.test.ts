/** The manifests of examples/, with the custom resource definitions of the projects that they are for, and the schema of Compose files. */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parse } from 'yaml';
import { toBinFolder } from '../prepare/cluster-tools.ts';
import { listForeignFiles } from '../prepare/kubernetes-schemas.ts';
import { type Cluster, toObjects, useCluster } from '../support/cluster/cluster.ts';
import type { Kube } from '../support/cluster/kube-request.ts';
import { EXAMPLES, readExample } from '../support/example.ts';
import { until } from '../support/gate.ts';
import { run } from '../support/run.ts';

const KUBECTL = join(toBinFolder(), 'kubectl-v1.37.1');
const COMPOSE_SCHEMA = listForeignFiles().find((file) => file.endsWith('compose-spec.json')) ?? '';
/** Files of objects; only kubectl reads a Kustomization. */
const MANIFESTS = globSync('*/*.yaml', { cwd: EXAMPLES })
  .filter((file) => /^apiVersion: (?!kustomize)/m.test(readFileSync(join(EXAMPLES, file), 'utf8')))
  .sort();
/** Their modules could not be downloaded. */
const isMissing = listForeignFiles().some((file) => !existsSync(file));
let cluster: Cluster;
let namespace: string;

beforeAll(async () => {
  if (isMissing) return;
  cluster = await useCluster('1.36');
  namespace = await cluster.createNamespace();
  // The objects of some examples name them.
  for (const name of ['argocd', 'billing']) await cluster.apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
  for (const file of listForeignFiles().filter((each) => each.endsWith('.yaml')))
    for (const { metadata } of await cluster.applyAll(readFileSync(file, 'utf8'))) await untilServed(metadata.name);
});
afterAll(() => cluster?.cleanUp());

async function untilServed(name: string): Promise<void> {
  const path = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`;
  await until(async () => {
    const { spec, status } = await cluster.ok('GET', path);
    const isEstablished = status?.conditions?.some((each: Kube) => each.type === 'Established' && each.status === 'True');
    const { name: version } = spec.versions.find(({ storage }: Kube) => storage);
    const { status: code, body } = await cluster.request('GET', `/apis/${spec.group}/${version}`);
    return isEstablished && code === 200 && body.resources.some((each: Kube) => each.name === spec.names.plural);
  });
}

const applyDry = (text: string): Promise<Kube[]> => cluster.applyAll(text, { namespace, isDryRun: true });

test('include objects of each project', () => {
  expect(MANIFESTS).toEqual([
    'argocd/billing.yaml',
    'argocd/sidegate.yaml',
    'external-secrets/external-secret.yaml',
    'gateway-api/gateway.yaml',
    'kubernetes/app.yaml',
    'kubernetes/network-policy.yaml',
  ]);
});

test.skipIf(isMissing).each(MANIFESTS)('the API server accepts every object of %s, without unknown fields', async (file) => {
  const applied = await applyDry(readFileSync(join(EXAMPLES, file), 'utf8'));
  expect(applied.length).toBeGreaterThan(0);
});

test.skipIf(isMissing).each(MANIFESTS)('the API server rejects an unknown field in an object of %s', async (file) => {
  const [object] = toObjects(readFileSync(join(EXAMPLES, file), 'utf8'));
  const { status, body } = await cluster.apply(
    { ...object, spec: { ...object.spec, misspelt: 1 } },
    { namespace, isDryRun: true },
  );
  expect(status).toBe(500);
  expect(body.message).toContain('misspelt');
});

test.skipIf(isMissing).each(['kubernetes', 'kustomize'])(
  'kubectl renders %s with the name of the generated ConfigMap in the annotation',
  async (name) => {
    const { code, stdout, stderr } = await run(KUBECTL, ['kustomize', join(EXAMPLES, name)]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const objects = toObjects(stdout);
    const pick = (kind: string): Kube => objects.find((object) => object.kind === kind);
    const { metadata, data } = pick('ConfigMap');
    expect(metadata.name).toMatch(/^my-gate-\w{10}$/);
    expect(data['gate.yaml']).toBe(readExample(name, 'gate.yaml'));
    expect(pick('Deployment').spec.template.metadata.annotations['sidegate.dev/config']).toBe(metadata.name);
    expect((await applyDry(stdout)).length).toBe(objects.length);
  },
);

test.skipIf(isMissing)('the overlay changes replicas, namespace, image and Secrets of the base', async () => {
  const { stdout } = await run(KUBECTL, ['kustomize', join(EXAMPLES, 'kustomize')]);
  const { metadata, spec } = toObjects(stdout).find(({ kind }) => kind === 'Deployment');
  expect(metadata.namespace).toBe('billing');
  expect(spec.replicas).toBe(3);
  expect(spec.template.spec.containers[0].image).toMatch(/^registry\.example\.com\/billing@sha256:[0-9a-f]{64}$/);
  expect(spec.template.metadata.annotations['sidegate.dev/secrets']).toBe('billing-webhook, redis');
});

test.skipIf(isMissing)('compose.yaml is valid by the schema of the Compose specification, which rejects an unknown field', () => {
  const ajv = new Ajv2020({ allErrors: true, strict: false, validateFormats: false });
  const validate = ajv.compile(JSON.parse(readFileSync(COMPOSE_SCHEMA, 'utf8')));
  const file = parse(readExample('compose', 'compose.yaml')) as { services: Record<string, object> };
  expect(validate(file), JSON.stringify(validate.errors)).toBe(true);
  expect(validate({ ...file, services: { app: { ...file.services['app'], misspelt: 1 } } })).toBe(false);
});
