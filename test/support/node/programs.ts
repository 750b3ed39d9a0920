/** The programs of the node and of its control plane, each started as soon as what it depends on answers. */
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { makeAuthority } from '../certificates.ts';
import { createAccountKeys, writeAdmissionConfig } from '../cluster/control-plane.ts';
import { type Access, ask } from '../cluster/kube-request.ts';
import { toKubeconfig } from '../cluster/kubeconfig.ts';
import { findTool, type Program } from '../cluster/program.ts';
import { until } from '../gate.ts';
import { dial, toRelaySocket } from './forward.ts';
import { type Machine, NODE_ADDRESS, NODE_NAME, startInside } from './machine.ts';
import { API_PORT, API_SERVICE, NETWORK_FLAGS, SERVICE_RANGE, toSettings } from './settings.ts';

const VERSION = 'v1.36.3';
const ETCD_PORT = 2379;
const ETCD = `http://127.0.0.1:${ETCD_PORT}`;
/** The API server's name in requests to the kubelet. */
const KUBELET_CLIENT = 'kubelet-client';
const WEBHOOK_CLIENT = 'webhook-caller';
/** Users by token, with their groups. Only the kubelet's rights matter to the tests: it may see the objects of its pods only. */
const USERS = {
  admin: ['admin', 'system:masters'],
  developer: ['developer', 'developers'],
  nobody: ['nobody', 'nobodies'],
  kubelet: [`system:node:${NODE_NAME}`, 'system:nodes'],
  proxy: ['system:kube-proxy', ''],
  scheduler: ['system:kube-scheduler', ''],
  controllers: ['kube-controllers', 'system:masters'],
  dns: ['dns', 'system:masters'],
} as const;
type User = keyof typeof USERS;

/** How everybody reaches the API server; `port` is where this machine forwards to it. */
export interface Credentials {
  readonly ca: string;
  readonly token: (user: User) => string;
  readonly webhookClient: { readonly ca: string; readonly name: string };
}

/** Writes keys, certificates, users and configuration files, which all starts of the node share. */
export function writeFiles({ folder }: Machine): Credentials {
  const file = (name: string): string => join(folder, name);
  const write = (name: string, text: string): void => {
    mkdirSync(dirname(file(name)), { recursive: true });
    writeFileSync(file(name), text, { mode: 0o600 });
  };
  const authority = makeAuthority(folder, 'ca');
  authority.issue('apiserver', `IP:${NODE_ADDRESS},IP:${API_SERVICE},IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc`);
  authority.issue(KUBELET_CLIENT, `DNS:${KUBELET_CLIENT}`);
  const webhookAuthority = makeAuthority(folder, 'webhook-clients');
  writeAdmissionConfig(file, webhookAuthority.issue(WEBHOOK_CLIENT, `DNS:${WEBHOOK_CLIENT}`));
  const keys = createAccountKeys();
  write('accounts.key', keys.privateKey);
  write('accounts.pub', keys.publicKey);
  const rows = Object.entries(USERS).map(([user, [name, group]]) => `${user}-token,${name},${user},"${group}"\n`);
  write('tokens.csv', rows.join(''));
  const ca = readFileSync(authority.ca, 'utf8');
  const token = (user: User): string => `${user}-token`;
  for (const user of Object.keys(USERS) as User[])
    write(`${user}.kubeconfig`, toKubeconfig({ server: `https://${NODE_ADDRESS}:${API_PORT}`, ca, token: token(user) }));
  const settings = toSettings(folder, { clientCa: authority.ca, kubeconfig: (user) => file(`${user}.kubeconfig`) });
  for (const [name, text] of Object.entries(settings)) write(name, text);
  const read = (path: string): string => readFileSync(path, 'utf8');
  return {
    ca,
    token,
    webhookClient: { ca: read(webhookAuthority.ca), name: WEBHOOK_CLIENT },
  };
}

/** Starts the relay by which this machine reaches the node's network. */
export async function startRelay(machine: Machine): Promise<void> {
  const socket = toRelaySocket(machine);
  rmSync(socket, { force: true });
  const program = startInside(machine, 'relay', process.execPath, [join(import.meta.dirname, 'relay.ts'), socket]);
  await until(() => existsSync(socket) || isGone(program, 'the relay'));
}

/** Starts etcd and the API server. */
export async function startApi(machine: Machine, access: Access): Promise<void> {
  const { folder } = machine;
  const etcd = startInside(machine, 'etcd', 'etcd', [
    `--data-dir=${join(folder, 'etcd')}`,
    '--unsafe-no-fsync',
    `--listen-client-urls=${ETCD}`,
    `--advertise-client-urls=${ETCD}`,
    '--listen-peer-urls=http://127.0.0.1:0',
    '--log-level=error',
  ]);
  await until(async () => (await isEtcdReady(machine)) || isGone(etcd, 'etcd'));
  const file = (name: string): string => join(folder, name);
  const server = startInside(machine, 'apiserver', findTool(`kube-apiserver-${VERSION}`), [
    `--etcd-servers=${ETCD}`,
    `--bind-address=${NODE_ADDRESS}`,
    `--advertise-address=${NODE_ADDRESS}`,
    `--secure-port=${API_PORT}`,
    `--cert-dir=${folder}`,
    `--tls-cert-file=${file('apiserver.crt')}`,
    `--tls-private-key-file=${file('apiserver.key')}`,
    `--client-ca-file=${file('ca.crt')}`,
    `--kubelet-client-certificate=${file(`${KUBELET_CLIENT}.crt`)}`,
    `--kubelet-client-key=${file(`${KUBELET_CLIENT}.key`)}`,
    '--kubelet-preferred-address-types=InternalIP',
    `--service-account-key-file=${file('accounts.pub')}`,
    `--service-account-signing-key-file=${file('accounts.key')}`,
    '--service-account-issuer=https://kubernetes.default.svc.cluster.local',
    `--token-auth-file=${file('tokens.csv')}`,
    '--authorization-mode=Node,RBAC',
    '--enable-admission-plugins=NodeRestriction',
    `--admission-control-config-file=${file('admission.yaml')}`,
    `--service-cluster-ip-range=${SERVICE_RANGE}`,
    '--allow-privileged',
  ]);
  await until(async () => (await isReady(access)) || isGone(server, 'the API server'));
  await allowKubeletRequests(access);
}

