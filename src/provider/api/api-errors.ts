/** Problems of the API from the errors of lower layers: refusals of the server, denied access, and errors of the queue. */
import { SidegateError } from '../../core/errors.ts';
import type { Refusal, RefusalCode } from '../../core/refusal.ts';
import { REFUSALS } from '../../core/refusal-catalogue.ts';
import type { AccessDenial } from '../../gateway/server/port-access.ts';
import type { ApiResponse } from '../../http-api/operation.ts';
import { toProblem } from '../../http-api/problem.ts';
import type { ProblemCode } from '../../http-api/problem-catalogue.ts';
import { isDiskFull } from '../queue/store-client.ts';
import type { EventRejection } from '../telemetry/provider-metrics.ts';

const BY_REFUSAL: Partial<Readonly<Record<RefusalCode, readonly [ProblemCode, string]>>> = {
  malformed_request: ['malformed_request', 'the request is not valid HTTP, or its body was cut off'],
  header_too_large: ['header_too_large', 'the header fields are too large'],
  target_too_long: ['target_too_long', 'the URL is too long'],
  request_timeout: ['request_timeout', 'the body was sent too slowly'],
  expectation_failed: ['expectation_failed', 'only Expect: 100-continue is supported'],
  overloaded: ['busy', 'too many requests at once, or too little memory'],
  draining: ['draining', 'sidegate is shutting down'],
  too_many_attempts: ['too_many_attempts', 'too many failed logins from this network or of this user'],
  secret_unavailable: ['users_unavailable', 'the users of provider.basic cannot be read; see the log of sidegate'],
};
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

/** `maxBytes`: the limit of the body. */
export function toRefusalProblem({ code, retryAfterSeconds }: Refusal, maxBytes = 0): ApiResponse {
  const { headers, ...problem } = toPlainProblem(code, maxBytes);
  const retryAfter = retryAfterSeconds === undefined ? undefined : { 'Retry-After': String(retryAfterSeconds) };
  return { ...problem, headers: { ...headers, ...retryAfter }, mustClose: REFUSALS[code].close === true };
}

function toPlainProblem(code: RefusalCode, maxBytes: number): ApiResponse {
  if (code === 'body_too_large')
    return toProblem('too_large', `the body has more than ${maxBytes} bytes`, {
      errors: [{ field: '', message: `more than ${maxBytes} bytes` }],
    });
  return toProblem(...(BY_REFUSAL[code] ?? (['malformed_request', 'the request cannot be read'] as const)));
}

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
