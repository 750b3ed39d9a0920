/** Error responses of an API: problem details (RFC 9457) with a code, and the fields that are wrong. */
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
