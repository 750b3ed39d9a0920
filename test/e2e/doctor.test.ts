import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { beforeEach, expect, test } from 'vitest';
import { reportOn } from '../../src/cli/doctor.ts';
import { runProgram } from '../../src/cli/program.ts';
import type { SidegateError } from '../../src/core/errors.ts';
import { loadInjectorConfig } from '../../src/kubernetes/injector/injector-config.ts';
import { type Asked, answerJson, toClient, toStatus } from '../support/api-server.ts';
import {
  type Json,
  makeBare,
  makeDeployment,
  makePod,
  makeService,
  makeTemplate,
  makeWebhook,
  NAMESPACE,
  OWNER,
} from '../support/doctor.ts';
import { makeFolder, useApiServer } from '../support/fixtures.ts';
import { recordIo } from '../support/io.ts';

const GATE = `
store: { redis: { url: "redis://redis:6379" } }
routes:
  - name: hooks
    match: { path: /hooks }
    webhook: { scheme: standard-webhooks, keys: [{ name: a, secret: { file: ../secrets/web-secret/key } }] }
`;
const METRICS = `/api/v1/namespaces/${NAMESPACE}/pods/web-1-a:8481/proxy/metrics`;
const INJECTOR = 'sidecar: { image: "sidegate:1.0.0" }\n';

/** What the API server has: lists by path, and single objects and texts by theirs; a number is a refusal. */
let objects: Record<string, Json>;

const server = useApiServer((asked, response) => {
  const path = asked.url.split('?')[0] ?? '';
  const found = objects[path];
  const isExcluding = asked.url.includes('managed-by');
  if (Array.isArray(found)) answerJson(response, 200, { items: isExcluding ? [] : found });
  else if (typeof found === 'string') response.end(found);
  else if (typeof found === 'number') answerJson(response, found, toStatus(found, 'Forbidden', `${path} is forbidden`));
  else if (found !== undefined) answerJson(response, 200, found);
  else answerJson(response, 404, toStatus(404, 'NotFound', `${path} not found`));
});
beforeEach(() => {
  const { Deployment, ReplicaSet } = makeDeployment();
  const binding = (name: string) => ({ metadata: { name }, spec: { policyName: name, validationActions: ['Deny'] } });
  const admission = '/apis/admissionregistration.k8s.io/v1';
  const policies = ['sidegate-protected', 'sidegate-enforced'];
  const pod = makePod('web-1-a', makeTemplate(), OWNER);
  objects = {
    '/version': { major: '1', minor: '34+' },
    ...inNamespace('/api/v1', { pods: [pod], services: [makeService()] }),
    ...inNamespace('/apis/apps/v1', { deployments: Deployment, replicasets: ReplicaSet }),
    ...inNamespace('/apis/networking.k8s.io/v1', { networkpolicies: [policyFor([8480, 8481])] }),
    [`/api/v1/namespaces/${NAMESPACE}`]: { metadata: { name: NAMESPACE, labels: {} } },
    '/api/v1/namespaces': [{ metadata: { name: NAMESPACE } }],
    [`/api/v1/namespaces/${NAMESPACE}/configmaps/web-gate`]: { data: { 'gate.yaml': GATE } },
    [`/api/v1/namespaces/${NAMESPACE}/secrets/web-secret`]: { kind: 'PartialObjectMetadata', metadata: { name: 'web-secret' } },
    '/api/v1/namespaces/sidegate/configmaps/sidegate-injector': { data: { 'injector.yaml': INJECTOR } },
    '/apis/apps/v1/namespaces/sidegate/deployments': [
      { metadata: { name: 'sidegate-injector', namespace: 'sidegate' }, status: { readyReplicas: 1 } },
    ],
    [`${admission}/mutatingwebhookconfigurations`]: [{ metadata: { name: 'other' } }, makeWebhook()],
    [`${admission}/validatingadmissionpolicies`]: policies.map((name) => ({ metadata: { name } })),
    [`${admission}/validatingadmissionpolicybindings`]: policies.map(binding),
  };
});

/** The same list for the namespace and for all. */
function inNamespace(root: string, lists: Record<string, Json>): Record<string, Json> {
  return Object.fromEntries(
    Object.entries(lists).flatMap(([plural, items]) => [
      [`${root}/namespaces/${NAMESPACE}/${plural}`, items],
      [`${root}/${plural}`, items],
    ]),
  );
}

