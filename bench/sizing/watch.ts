/** Watches the memory of a gate in its cgroup while a load runs. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import type { CgroupGate } from '../../test/support/memory-cgroup.ts';

const MIB = 1024 * 1024;
const INTERVAL_MS = 250;
const runFile = promisify(execFile);

/** Peaks in MiB. */
export interface Peaks {
  readonly rss: number;
  readonly workingSet: number;
  readonly sockets: number;
  readonly heap: number;
}

/** The ports of the gate's sockets: those on which it listens, and those to which it connects. */
export interface WatchedPorts {
  readonly own: number;
  readonly remote: readonly number[];
}

/** Starts to watch; call the returned function to stop and get the peaks. An idle gate is measured only once, at the end. */
export function watchMemory(gate: CgroupGate, ports: WatchedPorts, isIdle: boolean): () => Promise<Peaks> {
  const peaks = { rss: 0, workingSet: 0, sockets: 0, heap: 0 };
  let isOver = false;
  const look = async (): Promise<void> => {
    const [workingSet, rss] = [gate.workingSet() / MIB, readRss(gate.child.pid ?? 0) / MIB];
    const [sockets, heap] = await Promise.all([readSocketMemory(ports), readHeap(gate.adminPort)]);
    peaks.rss = Math.max(peaks.rss, rss);
    peaks.workingSet = Math.max(peaks.workingSet, workingSet);
    peaks.sockets = Math.max(peaks.sockets, sockets / MIB);
    peaks.heap = Math.max(peaks.heap, heap / MIB);
  };
  const watching = (async () => {
    while (!isIdle && !isOver && gate.isAlive()) {
      await look();
      await new Promise((done) => setTimeout(done, INTERVAL_MS));
    }
  })();
  return async () => {
    isOver = true;
    await watching;
    if (isIdle) await look();
    return peaks;
  };
}

/** Bytes in the kernel's buffers: received and not read, sent and not acknowledged, and reserved for both. */
async function readSocketMemory({ own, remote }: WatchedPorts): Promise<number> {
  const filter = [`sport = :${own}`, ...remote.map((port) => `dport = :${port}`)].join(' or ');
  const { stdout } = await runFile('ss', ['-tmnHO', `( ${filter} )`], { maxBuffer: 16 * MIB });
  return [...stdout.matchAll(/skmem:\(r(\d+),[^)]*?,f(\d+),w(\d+)/g)].reduce(
    (total, [, read, reserved, written]) => total + Number(read) + Number(reserved) + Number(written),
    0,
  );
}

/** In bytes; 0 while the gate is too busy to respond. */
async function readHeap(adminPort: number): Promise<number> {
  const text = await readMetrics(adminPort);
  return Number(/^nodejs_heap_size_used_bytes (\S+)$/m.exec(text)?.[1] ?? 0);
}

/** The gate's metrics; empty if it does not respond within a second. */
export async function readMetrics(adminPort: number): Promise<string> {
  try {
    return await (await fetch(`http://127.0.0.1:${adminPort}/metrics`, { signal: AbortSignal.timeout(1_000) })).text();
  } catch {
    return '';
  }
}

/** In bytes; 0 if the process has exited. */
function readRss(pid: number): number {
  try {
    return Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
