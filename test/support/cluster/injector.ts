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
import { provideKubectl } from './kubectl.ts';
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

/** The rotation controller as a process. */
export interface RotationProgram {
  readonly program: Program;
  readonly log: () => Record<string, unknown>[];
}

/** All of it. */
export interface InjectorInstallation {
  readonly namespace: string;
  /** Paths of its objects. */
  readonly secret: string;
  /** The Secret with the certificate that is served. */
  readonly serverSecret: string;
  readonly webhook: string;
  readonly service: { readonly host: string; readonly port: number; readonly name: string };
  readonly replicas: Replica[];
  /** The rotation controllers that run. */
  readonly controllers: RotationProgram[];
  /** Starts one more replica. */
  start(): Promise<Replica>;
  /** Starts a rotation controller, which `installInjector` has not done yet. */
  startController(): RotationProgram;
  /** A token of a replica, or of the rotation controller. */
  token(of: 'injector' | 'rotation'): Promise<string>;
  stop(): Promise<void>;
}

/** How the certificates are to live; as in injector.yaml. */
export type Lives = Readonly<Partial<Record<'caLifetime' | 'serverLifetime' | 'overlap' | 'checkInterval', string>>>;

const NAME = 'sidegate-injector';
const ROTATION = 'sidegate-rotation';
const PORT = 8443;

/** How the injector differs from the usual one. */
export interface InjectorVariant {
  readonly failurePolicy?: 'Fail' | 'Ignore';
  /** Left out: `require`. */
  readonly clientAuth?: 'none' | 'optional' | 'require';
}

