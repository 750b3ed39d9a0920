/** Problems of the API from the errors of lower layers: denied access, and errors of the queue. */
import { SidegateError } from '../../core/errors.ts';
import type { AccessDenial } from '../../gateway/server/port-access.ts';
import type { ApiResponse } from '../../http-api/operation.ts';
import { toProblem } from '../../http-api/problem.ts';
import type { ProblemCode } from '../../http-api/problem-catalogue.ts';
import { isDiskFull } from '../queue/store-client.ts';
import type { EventRejection } from '../telemetry/provider-metrics.ts';

const AGAIN = 'post the event again later, with the same ID';
const BY_ERROR: ReadonlyMap<string, readonly [ProblemCode, string]> = new Map([
  ['queue_unavailable', ['queue_unavailable', `the store of the queue does not respond: ${AGAIN}`]],
  ['endpoint_conflict', ['busy', 'the endpoint is being changed by many requests at once']],
] as const);
/** Why a request is not authorized. */
export type ApiDenial = AccessDenial | 'cross_origin' | 'no_password';

const DENIALS: Readonly<Record<ApiDenial, readonly [ProblemCode, string]>> = {
  not_loopback: ['forbidden', 'only requests from this machine are accepted; or set provider.token or provider.basic'],
  foreign_host: [
    'forbidden',
    'the Host must be localhost or an IP address, as a web page could otherwise send this request (DNS rebinding); or set provider.token',
  ],
  cross_origin: ['forbidden', 'requests from web pages are accepted only with the token of provider.token'],
  no_token: ['unauthorized', 'send the token of provider.token as Authorization: Bearer TOKEN'],
  wrong_token: ['unauthorized', 'this is not the token of provider.token'],
  no_password: ['unauthorized', 'send a user of provider.basic and the right password as Authorization: Basic'],
};
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

/** `challenges`: of a 401, one field line each, as not all clients parse lists (RFC 9110 §11.6.1). */
export function toDenial(denial: ApiDenial, challenges: readonly string[]): ApiResponse {
  const [code, detail] = DENIALS[denial];
  return toProblem(code, detail, code === 'unauthorized' ? { headers: { 'WWW-Authenticate': challenges } } : {});
}

/** Returns undefined for an error that is not expected. */
export function toThrownProblem(thrown: unknown): ApiResponse | undefined {
  // The text names the endpoint or the tenant whose events do not leave.
  if (thrown instanceof SidegateError && thrown.code === 'queue_full')
    return toProblem('queue_full', `${thrown.message}; repeat the request later, an event with the same ID`);
  if (thrown instanceof SidegateError && thrown.code === 'queue_unavailable' && isDiskFull(thrown.message))
    return toProblem('queue_unavailable', `the disk of the queue is full: ${AGAIN}`);
  const known = thrown instanceof SidegateError ? BY_ERROR.get(thrown.code) : undefined;
  return known === undefined ? undefined : toProblem(...known);
}

/** The metric label of a problem. */
export function toRejection(problem: ProblemCode): EventRejection {
  return REJECTIONS[problem] ?? 'invalid';
}
