/** Limits the CPU time of a process by a cgroup, so that two workers and their load fit on two cores. */
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const V1 = '/sys/fs/cgroup/cpu';
const V2 = '/sys/fs/cgroup';
/** Short, so that a process which has used its share waits for milliseconds only. */
const PERIOD_MICROSECONDS = 10_000;

/** A cgroup for one process. */
export interface CpuQuota {
  /** The arguments of `/bin/sh` that run a command in it. */
  readonly toShell: (command: string, args: readonly string[]) => string[];
  /** Removes it; its process must have ended. */
  readonly remove: () => void;
}

let made = 0;

/** Makes a cgroup whose processes get at most `cores` of CPU time per time. */
export function makeCpuQuota(cores: number): CpuQuota {
  const isV2 = existsSync(join(V2, 'cgroup.controllers'));
  const folder = join(isV2 ? V2 : V1, `sidegate-bench-${process.pid}-${made++}`);
  const quota = String(Math.round(cores * PERIOD_MICROSECONDS));
  try {
    mkdirSync(folder);
    if (isV2) {
      writeFileSync(join(folder, 'cpu.max'), `${quota} ${PERIOD_MICROSECONDS}`);
    } else {
      writeFileSync(join(folder, 'cpu.cfs_period_us'), String(PERIOD_MICROSECONDS));
      writeFileSync(join(folder, 'cpu.cfs_quota_us'), quota);
    }
  } catch (cause) {
    throw new Error(`this benchmark must create cgroups with a CPU limit, as root: ${folder}`, { cause });
  }
  return {
    toShell: (command, args) => ['-c', 'echo $$ > "$0/cgroup.procs" && exec "$@"', folder, command, ...args],
    remove: () => rmdirSync(folder),
  };
}
