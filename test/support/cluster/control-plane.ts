/** A real control plane on loopback: etcd, kube-apiserver and, where asked, kube-controller-manager, in a folder that goes with them. */
import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeAuthority, type Pair } from '../certificates.ts';
import { findFreePort } from '../free-port.ts';
import { until } from '../gate.ts';
import { type Access, ask } from './kube-request.ts';
import { toKubeconfig } from './kubeconfig.ts';
import { findTool, type Program, startProgram } from './program.ts';

/** What a control plane is made of, by the name that tests ask for. */
export const VERSIONS = {
  '1.36': { apiServer: 'kube-apiserver-v1.36.3', controllers: 'kube-controller-manager-v1.36.3' },
  '1.34': { apiServer: 'kube-apiserver-v1.34.2', controllers: undefined },
} as const;

/** A version of Kubernetes that can be had. */
export type Version = keyof typeof VERSIONS;

/** How tests reach it; plain data. */
export interface Connection extends Access {
  readonly version: Version;
  /** Whether Deployments make pods, and Services EndpointSlices. */
  readonly hasControllers: boolean;
  /** File of a kubeconfig with all rights. */
  readonly kubeconfigFile: string;
  /** Tokens of users without any rights, to bind roles to. */
  readonly users: Readonly<Record<'developer' | 'nobody', string>>;
  /** What the API server shows to webhooks that ask: PEM of the CA, and the name in the certificate. */
  readonly webhookClient: { readonly ca: string; readonly name: string };
}

/** One that runs. */
export interface ControlPlane {
  readonly connection: Connection;
  stop(): Promise<void>;
}

const TOKENS = { admin: 'admin-token', developer: 'developer-token', nobody: 'nobody-token' } as const;
/** ClusterIPs are loopback addresses, so that a test can serve a Service where the API server looks for it. */
const SERVICE_RANGE = '127.96.0.0/16';
/** The ClusterIP of the Service `kubernetes`: what pods are told to ask. */
const API_ADDRESS = '127.96.0.1';
const WEBHOOK_CLIENT = 'webhook-caller';
const CONTROLLERS = [
  'deployment-controller',
  'replicaset-controller',
  'statefulset-controller',
  'daemonset-controller',
  'job-controller',
  'cronjob-controller',
  'endpointslice-controller',
  'serviceaccount-controller',
  'root-ca-certificate-publisher-controller',
  'namespace-controller',
  'garbage-collector-controller',
  'disruption-controller',
  'validatingadmissionpolicy-status-controller',
  'clusterrole-aggregation-controller',
];
/** A port that was free may be taken a moment later. */
const ATTEMPTS = 3;

/** Starts one and waits until it answers. */
export async function startControlPlane(version: Version): Promise<ControlPlane> {
  const folder = mkdtempSync(join(tmpdir(), `sidegate-cluster-${version}-`));
  const programs: Program[] = [];
  const stop = async (): Promise<void> => {
    for (const program of programs.reverse()) await program.kill();
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const etcd = await startEtcd(folder, programs);
    const connection = await startApiServer(folder, version, etcd, programs);
    const { controllers } = VERSIONS[version];
    if (controllers !== undefined) await startControllers(folder, controllers, connection, programs);
    return { connection, stop };
  } catch (thrown) {
    await stop();
    throw thrown;
  }
}

/** Starts a program on a port of its own, again where that one was taken meanwhile. */
async function startOnPort(
  command: string,
  logFile: string,
  programs: Program[],
  parts: { toArgs: (port: number) => readonly string[]; isReady: (port: number) => Promise<boolean> },
): Promise<number> {
  for (let attempt = 1; ; attempt++) {
    const port = await findFreePort();
    const program = startProgram(command, parts.toArgs(port), logFile);
    programs.push(program);
    await until(async () => program.ended() !== undefined || (await parts.isReady(port).catch(() => false)));
    if (program.ended() === undefined) return port;
    if (attempt === ATTEMPTS) throw new Error(`${command} ended with ${program.ended()}:\n${program.log().slice(-3_000)}`);
  }
}

function startEtcd(folder: string, programs: Program[]): Promise<number> {
  return startOnPort('etcd', join(folder, 'etcd.log'), programs, {
    toArgs: (port) => [
      `--data-dir=${join(folder, `etcd-${port}`)}`,
      '--unsafe-no-fsync',
      `--listen-client-urls=http://127.0.0.1:${port}`,
      `--advertise-client-urls=http://127.0.0.1:${port}`,
      '--listen-peer-urls=http://127.0.0.1:0',
      '--log-level=error',
    ],
    isReady: async (port) => (await fetch(`http://127.0.0.1:${port}/health`)).ok,
  });
}

