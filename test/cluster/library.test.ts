import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { injectFiles } from '../../src/cli/inject.ts';
import { injectPod } from '../../src/kubernetes/injector/inject.ts';
import { toSidecarDefaults } from '../../src/kubernetes/injector/injector-config.ts';
import { readStatus } from '../../src/kubernetes/injector/status.ts';
import { CHART, helm, pick, type Rendered, templateChart, toObjects } from '../support/chart.ts';
import { useFolder } from '../support/fixtures.ts';
import { recordIo } from '../support/io.ts';

const LIBRARY = resolve(CHART, '..', 'sidegate-lib');
const IMAGE = 'registry.example.com/sidegate:1';

type Settings = Readonly<Record<string, unknown>>;

const folder = useFolder();
const web = join(folder, 'web');

/** A copy of a chart beside the library that it depends on, as `helm dependency build` makes it. */
function vendor(chart: string): string {
  cpSync(LIBRARY, join(chart, 'charts', 'sidegate-lib'), { recursive: true });
  return chart;
}

beforeAll(() => {
  cpSync(resolve(import.meta.dirname, '..', 'support', 'charts', 'web'), web, { recursive: true });
  vendor(web);
});

/** The objects of the example chart with these settings. */
async function render(settings: Settings, portName = 'http'): Promise<readonly Rendered[]> {
  const sidegate = { image: IMAGE, config: 'web-gate', appPort: 3000, ...settings };
  const { code, stdout, stderr } = await templateChart({ sidegate, portName }, { chart: web, release: 'web' });
  if (code !== 0) throw new Error(stderr);
  return toObjects(stdout);
}

function podOf(objects: readonly Rendered[]): Rendered {
  return (pick(objects, 'Deployment')['spec'] as { template: Rendered }).template;
}

/** The same app without any sidecar, as its author would write it for the injector. */
function makeBarePod(settings: Settings): Rendered {
  const toName = (key: string): string => key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  const annotations = Object.entries({ config: 'web-gate', ...settings }).map(([key, value]) => [
    `sidegate.dev/${toName(key)}`,
    String(value),
  ]);
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'web', labels: { 'sidegate.dev/inject': 'true' }, annotations: Object.fromEntries(annotations) },
    spec: {
      ...(settings['queueVolume'] === undefined
        ? {}
        : { volumes: [{ name: settings['queueVolume'], persistentVolumeClaim: { claimName: 'web' } }] }),
      containers: [
        {
          name: 'web',
          image: 'web:1',
          ports: [{ name: 'http', containerPort: 3000 }],
          livenessProbe: { httpGet: { path: '/healthz?a=$$b&c=$(D)', port: 3000 }, periodSeconds: 7 },
          readinessProbe: { tcpSocket: { port: 3000 } },
        },
      ],
    },
  };
}

/** What `sidegate inject -f` prints for it. */
async function inject(settings: Settings): Promise<Rendered> {
  const [pod, config] = [join(folder, 'pod.yaml'), join(folder, 'injector.yaml')];
  writeFileSync(pod, stringify(makeBarePod(settings)));
  writeFileSync(config, stringify({ sidecar: { image: IMAGE } }));
  const { io, stdout, stderr } = recordIo();
  const options = { filename: [pod], config, namespace: 'default', kubeVersion: '1.36', format: 'json' };
  expect(await injectFiles(options, io), stderr()).toBe(0);
  return JSON.parse(stdout()) as Rendered;
}

const HELPERS = ['initContainer', 'lifecycle', 'gracePeriodSeconds', 'imagePullSecrets', 'podAnnotations', 'servicePort'];
const appProbes = { web: { livez: 'http://127.0.0.1:3000/healthz?a=$$b&c=$(D)', readyz: 'tcp://127.0.0.1:3000' } };