/** Logs and `exec` go through the API server to the kubelet, which asks whether it may. */
async function allowKubeletRequests(access: Access): Promise<void> {
  const apiGroup = 'rbac.authorization.k8s.io';
  await ask(access, 'POST', `/apis/${apiGroup}/v1/clusterrolebindings`, {
    apiVersion: `${apiGroup}/v1`,
    kind: 'ClusterRoleBinding',
    metadata: { name: KUBELET_CLIENT },
    roleRef: { apiGroup, kind: 'ClusterRole', name: 'system:kubelet-api-admin' },
    subjects: [{ apiGroup, kind: 'User', name: KUBELET_CLIENT }],
  });
}

/** Starts the programs that only need the API server. */
export function startControllers(machine: Machine): void {
  const { folder } = machine;
  const config = (user: User): string => `--kubeconfig=${join(folder, `${user}.kubeconfig`)}`;
  startInside(machine, 'controllers', findTool(`kube-controller-manager-${VERSION}`), [
    config('controllers'),
    '--bind-address=127.0.0.1',
    `--cert-dir=${folder}`,
    '--leader-elect=false',
    `--service-account-private-key-file=${join(folder, 'accounts.key')}`,
    `--root-ca-file=${join(folder, 'ca.crt')}`,
    ...NETWORK_FLAGS,
    '--kube-api-qps=200',
    '--kube-api-burst=400',
  ]);
  startInside(machine, 'scheduler', findTool(`kube-scheduler-${VERSION}`), [
    config('scheduler'),
    '--bind-address=127.0.0.1',
    `--cert-dir=${folder}`,
    '--leader-elect=false',
  ]);
  startInside(machine, 'proxy', findTool(`kube-proxy-${VERSION}`), [
    `--config=${join(folder, 'proxy.yaml')}`,
    `--hostname-override=${NODE_NAME}`,
  ]);
  startInside(machine, 'dns', findTool('coredns-v1.14.7'), ['-conf', join(folder, 'Corefile')]);
}

/** Starts containerd. */
export async function startContainerd(machine: Machine): Promise<void> {
  const program = startInside(machine, 'containerd', 'containerd', ['--config', join(machine.folder, 'containerd.toml')]);
  // Its socket is on a file system of the node.
  await until(() => program.log().includes('containerd successfully booted') || isGone(program, 'containerd'));
}

/** Starts the kubelet, and waits until pods can be scheduled to its node. */
export async function startKubelet(machine: Machine, access: Access): Promise<void> {
  const { folder } = machine;
  const program = startInside(machine, 'kubelet', findTool(`kubelet-${VERSION}`), [
    `--config=${join(folder, 'kubelet.yaml')}`,
    `--kubeconfig=${join(folder, 'kubelet.kubeconfig')}`,
    '--root-dir=/var/lib/kubelet',
    '--cert-dir=/var/lib/kubelet/pki',
    `--hostname-override=${NODE_NAME}`,
    `--node-ip=${NODE_ADDRESS}`,
  ]);
  await until(async () => (await isSchedulable(access)) || isGone(program, 'the kubelet'));
}

async function isSchedulable(access: Access): Promise<boolean> {
  const { status, body } = await ask(access, 'GET', `/api/v1/nodes/${NODE_NAME}`);
  if (status !== 200 || (body.spec.taints ?? []).length > 0) return false;
  const conditions: { type: string; status: string }[] = body.status.conditions ?? [];
  return conditions.some(({ type, status: value }) => type === 'Ready' && value === 'True');
}

async function isReady(access: Access): Promise<boolean> {
  return (await ask(access, 'GET', '/readyz').catch(() => undefined))?.status === 200;
}

/** Throws if the program has ended, with the end of its log. */
function isGone(program: Program, what: string): false {
  if (program.ended() === undefined) return false;
  throw new Error(`${what} of the node ended with ${program.ended()}:\n${program.log().slice(-3_000)}`);
}

function isEtcdReady(machine: Machine): Promise<boolean> {
  const socket = dial(machine, '127.0.0.1', ETCD_PORT);
  socket.write('GET /health HTTP/1.0\r\n\r\n');
  return new Promise((done) => {
    socket.once('data', (answer: Buffer) => {
      done(answer.includes('200 OK'));
      socket.destroy();
    });
    socket.once('error', () => done(false));
    socket.once('end', () => {
      done(false);
      socket.destroy();
    });
  });
}
