/** The memory of the process: derives the limits for bodies from that of the container, measures what is used, and collects garbage. */
import { existsSync, readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { type BodyLimits, BodyWatch, type OnLimit } from './limits.ts';
import { MemoryGuard } from './memory-guard.ts';

/** The memory limit of the container in bytes; undefined if there is none. */
export function readContainerMemory(): number | undefined {
  // Node returns 0 if the limit is unknown, and more than the physical memory if there is none.
  const limit = process.constrainedMemory();
  return limit > 0 && limit < totalmem() ? limit : undefined;
}

const MIB = 1024 * 1024;
/** The memory that an idle process needs, with a margin for compiled code: 41 to 48 MiB were measured. */
const BASE_BYTES = 56 * MIB;
/** Each worker after the first one needs so much more before it has requests: 32 MiB were measured. */
const WORKER_BYTES = 32 * MIB;
/**
 * Bodies get this share of the rest; the remainder is for connections, copies on their way to the app and uncollected garbage.
 */
const BUFFER_SHARE = 1 / 4;
const MIN_BUFFERED_BYTES = 4 * MIB;
const MAX_DERIVED_BYTES = 64 * MIB;
const MIN_LARGE_BODIES = 4;
const MAX_LARGE_BODIES = 64;

/** Limits that are derived if the config does not set them. */
interface ProcessMemoryBudget {
  /** The limit of the container in bytes; undefined if there is none. */
  readonly limit: number | undefined;
  /** The workers of the process, and the ports of each where clients may hold connections. */
  readonly workers: number;
  readonly ports: number;
  readonly maxBufferedBytes: number;
  readonly maxLargeBodies: number;
}

/** The bytes that an idle process leaves to all its workers together; `limit`: of the container. */
export function toFreeBytes(limit: number, workers = 1): number {
  return limit - BASE_BYTES - (workers - 1) * WORKER_BYTES;
}

/** Derives the limits of all workers together; explicit settings take precedence. `limit`: of the container, in bytes (readContainerMemory). */
export function toMemoryBudget(
  {
    maxBufferedBytes,
    maxLargeBodies,
  }: { readonly maxBufferedBytes?: number | undefined; readonly maxLargeBodies?: number | undefined },
  limit: number | undefined,
  workers = 1,
  ports = 1,
): ProcessMemoryBudget {
  const share = limit === undefined ? MAX_DERIVED_BYTES : toFreeBytes(limit, workers) * BUFFER_SHARE;
  const bytes = maxBufferedBytes ?? Math.floor(Math.min(Math.max(share, MIN_BUFFERED_BYTES), MAX_DERIVED_BYTES));
  const places = Math.min(Math.max(Math.floor(bytes / MIB), MIN_LARGE_BODIES), MAX_LARGE_BODIES);
  return { limit, workers, ports, maxBufferedBytes: bytes, maxLargeBodies: maxLargeBodies ?? places };
}

/** The memory limits for bodies, shared by all ports of a process. */
export interface ServerMemory {
  readonly bodies: BodyWatch;
  readonly guard: MemoryGuard;
  readonly budget: ProcessMemoryBudget;
  close(): void;
}

/** The rates and limits of bodies, as each kind of process sets them. */
type MemoryPace = Omit<BodyLimits, 'maxBufferedBytes' | 'maxLargeBodies'> & {
  /** The share of the container's memory above which requests get 503. */
  readonly memoryShed: number;
  /** The same for the heap. */
  readonly heapShed: number;
};

/** Builds the memory limits of a process. */
export function buildMemory(limits: MemoryPace, budget: ProcessMemoryBudget, clock: Clock, onLimit: OnLimit): ServerMemory {
  const guard = new MemoryGuard({
    clock,
    limit: budget.limit,
    workers: budget.workers,
    ports: budget.ports,
    shed: limits.memoryShed,
    heapShed: limits.heapShed,
    readHeap: readHeapShare,
    read: createMemoryReader(clock),
    collect: createCollector(),
    collectAll: createFullCollector(),
  });
  const bodies = new BodyWatch({ ...limits, ...budget }, clock, onLimit, guard);
  guard.addShed(() => bodies.shed());
  return {
    bodies,
    guard,
    budget,
    close() {
      bodies.close();
      guard.close();
    },
  };
}

function readHeapShare(): number {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  return used / limit;
}

// Measures the memory, from Node, /proc and the memory cgroup.

const STATM = '/proc/self/statm';
/** Reading the memory of the kernel costs more than everything else, and during a flood memory is measured often. */
const KERNEL_READ_EVERY = 16;
/** After a flood, when memory is measured once a second, what the kernel held for it must not count any more. */
const MAX_KERNEL_AGE_MS: Milliseconds = 500;
/** cgroup v2, then v1: usage, and the line of memory.stat that counts page cache, which the kernel reclaims itself. */
const CGROUPS = [
  { mount: '/sys/fs/cgroup', usage: 'memory.current', cache: 'file' },
  { mount: '/sys/fs/cgroup/memory', usage: 'memory.usage_in_bytes', cache: 'total_cache' },
] as const;

/** Reads the bytes that count against the limit and cannot be reclaimed. Pages of the program are shared, and not counted. */
export function createMemoryReader(clock: Pick<Clock, 'monotonic'>): () => number {
  if (!existsSync(STATM)) return () => process.memoryUsage.rss();
  return createMeter({ clock, readOwn, readContainer: createContainerReader() });
}

/** Sources of a memory measurement. */
interface MemorySources {
  readonly clock: Pick<Clock, 'monotonic'>;
  /** The memory of the process. */
  readonly readOwn: () => number;
  /** All that counts against the limit of the container; undefined if that is unknown. */
  readonly readContainer: () => number | undefined;
}

/** Adds what the kernel holds for the container to the memory of the process: sockets, page tables. */
export function createMeter({ clock, readOwn: read, readContainer }: MemorySources): () => number {
  let calls = 0;
  let kernel = 0;
  let readAt = Number.NEGATIVE_INFINITY;
  return () => {
    const own = read();
    const now = clock.monotonic();
    if (calls++ % KERNEL_READ_EVERY === 0 || now - readAt >= MAX_KERNEL_AGE_MS) {
      readAt = now;
      const container = readContainer() ?? 0;
      // A password thread may allocate between two measurements: its memory must not count as that of the kernel.
      kernel = Math.max(0, container - Math.max(own, read()));
    }
    return own + kernel;
  };
}

/** The anonymous memory of the process. */
function readOwn(): number {
  const [, resident = 0, shared = 0] = readText(STATM).split(' ').map(Number);
  // The numbers are in pages, whose size is only known from the resident size in bytes.
  return resident === 0 ? 0 : (process.memoryUsage.rss() * Math.max(0, resident - shared)) / resident;
}

function createContainerReader(): () => number | undefined {
  const cgroup = findCgroup();
  if (cgroup === undefined) return () => undefined;
  const { folder, usage, cache } = cgroup;
  const line = new RegExp(`^${cache} (\\d+)$`, 'm');
  return () => {
    try {
      const cached = Number(line.exec(readFileSync(join(folder, 'memory.stat'), 'latin1'))?.[1] ?? 0);
      return Number(readFileSync(join(folder, usage), 'latin1')) - cached;
    } catch {
      return undefined;
    }
  };
}

/** A container sees its cgroup at the mount, or below it if it shares the cgroup namespace of the host. */
function findCgroup(): { readonly folder: string; readonly usage: string; readonly cache: string } | undefined {
  const paths = [...readText('/proc/self/cgroup').split('\n').flatMap(toMemoryPath), ''];
  for (const { mount, usage, cache } of CGROUPS)
    for (const path of paths) {
      const folder = join(mount, path);
      if (existsSync(join(folder, usage))) return { folder, usage, cache };
    }
  return undefined;
}

/** Parses a line `id:controllers:path`; version 2 has no controllers. */
function toMemoryPath(line: string): string[] {
  const [, controllers, ...path] = line.split(':');
  return controllers === '' || controllers?.split(',').includes('memory') === true ? [path.join(':')] : [];
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}

// V8: its garbage collector, and its flags.

/** Returns a function that collects garbage; V8 cannot otherwise be informed about memory that it does not manage. */
function createCollector(): () => void {
  const collect = exposeCollector();
  return () => collect();
}

/** Returns a function that also shrinks the heap and drops code that ran once: after the start 5 MiB, with a pause of 20 ms. */
export function createFullCollector(): () => void {
  const collect = exposeCollector();
  return () => collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}

/** The garbage collector of V8. */
function exposeCollector(): (options?: Readonly<Record<string, string>>) => void {
  try {
    setFlagsFromString('--expose-gc');
    const collect: unknown = runInNewContext('gc');
    if (typeof collect === 'function')
      return (options) => Reflect.apply(collect, undefined, options === undefined ? [] : [options]);
  } catch {
    // V8 then collects when it decides to.
  }
  return () => undefined;
}

/**
 * V8's flag for how long it waits until it shrinks the heap of an idle process, by the major version of Node. V8 prints an error for a flag that
 * it does not have.
 */
const SHRINK_DELAY_FLAGS: ReadonlyMap<number, string> = new Map([
  [24, '--gc-memory-reducer-start-delay-ms'],
  [26, '--memory-reducer-delay-ms'],
]);
const SHRINK_DELAY_MS: Milliseconds = 600_000;
/** From this limit on, for each worker, a burst of the compiler Maglev (toServiceFlags) fits above `memoryShed`. It is the chart's default. */
const MIN_MAGLEV_LIMIT = 192 * 1024 * 1024;

/**
 * V8's flags for a process that serves requests; none where they are not known. `limit`: of the container, in bytes (readContainerMemory).
 *
 * V8 keeps the heap of an idle process for 10 minutes, instead of 8 s: it drops the optimized code together with the heap, and then needs tens of
 * thousands of requests to compile it again. The first 4 s of deliveries at full load took 1.4 to 1.9 times the CPU.
 *
 * After some 500 requests, hundreds of functions wait for the compiler Maglev at once. By default it frees the memory of each only when none waits any
 * more: 40 MiB were held for a moment, and 16 MiB stay. Without the background it frees each when the main thread installs its code: 12 MiB, but 35 MiB
 * if that thread is delayed. No limit on requests or connections bounds that, so a small container has no Maglev, which doubles the CPU of the first
 * 8,000 deliveries; then the next compiler has replaced its code.
 */
export function toServiceFlags(limit: number | undefined, workers = 1): readonly string[] {
  const shrinkDelay = SHRINK_DELAY_FLAGS.get(Number.parseInt(process.versions.node, 10));
  if (shrinkDelay === undefined) return [];
  const maglev = limit !== undefined && limit < workers * MIN_MAGLEV_LIMIT ? '--no-maglev' : '--no-maglev-destroy-on-background';
  return [`${shrinkDelay}=${SHRINK_DELAY_MS}`, maglev];
}

/** Sets the flags for the whole process, with all its workers. */
export function setServiceFlags(limit?: number, workers?: number): void {
  for (const flag of toServiceFlags(limit, workers)) setFlagsFromString(flag);
}