describe('a chart that renders the sidecar through the library', () => {
  test.each<[string, Settings, Settings?, string?]>([
    ['interception service', {}],
    ['its own ports', { port: 9000, adminPort: 9001 }],
    ['two Secrets', { secrets: ['stripe-webhook', 'web-users'] }],
    ['a container beside the app', { sidecar: 'container' }],
    ['a volume for the queue', { queueVolume: 'queue' }],
    ['no time before the end', { preStop: '0s' }],
    ['more time before the end, in a container beside the app', { preStop: '1m', sidecar: 'container' }],
    ['its own resources', { cpuRequest: '100m', cpuLimit: '1', memoryRequest: '96Mi', memoryLimit: '256Mi' }],
    ['a Secret to pull with', { imagePullSecrets: ['registry'] }],
    ['interception rename', { interception: 'rename' }, { portName: 'http' }, 'http-app'],
    ['interception same-port', { interception: 'same-port:HOST' }, { appProbes }],
    ['interception same-port, where the app is on the loopback by itself', { interception: 'same-port' }, { appProbes }],
    ['interception env', { interception: 'env' }],
    ['interception env with a variable of its own', { interception: 'env:WEB_PORT' }],
  ])('makes the pod that `sidegate inject -f` makes, with %s', async (_what, settings, own = {}, portName = 'http') => {
    const pod = podOf(await render({ ...settings, ...own }, portName));
    const injected = await inject(settings);
    const { terminationGracePeriodSeconds = 30, ...spec } = injected['spec'] as Record<string, unknown>;
    expect(pod['spec']).toEqual({ ...spec, terminationGracePeriodSeconds });
    const { hash: _ours, version: _other, ...status } = readStatus(injected) ?? {};
    expect(readStatus(pod)).toMatchObject(status);
    expect(pod.metadata.labels).toMatchObject({ 'sidegate.dev/inject': 'true', 'sidegate.dev/injected': 'true' });
  });

  test('points its Service and its NetworkPolicy to the sidecar, by port number', async () => {
    const objects = await render({ port: 9000, adminPort: 9001 });
    expect(pick(objects, 'Service')['spec']).toMatchObject({
      ports: [{ name: 'http', port: 80, targetPort: 9000, protocol: 'TCP' }],
    });
    expect(pick(objects, 'NetworkPolicy')['spec']).toEqual({
      podSelector: { matchLabels: { app: 'web' } },
      policyTypes: ['Ingress'],
      ingress: [
        {
          ports: [
            { port: 9000, protocol: 'TCP' },
            { port: 9001, protocol: 'TCP' },
          ],
        },
      ],
    });
  });

  test('is not changed by the injector', async () => {
    const pod = { ...podOf(await render({})), apiVersion: 'v1', kind: 'Pod' };
    const context = { defaults: toSidecarDefaults(IMAGE), version: '1', kube: { major: 1, minor: 36 }, namespace: 'default' };
    expect(injectPod(pod, context)).toMatchObject({ outcome: 'skipped', reason: 'already_injected' });
  });

  test.each<[string, Settings, string]>([
    ['a setting that is unknown', { memory: '64Mi' }, 'the setting memory is unknown; the known ones are config, secrets,'],
    ['a setting that is missing', { image: '' }, 'the setting image is'],
    ['a port out of range', { port: 70_000 }, 'the setting port is "70000": expected a port from 1 to 65535, for example 8480.'],
    [
      'an interception mode that does not exist',
      { interception: 'iptables' },
      'the setting interception is "iptables": expected service, rename, same-port',
    ],
    ['seconds without their unit', { preStop: 5 }, 'the setting preStop is "5": expected a duration'],
    ['no seconds without their unit', { preStop: 0 }, 'the setting preStop is "0": expected a duration'],
    ['a choice that a chart cannot make', { sidecar: 'auto' }, 'the setting sidecar is "auto": expected native or container'],
    ['a name of a port', { appPort: 'http' }, 'the setting appPort is "http": expected a port from 1 to 65535'],
    ['a name that is none', { secrets: ['Stripe'] }, 'the setting secrets has the item "Stripe": expected names'],
    ['two names in one', { secrets: ['a,b'] }, 'the setting secrets has the item "a,b": expected names'],
    ['names that are numbers', { secrets: [1, 2] }, 'the setting secrets has the item "1": expected names'],
    ['a list in place of a port', { port: [8480] }, 'the setting port is "[8480]": expected a port'],
    ...['abc', -5, 0, 1.5].map((seconds): [string, Settings, string] => [
      `a grace period of ${seconds}`,
      { gracePeriodSeconds: seconds },
      `the setting gracePeriodSeconds is "${seconds}": expected whole seconds from 1 to 99999, for example 45.`,
    ]),
    [
      'a pull policy that does not exist',
      { imagePullPolicy: 'always' },
      'the setting imagePullPolicy is "always": expected Always,',
    ],
    ...['sidegate', 'sidegate-admin', 80, 'a--b', 'http-app-much-too-long', 'a\nb: c'].map((name): [string, Settings, string] => [
      `the port name ${JSON.stringify(name)}`,
      { interception: 'rename', portName: name },
      `the setting portName is ${JSON.stringify(String(name))}: expected a port name: at most 15`,
    ]),
    ...['sidegate-config', 'sidegate-no-token', 'sidegate-secret-1'].map((name): [string, Settings, string] => [
      `the queue volume ${name}`,
      { queueVolume: name },
      `the setting queueVolume is "${name}": expected a volume name`,
    ]),
    ...[
      'http://localhost:3000/x',
      'http://127.0.0.1:8481/prestop',
      'http://127.0.0.1:3000/a b',
      'http://127.0.0.1/x',
      { url: 'http://127.0.0.1:3000/x' },
      3000,
    ].map((url): [string, Settings, string] => [
      `the probe ${JSON.stringify(url)}`,
      { interception: 'same-port', appProbes: { web: { ...appProbes.web, livez: url } } },
      'the setting appProbes has web/livez: ',
    ]),
    ['probes that are a list', { interception: 'same-port', appProbes: [1] }, 'the setting appProbes is "[1]": expected URLs by'],
    ['probes of no container', { appProbes: { 'web/x': {} } }, 'the setting appProbes has "web/x": "map[]": expected the name'],
    ['a probe without a kind', { appProbes: { web: 'x' } }, 'the setting appProbes has "web": "x": expected the name of a'],
    [
      'a port of its own where it takes the app’s',
      { interception: 'env', port: 9000 },
      "the sidecar listens on the app's port 3000. Remove the setting port",
    ],
    ['ports that collide', { port: 3000 }, 'must differ'],
    ['a rename without a name', { interception: 'rename' }, 'interception=rename needs the setting portName'],
    ['a probe that cannot be requested', { interception: 'same-port' }, 'the probe web/livez is not in the setting appProbes'],
    [
      'a hook that anyone could set off',
      { interception: 'same-port', appProbes: { web: { ...appProbes.web, prestop: 'http://127.0.0.1:3000/stop' } } },
      'appProbes has web/prestop; the known ones are livez, readyz and startupz.',
    ],
    ['a race for the port', { interception: 'env', sidecar: 'container' }, 'interception=env needs a native sidecar'],
    [
      'a race for the address',
      { interception: 'same-port', sidecar: 'container' },
      'interception=same-port needs a native sidecar',
    ],
    ['probes that need no help', { appProbes }, 'appProbes need interception=same-port'],
  ])('is rejected with a clear message for %s', async (_what, settings, message) => {
    await expect(render(settings)).rejects.toThrow(message);
  });

  test.each(HELPERS)('is rejected with a clear message if %s gets no settings', async (helper) => {
    const chart = join(folder, `no-settings-${helper}`);
    mkdirSync(join(chart, 'templates'), { recursive: true });
    cpSync(join(web, 'Chart.yaml'), join(chart, 'Chart.yaml'));
    writeFileSync(
      join(chart, 'templates', 'pod.yaml'),
      `pod:\n  {{- include "sidegate.${helper}" .Values.sidegate | nindent 2 }}\n`,
    );
    const { code, stderr } = await templateChart({}, { chart: vendor(chart), release: 'web' });
    expect(stderr).toContain('sidegate: a helper was given no settings');
    expect(code).not.toBe(0);
  });

  test('accepts exactly the settings in the table of the README', () => {
    const readme = readFileSync(join(LIBRARY, 'README.md'), 'utf8');
    expect(readme).toContain('| `appPort` | `3000` | The port of the app, by number. |');
    expect(readme).not.toContain('`auto`');
  });
});

