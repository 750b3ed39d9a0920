import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Readable } from 'node:stream';
import { applyPatch, type Operation } from 'rfc6902';
import { describe, expect, test } from 'vitest';
import { type InjectOptions, injectFiles } from '../../../src/cli/inject.ts';
import { readVersion } from '../../../src/cli/version.ts';
import { formatProblem } from '../../../src/core/problem.ts';
import { parseManifests } from '../../../src/kubernetes/manifests/documents.ts';
import { findWorkloads } from '../../../src/kubernetes/manifests/workloads.ts';
import { makeFolder } from '../../support/fixtures.ts';
import { recordIo } from '../../support/io.ts';
import { PYTHON } from '../../support/run.ts';

const FOLDER = resolve(import.meta.dirname, '../../golden/inject');
const INPUTS = readdirSync(FOLDER).filter((name) => /^[a-z-]+\.yaml$/.test(name));
/** Of inputs that are not for a recent cluster and the defaults. */
const OPTIONS: Readonly<Record<string, Partial<InjectOptions>>> = {
  'old-cluster.yaml': { kubeVersion: 'v1.29.14-eks' },
  'env-variable.yaml': { config: join(FOLDER, 'config/pull-secrets.yaml') },
};

interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function run(input: string, options: Partial<InjectOptions> = {}): Promise<Ran> {
  const { io, stdout, stderr } = recordIo({ stdin: Readable.from([input]) as NodeJS.ReadableStream });
  const all = {
    config: join(FOLDER, 'config/plain.yaml'),
    filename: ['-'],
    namespace: 'default',
    kubeVersion: '1.34',
    format: 'yaml',
    ...options,
  };
  const code = await injectFiles(all, io);
  const anonymous = (text: string): string => text.replaceAll(readVersion(), 'VERSION');
  return { code, stdout: anonymous(stdout()), stderr: anonymous(stderr()) };
}

const read = (name: string): string => readFileSync(join(FOLDER, name), 'utf8');
const valuesOf = (text: string): unknown[] => {
  const manifests = parseManifests('manifest.yaml', text);
  if ('problems' in manifests) throw new Error(manifests.problems.map(formatProblem).join('\n'));
  return manifests.map(({ value }) => value);
};

