/** A gate with several workers, as its users run it. */

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach } from 'vitest';
import type { Sections } from './gate.ts';
import { type GateProcess, startGateProcess } from './process.ts';

/** Loaded into each thread of a gate; see there. */
const FAULT = pathToFileURL(join(import.meta.dirname, 'worker-fault.ts')).href;

/** What happens in the second worker when the process gets SIGUSR2. */
export type Fault = 'throw' | 'exit' | 'block';

/** The store of these gates. On a busy machine, a new process may need longer than the default of a second. */
export function toStore({ port }: { readonly port: number }): Sections {
  return { redis: { url: `redis://127.0.0.1:${port}`, connectTimeout: '10s', commandTimeout: '10s' } };
}

/** Starts gates with two workers and this Redis, and kills them after each test. */
export function useWorkers(redis: { readonly port: number }): (sections: Sections, fault?: Fault) => Promise<GateProcess> {
  const gates: GateProcess[] = [];
  afterEach(async () => {
    for (const gate of gates) gate.child.kill('SIGKILL');
    await Promise.all(gates.map(({ exit }) => exit));
    gates.length = 0;
  });
  return async (sections, fault) => {
    const env = fault === undefined ? undefined : { NODE_OPTIONS: `--import=${FAULT}`, WORKER_FAULT: fault };
    const gate = await startGateProcess({ workers: 2, store: toStore(redis), ...sections }, [], env);
    gates.push(gate);
    return gate;
  };
}

/** The workers that logged such a line. */
export function workersOf(gate: GateProcess, isMeant: (line: Record<string, unknown>) => boolean): unknown[] {
  return [...new Set(gate.log().flatMap((line) => (isMeant(line) ? [line['worker']] : [])))].sort();
}

/** The value of one series; undefined where it is not there. */
export async function readMetric(gate: GateProcess, series: string): Promise<number | undefined> {
  const text = await (await fetch(`http://127.0.0.1:${gate.adminPort}/metrics`)).text();
  const line = text.split('\n').find((each) => each.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}