function policyFor(ports: number[]): Json {
  return {
    metadata: { name: 'web', namespace: NAMESPACE },
    spec: { podSelector: {}, ingress: [{ ports: ports.map((port) => ({ port })) }] },
  };
}

/** The whole command, which has no cluster. */
async function runDoctor(...args: string[]) {
  const { io, stderr } = recordIo();
  return { code: await runProgram(['doctor', ...args], io), stderr: stderr() };
}

const OPTIONS = {
  namespace: { type: 'string', short: 'n' },
  'all-namespaces': { type: 'boolean', short: 'A' },
  config: { type: 'string' },
  format: { type: 'string', default: 'text' },
  'fail-on': { type: 'string', default: 'error' },
  live: { type: 'boolean' },
} as const;

/** What the command does once it is connected: test/cluster connects with kubectl. */
async function doctor(...args: string[]) {
  const recorded = recordIo();
  const { values } = parseArgs({ args, options: OPTIONS });
  const { 'all-namespaces': allNamespaces = false, 'fail-on': failOn, config, ...rest } = values;
  const given = config === undefined ? undefined : (await loadInjectorConfig(config)).config;
  const client = toClient(server, 'very-secret');
  const cluster = { client, namespace: NAMESPACE, name: 'test' };
  const code = await reportOn(cluster, { ...rest, allNamespaces, failOn, given }, recorded.io).catch((thrown: SidegateError) => {
    recorded.io.stderr(`sidegate: ${thrown.message}\n`);
    return 2;
  });
  client.close();
  const [stdout, stderr] = [recorded.stdout(), recorded.stderr()];
  expect(stdout + stderr).not.toContain('very-secret');
  return { code, stdout, stderr, json: args.includes('json') ? (JSON.parse(stdout) as Json) : undefined };
}

test('reports no findings, and exits 0', async () => {
  const { code, stdout, stderr } = await doctor();
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toBe(`test, namespace shop

STATE     NAMESPACE  WORKLOAD        PODS  INTERCEPTION  SIDECAR
injected  shop       deployment/web  1/1   service       native 1.0.0

1 injected. 0 errors, 0 warnings, 0 notes.
injected: no gate confirmed that it responds with its config, as with --live.
`);
});

