/** Attempts as the API shows them. */
import { toInstant } from '../../core/clock.ts';
import type { AttemptRecord } from '../queue/delivery-queue.ts';

/** The attempt's JSON. */
export function toAttemptView({ at, duration, status, outcome, detail }: AttemptRecord): object {
  return { at: toInstant(at), durationMs: duration, status, outcome, detail };
}

/** RFC 3339. */
export function toOptionalInstant(at: number | undefined): string | undefined {
  return at === undefined ? undefined : toInstant(at);
}
