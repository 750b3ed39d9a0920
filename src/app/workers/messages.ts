/** The messages between the first worker, in the main thread, and each of the others. */
import type { MessagePort } from 'node:worker_threads';
import type { Overrides } from '../../config/load/overrides.ts';
import type { LocatedProblem } from '../../core/problem.ts';
import type { ListenPhase } from '../../http/server/server.ts';
import type { WorkerReport } from './report.ts';
import type { JoinedPorts } from './share.ts';

/** The data of a worker at its start. */
export interface WorkerStart {
  /** Threads of other kinds have other data. */
  readonly kind: 'gate-worker';
  readonly index: number;
  readonly file: string;
  readonly overrides: Overrides | undefined;
  readonly ports: JoinedPorts;
  /** Of the config that the first worker has. */
  readonly hash: string;
  /** For lines of the log, separate from the other messages: they must be readable while the process exits. */
  readonly lines: MessagePort;
  /** One number; it increases once a worker has passed on its last lines. */
  readonly flushed: SharedArrayBuffer;
}

/** A task for a worker; each gets one result. */
export type WorkerTask =
  | { readonly name: 'prepare'; readonly hash: string }
  | { readonly name: 'commit' }
  | { readonly name: 'reload-files'; readonly changed: readonly string[] }
  | { readonly name: 'report'; readonly hasGauges: boolean }
  | { readonly name: 'stop' };

/** To a worker. `received`: the next report may follow. */
export type ToWorker =
  | { readonly kind: 'task'; readonly id: number; readonly task: WorkerTask }
  | { readonly kind: 'enter'; readonly phase: ListenPhase }
  | { readonly kind: 'received' }
  | { readonly kind: 'flush' };

/** From a worker. `failed`: it cannot start, or had an exception that nothing handled. */
export type FromWorker =
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly message: string }
  | { readonly kind: 'result'; readonly id: number; readonly value: TaskResult }
  | { readonly kind: 'report'; readonly report: WorkerReport };

/** The result of a task; only the property that belongs to it is set. */
export interface TaskResult {
  /** Of `prepare`: why this worker cannot apply the config; empty if it can. */
  readonly problems?: readonly LocatedProblem[];
  /** Of `commit`. */
  readonly hasCommitted?: boolean;
  /** Of `report` and `stop`. */
  readonly report?: WorkerReport;
  /** Of `stop`: all requests in flight were finished. */
  readonly isFinished?: boolean;
}
