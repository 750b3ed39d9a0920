import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import type { ChartInput } from '../../chart/values.ts';
import type { JsonSchema } from '../../src/config/schema/json-schema.ts';
import { CHART, helm, pick, renderChart, templateChart, toObjects } from '../support/chart.ts';
import type { Ended } from '../support/run.ts';

const CA = '-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n';

const SCHEMA = JSON.parse(readFileSync(join(CHART, 'values.schema.json'), 'utf8')) as JsonSchema;

/** Whether a value can be any text of digits. */
function acceptsDigits({ type, pattern, enum: choices }: JsonSchema): boolean {
  return (
    type === 'string' && choices === undefined && (pattern === undefined || new RegExp(String(pattern), 'u').test('1000000'))
  );
}

/** Values where every text that accepts digits, also in lists and labels, consists of digits. */
function nameByDigits(schema: JsonSchema, next: () => string): unknown {
  const { properties, items = {}, additionalProperties } = schema;
  if (properties !== undefined)
    return Object.fromEntries(Object.entries(properties).map(([name, inner]) => [name, nameByDigits(inner, next)]));
  if (acceptsDigits(schema)) return next();
  if (acceptsDigits(items)) return [next()];
  return typeof additionalProperties === 'object' && acceptsDigits(additionalProperties) ? { label: next() } : undefined;
}

/** Adds the values of `more`, also within groups. */
function merge(values: unknown, more: unknown): unknown {
  if (typeof values !== 'object' || typeof more !== 'object' || Array.isArray(more) || values === null || more === null)
    return more;
  const merged = Object.entries(more).map(([key, value]) => [key, merge((values as Record<string, unknown>)[key], value)]);
  return { ...values, ...Object.fromEntries(merged) };
}

/** All numbers in a value. */
function listNumbers(value: unknown): readonly number[] {
  if (typeof value === 'number') return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(listNumbers) : [];
}

/** The part of a Deployment that these tests look at. */
interface DeploymentSpec {
  readonly template: {
    readonly spec: {
      readonly volumes: readonly { readonly secret?: { readonly secretName: string } }[];
      readonly containers: readonly { readonly volumeMounts: readonly { readonly mountPath: string }[] }[];
    };
  };
}

/** What Helm renders where these values are null; one with `=` is set to what follows. */
function setToNull(...paths: readonly string[]): Promise<Ended> {
  const settings = paths.map((path) => (path.includes('=') ? path : `${path}=null`)).join(',');
  const monitoring = ['--values', join(CHART, 'ci', 'monitoring-values.yaml')];
  return helm('template', 'a', CHART, '--namespace', 'a', '--kube-version', '1.36.3', ...monitoring, '--set', settings);
}

