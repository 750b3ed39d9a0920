/** The facts about a finished request that metrics, log, journal and spans are written from. */
import type { Milliseconds } from '../../core/clock.ts';
import type { Arrival, ParsedHead } from '../../core/parsed-head.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import type { RouteTrace } from '../../telemetry/tracing/span.ts';
import type { ForwardOutcome } from '../upstream/outcome.ts';
import type { Decision } from './run-gates.ts';

/** What a port did with an admitted request: all fields are absent where it answered the request itself. */
export interface PassResult {
  readonly outcome?: ForwardOutcome | undefined;
  readonly refusal?: Refusal | undefined;
  /** When it was sent to the app, where that is recorded; monotonic. */
  readonly sentAt?: Milliseconds | undefined;
}

/** How a request ended. */
export interface RequestRecord extends PassResult {
  readonly arrival: Arrival;
  /** Absent where the head itself was refused. */
  readonly head?: ParsedHead;
  /** Absent where no route was found. */
  readonly route?: { readonly name: string; readonly trace: RouteTrace };
  /** Absent where no gate was asked. */
  readonly decision?: Decision;
  readonly trace?: RequestTrace | undefined;
  /** The status of the response, where that is not the catalogue's. */
  readonly status?: number;
}