describe('sidegate inject', () => {
  test.each(INPUTS)('turns %s into its golden file', async (name) => {
    const { stdout, stderr } = await run(read(name), OPTIONS[name]);
    await expect(stdout).toMatchFileSnapshot(join(FOLDER, 'output', name));
    await expect(stderr).toMatchFileSnapshot(join(FOLDER, 'output', name.replace('.yaml', '.txt')));
  });

  test.each(INPUTS)('changes nothing in its own output for %s', async (name) => {
    const { stdout } = await run(read(name), OPTIONS[name]);
    const again = await run(stdout, OPTIONS[name]);
    expect(again.stdout).toBe(stdout);
    expect(again.stderr).not.toContain(': injected: ');
  });

  test.each(INPUTS)('prints a patch for %s that another library applies with the same result', async (name) => {
    const values = valuesOf(read(name));
    const { stdout, code } = await run(read(name), { ...OPTIONS[name], format: 'patch' });
    if (code !== 0) return;
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown);
    const patches = lines.map((line) => (Array.isArray(line) ? line : (line as { patch: unknown[] }).patch) as Operation[]);
    const objects = values
      .flatMap((value) => findWorkloads(value))
      .filter(({ pod }) => JSON.stringify(pod).includes('sidegate.dev/config'));
    expect(patches).toHaveLength(objects.length);
    for (const [index, patch] of patches.entries())
      expect(applyPatch(objects[index]?.object, patch).filter((error) => error !== null)).toEqual([]);
    const json = JSON.parse((await run(read(name), { ...OPTIONS[name], format: 'json' })).stdout) as { items?: unknown[] };
    const expected = JSON.stringify(values.length === 1 ? values[0] : values).replaceAll(readVersion(), 'VERSION');
    expect(values.length === 1 ? json : json.items).toEqual(JSON.parse(expected));
    expect(valuesOf((await run(read(name), OPTIONS[name])).stdout)).toEqual(values.length === 1 ? [json] : json.items);
  });

  test('leaves everything else unchanged, to the character', async () => {
    const input = 'kind:   ConfigMap # nothing to do\nmode: 0644\n---\n\n{"kind": "Service"}\n';
    expect((await run(input)).stdout).toBe(input);
    const { stdout } = await run(`${input}---\n${read('old-cluster.yaml')}`);
    expect(stdout.startsWith(input)).toBe(true);
  });

  test('prints nothing if one of several pods is denied, so that a pipe applies no part', async () => {
    const { code, stdout } = await run(`${read('old-cluster.yaml')}---\n${read('denied.yaml')}`);
    expect([code, stdout]).toEqual([1, '']);
  });

  test('warns if added imagePullSecrets replace those of the ServiceAccount', async () => {
    const config = join(FOLDER, 'config/pull-secrets.yaml');
    const pod = (spec: string): string =>
      `{ kind: Pod, metadata: { name: a, labels: { sidegate.dev/inject: "true" }, annotations: { sidegate.dev/config: a } }, spec: { ${spec} containers: [{ name: a, ports: [{ containerPort: 3000 }] }] } }\n`;
    const warning = /warning: the pod had no imagePullSecrets, so it used those of the ServiceAccount web, and with [a-z, ]+ it/;
    expect((await run(pod('serviceAccountName: web,'), { config })).stderr).toMatch(warning);
    expect((await run(pod('serviceAccountName: web,'))).stderr).not.toContain('imagePullSecrets');
    expect((await run(pod('imagePullSecrets: [{ name: own }],'), { config })).stderr).not.toContain('imagePullSecrets');
  });

  test('uses the image of its own version if no config names another', async () => {
    const { io, stdout } = recordIo();
    const filename = [join(FOLDER, 'old-cluster.yaml')];
    expect(await injectFiles({ filename, namespace: 'a', kubeVersion: '1.34', format: 'yaml' }, io)).toBe(0);
    expect(stdout()).toContain(`image: ghcr.io/sidegate/sidegate:${readVersion()}\n`);
  });

  test.each([
    [
      'not valid YAML',
      'kind: Pod\nspec: [\n',
      '<stdin>:2:7: error this [ is never closed\n  hint: write ] after its last value\n',
    ],
    [
      'nested too deeply',
      `kind: Pod\nspec: ${'['.repeat(50_000)}`,
      /^<stdin>:2:\d+: error values are nested too deeply here\n {2}hint: close brackets that were left open\n$/,
    ],
    [
      'not unique in its keys',
      'kind: Pod\nkind: Pod\nspec: { a: 1, a: 2 }\n',
      /^<stdin>:2:1: error this key is already in use[^]*<stdin>:3:15: error this key/,
    ],
  ])('reports where a manifest is %s', async (_, text, expected) => {
    const { code, stdout, stderr } = await run(text);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toEqual(typeof expected === 'string' ? expected : expect.stringMatching(expected));
  });

  test('compares the keys of a large map in linear time', () => {
    const [data] = valuesOf(`<<: {}\n<<: {}\n${Array.from({ length: 30_000 }, (_, index) => `k${index}: 1\n`).join('')}`);
    expect(Object.keys(data as object)).toHaveLength(30_000);
  });

  test('accepts pairs, whose keys may repeat', () => {
    expect(valuesOf('!!pairs [ a: 1, a: 2 ]\n')).toHaveLength(1);
  });

  test('begins each document on its own line, and changes nothing between them', async () => {
    const [first, second] = ['kind: Service', '---\n\n---\nkind: ConfigMap\n'];
    const folder = makeFolder();
    const filename = [first, second, second].map((text, index) => {
      writeFileSync(join(folder, `${index}.yaml`), text);
      return join(folder, `${index}.yaml`);
    });
    expect((await run('', { filename })).stdout).toBe(`${first}\n${second}${second}`);
  });

  const LABELS = 'labels: { sidegate.dev/inject: "true" }';
  test.each([
    [
      'kind: JobSet\nspec: { replicatedJobs: [{ template: { spec: { template: { metadata: { LABELS } } } } }] }',
      'replicatedJobs.0.template.spec.template.metadata.labels',
    ],
    ['kind: Prometheus\nspec: { podMetadata: { LABELS } }', 'podMetadata.labels'],
    ['kind: Cluster\nspec: { podLABELS }', 'podlabels'],
    [
      'kind: List\nitems: [{ kind: Workflow, metadata: { LABELS }, spec: { podMetadata: { LABELS } } }]',
      'items.0.spec.podMetadata.labels',
    ],
  ])('denies a label that requests the sidecar where no pod template is known: %s', async (input, path) => {
    const { code, stdout, stderr } = await run(input.replaceAll('LABELS', LABELS));
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain(`${path}: denied: sidegate.dev/inject requests the sidecar where`);
  });

  test.each([
    'kind: Service\nmetadata: { LABELS }\nspec: { selector: { sidegate.dev/inject: "true" } }\n',
    'kind: NetworkPolicy\nspec: { podSelector: { matchLabels: { sidegate.dev/inject: "true" } } }\n',
    'kind: StatefulSet\nmetadata: { LABELS }\nspec: { template: { spec: { containers: [] } }, volumeClaimTemplates: [{ metadata: { LABELS } }] }\n',
    'kind: JobSet\nspec: { replicatedJobs: [{ template: { spec: { template: { metadata: { labels: { sidegate.dev/inject: "false" } } } } } }] }\n',
    'kind: Deployment\nmetadata: { LABELS }\nspec: { template: { metadata: { labels: { sidegate.dev/inject: "false" } }, spec: { containers: [{}] } } }\n',
  ])('leaves labels alone that request nothing: %s', async (input) => {
    const { code, stdout } = await run(input.replaceAll('LABELS', LABELS));
    expect([code, stdout]).toEqual([0, input.replaceAll('LABELS', LABELS)]);
  });

  test.each([
    'kind: CronJob\nmetadata: { LABELS }\nspec: { jobTemplate: { spec: { template: { spec: { containers: [{}] } } } } }\n',
    'kind: CronJob\nspec: { jobTemplate: { metadata: { LABELS }, spec: { template: { spec: { containers: [{}] } } } } }\n',
  ])('denies a label that has no effect, because it is around the pod template: %s', async (input) => {
    const { code, stdout, stderr } = await run(input.replaceAll('LABELS', LABELS));
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain('has no effect outside the pod template; move it');
  });

  test.each(['Service', 'constructor'])('reports that the input contains no pod, but a %s', async (kind) => {
    const { code, stdout, stderr } = await run(`kind: ${kind}\n`);
    expect([code, stdout, stderr]).toEqual([0, `kind: ${kind}\n`, 'sidegate: the input contains no pods or pod templates\n']);
  });

  test('reads several files into one stream', async () => {
    const files = ['old-cluster.yaml', 'rename.yaml'].map((name) => join(FOLDER, name));
    const { stdout } = await run('', { filename: files });
    expect(valuesOf(stdout)).toHaveLength(2);
  });

  test.each([
    [{ kubeVersion: 'new' }, '--kube-version new is not a version such as 1.34'],
    [{ filename: ['/nonexistent.yaml'] }, 'cannot read the file /nonexistent.yaml (ENOENT)'],
  ])('rejects the options %j', async (options, message) => {
    await expect(run('kind: Pod', options)).rejects.toThrow(message);
  });

  test("shows the problems of the injector's config", async () => {
    const { code, stderr } = await run('kind: Pod', { config: join(FOLDER, 'denied.yaml') });
    expect(code).toBe(1);
    expect(stderr).toContain('denied.yaml');
  });
});

