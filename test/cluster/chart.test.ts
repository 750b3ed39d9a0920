import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import type { ChartInput } from '../../chart/values.ts';
import { parseInjectorConfig } from '../../src/kubernetes/injector/injector-config.ts';
import { CHART, helm, pick, type Rendered, renderChart, templateChart, toObjects } from '../support/chart.ts';

const CI = readdirSync(join(CHART, 'ci')).map((name) => join(CHART, 'ci', name));
const named = CI.map((file) => [basename(file, '-values.yaml'), file] as const);
const CA = '-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n';

interface Template {
  readonly metadata: { readonly labels: Record<string, string>; readonly annotations: Record<string, string> };
  readonly spec: Record<string, unknown> & {
    readonly containers: readonly Record<string, unknown>[];
    readonly securityContext: Record<string, unknown>;
  };
}

function toTemplate(deployment: Rendered): Template {
  return (deployment['spec'] as { readonly template: Template }).template;
}

/** The webhook of a rendered configuration. */
function toWebhook(objects: readonly Rendered[]): Record<string, unknown> {
  return (pick(objects, 'MutatingWebhookConfiguration')['webhooks'] as Record<string, unknown>[])[0] ?? {};
}

describe.each(named)('with the values of ci/%s', (_name, file) => {
  let text = '';
  let objects: readonly Rendered[] = [];

  beforeAll(async () => {
    ({ stdout: text } = await templateChart({}, { files: [file] }));
    objects = toObjects(text);
  });

  test("passes Helm's lint, warnings included, for a new cluster", async () => {
    const { code, stdout } = await helm('lint', '--strict', CHART, '--values', file, '--kube-version', '1.36.3');
    expect(stdout).toContain('0 chart(s) failed');
    expect(code).toBe(0);
  });

  test('renders the same bytes twice', async () => {
    const { stderr, stdout } = await templateChart({}, { files: [file] });
    expect(stderr).toBe('');
    expect(stdout).toBe(text);
  });

  test('names and labels every object by the conventions', async () => {
    const keys = objects.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
    expect(new Set(keys).size, 'no object twice').toBe(keys.length);
    expect(text.match(/^# Source: (.*)$/gm)?.length, 'one object a file').toBe(objects.length);
    const fullname = file.includes('/on-') ? 'edge-gate' : 'sidegate';
    for (const { kind, metadata } of objects) {
      const what = `${kind} ${metadata.name}`;
      expect(metadata.name.startsWith(fullname), what).toBe(true);
      expect(metadata.labels, what).toMatchObject({
        'helm.sh/chart': expect.stringMatching(/^sidegate-\d/),
        'app.kubernetes.io/name': file.includes('/on-') ? 'gate' : 'sidegate',
        'app.kubernetes.io/instance': 'sidegate',
        'app.kubernetes.io/version': expect.any(String),
        'app.kubernetes.io/component': expect.stringMatching(/^(?:injector|rotation|deliver|admission|monitoring|test)$/),
        'app.kubernetes.io/part-of': 'sidegate',
        'app.kubernetes.io/managed-by': 'Helm',
      });
      for (const value of Object.values({ ...metadata.labels, ...metadata.annotations }))
        expect(typeof value, what).toBe('string');
      const hook = metadata.annotations?.['helm.sh/hook'] ?? 'test';
      expect(hook, `${what} is no hook but a test`).toBe(kind === 'Job' ? 'post-install' : 'test');
    }
  });

  test('renders a config that the injector accepts', () => {
    const config = objects.find(({ kind, metadata }) => kind === 'ConfigMap' && metadata.name.endsWith('-injector'));
    const text = (config?.['data'] as Record<string, string> | undefined)?.['injector.yaml'];
    if (text !== undefined) expect(parseInjectorConfig('injector.yaml', text).problems).toEqual([]);
  });

  test('selects only by labels that never change, and that match the pods of the Deployment', async () => {
    for (const deployment of objects.filter(({ kind }) => kind === 'Deployment')) checkSelectors(deployment);
  });

  function checkSelectors(deployment: Rendered): void {
    const { matchLabels } = (deployment['spec'] as { selector: { matchLabels: Record<string, string> } }).selector;
    expect(Object.keys(matchLabels).sort()).toEqual(
      ['component', 'instance', 'name'].map((label) => `app.kubernetes.io/${label}`),
    );
    expect(toTemplate(deployment).metadata.labels).toMatchObject(matchLabels);
    for (const kind of ['PodDisruptionBudget', 'NetworkPolicy', 'Service']) {
      const object = objects.find((each) => each.kind === kind && each.metadata.name === deployment.metadata.name);
      if (object === undefined) continue;
      const spec = object['spec'] as Record<string, Record<string, unknown>>;
      expect(spec['selector']?.['matchLabels'] ?? spec['podSelector']?.['matchLabels'] ?? spec['selector'], kind).toEqual(
        matchLabels,
      );
    }
  }

  test('runs nothing that PodSecurity `restricted` would reject, except for a requested host network', async () => {
    for (const deployment of objects.filter(({ kind }) => kind === 'Deployment')) {
      const { spec } = toTemplate(deployment);
      expect(spec.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } });
      for (const container of spec.containers) {
        expect(container['securityContext']).toEqual({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
        expect(container['resources']).toMatchObject({
          requests: { cpu: expect.any(String), memory: expect.any(String) },
          limits: { memory: expect.any(String) },
        });
        expect(container['image']).not.toMatch(/:latest$|:$|^[^:@]+$/);
      }
      const isInjector = deployment.metadata.name.endsWith('-injector');
      expect(spec['hostNetwork'] ?? false).toBe(isInjector && file.includes('/host-network-'));
      expect(JSON.stringify(spec['volumes'])).not.toContain('hostPath');
    }
  });
});

describe('the chart', () => {
  test('depends on neither the cluster, the clock nor randomness; only its requirements look for other releases', () => {
    const templates = readdirSync(join(CHART, 'templates'), { recursive: true, encoding: 'utf8' }).filter((name) =>
      /\.(?:yaml|tpl|txt)$/.test(name),
    );
    expect(templates.length).toBeGreaterThan(15);
    const forbidden =
      /\b(?:lookup|now|uuidv4|ago|rand[A-Z]\w*|gen[A-Z]\w*|derivePassword|getHostByName|htpasswd|bcrypt|encryptAES)\b/;
    for (const name of templates) {
      const actions = readFileSync(join(CHART, 'templates', name), 'utf8').match(/\{\{(?!-?\s*\/\*).*?\}\}/gs) ?? [];
      const allowed = name === 'requirements.yaml' ? /\(lookup \$group \$kind/ : /^$/;
      for (const action of actions.filter((each) => !allowed.test(each)))
        expect(action.replace(/"(?:[^"\\]|\\.)*"/g, '""'), name).not.toMatch(forbidden);
    }
  });

  test('installs the app of its own version', () => {
    const chart = parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8')) as Record<string, string>;
    const { version } = JSON.parse(readFileSync(join(CHART, '..', '..', 'package.json'), 'utf8')) as { version: string };
    expect(chart['appVersion']).toBe(version);
  });

  test('installs on a cluster without policies if the webhook fails closed', async () => {
    const objects = await renderChart(
      { admission: { protect: false, enforce: false, failurePolicy: 'Fail' } },
      { kubeVersion: '1.26.15' },
    );
    expect(toWebhook(objects)).not.toHaveProperty('matchConditions');
    expect(objects.map(({ kind }) => kind)).not.toContain('ValidatingAdmissionPolicy');
  });

  test('makes the injector check containers with the name of the sidecar if no policy does', async () => {
    const names = async (admission: ChartInput['admission']): Promise<unknown> =>
      (toWebhook(await renderChart({ admission }))['matchConditions'] as { name: string }[]).map(({ name }) => name);
    expect(await names({})).toEqual(['not-a-mirror-pod', 'not-injected-yet']);
    expect(await names({ protect: false, failurePolicy: 'Fail' })).toEqual(['not-a-mirror-pod']);
  });

  test('has no injector, certificate or permission in policy mode, and the same two policies', async () => {
    const objects = await renderChart({ admission: { mode: 'policy' } });
    const kinds = new Set(objects.filter(({ metadata }) => metadata.name !== 'sidegate-self-test').map(({ kind }) => kind));
    for (const kind of [
      'Deployment',
      'Service',
      'Secret',
      'ServiceAccount',
      'Role',
      'ClusterRole',
      'MutatingWebhookConfiguration',
      'NetworkPolicy',
    ])
      expect(kinds).not.toContain(kind);
    for (const name of ['sidegate-protected', 'sidegate-enforced']) pick(objects, 'ValidatingAdmissionPolicy', name);
  });

  test('sends only labelled pods to the injector, except in namespaces that a cluster needs to start', async () => {
    expect(toWebhook(await renderChart())).toMatchObject({
      name: 'inject.sidegate.dev',
      objectSelector: { matchLabels: { 'sidegate.dev/inject': 'true' } },
      namespaceSelector: {
        matchExpressions: [{ key: 'kubernetes.io/metadata.name', operator: 'NotIn', values: ['kube-system', 'kube-node-lease'] }],
      },
      failurePolicy: 'Ignore',
      reinvocationPolicy: 'IfNeeded',
      timeoutSeconds: 5,
      sideEffects: 'NoneOnDryRun',
    });
  });

  test('leaves the CA of the webhook to its owner', async () => {
    const toClient = (objects: readonly Rendered[]): unknown => toWebhook(objects)['clientConfig'];
    expect(toClient(await renderChart())).not.toHaveProperty('caBundle');
    const certManager = await renderChart({ certificate: { mode: 'cert-manager' } });
    expect(toClient(certManager)).not.toHaveProperty('caBundle');
    expect(pick(certManager, 'MutatingWebhookConfiguration').metadata.annotations).toEqual({
      'cert-manager.io/inject-ca-from': 'sidegate-system/sidegate-injector',
    });
    const own = await renderChart({ certificate: { mode: 'existing-secret', existingSecret: 'a', caBundle: CA } });
    expect(toClient(own)).toMatchObject({ caBundle: Buffer.from(CA).toString('base64') });
    for (const name of ['sidegate-injector-ca', 'sidegate-injector-tls'])
      expect(pick(await renderChart(), 'Secret', name)).not.toHaveProperty('data');
  });

  const rulesOf = (objects: readonly Rendered[], name: string): [string, string | undefined, string[]][] =>
    objects
      .filter(({ kind, metadata }) => /^(?:Cluster)?Role$/.test(kind) && metadata.name === name)
      .flatMap(({ rules }) => rules as { resources: string[]; resourceNames?: string[]; verbs: string[] }[])
      .map(({ resources, resourceNames, verbs }) => [resources.join(), resourceNames?.join(), verbs]);

  test('allows the injector to change only Events, and the rotation controller only two Secrets and one webhook by name', async () => {
    const objects = await renderChart();
    expect(rulesOf(objects, 'sidegate-injector')).toEqual([
      ['mutatingwebhookconfigurations', 'sidegate-injector', ['get']],
      ['events', undefined, ['create']],
      ['nodes', undefined, ['list']],
      ['secrets', 'sidegate-injector-tls', ['get']],
    ]);
    expect(rulesOf(objects, 'sidegate-rotation')).toEqual([
      ['mutatingwebhookconfigurations', 'sidegate-injector', ['get', 'patch']],
      ['secrets', 'sidegate-injector-ca,sidegate-injector-tls', ['get', 'update']],
    ]);
    for (const kind of ['RoleBinding', 'ClusterRoleBinding'])
      for (const name of ['sidegate-injector', 'sidegate-rotation'])
        expect(pick(objects, kind, name)).toMatchObject({ roleRef: { name }, subjects: [{ name }] });
  });

  test('runs the rotation controller without a port, and blocks all connections to it', async () => {
    const objects = await renderChart();
    const { spec } = toTemplate(pick(objects, 'Deployment', 'sidegate-rotation'));
    expect(spec).toMatchObject({
      serviceAccountName: 'sidegate-rotation',
      containers: [{ args: expect.arrayContaining(['rotate-certificates']) }],
    });
    expect(JSON.stringify(spec)).not.toMatch(/containerPort|Probe/);
    const policy = pick(objects, 'NetworkPolicy', 'sidegate-rotation')['spec'];
    expect(policy).toMatchObject({ policyTypes: ['Ingress'] });
    expect(policy).not.toHaveProperty('ingress');
  });

  test.each([
    ['cert-manager', { certificate: { mode: 'cert-manager' } }],
    ['an existing Secret', { certificate: { mode: 'existing-secret', existingSecret: 'a', caBundle: CA } }],
    ['policy mode', { admission: { mode: 'policy' } }],
  ] as const)('has no rotation controller and none of its permissions with %s', async (_title, values) => {
    const text = (await renderChart(values as never)).map(({ kind, metadata }) => `${kind} ${metadata.name}`).join('\n');
    expect(text).not.toMatch(/rotation|-ca$|-tls$|^Role /m);
  });

  test('allows the injector to read ConfigMaps only if enabled, and only with authenticated callers', async () => {
    const clientAuth = { mode: 'require' as const, caConfigMap: 'kube-root-ca.crt', allowedNames: ['apiserver'] };
    const some = await renderChart({ injector: { clientAuth }, rbac: { readConfigs: ['shop', 'shop', 'web'] } });
    const roles = some.filter(({ kind, metadata }) => kind === 'Role' && metadata.name === 'sidegate-injector-configs');
    expect(roles.map(({ metadata }) => metadata.namespace)).toEqual(['shop', 'web']);
    expect(rulesOf(some, 'sidegate-injector').join()).not.toContain('configmaps');
    const all = await renderChart({ injector: { clientAuth }, rbac: { readConfigs: true } });
    expect(rulesOf(all, 'sidegate-injector')).toContainEqual(['configmaps', undefined, ['get']]);
    await expect(renderChart({ rbac: { readConfigs: true } })).rejects.toThrow(
      /rbac\.readConfigs has no effect without injector\.clientAuth/,
    );
  });

  test('mounts the CA of callers, without the key that its Secret may contain', async () => {
    const clientAuth = { mode: 'require' as const, caSecret: 'callers', allowedNames: ['apiserver'] };
    const { spec } = toTemplate(pick(await renderChart({ injector: { clientAuth } }), 'Deployment', 'sidegate-injector'));
    const items = [{ key: 'ca.crt', path: 'ca.crt' }];
    expect(spec['volumes']).toContainEqual({ name: 'client-ca', secret: { secretName: 'callers', items } });
    for (const wrong of [{}, { caSecret: 'a', caConfigMap: 'b', allowedNames: ['c'] }, { caSecret: 'a' }])
      await expect(renderChart({ injector: { clientAuth: { mode: 'require', ...wrong } } })).rejects.toThrow(
        /injector\.clientAuth/,
      );
  });

  test('has separate service accounts for the injector and the rotation controller', async () => {
    const values = { serviceAccount: { name: 'one' }, rotation: { serviceAccount: { name: 'one' } } };
    await expect(renderChart(values)).rejects.toThrow(/Use two accounts/);
  });

  test('rolls the injector when a default of the sidecar changes, and not when anything else does', async () => {
    const toSum = async (values: Parameters<typeof renderChart>[0]): Promise<string | undefined> =>
      toTemplate(pick(await renderChart(values), 'Deployment', 'sidegate-injector')).metadata.annotations['checksum/config'];
    const sum = await toSum({});
    expect(await toSum({ sidecar: { preStop: '7s' } })).not.toBe(sum);
    expect(await toSum({ injector: { replicas: 5 }, commonLabels: { a: 'b' } })).toBe(sum);
    const config =
      (pick(await renderChart(), 'ConfigMap', 'sidegate-injector')['data'] as Record<string, string>)['injector.yaml'] ?? '';
    expect(createHash('sha256').update(config.trimEnd()).digest('hex')).toBe(sum);
  });

  test('keeps the labels of its selectors, whatever labels the values add', async () => {
    const labels = Object.fromEntries(
      ['name', 'instance', 'component'].map((label) => [`app.kubernetes.io/${label}`, 'other'] as const),
    );
    const values = { commonLabels: { ...labels, team: 'edge' }, injector: { podLabels: { ...labels, tier: 'control' } } };
    const deployment = pick(await renderChart(values), 'Deployment', 'sidegate-injector');
    const own = {
      'app.kubernetes.io/name': 'sidegate',
      'app.kubernetes.io/instance': 'sidegate',
      'app.kubernetes.io/component': 'injector',
      team: 'edge',
    };
    expect(deployment.metadata.labels).toMatchObject(own);
    expect(toTemplate(deployment).metadata.labels).toMatchObject({ ...own, tier: 'control' });
  });

  test('uses port numbers in the NetworkPolicy, and omits it if it would have no effect', async () => {
    const { ingress } = pick(await renderChart(), 'NetworkPolicy', 'sidegate-injector')['spec'] as {
      ingress: { ports: { port: unknown }[] }[];
    };
    expect(ingress.flatMap(({ ports }) => ports.map(({ port }) => port))).toEqual([10_250, 8481]);
    const hostNetwork = await renderChart({ injector: { hostNetwork: true, port: 18_443 } });
    const policies = hostNetwork.filter(({ kind }) => kind === 'NetworkPolicy').map(({ metadata }) => metadata.name);
    expect(policies).toEqual(['sidegate-rotation']);
  });

  test('keeps its names short enough for derived names, with a release name of any length', async () => {
    const objects = await renderChart({}, { release: `a.${'b'.repeat(51)}` });
    for (const { metadata } of objects) expect(metadata.name, metadata.name).toMatch(/^[a-z0-9-]{1,63}$/);
  });
});
