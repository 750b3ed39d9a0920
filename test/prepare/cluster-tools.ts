/** The programs from Go modules that the tests of clusters, of HTTP/2 and of workflows run, and where they are cached. */
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';

/** A program that is built from a Go module. */
export interface ClusterTool {
  /** File name in the folder of programs. */
  readonly name: string;
  /** The module's folder below test/cluster/toolchain. */
  readonly module: string;
  readonly package: string;
  readonly flags: readonly string[];
  /** Build time with an empty cache on two cores: half of the measured CPU time. */
  readonly minutes: number;
}

const TOOLCHAIN = resolve(import.meta.dirname, '..', 'cluster', 'toolchain');

/** Without data for debuggers: compiling it takes a tenth of the time. */
const STRIPPED = ['-gcflags=all=-dwarf=false', '-ldflags', '-s -w'];

/** A Kubernetes that was built without its version reports 0.0, and disables the features of newer versions. */
function toVersionFlags(version: string): string[] {
  const [major = '', minor = ''] = version.slice(1).split('.');
  const set = (name: string, value: string): string => `-X k8s.io/component-base/version.${name}=${value}`;
  const settings = [set('gitVersion', version), set('gitMajor', major), set('gitMinor', minor)];
  return ['-gcflags=all=-dwarf=false', '-ldflags', ['-s', '-w', ...settings].join(' ')];
}

function kubernetes(command: string, version: string, minutes: number): ClusterTool {
  return {
    name: `${command}-${version}`,
    module: `kubernetes-${version.slice(1).replace(/\.\d+$/, '')}`,
    package: `k8s.io/kubernetes/cmd/${command}`,
    flags: toVersionFlags(version),
    minutes,
  };
}

/** The tools of all machines; most tests need only the first two. */
export const CLUSTER_TOOLS: readonly ClusterTool[] = [
  kubernetes('kube-apiserver', 'v1.36.3', 5),
  kubernetes('kube-controller-manager', 'v1.36.3', 2),
  { name: 'helm-v4.3.1', module: 'helm', package: 'helm.sh/helm/v4/cmd/helm', flags: STRIPPED, minutes: 3 },
  { name: 'helm-v3.22.0', module: 'helm', package: 'helm.sh/helm/v3/cmd/helm', flags: STRIPPED, minutes: 1 },
  { name: 'kubectl-v1.37.1', module: 'helm', package: './kubectl', flags: STRIPPED, minutes: 1 },
  { name: 'pod-security-v1.36.3', module: 'kubernetes-1.36', package: './pod-security', flags: STRIPPED, minutes: 1 },
  kubernetes('kube-apiserver', 'v1.34.2', 5),
];

/** The tools of a node, which only machines with namespaces and cgroups can run. */
export const NODE_TOOLS: readonly ClusterTool[] = [
  kubernetes('kubelet', 'v1.36.3', 1),
  kubernetes('kube-scheduler', 'v1.36.3', 1),
  kubernetes('kube-proxy', 'v1.36.3', 1),
  { name: 'coredns-v1.14.7', module: 'coredns', package: '.', flags: STRIPPED, minutes: 2 },
];

/** The conformance tests of HTTP/2, for the oracles. */
export const H2SPEC: ClusterTool = {
  name: 'h2spec-v2.2.1',
  module: 'h2spec',
  package: 'github.com/summerwind/h2spec/cmd/h2spec',
  flags: STRIPPED,
  minutes: 1,
};

/** Checks the workflows of .github, for the oracles. */
export const ACTIONLINT: ClusterTool = {
  name: 'actionlint-v1.7.12',
  module: 'actionlint',
  package: 'github.com/rhysd/actionlint/cmd/actionlint',
  flags: STRIPPED,
  minutes: 1,
};

/** Returns the folder of a tool's module. */
export function toModuleFolder(tool: ClusterTool): string {
  return resolve(TOOLCHAIN, tool.module);
}

/** Returns the folder of the programs, whether or not they were built already. */
export function toBinFolder(): string {
  return join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'sidegate', 'bin');
}