/** Makes the objects; nothing runs yet. Pods of namespaces with the label `injected-by: <namespace>` are reviewed. */
export async function installInjector(
  cluster: Cluster,
  lives: Lives,
  { failurePolicy = 'Fail', clientAuth = 'require' }: InjectorVariant = {},
): Promise<InjectorInstallation> {
  const namespace = await cluster.createNamespace({}, 'injector');
  const name = `${NAME}-${namespace}`;
  await cluster.applyAll(toManifests(namespace, name, failurePolicy));
  const toSecret = (suffix: string): string => `/api/v1/namespaces/${namespace}/secrets/${NAME}-${suffix}`;
  const [secret, serverSecret] = [toSecret('ca'), toSecret('tls')];
  const webhook = `/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/${name}`;
  const { spec } = await cluster.ok('GET', `/api/v1/namespaces/${namespace}/services/${NAME}`);
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-injector-'));
  const file = (base: string, text: string): string => {
    writeFileSync(join(folder, base), text);
    return join(folder, base);
  };
  const toKubeconfig = async (account: string, readable: string): Promise<string> => {
    const token = await cluster.serviceAccountToken(namespace, account);
    for (const path of [readable, webhook])
      await until(async () => (await cluster.request('GET', path, undefined, { token })).status === 200);
    return file(`${account}.kubeconfig`, cluster.kubeconfig(token, namespace));
  };
  const kubeconfigs = { injector: await toKubeconfig(NAME, serverSecret), rotation: await toKubeconfig(ROTATION, secret) };
  const { ca, name: caller } = cluster.connection.webhookClient;
  const auth = { mode: clientAuth, caFile: file('client-ca.crt', ca), allowedNames: [caller] };
  const config = file(
    'injector.yaml',
    toConfig({ namespace, webhook: name, lives, clientAuth: clientAuth === 'none' ? {} : { clientAuth: auth } }),
  );
  const env = provideKubectl(folder);
  const replicas: Replica[] = [];
  const controllers: RotationProgram[] = [];
  let started = 0;
  const balancer = await startBalancer(String(spec.clusterIP), PORT, replicas);
  return {
    namespace,
    secret,
    serverSecret,
    webhook,
    service: { host: String(spec.clusterIP), port: PORT, name: `${NAME}.${namespace}.svc` },
    replicas,
    controllers,
    async start() {
      const replica = await startReplica([config, kubeconfigs.injector], join(folder, `log-${started++}`), env);
      replicas.push(replica);
      return replica;
    },
    startController() {
      const args = [LAUNCHER, 'rotate-certificates', '-c', config, '--kubeconfig', kubeconfigs.rotation];
      const program = startProgram(process.execPath, args, join(folder, `rotation-${started++}`), env);
      const controller = { program, log: () => toLines(program) };
      controllers.push(controller);
      return controller;
    },
    token: (of) => cluster.serviceAccountToken(namespace, of === 'injector' ? NAME : ROTATION),
    async stop() {
      for (const { program } of [...replicas, ...controllers]) await program.kill();
      balancer.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function toLines(program: Program): Record<string, unknown>[] {
  return program
    .log()
    .split('\n')
    .flatMap((line) => (line.startsWith('{') && line.endsWith('}') ? [JSON.parse(line) as Record<string, unknown>] : []));
}

async function startReplica(
  [config, kubeconfig]: readonly [string, string],
  logFile: string,
  env: NodeJS.ProcessEnv,
): Promise<Replica> {
  const args = [LAUNCHER, 'inject-server', '-c', config, '--kubeconfig', kubeconfig];
  const program = startProgram(process.execPath, args, logFile, env);
  const log = (): Record<string, unknown>[] => toLines(program);
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

interface ConfigParts {
  readonly namespace: string;
  readonly webhook: string;
  readonly lives: Lives;
  readonly clientAuth: object;
}

function toConfig({ namespace, webhook, lives, clientAuth }: ConfigParts): string {
  const { checkInterval } = lives;
  const secrets = { caSecret: `${NAME}-ca`, serverSecret: `${NAME}-tls` };
  return stringify({
    sidecar: { image: 'registry.example/sidegate:1.0.0' },
    server: {
      address: '127.0.0.1:0',
      adminAddress: '127.0.0.1:0',
      certificate: { secret: { namespace, name: secrets.serverSecret, checkInterval }, webhook },
      ...clientAuth,
      shutdown: { grace: '2s', drain: '5s' },
    },
    rotation: { namespace, ...secrets, service: NAME, webhook, ...lives },
  });
}

/** As the chart has them. */
function toManifests(namespace: string, name: string, failurePolicy: string): string {
  const rbac = 'rbac.authorization.k8s.io/v1';
  const toSubjects = (account: string): Kube[] => [{ kind: 'ServiceAccount', name: account, namespace }];
  const toRole = (account: string, rule: Kube): Kube[] => [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: account, namespace } },
    {
      apiVersion: rbac,
      kind: 'Role',
      metadata: { name: account, namespace },
      rules: [{ apiGroups: [''], resources: ['secrets'], ...rule }],
    },
    toBinding('RoleBinding', { name: account, namespace }, { kind: 'Role', name: account }, toSubjects(account)),
  ];
  const toClusterRole = (account: string, verbs: string[], more: Kube[] = []): Kube[] => {
    const webhooks = { apiGroups: ['admissionregistration.k8s.io'], resources: ['mutatingwebhookconfigurations'] };
    const own = `${account}-${namespace}`;
    return [
      {
        apiVersion: rbac,
        kind: 'ClusterRole',
        metadata: { name: own },
        rules: [{ ...webhooks, resourceNames: [name], verbs }, ...more],
      },
      toBinding('ClusterRoleBinding', { name: own }, { kind: 'ClusterRole', name: own }, toSubjects(account)),
    ];
  };
  const objects: Kube[] = [
    ...['ca', 'tls'].map((suffix) => ({
      apiVersion: 'v1',
      kind: 'Secret',
      type: 'Opaque',
      metadata: { name: `${NAME}-${suffix}`, namespace },
    })),
    ...toRole(NAME, { resourceNames: [`${NAME}-tls`], verbs: ['get'] }),
    ...toRole(ROTATION, { resourceNames: [`${NAME}-ca`, `${NAME}-tls`], verbs: ['get', 'update'] }),
    ...toClusterRole(ROTATION, ['get', 'patch']),
    ...toClusterRole(
      NAME,
      ['get'],
      [
        { apiGroups: ['events.k8s.io'], resources: ['events'], verbs: ['create'] },
        { apiGroups: [''], resources: ['nodes'], verbs: ['list'] },
        { apiGroups: [''], resources: ['configmaps'], verbs: ['get'] },
        { apiGroups: ['apps'], resources: ['replicasets', 'statefulsets'], verbs: ['get'] },
      ],
    ),
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
