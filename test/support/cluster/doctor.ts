/** `sidegate doctor`, run in the test's process. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { runProgram } from '../../../src/cli/program.ts';
import { makeFolder } from '../fixtures.ts';
import { recordIo } from '../io.ts';
import type { Kube } from './kube-request.ts';
import { provideKubectl } from './kubectl.ts';

/** How it ended. */
export interface DoctorRun {
  readonly code: number;
  /** Its JSON; undefined if it printed none. */
  readonly report: Kube;
  readonly stderr: string;
}

/** Examines a namespace with the rights of a kubeconfig, through kubectl. */
export async function runDoctor(kubeconfig: string, namespace: string, ...args: readonly string[]): Promise<DoctorRun> {
  const folder = makeFolder();
  const file = join(folder, 'kubeconfig');
  writeFileSync(file, kubeconfig);
  const { io, stdout, stderr } = recordIo({ env: provideKubectl(folder) });
  const code = await runProgram(['doctor', '--kubeconfig', file, '-n', namespace, '--format', 'json', ...args], io);
  return { code, stderr: stderr(), report: stdout() === '' ? undefined : JSON.parse(stdout()) };
}

/** State and codes of each workload, by kind and name. */
export function toTable(report: Kube): Kube {
  return Object.fromEntries(
    report.workloads.map(({ kind, name, state, findings }: Kube) => [
      `${kind}/${name}`,
      [state, ...findings.map(({ code }: Kube) => code)],
    ]),
  );
}
