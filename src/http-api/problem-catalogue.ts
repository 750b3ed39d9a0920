/** The catalogue of the errors of all APIs. */

/** How a code appears to the client. */
export interface ProblemEntry {
  readonly status: number;
  readonly title: string;
  /** Seconds. */
  readonly retryAfter?: number;
}

/** All codes; stable and public. */
export const PROBLEMS = {
  malformed_request: { status: 400, title: 'Malformed request' },
  invalid_json: { status: 400, title: 'Invalid JSON' },
  unauthorized: { status: 401, title: 'Authentication required' },
  forbidden: { status: 403, title: 'Not allowed from here' },
  not_found: { status: 404, title: 'Not found' },
  method_not_allowed: { status: 405, title: 'Method not allowed' },
  request_timeout: { status: 408, title: 'Request took too long' },
  conflict: { status: 409, title: 'Conflict' },
  precondition_failed: { status: 412, title: 'Changed meanwhile' },
  too_large: { status: 413, title: 'Too large' },
  target_too_long: { status: 414, title: 'Target too long' },
  unsupported_media_type: { status: 415, title: 'Unsupported media type' },
  expectation_failed: { status: 417, title: 'Expectation failed' },
  invalid_request: { status: 422, title: 'Invalid request' },
  too_many_attempts: { status: 429, title: 'Too many failed logins', retryAfter: 1 },
  header_too_large: { status: 431, title: 'Header fields too large' },
  internal: { status: 500, title: 'Internal error' },
  queue_full: { status: 503, title: 'The queue is full', retryAfter: 30 },
  queue_unavailable: { status: 503, title: 'The queue is unavailable', retryAfter: 5 },
  users_unavailable: { status: 503, title: 'The users are unavailable', retryAfter: 30 },
  busy: { status: 503, title: 'Too many requests at once', retryAfter: 1 },
  draining: { status: 503, title: 'Shutting down', retryAfter: 5 },
} as const satisfies Record<string, ProblemEntry>;
export type ProblemCode = keyof typeof PROBLEMS;