test('the chart of the README is complete: it renders, and its app is behind the sidecar', async () => {
  const readme = readFileSync(join(LIBRARY, 'README.md'), 'utf8');
  const blocks = new Map([...readme.matchAll(/```yaml\n# (\S+)\n(.*?)```/gs)].map(([, name = '', text = '']) => [name, text]));
  expect([...blocks.keys()]).toEqual([
    'Chart.yaml',
    'values.yaml',
    'templates/deployment.yaml',
    'templates/service.yaml',
    'templates/networkpolicy.yaml',
  ]);
  const chart = join(folder, 'readme');
  mkdirSync(join(chart, 'templates'), { recursive: true });
  for (const [name, text] of blocks) writeFileSync(join(chart, name), text);
  vendor(chart);
  const { stdout, stderr } = await templateChart({}, { chart, release: 'web' });
  expect(stderr).toBe('');
  const objects = toObjects(stdout);
  const { initContainers } = podOf(objects)['spec'] as { initContainers: { name: string; args: string[]; image: string }[] };
  const values = parse(blocks.get('values.yaml') ?? '') as { sidegate: { image: string; appPort: number } };
  expect(initContainers).toMatchObject([{ name: 'sidegate', image: values.sidegate.image }]);
  expect(initContainers[0]?.args).toContain(`http://127.0.0.1:${values.sidegate.appPort}`);
  expect(pick(objects, 'Service')['spec']).toMatchObject({ ports: [{ targetPort: 8480 }] });
});

test("passes Helm's lint, and has the version of the chart", async () => {
  expect((await helm('lint', '--strict', LIBRARY)).code).toBe(0);
  expect((await helm('lint', '--strict', web)).code).toBe(0);
  const versionOf = (chart: string): unknown => parse(readFileSync(join(chart, 'Chart.yaml'), 'utf8'));
  const { version, appVersion } = versionOf(CHART) as Record<string, string>;
  expect(versionOf(LIBRARY)).toMatchObject({ version, appVersion });
});
