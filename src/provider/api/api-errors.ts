/** Problems of the API from errors of the queue and of the registry, and their metric labels. */
import { SidegateError } from '../../core/errors.ts';
import type { ApiResponse } from '../../http-api/operation.ts';
import { toProblem } from '../../http-api/problem.ts';
import type { ProblemCode } from '../../http-api/problem-catalogue.ts';
import { isDiskFull } from '../queue/store-client.ts';
import type { EventRejection } from '../telemetry/provider-metrics.ts';

const AGAIN = 'post the event again later, with the same ID';
const REJECTIONS: Partial<Readonly<Record<ProblemCode, EventRejection>>> = {
  conflict: 'conflict',
  unauthorized: 'unauthorized',
  forbidden: 'unauthorized',
  too_many_attempts: 'unauthorized',
  users_unavailable: 'unauthorized',
  too_large: 'too_large',
  queue_full: 'queue_full',
  queue_unavailable: 'queue_unavailable',
  internal: 'queue_unavailable',
  busy: 'busy',
  draining: 'busy',
};

/** Returns undefined for an error that is not expected. */
export function toThrownProblem(thrown: unknown): ApiResponse | undefined {
  if (!(thrown instanceof SidegateError)) return undefined;
  // The text names the endpoint or the tenant whose events do not leave.
  if (thrown.code === 'queue_full')
    return toProblem('queue_full', `${thrown.message}; repeat the request later, an event with the same ID`);
  if (thrown.code === 'queue_unavailable') {
    const problem = isDiskFull(thrown.message) ? 'the disk of the queue is full' : 'the store of the queue does not respond';
    return toProblem('queue_unavailable', `${problem}: ${AGAIN}`);
  }
  if (thrown.code === 'too_large') return toProblem('too_large', thrown.message);
  if (thrown.code === 'unstorable')
    return toProblem('invalid_request', 'the request has a value that the store of the queue cannot hold, such as U+0000');
  if (thrown.code !== 'endpoint_conflict') return undefined;
  return toProblem('busy', 'the endpoint is being changed by many requests at once');
}

/** The metric label of a problem. */
export function toRejection(problem: ProblemCode): EventRejection {
  return REJECTIONS[problem] ?? 'invalid';
}