describe('another reader of YAML 1.1, as kubectl is,', () => {
  const READ = 'import json, sys, yaml; print(json.dumps([list(yaml.safe_load_all(each)) for each in json.load(sys.stdin)]))';
  const readByOther = (texts: readonly string[]): unknown[] => {
    const { stdout, stderr } = spawnSync(PYTHON ?? '', ['-c', READ], { input: JSON.stringify(texts), encoding: 'utf8' });
    return stderr === '' ? (JSON.parse(stdout) as unknown[]) : [stderr];
  };
  const hasOther = PYTHON !== undefined && spawnSync(PYTHON, ['-c', 'import yaml']).status === 0;
  const toPod = (mode: string, spec: string): string => `kind: Pod
metadata:
  labels: { sidegate.dev/inject: "true" }
  annotations: { sidegate.dev/config: web-gate, sidegate.dev/interception: "${mode}", sidegate.dev/secrets: "a, b" }
spec:${spec}`;
  const PORTS = 'ports: [{ name: http, containerPort: 3000 }]';
  const STYLES: Readonly<Record<string, string>> = {
    'probes in flow style': `
  containers:
    - name: app
      ${PORTS}
      livenessProbe: { httpGet: { path: /healthz, port: 3000 } }
      readinessProbe: {tcpSocket: {port: http}}
`,
    'empty lists': `
  initContainers: []
  volumes: []
  imagePullSecrets: []
  containers:
    - { name: app, env: [], ${PORTS} }
`,
    'flow style only': ` { initContainers: [ { name: i } ], volumes: [ { name: v, emptyDir: {} } ], containers: [ { name: app, env: [ { name: A, value: "b" } ], ${PORTS}, livenessProbe: { httpGet: { path: /healthz, port: 3000 } } } ] }
`,
    'an alias, so that all is written anew': `
  containers:
    - name: app
      ${PORTS}
      livenessProbe: &probe { httpGet: { path: "/a?b", port: 3000 } }
      readinessProbe: *probe
      env: [{ name: A, value: "12:30" }, { name: B, value: "2026-01-01" }, { name: C, value: "y" }, { name: D, value: "0o17" }]
`,
  };
  const cases = ['service', 'rename', 'env', 'same-port', 'same-port:HOST'].flatMap((mode) =>
    Object.entries(STYLES).map(([style, spec]) => [mode, style, toPod(mode, spec)] as const),
  );

  test.skipIf(!hasOther)('reads what is printed in each style, and the golden files', async () => {
    const texts = [...cases.map(([, , text]) => text), ...INPUTS.map(read)];
    const ran = await Promise.all(texts.map((text) => run(text)));
    expect(readByOther(ran.map(({ stdout }) => stdout))).toEqual(ran.map(({ stdout }) => valuesOf(stdout)));
  });

  test.each(cases)('gets the same values with the interception %s for %s', async (_mode, _style, text) => {
    const { stdout, code, stderr } = await run(text);
    expect([code, stderr]).toEqual([0, expect.stringContaining('injected')]);
    expect(valuesOf(stdout)).toEqual([JSON.parse((await run(text, { format: 'json' })).stdout)]);
    // Where this reader is missing.
    const plain = stdout.replaceAll(/"(?:[^"\\]|\\.)*"|'[^']*'/g, 'x');
    expect(plain).not.toMatch(/[[{,] *:|[[{,][^\n]*\?|: (?:12:30|2026-|0o|y)/);
  });

  test.each(['e1', '-E5', '.e+5', '.', '-._', '0x_', '0b_'])('and kubectl read %s as text', async (word) => {
    const text = toPod(
      'service',
      `\n  containers: [{ name: app, args: [${word}], env: [{ name: A, value: ${word} }], ${PORTS} }]\n`,
    );
    const { stdout } = await run(text, { format: 'json' });
    const { args, env } = JSON.parse(stdout).spec.containers[0];
    expect([args, env[0].value]).toEqual([[word], word]);
    expect(valuesOf((await run(stdout)).stdout)).toEqual([JSON.parse(stdout)]);
    const printed = (await run(text.replace('labels:', 'labels: &l').replace('spec:', 'x: *l\nspec:'))).stdout;
    if (hasOther) expect(readByOther([printed])).toEqual([valuesOf(printed)]);
  });

  const POD = toPod('service', `\n  containers: [{ name: app, ${PORTS} }]\n`);
  test.each([
    `---\n---\n${POD}`,
    `---\n\n---\n${POD}`,
    `\n---\n---\n${POD}`,
    `# license\n---\n---\n${POD}`,
    `---\n---\n${POD}`.replaceAll('\n', '\r\n'),
    `${POD}---\n---\n...\n`,
    `${POD}---`,
    `${POD}---\n---\nkind: Service\n`,
  ])('finds the same objects beside empty documents: %j', async (text) => {
    const { stdout } = await run(text);
    const found = (texts: readonly unknown[]): unknown[] => texts.filter((each) => each !== null);
    expect(found(valuesOf(stdout))).toHaveLength(found(valuesOf(text)).length);
    if (hasOther) expect(readByOther([stdout])).toEqual([valuesOf(stdout)]);
  });

  test("finds the author's own scalars as they were", async () => {
    const text = toPod(
      'service',
      `
  initContainers: []
  containers:
    - name: app
      ${PORTS}
      env: [{ name: A, value: y }, { name: 12:30, value: 2026-01-01 }, { name: B, value: 'c?d' }]
`,
    );
    const { stdout } = await run(text);
    expect(stdout).toContain("env: [ { name: A, value: y }, { name: 12:30, value: 2026-01-01 }, { name: B, value: 'c?d' } ]\n");
  });
});

describe('a Service in the same input', () => {
  const deployment = {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'web' },
    spec: {
      template: {
        metadata: { labels: { app: 'web', 'sidegate.dev/inject': 'true' }, annotations: { 'sidegate.dev/config': 'gate' } },
        spec: { containers: [{ name: 'web', image: 'web', ports: [{ name: 'http', containerPort: 8080 }] }] },
      },
    },
  };
  const service = (spec: object, metadata: object = {}): object => ({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'web', ...metadata },
    spec: { selector: { app: 'web' }, ...spec },
  });
  const warningsOf = async (objects: readonly unknown[], options: Partial<InjectOptions> = {}): Promise<string[]> => {
    const { stderr, code } = await run(objects.map((object) => JSON.stringify(object)).join('\n---\n'), options);
    expect(code).toBe(0);
    return stderr.split('\n').filter((line) => line.startsWith('Deployment/web: warning: '));
  };
  const BYPASS = /Service web.*, port 80, targets port 8080, the app's own, and bypasses the sidecar; set its targetPort to /;

  test.each<[string, object, RegExp]>([
    ["a targetPort that is the app's own", { ports: [{ port: 80, targetPort: 8080 }] }, BYPASS],
    ['no targetPort, but that port', { ports: [{ port: 8080 }] }, /Service web, port 8080, targets port 8080/],
    ['a headless one on that port', { clusterIP: 'None', ports: [{ port: 8080, targetPort: 'sidegate' }] }, /is headless/],
    ['a name that no container declares', { ports: [{ port: 80, targetPort: 'htp' }] }, /has the targetPort htp/],
    [
      'a LoadBalancer',
      { type: 'LoadBalancer', ports: [{ port: 80, targetPort: 8080 }] },
      /Service web \(LoadBalancer\), port 80/,
    ],
  ])('gets a warning if it bypasses the sidecar: %s', async (_title, spec, expected) => {
    const both = [deployment, service(spec)];
    expect(await warningsOf(both)).toEqual([expect.stringMatching(expected)]);
    expect(await warningsOf([{ apiVersion: 'v1', kind: 'List', items: both }])).toHaveLength(1);
    expect(await warningsOf(both, { format: 'patch' })).toHaveLength(1);
    expect(await warningsOf([service(spec), deployment], { format: 'json' })).toHaveLength(1);
  });

  test('gets it by the name of a port in YAML, too', async () => {
    const spec = 'containers: [{ name: app, ports: [{ name: http, containerPort: 8080 }] }]';
    const pod = `kind: Pod\nmetadata:\n  labels: { app: web, sidegate.dev/inject: "true" }\n  annotations: { sidegate.dev/config: gate }\nspec: { ${spec} }\n`;
    const { stderr } = await run(`${pod}---\n${JSON.stringify(service({ ports: [{ port: 80, targetPort: 'http' }] }))}`);
    expect(stderr).toMatch(BYPASS);
  });

  test.each<[string, object]>([
    ["by the name of the sidecar's port", service({ ports: [{ port: 80, targetPort: 'sidegate' }] })],
    ["by the number of the sidecar's port", service({ ports: [{ port: 80, targetPort: 8480 }] })],
    ['to other pods', service({ selector: { app: 'other' }, ports: [{ port: 80, targetPort: 8080 }] })],
    ['in another namespace', service({ ports: [{ port: 80, targetPort: 8080 }] }, { namespace: 'other' })],
    ['over UDP', service({ ports: [{ port: 80, targetPort: 8080, protocol: 'UDP' }] })],
  ])('gets no warning if it does not: %s', async (_title, object) => {
    expect(await warningsOf([deployment, object])).toEqual([]);
  });

  test.each<unknown>([
    { kind: 'Service' },
    { kind: 'Service', metadata: 5, spec: { selector: 'x', ports: 'y' } },
    { kind: 'Service', spec: { selector: { app: 'web' }, ports: [null, 5, { port: 'x' }] } },
    { kind: 'Ingress', spec: { rules: [{ http: { paths: [null] } }, 5] } },
    { kind: 'List', items: [null, 5, { kind: 'Service' }] },
    { kind: 'Pod', metadata: { labels: 5 }, spec: { containers: [{ args: [1], ports: [null] }, null] } },
  ])('causes no error in any shape: %j', async (object) => {
    expect(await warningsOf([deployment, object])).toEqual([]);
  });
});
