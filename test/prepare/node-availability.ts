/** Whether this machine can run a Kubernetes node for the cluster tests: which programs, rights and kernel features are missing. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { basename, join } from 'node:path';

/** Program → Debian and Ubuntu package. */
export const NODE_PROGRAMS: Readonly<Record<string, string>> = {
  containerd: 'containerd',
  runc: 'runc',
  nft: 'nftables',
  '/usr/lib/cni/bridge': 'containernetworking-plugins',
  '/bin/busybox': 'busybox-static',
  'redis-server': 'redis-server',
};

/** Where cgroups are mounted. */
export const CGROUPS = '/sys/fs/cgroup';
/** The kubelet requires the first; the second are used where they exist. */
const REQUIRED_V1 = ['cpu', 'cpuacct', 'cpuset', 'memory', 'devices', 'pids'];
const OPTIONAL_V1 = ['freezer', 'blkio', 'systemd'];
/** The same in version 2, where the root must offer them to the cgroups below. */
export const REQUIRED_V2: readonly string[] = ['cpu', 'cpuset', 'memory', 'pids'];

/** How this machine's cgroups are mounted. */
export interface Hierarchies {
  readonly version: 'v1' | 'v2';
  /** Version 1: the names of the folders; version 2: one empty name. */
  readonly names: readonly string[];
}

/** Returns the hierarchies, or the reason why a node cannot use them. */
export function findHierarchies(): Hierarchies | string {
  if (existsSync(join(CGROUPS, 'cgroup.controllers'))) {
    const enabled = readFileSync(join(CGROUPS, 'cgroup.subtree_control'), 'utf8').trim().split(' ');
    const missing = REQUIRED_V2.filter((each) => !enabled.includes(each));
    return missing.length === 0 ? { version: 'v2', names: [''] } : `cgroup.subtree_control lacks ${missing.join(', ')}`;
  }
  const missing = REQUIRED_V1.filter((each) => !existsSync(join(CGROUPS, each)));
  if (missing.length > 0) return `the cgroups ${missing.join(', ')} are missing`;
  const present = [...REQUIRED_V1, ...OPTIONAL_V1].filter((each) => existsSync(join(CGROUPS, each)));
  // Controllers that are mounted together are links to one folder.
  return { version: 'v1', names: [...new Set(present.map((each) => basename(realpathSync(join(CGROUPS, each)))))] };
}

/** Returns the reason why no node can run here, in one line. */
export function findNodeHindrance(): string | undefined {
  const hierarchies = findHierarchies();
  if (typeof hierarchies === 'string') return hierarchies;
  if (process.getuid?.() !== 0) return 'only root can create its namespaces';
  const missing = Object.keys(NODE_PROGRAMS).filter((each) => spawnSync('sh', ['-c', `command -v ${each}`]).status !== 0);
  if (missing.length > 0) return `run apt-get install ${missing.map((each) => NODE_PROGRAMS[each]).join(' ')}`;
  const namespaces = ['--mount', '--uts', '--ipc', '--net', '--pid', '--cgroup'];
  const args = [...namespaces, '--fork', '--propagation', 'private', 'mount', '-t', 'tmpfs', 'tmpfs', '/run'];
  const { status, stderr } = spawnSync('unshare', args, { encoding: 'utf8' });
  return status === 0 ? undefined : `namespaces cannot be created: ${stderr?.trim().split('\n').at(-1)}`;
}
