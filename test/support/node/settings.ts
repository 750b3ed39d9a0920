/** The names and addresses of the node, and the configuration files of its programs as objects: JSON is YAML. */
import { join } from 'node:path';
import { NODE_ADDRESS } from './machine.ts';

/** Nobody can pull from this host, so that an image that is missing is an error at once. */
const HOST = 'sidegate.test';
/** sidegate as its Dockerfile describes it. */
export const SIDEGATE_IMAGE = { repository: `${HOST}/sidegate`, tag: '0.1.0' } as const;
/** The app of the tests (test/support/cluster/app-image.ts), on the same Node. It also runs clients. */
export const APP_IMAGE = `${HOST}/app:1`;
/** Redis, without persistence. */
export const REDIS_IMAGE = `${HOST}/redis:1`;
/** What holds the namespaces of a pod. */
export const PAUSE_IMAGE = `${HOST}/pause:1`;

/** Where the API server listens inside the node. */
export const API_PORT = 6443;
/** Services get their addresses here. */
export const SERVICE_RANGE = '10.96.0.0/16';
/** The address of the Service `kubernetes`. */
export const API_SERVICE = '10.96.0.1';
const POD_RANGE = '10.244.0.0/24';
const CLUSTER_RANGE = '10.244.0.0/16';
const DOMAIN = 'cluster.local';
/** The socket of containerd. */
export const RUNTIME = '/run/containerd/containerd.sock';

/** The text of a file, by its name. */
export type Files = Readonly<Record<string, string>>;

/** All of them; `folder` is where they will be. */
export function toSettings(
  folder: string,
  files: { readonly clientCa: string; readonly kubeconfig: (user: string) => string },
): Files {
  const json = (value: object): string => `${JSON.stringify(value, undefined, 2)}\n`;
  return {
    'containerd.toml': toContainerd(folder),
    'cni/10-bridge.conflist': json(toNetwork()),
    'kubelet.yaml': json(toKubelet(folder, files.clientCa)),
    'proxy.yaml': json(toProxy(files.kubeconfig('proxy'))),
    'resolv.conf': `nameserver ${NODE_ADDRESS}\n`,
    Corefile: toCorefile(files.kubeconfig('dns')),
  };
}

/** AppArmor is not set up here, and without CAP_SYS_RESOURCE no process may protect itself from the kernel's OOM killer. */
function toContainerd(folder: string): string {
  return `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${PAUSE_IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "${join(folder, 'cni')}"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
`;
}

function toNetwork(): object {
  const ipam = { type: 'host-local', ranges: [[{ subnet: POD_RANGE }]], routes: [{ dst: '0.0.0.0/0' }] };
  const bridge = { type: 'bridge', bridge: 'cni0', isGateway: true, ipMasq: false, hairpinMode: true, ipam };
  return { cniVersion: '1.0.0', name: 'pods', plugins: [bridge, { type: 'portmap', capabilities: { portMappings: true } }] };
}

function toKubelet(folder: string, clientCa: string): object {
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    authentication: { anonymous: { enabled: false }, webhook: { enabled: true }, x509: { clientCAFile: clientCa } },
    authorization: { mode: 'Webhook' },
    containerRuntimeEndpoint: `unix://${RUNTIME}`,
    cgroupDriver: 'cgroupfs',
    failCgroupV1: false,
    failSwapOn: false,
    clusterDNS: [NODE_ADDRESS],
    clusterDomain: DOMAIN,
    resolvConf: join(folder, 'resolv.conf'),
    volumePluginDir: '/var/lib/kubelet/volume-plugins',
    // The disk of the machine may be almost full, and no image can be pulled again.
    imageGCHighThresholdPercent: 100,
    imageMinimumGCAge: '24h',
    evictionHard: { 'memory.available': '50Mi', 'nodefs.available': '0%', 'nodefs.inodesFree': '0%', 'imagefs.available': '0%' },
    // Tests wait for what these do.
    configMapAndSecretChangeDetectionStrategy: 'Watch',
    syncFrequency: '5s',
    eventRecordQPS: 0,
    kubeAPIQPS: 200,
    kubeAPIBurst: 400,
  };
}

/** The machine's limits of connections belong to the machine. */
function toProxy(kubeconfig: string): object {
  return {
    apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
    kind: 'KubeProxyConfiguration',
    mode: 'nftables',
    clusterCIDR: CLUSTER_RANGE,
    clientConnection: { kubeconfig },
    // In large clusters, nodes learn seconds later which pods end. Here it takes this long at most.
    nftables: { minSyncPeriod: '2s' },
    conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
  };
}

function toCorefile(kubeconfig: string): string {
  return `.:53 {
  bind ${NODE_ADDRESS}
  ready ${NODE_ADDRESS}:8181
  errors
  kubernetes ${DOMAIN} in-addr.arpa {
    kubeconfig ${kubeconfig}
    pods verified
    ttl 1
  }
}
`;
}

/** What the controller manager is told of the network. */
export const NETWORK_FLAGS = [
  '--allocate-node-cidrs',
  `--cluster-cidr=${CLUSTER_RANGE}`,
  `--service-cluster-ip-range=${SERVICE_RANGE}`,
];
