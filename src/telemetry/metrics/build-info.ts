/** What runs: the same series of the gate and of the injector. */
import { Gauge, type Registry } from '@prometheus-io/client';

/** What was built. */
export interface BuildOptions {
  readonly version: string;
  /** The commit that it was built from; left out: not known. */
  readonly revision?: string | undefined;
}

/** Shows it. */
export function createBuildInfo(registers: Registry[], { version, revision = 'unknown' }: BuildOptions): void {
  new Gauge({
    name: 'sidegate_build_info',
    help: 'Version, the commit that it was built from, and the Node that it runs on.',
    labelNames: ['version', 'revision', 'node'],
    registers,
  }).set({ version, revision, node: process.versions.node }, 1);
}
