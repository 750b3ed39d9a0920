/** What the benchmark knows of the machine: CPU time and memory of processes, and facts worth quoting beside a figure. */
import { readdirSync, readFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';

/** Linux counts CPU time in hundredths of a second, whatever the kernel's own beat is (USER_HZ). */
const TICK_MICROSECONDS = 10_000;
const KIBIBYTES_IN_MEBIBYTE = 1024;

/** User and system CPU time of the processes so far, in microseconds; all their threads count. */
export function readCpuMicroseconds(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    const fields = readStat(`/proc/${pid}/stat`);
    return sum + (Number(fields[11]) + Number(fields[12])) * TICK_MICROSECONDS;
  }, 0);
}

/** The same in nanoseconds' resolution, without the threads that have ended. */
export function readThreadMicroseconds(pids: readonly number[]): number {
  let nanoseconds = 0;
  for (const pid of pids) {
    for (const task of readdirSync(`/proc/${pid}/task`)) {
      const [onCpu] = readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ');
      nanoseconds += Number(onCpu);
    }
  }
  return nanoseconds / 1_000;
}

/** Resident memory of the processes in MiB. Pages that they share count once for each. */
export function readRssMebibytes(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    const found = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return sum + Number(found?.[1] ?? 0) / KIBIBYTES_IN_MEBIBYTE;
  }, 0);
}

/** The process and all below it. */
export function listFamily(pid: number): number[] {
  const children = readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
  );
  return [pid, ...children.flatMap(listFamily)];
}

/** Share of all cores that was busy since the last call's reading. */
export class BusyMeter {
  #last = readBusy();

  /** Between 0 and 1, and starts over. */
  lap(): number {
    const now = readBusy();
    const share = (now.busy - this.#last.busy) / Math.max(now.all - this.#last.all, 1);
    this.#last = now;
    return share;
  }
}

/** The machine in lines for a report: nothing that names it. */
export function describeMachine(): string[] {
  const model = cpus()[0]?.model ?? 'unknown CPU';
  const memory = Math.round(totalmem() / 2 ** 30);
  const kernel = readFileSync('/proc/sys/kernel/osrelease', 'utf8').trim().split('-')[0] ?? '';
  return [`${cpus().length} cores of ${model}, ${memory} GiB`, `Linux ${kernel}`];
}

/** The fields after the command's name, which may hold spaces; so utime is number 11. */
function readStat(file: string): string[] {
  const text = readFileSync(file, 'utf8');
  return text.slice(text.lastIndexOf(')') + 2).split(' ');
}

function readBusy(): { busy: number; all: number } {
  const line = readFileSync('/proc/stat', 'utf8').split('\n')[0] ?? '';
  const times = line.split(/\s+/).slice(1, 9).map(Number);
  const all = times.reduce((sum, time) => sum + time, 0);
  return { all, busy: all - (times[3] ?? 0) - (times[4] ?? 0) };
}
