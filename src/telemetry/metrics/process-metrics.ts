/** The process: its metrics and its build, only those that operators use, because each line counts against the gate's budget of series; and its event loop. */

import { collectDefaultMetrics, type Registry } from '@prometheus-io/client';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { createFamilies } from './series.ts';

/** Kept from the client library's default metrics. The others are for profiling, and some of them grow with the load. */
const KEPT: ReadonlySet<string> = new Set([
  'process_cpu_seconds_total',
  'process_start_time_seconds',
  'process_resident_memory_bytes',
  'process_open_fds',
  'process_max_fds',
  'nodejs_eventloop_lag_p50_seconds',
  'nodejs_eventloop_lag_p99_seconds',
  'nodejs_eventloop_lag_max_seconds',
  'nodejs_heap_size_used_bytes',
  'nodejs_external_memory_bytes',
  'nodejs_version_info',
]);

/** The client library fills each of these families from one metric, which is not kept: the first kept one of the family does it instead. */
const COLLECTORS = {
  nodejs_heap_size_total_bytes: 'nodejs_heap_size_used_bytes',
  nodejs_eventloop_lag_seconds: 'nodejs_eventloop_lag_max_seconds',
} as const;

/** How busy the event loop is, is not kept; but the client library would measure it ten times a second, also in an idle process. */
const NEVER_MS = 2_147_483_647;

/** Adds `process_*` and `nodejs_*`. */
export function collectProcessMetrics(registry: Registry): void {
  const own = new Set(registry.getMetricsAsArray().map(({ name }) => name));
  collectDefaultMetrics({ register: registry, eventLoopUtilizationTimeout: NEVER_MS });
  for (const [from, to] of Object.entries(COLLECTORS)) {
    const [collector, kept] = [registry.getSingleMetric(from), registry.getSingleMetric(to)];
    if (collector !== undefined && kept !== undefined) Reflect.set(kept, 'collect', Reflect.get(collector, 'collect'));
  }
  for (const { name } of registry.getMetricsAsArray()) if (!own.has(name) && !KEPT.has(name)) registry.removeSingleMetric(name);
}

/** Registers the metric of the build, which the gate and the injector share. `revision`: the commit. */
export function createBuildInfo(registers: Registry[], version: string, revision = 'unknown'): void {
  const help = 'Version, commit and Node.js version of the running process; always 1.';
  const info = createFamilies(registers).gauge('sidegate_build_info{version,revision,node}', help);
  info.series(version, revision, process.versions.node).value = 1;
}

const CHECK_INTERVAL_MS: Milliseconds = 1_000;
/** Longer than an occasional full garbage collection or CPU throttling. */
const LATE_MS: Milliseconds = 1_000;
/** A few long pauses do not justify a restart: the machine was suspended or is busy, and a restart would add load. */
export const STUCK_AFTER_MS: Milliseconds = 30_000;

/**
 * Detects a blocked event loop: a process whose timers are late for long cannot serve, even if it still responds now and then. Runs a timer every
 * second and measures how late it fires.
 */
export class EventLoopMonitor {
  readonly #clock: Clock;
  readonly #stop: CancelTimer;
  #lastCheck: Milliseconds;
  /** Since when every check has been late. */
  #lateSince: Milliseconds | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lastCheck = clock.monotonic();
    this.#stop = clock.every(CHECK_INTERVAL_MS, () => this.#check());
  }

  /** How long the event loop has been late, if so long that only a restart helps; otherwise undefined. */
  get stuckFor(): Milliseconds | undefined {
    const late = this.#lateSince === undefined ? 0 : this.#clock.monotonic() - this.#lateSince;
    return late < STUCK_AFTER_MS ? undefined : late;
  }

  close(): void {
    this.#stop();
  }

  #check(): void {
    const now = this.#clock.monotonic();
    const isLate = now - this.#lastCheck - CHECK_INTERVAL_MS > LATE_MS;
    // A pause counts from its end: the following checks show whether it was the only one.
    this.#lateSince = isLate ? (this.#lateSince ?? now) : undefined;
    this.#lastCheck = now;
  }
}
