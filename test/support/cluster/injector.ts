/** The injector as a chart installs it: its objects and rights in a real cluster, replicas as processes, and what a Service does for them. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { until } from '../gate.ts';
import { LAUNCHER } from '../process.ts';
import type { Cluster } from './cluster.ts';
import type { Kube } from './kube-request.ts';
import { type Program, startProgram } from './program.ts';

/** One replica. */
export interface Replica {
  readonly program: Program;
  readonly port: number;
  readonly adminPort: number;
  /** Everything it wrote so far, as log lines. */
  readonly log: () => Record<string, unknown>[];
  readonly isReady: () => Promise<boolean>;
  readonly metric: (series: string) => Promise<number>;
}

/** All of it. */
export interface InjectorInstallation {
  readonly namespace: string;
  /** Paths of its objects. */
  readonly secret: string;
  readonly webhook: string;
  readonly service: { readonly host: string; readonly port: number; readonly name: string };
  readonly replicas: Replica[];
  /** Starts one more. */
  start(): Promise<Replica>;
  stop(): Promise<void>;
}

/** How the certificates are to live; as in injector.yaml. */
export type Lives = Readonly<Partial<Record<'authorityLife' | 'serverLife' | 'overlap' | 'checkInterval', string>>>;

const NAME = 'sidegate-injector';
const PORT = 8443;

/** Makes the objects; no replica runs yet. Pods of namespaces with the label `injected-by: <namespace>` are reviewed. */
export async function installInjector(cluster: Cluster, lives: Lives, failurePolicy = 'Fail'): Promise<InjectorInstallation> {
  const namespace = await cluster.createNamespace({}, 'injector');
  const name = `${NAME}-${namespace}`;
  await cluster.applyAll(toManifests(namespace, name, failurePolicy));
  const secret = `/api/v1/namespaces/${namespace}/secrets/${NAME}-ca`;
  const webhook = `/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/${name}`;
  const { spec } = await cluster.ok('GET', `/api/v1/namespaces/${namespace}/services/${NAME}`);
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-injector-'));
  const file = (base: string, text: string): string => {
    writeFileSync(join(folder, base), text);
    return join(folder, base);
  };
  const token = await cluster.serviceAccountToken(namespace, NAME);
  const kubeconfig = file('kubeconfig', cluster.kubeconfig(token, namespace));
  await until(async () => (await cluster.request('GET', secret, undefined, { token })).status === 200);
  await until(async () => (await cluster.request('GET', webhook, undefined, { token })).status === 200);
  const config = file('injector.yaml', toConfig(namespace, name, lives));
  const replicas: Replica[] = [];
  let started = 0;
  const balancer = await startBalancer(String(spec.clusterIP), PORT, replicas);
  return {
    namespace,
    secret,
    webhook,
    service: { host: String(spec.clusterIP), port: PORT, name: `${NAME}.${namespace}.svc` },
    replicas,
    async start() {
      const replica = await startReplica(config, kubeconfig, join(folder, `log-${started++}`));
      replicas.push(replica);
      return replica;
    },
    async stop() {
      for (const { program } of replicas) await program.kill();
      balancer.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function startReplica(config: string, kubeconfig: string, logFile: string): Promise<Replica> {
  const program = startProgram(process.execPath, [LAUNCHER, 'inject-server', '-c', config, '--kubeconfig', kubeconfig], logFile);
  const log = (): Record<string, unknown>[] =>
    program
      .log()
      .split('\n')
      .flatMap((line) => (line.startsWith('{') && line.endsWith('}') ? [JSON.parse(line) as Record<string, unknown>] : []));
  await until(() => {
    if (program.ended() !== undefined) throw new Error(`the injector ended: ${program.log()}`);
    return log().some(({ msg }) => msg === 'listening');
  });
  const line = log().find(({ msg }) => msg === 'listening');
  const adminPort = Number(line?.['adminPort']);
  const get = (path: string): Promise<Response> => fetch(`http://127.0.0.1:${adminPort}${path}`);
  return {
    program,
    port: Number(line?.['port']),
    adminPort,
    log,
    isReady: async () => (await get('/readyz').catch(() => undefined))?.status === 200,
    async metric(series) {
      const found = (await (await get('/metrics')).text()).split('\n').find((each) => each.startsWith(`${series} `));
      return Number(found?.split(' ').at(-1));
    },
  };
}

/** What kube-proxy is to a Service: each new connection goes to the next replica that is ready. */
async function startBalancer(host: string, port: number, replicas: readonly Replica[]): Promise<{ stop(): void }> {
  const sockets = new Set<Socket>();
  let turn = 0;
  const server: Server = createServer({ pauseOnConnect: true }, async (client) => {
    sockets.add(client);
    client.on('error', () => client.destroy());
    const readiness = await Promise.all(replicas.map((replica) => replica.isReady()));
    const ready = replicas.filter((_, index) => readiness[index]);
    const replica = ready[turn++ % Math.max(ready.length, 1)];
    if (replica === undefined) return void client.destroy();
    const upstream = connect(replica.port, '127.0.0.1');
    sockets.add(upstream);
    upstream.on('error', () => client.destroy());
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.end());
    client.pipe(upstream).pipe(client);
  });
  await new Promise<void>((done) => server.listen(port, host, done));
  return {
    stop() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function toConfig(namespace: string, webhook: string, lives: Lives): string {
  return stringify({
    sidecar: { image: 'registry.example/sidegate:1.0.0' },
    server: {
      address: '127.0.0.1:0',
      adminAddress: '127.0.0.1:0',
      certificate: { selfSigned: { namespace, secret: `${NAME}-ca`, service: NAME, webhook, ...lives } },
      shutdown: { grace: '2s', drain: '5s' },
    },
  });
}

/** As the chart has them. */
function toManifests(namespace: string, name: string, failurePolicy: string): string {
  const rbac = 'rbac.authorization.k8s.io/v1';
  const subjects = [{ kind: 'ServiceAccount', name: NAME, namespace }];
  const objects: Kube[] = [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: NAME, namespace } },
    { apiVersion: 'v1', kind: 'Secret', type: 'Opaque', metadata: { name: `${NAME}-ca`, namespace } },
    {
      apiVersion: rbac,
      kind: 'Role',
      metadata: { name: NAME, namespace },
      rules: [{ apiGroups: [''], resources: ['secrets'], resourceNames: [`${NAME}-ca`], verbs: ['get', 'update'] }],
    },
    toBinding('RoleBinding', { name: NAME, namespace }, { kind: 'Role', name: NAME }, subjects),
    {
      apiVersion: rbac,
      kind: 'ClusterRole',
      metadata: { name },
      rules: [
        {
          apiGroups: ['admissionregistration.k8s.io'],
          resources: ['mutatingwebhookconfigurations'],
          resourceNames: [name],
          verbs: ['get', 'patch'],
        },
        { apiGroups: ['events.k8s.io'], resources: ['events'], verbs: ['create'] },
        { apiGroups: [''], resources: ['nodes'], verbs: ['list'] },
        { apiGroups: [''], resources: ['configmaps'], verbs: ['get'] },
        { apiGroups: ['apps'], resources: ['replicasets', 'statefulsets'], verbs: ['get'] },
      ],
    },
    toBinding('ClusterRoleBinding', { name }, { kind: 'ClusterRole', name }, subjects),
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: NAME, namespace },
      spec: { selector: { app: NAME }, ports: [{ name: 'webhook', port: PORT, targetPort: 10_250 }] },
    },
    toWebhooks(namespace, name, failurePolicy),
  ];
  return objects.map((object) => stringify(object)).join('---\n');
}

