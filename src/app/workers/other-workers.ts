/** The interface through which the first worker uses the others. */
import type { Milliseconds } from '../../core/clock.ts';
import type { LocatedProblem } from '../../core/problem.ts';
import type { ListenPhase } from '../../http/server/server.ts';
import type { Gauges } from '../../telemetry/metrics/thread-metrics.ts';
import type { WorkerReport } from './report.ts';
import type { JoinedPorts } from './share.ts';

/** The workers other than the first. */
export interface OtherWorkers {
  /** Sets what receives their reports. */
  onReport(receive: (report: WorkerReport) => void): void;
  /** Resolves when all of them serve the ports; `hash`: of the config. */
  start(ports: JoinedPorts, hash: string): Promise<void>;
  /** Each reads the config; resolves with the problems of those that cannot apply it, or read another one. */
  prepare(hash: string): Promise<readonly LocatedProblem[]>;
  /** All apply the config that they read, then `apply` does so for the first worker. */
  commit(apply: () => void): Promise<void>;
  /** Reload these files, which the config refers to. */
  reloadFiles(changed: readonly string[]): Promise<void>;
  enter(phase: ListenPhase): void;
  /** Resolves when all have reported what they recorded, or when one is too busy to do so. */
  collect(hasGauges: boolean): Promise<void>;
  /** The gauges of each worker at the last `collect` that asked for them. */
  readonly gauges: readonly Gauges[];
  /** See EventLoopMonitor; of the worker that has been stuck longest. */
  readonly stuckFor: Milliseconds | undefined;
  /** Drains and ends them; true if every request in flight was finished. */
  stop(): Promise<boolean>;
}

/** Of a process with one worker. */
export const NO_OTHER_WORKERS: OtherWorkers = {
  onReport: () => undefined,
  start: async () => undefined,
  prepare: async () => [],
  commit: async (apply) => apply(),
  reloadFiles: async () => undefined,
  enter: () => undefined,
  collect: async () => undefined,
  gauges: [],
  stuckFor: undefined,
  stop: async () => true,
};
