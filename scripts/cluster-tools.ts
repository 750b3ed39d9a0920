/** Which programs of Kubernetes the cluster tests run, from which Go modules, and where they are kept. */
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';

/** A program that is built from a Go module. */
export interface ClusterTool {
  /** Its file in the folder of programs. */
  readonly name: string;
  /** Folder of the module below test/cluster/toolchain. */
  readonly module: string;
  readonly package: string;
  readonly flags: readonly string[];
  /** With an empty cache on two cores: half of the CPU time that was measured. */
  readonly minutes: number;
}

const TOOLCHAIN = resolve(import.meta.dirname, '..', 'test', 'cluster', 'toolchain');

/** A Kubernetes that was built without its version calls itself 0.0, and turns off whatever newer versions have. */
function toVersionFlags(version: string): string[] {
  const [major = '', minor = ''] = version.slice(1).split('.');
  const set = (name: string, value: string): string => `-X k8s.io/component-base/version.${name}=${value}`;
  const settings = [set('gitVersion', version), set('gitMajor', major), set('gitMinor', minor)];
  return ['-ldflags', ['-s', '-w', ...settings].join(' ')];
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

/** All of them; the first two are what most tests need. */
export const CLUSTER_TOOLS: readonly ClusterTool[] = [
  kubernetes('kube-apiserver', 'v1.36.3', 5),
  kubernetes('kube-controller-manager', 'v1.36.3', 2),
  { name: 'helm-v4.3.1', module: 'helm', package: 'helm.sh/helm/v4/cmd/helm', flags: ['-ldflags', '-s -w'], minutes: 3 },
  kubernetes('kube-apiserver', 'v1.34.2', 5),
];

/** Folder of a tool's module. */
export function toModuleFolder(tool: ClusterTool): string {
  return resolve(TOOLCHAIN, tool.module);
}

/** Where the programs are, whether or not they were built already. */
export function toBinFolder(): string {
  return join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'sidegate', 'bin');
}
