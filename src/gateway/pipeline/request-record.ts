/** The facts about a finished request that metrics, log, journal and spans are written from. */
import type { Milliseconds } from '../../core/clock.ts';
import type { ParsedHead, RequestInfo } from '../../core/parsed-head.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import type { JournalBody } from '../../telemetry/journal/journal.ts';
import type { RouteTrace } from '../../telemetry/tracing/span.ts';
import type { ForwardOutcome } from '../upstream/outcome.ts';
import type { Decision } from './run-gates.ts';

/** The result of passing on an admitted request; all fields are absent if the port wrote the response itself. */
export interface PassResult {
  readonly outcome?: ForwardOutcome | undefined;
  readonly refusal?: Refusal | undefined;
  /** When it was sent to the app, if that is recorded; monotonic. */
  readonly sentAt?: Milliseconds | undefined;
}

/** Stores the body of a finished request, if its route asks for it. */
export interface BodyRecorder {
  record(requestRecord: RequestRecord): JournalBody;
}

/** How a request ended. */
export interface RequestRecord extends PassResult {
  readonly info: RequestInfo;
  /** Absent if the head itself was rejected. */
  readonly head?: ParsedHead;
  /** Absent if no route was found. */
  readonly route?: { readonly name: string; readonly trace: RouteTrace; readonly bodies?: BodyRecorder | undefined };
  /** Absent if no gate ran. */
  readonly decision?: Decision;
  readonly trace?: RequestTrace | undefined;
  /** The status of the response, if it is not the catalogue's. */
  readonly status?: number;
}

/** Why the request would have been rejected without observe mode. */
export function toObservedRefusal({ decision }: Pick<RequestRecord, 'decision'>): Refusal | undefined {
  return decision?.kind === 'admitted' ? decision.admitted.observed : undefined;
}
