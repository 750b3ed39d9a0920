/** The build information metric, which the gate and the injector share. */
import { Gauge, type Registry } from '@prometheus-io/client';

/** The build. */
export interface BuildOptions {
  readonly version: string;
  /** The commit; undefined if it is unknown. */
  readonly revision?: string | undefined;
}

/** Registers the metric. */
export function createBuildInfo(registers: Registry[], { version, revision = 'unknown' }: BuildOptions): void {
  new Gauge({
    name: 'sidegate_build_info',
    help: 'Version, commit and Node.js version of the running process; always 1.',
    labelNames: ['version', 'revision', 'node'],
    registers,
  }).set({ version, revision, node: process.versions.node }, 1);
}