function toBinding(kind: string, metadata: Kube, role: Kube, subjects: Kube[]): Kube {
  const apiGroup = 'rbac.authorization.k8s.io';
  return { apiVersion: `${apiGroup}/v1`, kind, metadata, roleRef: { apiGroup, ...role }, subjects };
}

/** Ours stands behind another, so that an index would hit the wrong one. */
function toWebhooks(namespace: string, name: string, failurePolicy: string): Kube {
  const common = {
    admissionReviewVersions: ['v1'],
    sideEffects: 'NoneOnDryRun',
    timeoutSeconds: 5,
    rules: [{ operations: ['CREATE'], apiGroups: [''], apiVersions: ['v1'], resources: ['pods'] }],
  };
  const service = { name: NAME, namespace, path: '/inject', port: PORT };
  return {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'MutatingWebhookConfiguration',
    metadata: { name },
    webhooks: [
      {
        name: 'another.example.com',
        ...common,
        failurePolicy: 'Ignore',
        clientConfig: { url: 'https://127.0.0.1:1/' },
        namespaceSelector: { matchLabels: { 'no-namespace': 'has-this' } },
      },
      {
        name: 'inject.sidegate.dev',
        ...common,
        failurePolicy,
        reinvocationPolicy: 'IfNeeded',
        clientConfig: { service },
        namespaceSelector: { matchLabels: { 'injected-by': namespace } },
        objectSelector: { matchLabels: { 'sidegate.dev/inject': 'true' } },
      },
    ],
  };
}
