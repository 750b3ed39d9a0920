/** What the files of a memory cgroup say, of version 1 and version 2. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The version of cgroups. */
export type CgroupVersion = 'v1' | 'v2';

/** The memory of a cgroup in bytes, as the kernel counts it. */
export interface Memory {
  readonly limit: number;
  /** Charged to the cgroup now. */
  readonly usage: number;
  /** Charged, without what the kernel can take back at once: the working set that Kubernetes shows. */
  readonly workingSet: number;
  /** The most that was ever charged; 0 if the kernel does not count it. */
  readonly peak: number;
  /** How many processes the kernel has killed because of the limit. */
  readonly oomKills: number;
}

interface Files {
  readonly limit: string;
  readonly usage: string;
  readonly peak: string;
  /** Has a line `oom_kill N`. */
  readonly events: string;
  /** The name in memory.stat of the page cache that the kernel gives up first. */
  readonly inactiveFile: string;
}

/** The names of the files. */
export const MEMORY_FILES: Readonly<Record<CgroupVersion, Files>> = {
  v1: {
    limit: 'memory.limit_in_bytes',
    usage: 'memory.usage_in_bytes',
    peak: 'memory.max_usage_in_bytes',
    events: 'memory.oom_control',
    inactiveFile: 'total_inactive_file',
  },
  v2: {
    limit: 'memory.max',
    usage: 'memory.current',
    peak: 'memory.peak',
    events: 'memory.events',
    inactiveFile: 'inactive_file',
  },
};

/** Reads the files in the cgroup's folder. */
export function readMemory(folder: string, version: CgroupVersion): Memory {
  const { limit, usage, peak, events, inactiveFile } = MEMORY_FILES[version];
  const read = (file: string): string => readFileSync(join(folder, file), 'utf8');
  const readLine = (file: string, name: string): number => Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(read(file))?.[1] ?? 0);
  const used = Number(read(usage));
  return {
    limit: Number(read(limit)),
    usage: used,
    workingSet: used - readLine('memory.stat', inactiveFile),
    peak: existsSync(join(folder, peak)) ? Number(read(peak)) : 0,
    oomKills: readLine(events, 'oom_kill'),
  };
}