test.each([
  ['secrets', 'a b', /sidegate\.dev\/secrets is "a b": expected names of .*, separated by commas/],
  ['config', '..', /sidegate\.dev\/config is "\.\.": expected a name of/],
  ['config', '?watch=1&allowWatchBookmarks=1', /sidegate\.dev\/config is "\?watch=1/],
  ['config', 'web\u0001gate', /sidegate\.dev\/config is "web gate": expected a name of/],
  ['app_port', '80', /the annotation sidegate\.dev\/app_port is unknown: did you mean sidegate\.dev\/app-port\?/],
])(
  'reports that new pods are denied if the annotation %s is %j, and requests no object of that name',
  async (name, value, problem) => {
    const { Deployment, ReplicaSet } = makeDeployment(makeTemplate({ annotations: { [`sidegate.dev/${name}`]: value } }));
    Object.assign(objects, inNamespace('/apis/apps/v1', { deployments: Deployment, replicasets: ReplicaSet }));
    const before = server.asked.length;
    const { code, json } = await doctor('--format', 'json');
    const [{ findings }] = json.workloads;
    expect({ code, codes: findings.map((each: Json) => each.code) }).toEqual({ code: 1, codes: ['annotation-invalid'] });
    expect(findings[0].message).toMatch(/^new pods are denied: /);
    expect(findings[0].message).toMatch(problem);
    expect(readNames(before)).toEqual(['configmaps/sidegate-injector', 'configmaps/web-gate', 'secrets/web-secret']);
  },
);

test('requests no object of a name that a volume of a pod has, but no object can have', async () => {
  const pod: Json = makePod('web-1-a', makeTemplate(), OWNER);
  for (const { configMap, secret } of pod.spec.volumes) {
    if (configMap !== undefined) configMap.name = '../secrets';
    if (secret !== undefined) secret.secretName = 'web-gate/..';
  }
  Object.assign(objects, inNamespace('/api/v1', { pods: [pod] }));
  const before = server.asked.length;
  const { stdout } = await doctor();
  expect(stdout).toContain('config-missing: the ConfigMap ../secrets does not exist');
  expect(stdout).toContain('secret-missing: the Secret web-gate/.. does not exist');
  expect(readNames(before)).toEqual(['configmaps/sidegate-injector', 'configmaps/web-gate', 'secrets/web-secret']);
});

/** The ConfigMaps and Secrets that were requested. */
function readNames(since: number): string[] {
  const paths = server.asked.slice(since).map(({ url }) => /\/((?:configmaps|secrets)\/.*)$/.exec(url)?.[1] ?? []);
  return [...new Set(paths.flat())].sort();
}

test('reports a workload as protected only if its gate responds as its version with its config', async () => {
  const stateOf = async (metrics: Json): Promise<string> => {
    objects[METRICS] = metrics;
    const { json } = await doctor('--live', '--format', 'json');
    return json.workloads[0].state;
  };
  const build = 'sidegate_build_info{version="1.0.0",revision="unknown",node="24.0.0"} 1\n';
  expect(await stateOf(`${build}sidegate_config_info{hash="00"} 1\n`)).toBe('unknown');
  const { stdout } = await doctor('--live');
  const [, hash] = /contains ([0-9a-f]{32})/.exec(stdout) ?? [];
  const config = `sidegate_config_info{hash="${hash}"} 1\n`;
  expect(await stateOf(build + config)).toBe('protected');
  expect(await stateOf(config)).toBe('injected');
  expect(await stateOf(build.replace('1.0.0', '1.0.1') + config)).toBe('injected');
  expect(await stateOf('up 1\n')).toBe('injected');
  expect(await stateOf(403)).toBe('injected');
  objects['/apis/discovery.k8s.io/v1/endpointslices'] = 403;
  expect(await stateOf(build + config)).toBe('injected');
  expect((await doctor('--live')).stdout).toContain(
    'which EndpointSlices bypass the sidecar: you may not list endpointslices of other namespaces',
  );
});

test('shows the worst findings first, each with a fix, and exits 1', async () => {
  const pods = `/api/v1/namespaces/${NAMESPACE}/pods`;
  const free = makeTemplate({ labels: { app: 'free' } });
  objects[pods] = [
    ...objects[pods],
    makePod('other', makeTemplate({ labels: { app: 'other' } })),
    makeBare('free', free),
    makeBare('plain', { ...free, metadata: { labels: {} } }),
  ];
  objects[`/api/v1/namespaces/${NAMESPACE}/services`].push(
    makeService({ selector: { app: 'other' }, ports: [{ port: 80, targetPort: 'http' }] }, 'other'),
  );
  const { code, stdout } = await doctor();
  expect(code).toBe(1);
  expect(stdout).toBe(`test, namespace shop

STATE        NAMESPACE  WORKLOAD        PODS  INTERCEPTION  SIDECAR
unprotected  shop       pod/free        0/1   -             -
  error    no-sidecar: 1 of 1 pod (free) has no sidecar, although the label sidegate.dev/inject requests it
           → make sure that the injector is ready, then delete and recreate pod/free
bypassed     shop       pod/other       1/1   service       native 1.0.0
  error    service-to-app: Service other, port 80, targets port 8080, the app's own, and bypasses the sidecar
           → set its targetPort to sidegate
injected     shop       deployment/web  1/1   service       native 1.0.0

1 unprotected, 1 bypassed, 1 injected; 1 does not request the sidecar. 2 errors, 0 warnings, 0 notes.
injected: no gate confirmed that it responds with its config, as with --live.
`);
});

test('checks EndpointSlices with the label of the endpoints controller, which anyone can copy', async () => {
  const labels = { 'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io' };
  objects['/apis/discovery.k8s.io/v1/endpointslices'] = [
    { metadata: { name: 'copied', labels }, endpoints: [{ addresses: ['10.1.0.1'] }], ports: [{ port: 8080 }] },
  ];
  const { json } = await doctor('--format', 'json');
  expect(json.workloads[0]).toMatchObject({ state: 'bypassed', findings: [{ code: 'endpoints-to-app' }] });
});

test('prints JSON with a stable form', async () => {
  objects[`/apis/networking.k8s.io/v1/namespaces/${NAMESPACE}/networkpolicies`] = [];
  const { code, json } = await doctor('--format', 'json');
  expect(code).toBe(0);
  expect(json).toEqual({
    format: 2,
    context: 'test',
    namespace: 'shop',
    states: { unprotected: 0, bypassed: 0, unknown: 0, idle: 0, injected: 1, protected: 0, 'not-requested': 0 },
    findings: { error: 0, warning: 1, note: 0 },
    cluster: [],
    workloads: [
      {
        namespace: 'shop',
        kind: 'Deployment',
        name: 'web',
        state: 'injected',
        pods: { total: 1, injected: 1, protected: 0, ready: 1 },
        interceptions: ['service'],
        forms: ['native'],
        versions: ['1.0.0'],
        findings: [
          {
            code: 'no-network-policy',
            severity: 'warning',
            message: expect.stringContaining('every pod in the cluster can connect to the app on port 8080'),
            fix: 'allow only 8480 and 8481, by number, in a NetworkPolicy',
          },
        ],
      },
    ],
  });
  expect((await doctor('--fail-on', 'warning')).code).toBe(1);
});

test('checks all namespaces, or another one', async () => {
  expect((await doctor('-A', '--format', 'json')).json).toMatchObject({ namespace: null, states: { injected: 1 } });
  expect(server.asked.map(({ url }) => url)).toContain('/api/v1/pods?limit=500');
  const { code, stderr } = await doctor('-n', 'elsewhere');
  expect([code, stderr]).toEqual([2, 'sidegate: the namespace elsewhere does not exist\n']);
});

test('requests only the metadata of Secrets, and only of those that pods name', async () => {
  await doctor('-A', '--live');
  const secrets = server.asked.filter(({ url }: Asked) => url.includes('/secrets'));
  expect(secrets.map(({ url, headers }) => [url, headers.accept])).toEqual([
    [`/api/v1/namespaces/${NAMESPACE}/secrets/web-secret`, 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1'],
  ]);
  expect(server.asked.every(({ method }) => method === 'GET')).toBe(true);
});

test('does not check a config that would take it minutes', async () => {
  const rows = Array.from({ length: 4_000 }, (_, row) => `  - { name: r${row}, match: { path: /p${row} }, allow: anyone }\n`);
  objects[`/api/v1/namespaces/${NAMESPACE}/configmaps/web-gate`] = { data: { 'gate.yaml': `routes:\n${rows.join('')}` } };
  const { json } = await doctor('--format', 'json');
  expect(json.workloads[0].state).toBe('unknown');
  expect(json.workloads[0].findings[0].message).toMatch(
    /web-gate was not checked: gate.yaml has \d{6} characters; the maximum is 131072/,
  );
});

test('reads configs with the loader of the gate, and checks the Secrets and the Redis that they need', async () => {
  const path = `/api/v1/namespaces/${NAMESPACE}/configmaps/web-gate`;
  const codesOf = async (text: string): Promise<string[]> => {
    objects[path] = { data: { 'gate.yaml': text } };
    const { json } = await doctor('--format', 'json');
    return json.workloads[0].findings.map(({ code }: { code: string }) => code);
  };
  objects[`/apis/apps/v1/namespaces/${NAMESPACE}/deployments`][0].spec.replicas = 2;
  expect(await codesOf(GATE)).toEqual([]);
  expect(await codesOf(GATE.replace('web-secret', 'other-secret'))).toEqual(['secret-not-mounted']);
  expect(await codesOf(GATE.replace(/store:.*\n/, ''))).toEqual(['memory-not-shared']);
  expect(await codesOf(GATE.replace('scheme: standard-webhooks', 'scheme: standard'))).toEqual(['config-broken']);
  const open = GATE.replace(/webhook:.*/, 'allow: anyone');
  expect(await codesOf(open)).toEqual(['config-open']);
  expect(await codesOf(GATE.replace('  - name: hooks', '  - mode: observe\n    name: hooks'))).toEqual(['config-open']);
  delete objects[path];
  objects[`/api/v1/namespaces/${NAMESPACE}/secrets/web-secret`] = undefined;
  const { json } = await doctor('--format', 'json');
  expect(json.workloads[0].findings.map(({ code }: Json) => code)).toEqual(['config-missing', 'secret-missing']);
});

test('uses the given config of the injector instead of its ConfigMap', async () => {
  const given = join(makeFolder(), 'injector.yaml');
  writeFileSync(given, 'sidecar: { image: "sidegate:1.0.0", port: 9000 }\n');
  const { json } = await doctor('--config', given, '--format', 'json');
  expect(json.workloads[0].findings.map(({ code }: Json) => code)).toEqual(['version-stale', 'settings-stale']);
  objects['/api/v1/namespaces/sidegate/configmaps/sidegate-injector'].data['injector.yaml'] =
    'sidecar: { image: "sidegate:1.0.0", port: 9000 }\n';
  expect((await doctor('--format', 'json')).json.workloads[0].findings.map(({ code }: Json) => code)).toEqual(['settings-stale']);
  writeFileSync(given, 'sidecar: { imag: x }\n');
  const { code, stderr } = await runDoctor('--config', given);
  expect(code).toBe(2);
  expect(stderr).toMatch(/injector\.yaml:1:\d+: error.*"imag"/);
});

test('requests the state of running sidecars through the API server', async () => {
  objects[METRICS] = '# TYPE sidegate_config_info gauge\nsidegate_config_info{hash="0123456789abcdef"} 1\n';
  const { stdout } = await doctor('--live', '--format', 'json');
  expect(stdout).toMatch(/web-1-a uses the config 0123456789abcdef, but the ConfigMap web-gate contains [0-9a-f]{32}"/);
  const [, hash] = /contains ([0-9a-f]{32})/.exec(stdout) ?? [];
  objects[METRICS] = `sidegate_config_info{hash="${hash}"} 1\n`;
  expect((await doctor('--live', '--format', 'json')).json.findings).toEqual({ error: 0, warning: 0, note: 0 });
  objects[METRICS] = 'up 1\n';
  expect((await doctor('--live')).stdout).toContain(
    'cannot determine which config web-1-a uses: port 8481 serves no sidegate_config_info metric',
  );
  objects[METRICS] = 403;
  expect((await doctor('--live')).stdout).toContain(
    'cannot determine which config web-1-a uses: you may not get pods/proxy, or the pod',
  );
});

test('reports what it is not allowed to read, and checks the rest', async () => {
  for (const path of Object.keys(objects))
    if (/networkpolicies|\/apis\/admission|web-gate|web-secret|\/sidegate\//.test(path)) objects[path] = 403;
  const { code, stdout } = await doctor();
  expect(code).toBe(0);
  expect(stdout).toContain("which pods can connect to the app's port: you may not list networkpolicies in shop");
  expect(stdout).toContain('whether the webhook is configured: you may not list mutatingwebhookconfigurations');
  expect(stdout).toContain('the ConfigMap web-gate was not checked: you may not get it');
  expect(stdout).toContain('cannot determine which sidecars are stale: you may not list mutatingwebhookconfigurations');
  expect(stdout).toMatch(/1 unknown\. 0 errors, 0 warnings, \d+ notes\./);
});

test('fails if something bypasses a sidecar, also if that is a warning', async () => {
  objects[`/api/v1/namespaces/${NAMESPACE}/services`] = [makeService({ ports: [{ port: 80, targetPort: 9000 }] })];
  const { code, json } = await doctor('--format', 'json');
  expect([code, json.states.bypassed, json.findings.error]).toEqual([1, 1, 0]);
});

test('fails if it may not list pods, or if nothing responds', async () => {
  objects[`/api/v1/namespaces/${NAMESPACE}/pods`] = 403;
  const { code, stdout } = await doctor();
  expect(code).toBe(1);
  expect(stdout).toContain('pods-not-known: cannot determine which pods are protected: you may not list pods in shop');
  objects['/version'] = 401;
  expect(await doctor()).toMatchObject({ code: 2, stderr: 'sidegate: GET /version: /version is forbidden\n' });
});

test.each([
  [['--format', 'yaml'], /--format yaml is not one of text, json/],
  [['--fail-on', 'note'], /--fail-on note is not one of error, warning/],
  [['-n', 'a', '-A'], /either --namespace or --all-namespaces/],
  [['-n', '../x'], /not a valid namespace name/],
  [['--config', '/absent.yaml'], /--config: \/absent\.yaml: error the file does not exist/],
])('rejects the arguments %j', async (args, text) => {
  const { code, stderr } = await runDoctor(...args);
  expect(code).toBe(2);
  expect(stderr).toMatch(text);
});