describe('the chart', () => {
  test.each([
    ['a group', 'injector', "missing property 'injector'"],
    ['a group within', 'sidecar.resources', "missing property 'resources'"],
    ['a value that pods need', 'sidecar.resources.limits.memory', "missing property 'memory'"],
    ['a default that protects', 'admission.excludedNamespaces', "missing property 'excludedNamespaces'"],
  ])('rejects null for %s', async (_what, path, message) => {
    const { code, stderr } = await setToNull(path);
    expect(stderr).toContain(message);
    expect(code).not.toBe(0);
  });

  test('accepts null for values that are empty by default', async () => {
    const paths = [
      'commonLabels',
      'image.tag',
      'admission.namespaceSelector',
      'admission.allowedImages',
      'admission.allowedMounts',
      'sidecar.imagePullSecrets',
    ];
    const more = ['injector.affinity', 'monitoring.rules.alertLabels', 'monitoring.podMonitor.selector'];
    for (const mode of ['webhook', 'policy']) {
      const { stdout, stderr } = await setToNull(...paths, ...more, `admission.mode=${mode}`);
      expect(stderr).toBe('');
      expect(toObjects(stdout).length).toBeGreaterThan(5);
      expect(stdout).not.toMatch(/<no value>|nil pointer|(?:imagePullSecrets|selector): null/);
    }
  });

  test.each([
    ['a misspelt group', { sidecars: {} }, "additional properties 'sidecars' not allowed"],
    ['a misspelt value', { injector: { replica: 3 } }, "additional properties 'replica' not allowed"],
    ['a word that is none of the choices', { admission: { mode: 'webhoook' } }, "value must be one of 'webhook', 'policy'"],
    ['text in the place of a number', { injector: { replicas: 'two' } }, 'got string, want integer'],
    ['an interception mode that does not exist', { sidecar: { interception: 'iptables' } }, '/sidecar/interception'],
    ['a port out of range', { sidecar: { port: 70_000 } }, 'maximum: got 70,000, want 65,535'],
    [
      'a variable that changes the program of sidecars',
      { admission: { allowedEnv: ['NODE_OPTIONS'] } },
      '/admission/allowedEnv/0',
    ],
    ['a mount over the program of sidecars', { admission: { allowedMounts: ['/opt/sidegate'] } }, '/admission/allowedMounts/0'],
    ['a mount that leads up', { admission: { allowedMounts: ['/a/../opt'] } }, '/admission/allowedMounts/0'],
    ...(['', 'a b', 'a:1', 'a@sha256:0', 'https://a.example/b', 'a/', 'a\nb', 'Upper'].map((repository) => [
      `the repository ${JSON.stringify(repository)}`,
      { image: { repository } },
      '/image/repository',
    ]) as [string, object, string][]),
    ...(['a b', 'a:1', '-a', 'a\nb'].map((tag) => [`the tag ${JSON.stringify(tag)}`, { image: { tag } }, '/image/tag']) as [
      string,
      object,
      string,
    ][]),
    ['an image without text', { admission: { allowedImages: [''] } }, '/admission/allowedImages/0'],
    ['an allowed image with a quote', { admission: { allowedImages: ["a'"] } }, '/admission/allowedImages/0'],
    [
      'labels that are not in matchLabels',
      { admission: { namespaceSelector: { team: 'a' } } },
      "at '/admission/namespaceSelector'",
    ],
    ['a PriorityClass with a quote', { injector: { priorityClassName: '"' } }, '/injector/priorityClassName'],
    ['a PriorityClass of deliver with a quote', { deliver: { priorityClassName: '"' } }, '/deliver/priorityClassName'],
    ['more pods than a cluster has', { injector: { replicas: 1e15 } }, '/injector/replicas'],
    ['more pods of deliver than a cluster has', { deliver: { replicas: 1e15 } }, '/deliver/replicas'],
    ['a label that is not a string', { commonLabels: { a: true } }, 'got boolean, want string'],
  ])('rejects %s, with its path', async (_what, values, message) => {
    const { code, stderr } = await templateChart(values);
    expect(stderr).toContain(message);
    expect(code).not.toBe(0);
  });

  test.each([
    ['webhook', 'self-signed', {}],
    ['webhook', 'cert-manager', {}],
    ['webhook', 'cert-manager', { certManager: { issuerRef: { name: '1000099' } } }],
    ['webhook', 'existing-secret', { existingSecret: '1000099', caBundle: CA }],
    ['policy', 'self-signed', {}],
  ])('keeps names of digits as text: %s, %s %j', async (mode, certificateMode, certificate) => {
    let last = 1_000_000;
    const digits = nameByDigits(SCHEMA, () => String(++last));
    const webhook = mode === 'webhook';
    const own = {
      admission: { mode },
      certificate: { mode: certificateMode, existingSecret: '', caBundle: '', ...certificate },
      injector: { clientAuth: { mode: webhook ? 'require' : 'none', caConfigMap: '' }, hostNetwork: webhook, port: 9443 },
      rbac: { readConfigs: webhook ? ['1000098', '1000097'] : false },
      monitoring: Object.fromEntries(['podMonitor', 'serviceMonitor', 'rules'].map((each) => [each, { enabled: true }])),
      deliver: { enabled: true, existingConfigMap: '' },
    };
    const files = [join(CHART, 'ci', 'monitoring-values.yaml')];
    const objects = await renderChart(merge(digits, own) as ChartInput, {
      namespace: '1000000',
      release: '1000096',
      files,
      tests: true,
    });
    const texts = objects.flatMap(({ data }) => Object.entries(data ?? {}).filter(([key]) => key.endsWith('.yaml')));
    expect(texts.length).toBeGreaterThan(0);
    const numbers = [...objects, ...texts.map(([, text]) => parse(String(text)) as unknown)].flatMap(listNumbers);
    expect(numbers.filter((number) => number >= 1_000_000)).toEqual([]);
    expect(last).toBeGreaterThan(1_030);
  });

  test('mounts a Secret once that deliver.secrets names twice', async () => {
    const deliver = { enabled: true, existingSecret: 'gate', secrets: ['postgres', 'postgres', 'endpoints'] };
    const { spec } = pick(await renderChart({ deliver }), 'Deployment', 'sidegate-deliver') as { spec?: DeploymentSpec };
    const { volumes, containers } = spec?.template.spec ?? { volumes: [], containers: [] };
    expect(volumes.flatMap(({ secret }) => secret?.secretName ?? [])).toEqual(['gate', 'postgres', 'endpoints']);
    const mounts = containers.flatMap(({ volumeMounts }) => volumeMounts.map(({ mountPath }) => mountPath));
    expect(mounts.filter((path) => path.includes('/secrets/'))).toEqual([
      '/etc/sidegate/secrets/postgres',
      '/etc/sidegate/secrets/endpoints',
    ]);
  });

  test.each([
    ['sidegate', '1.0.0'],
    ['registry.example:5000/team/side_gate', 'v1.0.0-rc.1_a'],
    ['localhost/a/b--c', ''],
  ])('accepts the repository %s with the tag "%s"', async (repository, tag) => {
    expect((await templateChart({ image: { repository, tag } })).stderr).toBe('');
  });

  test.each([
    ['the policy mode before 1.36', { admission: { mode: 'policy' } }, '1.35.4', 'admission.mode=policy needs Kubernetes 1.36'],
    [
      'an interception mode that the API server does not know',
      { admission: { mode: 'policy' }, sidecar: { interception: 'env:PORT' } },
      '1.36.3',
      'With sidecar.interception=env:PORT it would deny',
    ],
    [
      'a container beside the app where the API server injects',
      { admission: { mode: 'policy' }, sidecar: { mode: 'container' } },
      '1.36.3',
      'supports only native sidecars',
    ],
    [
      'injectors that would wait for themselves',
      { injector: { podLabels: { 'sidegate.dev/inject': 'true' } } },
      '1.36.3',
      'injector.podLabels has sidegate.dev/inject',
    ],
    [
      'a label that all of its pods would have',
      { commonLabels: { 'sidegate.dev/inject': 'true' } },
      '1.36.3',
      'commonLabels has sidegate.dev/inject',
    ],
    [
      'a self-test in an excluded namespace',
      { admission: { excludedNamespaces: ['apps'] }, selfTest: { namespace: 'apps' } },
      '1.36.3',
      'which admission.excludedNamespaces excludes',
    ],
    ['the validating policies before 1.30', {}, '1.29.9', 'admission.protect needs Kubernetes 1.30'],
    [
      'native sidecars before 1.29',
      { sidecar: { mode: 'native' }, admission: { protect: false, enforce: false, failurePolicy: 'Fail' } },
      '1.28.0',
      'sidecar.mode=native needs',
    ],
    [
      'a way to run unprotected without a webhook',
      { admission: { mode: 'policy', protect: false } },
      '1.36.3',
      'would start labeled pods without their sidecar',
    ],
    ['a way to run unprotected', { admission: { protect: false } }, '1.36.3', 'would start labeled pods without their sidecar'],
    [
      'denial and warning in one',
      { admission: { enforceActions: ['Deny', 'Warn'] } },
      '1.36.3',
      'admission.enforceActions has both',
    ],
    [
      'less memory than the sidecar requests',
      { sidecar: { resources: { limits: { memory: '64Mi' } } } },
      '1.36.3',
      'sidecar.resources.requests.memory=96Mi is above sidecar.resources.limits.memory=64Mi',
    ],
    [
      'less CPU than the sidecar requests',
      { sidecar: { resources: { requests: { cpu: '0.5' }, limits: { cpu: '499m' } } } },
      '1.36.3',
      'sidecar.resources.requests.cpu=0.5 is above',
    ],
    ['ports of the sidecar that collide', { sidecar: { adminPort: 8480 } }, '1.36.3', 'must differ'],
    ['ports of the injector that collide', { injector: { adminPort: 10_250 } }, '1.36.3', 'must differ'],
    [
      "the kubelet's port on the node's network",
      { injector: { hostNetwork: true } },
      '1.36.3',
      'the kubelet or kube-proxy uses that port',
    ],
    ["rights for everybody's account", { serviceAccount: { create: false } }, '1.36.3', 'Name the account'],
    [
      'no name for the existing Secret',
      { certificate: { mode: 'existing-secret' } },
      '1.36.3',
      'needs certificate.existingSecret',
    ],
    [
      'no CA for the existing Secret',
      { certificate: { mode: 'existing-secret', existingSecret: 'a' } },
      '1.36.3',
      'needs certificate.caBundle',
    ],
    [
      'a CA that is not PEM',
      { certificate: { mode: 'existing-secret', existingSecret: 'a', caBundle: 'AA==' } },
      '1.36.3',
      'is not PEM text',
    ],
    ['a CA that would be ignored', { certificate: { caBundle: CA } }, '1.36.3', 'would be ignored'],
    [
      'an issuer without name',
      { certificate: { mode: 'cert-manager', certManager: { issuerRef: { kind: 'Issuer' } } } },
      '1.36.3',
      'issuerRef needs a name',
    ],
  ] as const)('rejects %s with a clear message', async (_what, values, kubeVersion, message) => {
    const { code, stderr } = await templateChart(values, { kubeVersion });
    expect(stderr).toContain(message);
    expect(code).not.toBe(0);
  });

  test('rejects colliding ports, from a file or from the command line', async () => {
    const { code, stderr } = await helm('template', 'sidegate', CHART, '--namespace', 'a', '--set', 'sidecar.port=8481');
    expect(stderr).toContain('must differ');
    expect(code).not.toBe(0);
  });

  test.each([
    ['that of the release', {}, 'sidegate-system', 'sidegate-system'],
    ['default, if that of the release is excluded', {}, 'kube-system', 'default'],
    ['the one in the values', { selfTest: { namespace: 'apps' } }, 'sidegate-system', 'apps'],
  ])('runs the self-test in a namespace where sidecars are injected: %s', async (_what, values, namespace, expected) => {
    const objects = await renderChart(values, { namespace, tests: true });
    const ofTest = objects.filter(({ metadata }) => metadata.name === 'sidegate-self-test');
    expect(ofTest.map(({ kind, metadata }) => [kind, metadata.namespace]).sort()).toEqual([
      ['ConfigMap', expected],
      ['Pod', expected],
      ['Secret', expected],
    ]);
  });

  test('accepts an excluded namespace if the self-test is disabled', async () => {
    const selfTest = { enabled: false, namespace: 'kube-system' };
    expect((await templateChart({ selfTest })).stderr).toBe('');
  });
});
