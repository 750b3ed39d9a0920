/**
 * Preloaded into a gate (`--import`). On SIGUSR2 it writes to the file in SOAK_RESOURCES what the process holds: timers, also those that do not
 * keep it alive, listeners of the process, live objects, and resources of libuv by type.
 */
import { renameSync, writeFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';

/** What the file contains, as JSON. */
export interface CountedResources {
  readonly timers: number;
  readonly listeners: number;
  /** Live objects in the heap, in MiB, after a garbage collection. */
  readonly heapMiB: number;
  /** Resident memory after it: objects, and what libraries in C hold. */
  readonly residentMiB: number;
  readonly active: Readonly<Record<string, number>>;
}

const SETTLING_MS = 1_000;

type AnyTimer = string | number | NodeJS.Timeout | undefined;

const timers = new Set<AnyTimer>();
const [startTimeout, startInterval, stopTimeout, stopInterval] = [setTimeout, setInterval, clearTimeout, clearInterval];

function countTimers(): void {
  const timeout = (action: (...args: unknown[]) => void, delay?: number, ...args: unknown[]): NodeJS.Timeout => {
    const timer = startTimeout(() => {
      timers.delete(timer);
      action(...args);
    }, delay);
    timers.add(timer);
    return timer;
  };
  const interval = (action: (...args: unknown[]) => void, delay?: number, ...args: unknown[]): NodeJS.Timeout => {
    const timer = startInterval(action, delay, ...args);
    timers.add(timer);
    return timer;
  };
  const stop = (timer: AnyTimer): void => {
    timers.delete(timer);
    stopTimeout(timer);
    stopInterval(timer);
  };
  Object.assign(globalThis, { setTimeout: timeout, setInterval: interval, clearTimeout: stop, clearInterval: stop });
}

/** Also shrinks the heap: after an ordinary collection, V8 keeps the pages for later. */
function collect(): void {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as (options: Readonly<Record<string, string>>) => void;
  gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}

function countActive(): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of process.getActiveResourcesInfo()) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

function count(): CountedResources {
  const listeners = process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0);
  const toMiB = (bytes: number): number => Math.round((bytes / 1_048_576) * 10) / 10;
  const { heapUsed, rss } = process.memoryUsage();
  return { timers: timers.size, listeners, heapMiB: toMiB(heapUsed), residentMiB: toMiB(rss), active: countActive() };
}

const file = process.env['SOAK_RESOURCES'];
if (file !== undefined && isMainThread) {
  countTimers();
  process.on('SIGUSR2', () => {
    collect();
    // V8 gives pages back in the background.
    startTimeout(() => {
      collect();
      // At once: the reader waits until the file is there.
      writeFileSync(`${file}.new`, JSON.stringify(count()));
      renameSync(`${file}.new`, file);
    }, SETTLING_MS);
  });
}
