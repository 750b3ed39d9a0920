/** Derives the limits for bodies from the container's memory limit, and enforces that limit. */
import { getHeapStatistics } from 'node:v8';
import type { Clock } from '../../core/clock.ts';
import { type BodyLimits, BodyWatch, type OnLimit } from './limits.ts';
import { MemoryGuard } from './memory-guard.ts';
import { createCollector, createFullCollector, createMemoryReader } from './process-memory.ts';

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
  /** The workers of the process. */
  readonly workers: number;
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
): ProcessMemoryBudget {
  const share = limit === undefined ? MAX_DERIVED_BYTES : toFreeBytes(limit, workers) * BUFFER_SHARE;
  const bytes = maxBufferedBytes ?? Math.floor(Math.min(Math.max(share, MIN_BUFFERED_BYTES), MAX_DERIVED_BYTES));
  const places = Math.min(Math.max(Math.floor(bytes / MIB), MIN_LARGE_BODIES), MAX_LARGE_BODIES);
  return { limit, workers, maxBufferedBytes: bytes, maxLargeBodies: maxLargeBodies ?? places };
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
