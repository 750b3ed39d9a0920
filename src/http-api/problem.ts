/** Error responses of an API: problem details (RFC 9457) with a code, and the fields that are wrong. */
import { REFUSALS, type Refusal, type RefusalCode } from '../core/refusal.ts';
import type { ApiResponse } from './operation.ts';
import { PROBLEMS, type ProblemCode, type ProblemEntry } from './problem-catalogue.ts';

/** A member of the request that is invalid. */
export interface FieldError {
  /** Such as `events[3].type`; empty: the body as a whole. */
  readonly field: string;
  readonly message: string;
}

/** The optional parts of a problem. */
interface ProblemMore {
  readonly errors?: readonly FieldError[];
  readonly headers?: ApiResponse['headers'];
}

/** One for each event of a batch. */
const MAX_ERRORS = 100;

/** Builds the response. */
export function toProblem(code: ProblemCode, detail: string, { errors = [], headers }: ProblemMore = {}): ApiResponse {
  const { status, title, retryAfter }: ProblemEntry = PROBLEMS[code];
  const [first] = errors;
  return {
    status,
    contentType: 'application/problem+json',
    problem: code,
    headers: { ...(retryAfter === undefined ? undefined : { 'Retry-After': String(retryAfter) }), ...headers },
    body: {
      type: `urn:sidegate:problem:${code}`,
      title,
      status,
      code,
      detail,
      ...(first === undefined ? undefined : { field: first.field, errors: errors.slice(0, MAX_ERRORS) }),
    },
  };
}

/** 422, with the fields that are wrong. */
export function toInvalid(errors: readonly FieldError[]): ApiResponse {
  const [first] = errors;
  const detail =
    first === undefined ? 'the request is invalid' : `${first.field === '' ? 'the body' : first.field}: ${first.message}`;
  return toProblem('invalid_request', detail, { errors });
}

const BY_REFUSAL: Partial<Readonly<Record<RefusalCode, readonly [ProblemCode, string]>>> = {
  malformed_request: ['malformed_request', 'the request is not valid HTTP, or its body was cut off'],
  header_too_large: ['header_too_large', 'the header fields are too large'],
  target_too_long: ['target_too_long', 'the URL is too long'],
  request_timeout: ['request_timeout', 'the body was sent too slowly'],
  expectation_failed: ['expectation_failed', 'only Expect: 100-continue is supported'],
  overloaded: ['busy', 'too many requests at once, or too little memory'],
  draining: ['draining', 'sidegate is shutting down'],
  too_many_attempts: ['too_many_attempts', 'too many failed logins from this network or of this user'],
  secret_unavailable: ['users_unavailable', 'the users cannot be read; see the log of sidegate'],
};

/** The response to a request that the port or a gate rejected. `maxBytes`: the limit of the body. */
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