async function startApiServer(folder: string, version: Version, etcd: number, programs: Program[]): Promise<Connection> {
  const file = (name: string): string => join(folder, name);
  const authority = makeAuthority(folder, 'ca');
  const serving = authority.issue('apiserver', `IP:${API_ADDRESS},IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc`);
  const webhookAuthority = makeAuthority(folder, 'webhook-clients');
  writeAdmissionConfig(file, webhookAuthority.issue(WEBHOOK_CLIENT, `DNS:${WEBHOOK_CLIENT}`));
  const keys = createAccountKeys();
  writeFileSync(file('accounts.key'), keys.privateKey, { mode: 0o600 });
  writeFileSync(file('accounts.pub'), keys.publicKey);
  writeFileSync(file('tokens.csv'), toTokenTable(), { mode: 0o600 });
  const ca = readFileSync(authority.ca, 'utf8');
  const toAccess = (port: number): Access => ({ server: `https://${API_ADDRESS}:${port}`, ca, token: TOKENS.admin });
  const port = await startOnPort(findTool(VERSIONS[version].apiServer), file('apiserver.log'), programs, {
    toArgs: (own) => [
      `--etcd-servers=http://127.0.0.1:${etcd}`,
      `--bind-address=${API_ADDRESS}`,
      `--secure-port=${own}`,
      // No pod ever asks for it, and a machine without a network has no other to find.
      '--advertise-address=10.0.0.1',
      '--endpoint-reconciler-type=none',
      `--cert-dir=${folder}`,
      `--tls-cert-file=${serving.cert}`,
      `--tls-private-key-file=${serving.key}`,
      `--client-ca-file=${authority.ca}`,
      `--service-account-key-file=${file('accounts.pub')}`,
      `--service-account-signing-key-file=${file('accounts.key')}`,
      '--service-account-issuer=https://kubernetes.default.svc',
      `--token-auth-file=${file('tokens.csv')}`,
      '--authorization-mode=RBAC',
      `--admission-control-config-file=${file('admission.yaml')}`,
      `--service-cluster-ip-range=${SERVICE_RANGE}`,
    ],
    // The roles that Kubernetes comes with are written after the start; a binding to one of them would fail before.
    isReady: async (own) => (await ask(toAccess(own), 'GET', '/readyz')).status === 200,
  });
  const access = toAccess(port);
  const kubeconfigFile = file('kubeconfig');
  writeFileSync(kubeconfigFile, toKubeconfig(access), { mode: 0o600 });
  const read = (path: string): string => readFileSync(path, 'utf8');
  return {
    ...access,
    version,
    hasControllers: VERSIONS[version].controllers !== undefined,
    kubeconfigFile,
    users: { developer: TOKENS.developer, nobody: TOKENS.nobody },
    webhookClient: { ca: read(webhookAuthority.ca), name: WEBHOOK_CLIENT },
  };
}

/** The key pair that signs the tokens of service accounts, as PEM. */
export function createAccountKeys(): { readonly privateKey: string; readonly publicKey: string } {
  return generateKeyPairSync('ec', {
    namedCurve: 'P-256',
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
}

/** Has the API server show a client certificate to webhooks, as docs/injector.md says; JSON is YAML. */
export function writeAdmissionConfig(file: (name: string) => string, { cert, key }: Pair): void {
  const user = { 'client-certificate': cert, 'client-key': key };
  const kubeconfig = { apiVersion: 'v1', kind: 'Config', users: [{ name: '*', user }] };
  writeFileSync(file('webhooks.kubeconfig'), JSON.stringify(kubeconfig));
  const configuration = {
    apiVersion: 'apiserver.config.k8s.io/v1',
    kind: 'WebhookAdmissionConfiguration',
    kubeConfigFile: file('webhooks.kubeconfig'),
  };
  const plugins = [{ name: 'MutatingAdmissionWebhook', configuration }];
  const admission = { apiVersion: 'apiserver.config.k8s.io/v1', kind: 'AdmissionConfiguration', plugins };
  writeFileSync(file('admission.yaml'), JSON.stringify(admission));
}

/** Kubernetes' own columns: token, user, uid, groups. */
function toTokenTable(): string {
  const rows = [
    `${TOKENS.admin},admin,1,system:masters`,
    `${TOKENS.developer},developer,2,developers`,
    `${TOKENS.nobody},nobody,3,nobodies`,
  ];
  return `${rows.join('\n')}\n`;
}

async function startControllers(folder: string, name: string, connection: Connection, programs: Program[]): Promise<void> {
  await startOnPort(findTool(name), join(folder, 'controllers.log'), programs, {
    toArgs: (port) => [
      `--kubeconfig=${connection.kubeconfigFile}`,
      '--bind-address=127.0.0.1',
      `--secure-port=${port}`,
      `--cert-dir=${folder}`,
      '--leader-elect=false',
      `--controllers=${CONTROLLERS.join(',')}`,
      `--service-account-private-key-file=${join(folder, 'accounts.key')}`,
      `--root-ca-file=${join(folder, 'ca.crt')}`,
      // Nothing here has more than a handful of objects, and tests wait for what they do.
      '--kube-api-qps=200',
      '--kube-api-burst=400',
    ],
    // Its first visible work; asked of the API server, as its own certificate is signed by nobody.
    isReady: async () => (await ask(connection, 'GET', '/api/v1/namespaces/default/serviceaccounts/default')).status === 200,
  });
}
