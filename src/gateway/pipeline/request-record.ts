/** The facts about a finished request that metrics, log, journal and spans are written from. */
import type { Arrival, Exchange } from '../../core/exchange.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { RouteTrace } from '../../telemetry/tracing/span.ts';
import type { ForwardOutcome } from '../upstream/outcome.ts';

/** How a request ended. */
export interface RequestRecord {
  readonly arrival: Arrival;
  /** Absent where the head itself was refused. */
  readonly exchange?: Exchange;
  /** Absent where no route was found. */
  readonly route?: string;
  /** Absent as `route` is. */
  readonly tracedAs?: RouteTrace;
  /** All gates let it through, whatever came then. */
  readonly isAdmitted?: boolean;
  readonly refusal?: Refusal;
  /** What the refusal was answered with, where that is not the catalogue's status. */
  readonly status?: number;
  readonly outcome?: ForwardOutcome;
}
