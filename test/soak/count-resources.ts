/**
 * Preloaded into a gate (`--import`). On SIGUSR2 it writes to the file in SOAK_RESOURCES what the process holds: timers, also those that do not
 * keep it alive, listeners of the process, and resources of libuv by type.
 */
import { writeFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';

/** What the file contains, as JSON. */
export interface CountedResources {
  readonly timers: number;
  readonly listeners: number;
  readonly active: Readonly<Record<string, number>>;
}

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

function countActive(): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of process.getActiveResourcesInfo()) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

const file = process.env['SOAK_RESOURCES'];
if (file !== undefined && isMainThread) {
  countTimers();
  process.on('SIGUSR2', () => {
    const listeners = process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0);
    writeFileSync(file, JSON.stringify({ timers: timers.size, listeners, active: countActive() } satisfies CountedResources));
  });
}
