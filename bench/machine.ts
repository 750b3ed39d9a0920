/** Reads the CPU time and memory of processes, and describes the machine for the report. */
import { readdirSync, readFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';

/** Linux reports CPU time in hundredths of a second, independent of the kernel's tick (USER_HZ). */
const TICK_MICROSECONDS = 10_000;
const KIBIBYTES_IN_MEBIBYTE = 1024;

/** User and system CPU time of the processes so far, in microseconds; all their threads count. */
export function readCpuMicroseconds(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    const fields = readStat(`/proc/${pid}/stat`);
    return sum + (Number(fields[11]) + Number(fields[12])) * TICK_MICROSECONDS;
  }, 0);
}

/** The same with nanosecond resolution, without threads that have ended. */
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

/** Resident memory of the processes in MiB. Shared pages count once per process. */
export function readRssMebibytes(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    const found = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return sum + Number(found?.[1] ?? 0) / KIBIBYTES_IN_MEBIBYTE;
  }, 0);
}

/** The process and its descendants. */
export function listFamily(pid: number): number[] {
  const children = readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
  );
  return [pid, ...children.flatMap(listFamily)];
}

/** Measures the share of all cores that was busy since the last call. */
export class BusyMeter {
  #last = readBusy();

  /** Returns a value from 0 to 1, and starts a new measurement. */
  lap(): number {
    const now = readBusy();
    const share = (now.busy - this.#last.busy) / Math.max(now.all - this.#last.all, 1);
    this.#last = now;
    return share;
  }
}

const QUIET_STEP_MS = 500;
const QUIET_SHARE = 0.15;

/** Waits until other work leaves the machine idle, but not for longer than `mostMs`. Returns the share that was busy last. */
export async function waitForQuiet(mostMs: number): Promise<number> {
  const meter = new BusyMeter();
  let busy = 1;
  for (let waited = 0; busy > QUIET_SHARE && waited < mostMs; waited += QUIET_STEP_MS) {
    await pause(QUIET_STEP_MS);
    busy = meter.lap();
  }
  return busy;
}

/** Describes the machine in lines for a report, without its name. */
export function describeMachine(): string[] {
  const model = cpus()[0]?.model ?? 'unknown CPU';
  const memory = Math.round(totalmem() / 2 ** 30);
  const kernel = readFileSync('/proc/sys/kernel/osrelease', 'utf8').trim().split('-')[0] ?? '';
  return [`${cpus().length} cores of ${model}, ${memory} GiB`, `Linux ${kernel}`];
}

/** The fields after the command's name, which can contain spaces; utime is field 11 of these. */
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
