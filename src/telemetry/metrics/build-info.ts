/** The build information metric, which the gate and the injector share. */
import { Gauge, type Registry } from '@prometheus-io/client';

/** Registers the metric. `revision`: the commit. */
export function createBuildInfo(registers: Registry[], version: string, revision = 'unknown'): void {
  new Gauge({
    name: 'sidegate_build_info',
    help: 'Version, commit and Node.js version of the running process; always 1.',
    labelNames: ['version', 'revision', 'node'],
    registers,
  }).set({ version, revision, node: process.versions.node }, 1);
}
