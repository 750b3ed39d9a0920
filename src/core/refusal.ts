/** The catalogue of refusals: what each one tells the sender, the log and the metrics. */
import type { RefusalEntry } from './refusal-entry.ts';

/** Every code a sender can be given; stable, public (docs/refusals.md). */
export type RefusalCode =
  | 'route_not_found'
  | 'method_not_allowed'
  | 'unsupported_media_type'
  | 'body_too_large'
  | 'malformed_request'
  | 'ambiguous_target'
  | 'header_too_large'
  | 'target_too_long'
  | 'request_timeout'
  | 'expectation_failed'
  | 'missing_signature'
  | 'malformed_signature'
  | 'timestamp_outside_tolerance'
  | 'signature_mismatch'
  | 'credentials_required'
  | 'proxy_credentials_required'
  | 'destination_denied'
  | 'loop_detected'
  | 'tls_required'
  | 'certificate_required'
  | 'caller_denied'
  | 'original_request_unclear'
  | 'content_needed'
  | 'too_many_attempts'
  | 'duplicate'
  | 'stale'
  | 'handshake'
  | 'handshake_refused'
  | 'in_progress'
  | 'envelope_mismatch'
  | 'store_unavailable'
  | 'secret_unavailable'
  | 'overloaded'
  | 'draining'
  | 'internal_error'
  | 'upstream_away'
  | 'upstream_unreachable'
  | 'upstream_timeout'
  | 'upstream_invalid_response';

/** Why, for operators: finer than the code, shown in logs and metrics only. A closed set, as it is a metric label. */
export type Reason =
  | 'ok'
  | 'route_not_found'
  | 'method_not_allowed'
  | 'unsupported_media_type'
  | 'content_encoding'
  | 'body_too_large'
  | 'body_timeout'
  | 'body_aborted'
  | 'sender_gone'
  | 'head_timeout'
  | 'malformed'
  | 'framing'
  | 'path_ambiguous'
  | 'ambiguous_target'
  | 'query_not_signed'
  | 'header_too_large'
  | 'target_too_long'
  | 'expectation_failed'
  | 'missing_signature'
  | 'malformed_signature'
  | 'bad_signature'
  | 'timestamp_old'
  | 'timestamp_future'
  | 'no_credentials'
  | 'malformed_credentials'
  | 'bad_credentials'
  | 'banned'
  | 'hash_queue_full'
  | 'tls_required'
  | 'no_certificate'
  | 'certificate_not_allowed'
  | 'certificate_expired'
  | 'client_trust_changed'
  | 'caller_not_trusted'
  | 'original_request'
  | 'content_needed'
  | 'destination_not_allowed'
  | 'destination_not_public'
  | 'loop'
  | 'duplicate'
  | 'stale'
  | 'replayed_under_new_id'
  | 'handshake'
  | 'handshake_refused'
  | 'handshake_unfinished'
  | 'sender_not_allowed'
  | 'in_progress'
  | 'resource_busy'
  | 'waiters_full'
  | 'envelope_mismatch'
  | 'dedup_unavailable'
  | 'order_unavailable'
  | 'secret_unavailable'
  | 'users_unavailable'
  | 'queue_full'
  | 'client_limit'
  | 'queue_timeout'
  | 'buffer_full'
  | 'heap_full'
  | 'memory_full'
  | 'draining'
  | 'internal_error'
  | 'upstream_connect'
  | 'upstream_timeout'
  | 'upstream_reset'
  | 'upstream_invalid_response';

/** One row for each code; a missing row does not compile. */
export const REFUSALS: Readonly<Record<RefusalCode, RefusalEntry>> = {
  route_not_found: { status: 404, title: 'No route', proxyError: 'http_request_denied', logLevel: 'info' },
  method_not_allowed: { status: 405, title: 'Method not allowed', proxyError: 'http_request_denied', logLevel: 'info' },
  unsupported_media_type: { status: 415, title: 'Unsupported media type', proxyError: 'http_request_denied', logLevel: 'info' },
  body_too_large: { status: 413, title: 'Content too large', proxyError: 'http_request_denied', logLevel: 'info', close: true },
  malformed_request: { status: 400, title: 'Malformed request', proxyError: 'http_request_error', logLevel: 'info', close: true },
  ambiguous_target: { status: 400, title: 'Ambiguous target', proxyError: 'http_request_denied', logLevel: 'info' },
  header_too_large: {
    status: 431,
    title: 'Header fields too large',
    proxyError: 'http_request_error',
    logLevel: 'info',
    close: true,
  },
  target_too_long: { status: 414, title: 'Target too long', proxyError: 'http_request_error', logLevel: 'info', close: true },
  request_timeout: {
    status: 408,
    title: 'Request took too long',
    proxyError: 'http_request_error',
    logLevel: 'info',
    close: true,
  },
  expectation_failed: {
    status: 417,
    title: 'Expectation failed',
    proxyError: 'http_request_error',
    logLevel: 'info',
    close: true,
  },
  missing_signature: { status: 401, title: 'Signature required', proxyError: 'http_request_denied', logLevel: 'info' },
  malformed_signature: { status: 401, title: 'Malformed signature', proxyError: 'http_request_denied', logLevel: 'info' },
  timestamp_outside_tolerance: {
    status: 401,
    title: 'Timestamp outside tolerance',
    proxyError: 'http_request_denied',
    logLevel: 'info',
  },
  signature_mismatch: { status: 401, title: 'Signature mismatch', proxyError: 'http_request_denied', logLevel: 'info' },
  credentials_required: { status: 401, title: 'Credentials required', proxyError: 'http_request_denied', logLevel: 'info' },
  proxy_credentials_required: {
    status: 407,
    title: 'Proxy credentials required',
    proxyError: 'http_request_denied',
    logLevel: 'info',
  },
  destination_denied: { status: 403, title: 'Destination denied', proxyError: 'http_request_denied', logLevel: 'info' },
  loop_detected: { status: 508, title: 'Loop detected', proxyError: 'proxy_loop_detected', logLevel: 'error' },
  tls_required: { status: 403, title: 'TLS required', proxyError: 'http_request_denied', logLevel: 'info' },
  caller_denied: { status: 403, title: 'Caller denied', proxyError: 'http_request_denied', logLevel: 'warn' },
  original_request_unclear: {
    status: 403,
    title: 'Original request unclear',
    proxyError: 'http_request_denied',
    logLevel: 'warn',
  },
  content_needed: { status: 403, title: 'Content needed', proxyError: 'http_request_denied', logLevel: 'info' },
  certificate_required: {
    status: 403,
    title: 'Client certificate required',
    proxyError: 'http_request_denied',
    logLevel: 'info',
  },
  too_many_attempts: {
    status: 429,
    title: 'Too many attempts',
    proxyError: 'http_request_denied',
    logLevel: 'info',
    retryAfterSeconds: 1,
  },
  duplicate: { status: 200, title: 'Already handled', logLevel: 'info' },
  stale: { status: 200, title: 'Newer one handled', logLevel: 'info' },
  handshake: { status: 200, title: 'Answered by the gate', logLevel: 'info' },
  handshake_refused: { status: 403, title: 'Handshake refused', proxyError: 'http_request_denied', logLevel: 'info' },
  in_progress: {
    status: 503,
    title: 'Being handled',
    proxyError: 'proxy_internal_response',
    logLevel: 'info',
    retryAfterSeconds: 5,
  },
  envelope_mismatch: { status: 422, title: 'Envelope mismatch', proxyError: 'http_request_denied', logLevel: 'info' },
  store_unavailable: {
    status: 503,
    title: 'Temporarily unavailable',
    proxyError: 'proxy_internal_response',
    logLevel: 'error',
    retryAfterSeconds: 5,
  },
  secret_unavailable: {
    status: 503,
    title: 'Temporarily unavailable',
    proxyError: 'proxy_internal_response',
    logLevel: 'error',
    retryAfterSeconds: 30,
  },
  overloaded: {
    status: 503,
    title: 'Overloaded',
    proxyError: 'proxy_internal_response',
    logLevel: 'warn',
    retryAfterSeconds: 5,
    close: true,
  },
  draining: {
    status: 503,
    title: 'Shutting down',
    proxyError: 'proxy_internal_response',
    logLevel: 'info',
    retryAfterSeconds: 1,
    close: true,
  },
  internal_error: {
    status: 500,
    title: 'Internal error',
    proxyError: 'proxy_internal_error',
    logLevel: 'error',
    retryAfterSeconds: 5,
    close: true,
  },
  upstream_away: {
    status: 503,
    title: 'Temporarily unavailable',
    proxyError: 'destination_unavailable',
    logLevel: 'error',
    retryAfterSeconds: 5,
    // Where the pod ends, the next try must not come by this connection.
    close: true,
  },
  upstream_unreachable: {
    status: 502,
    title: 'Upstream unreachable',
    proxyError: 'destination_unavailable',
    logLevel: 'error',
    retryAfterSeconds: 5,
  },
  upstream_timeout: {
    status: 504,
    title: 'Upstream timeout',
    proxyError: 'http_response_timeout',
    logLevel: 'error',
    retryAfterSeconds: 5,
  },
  upstream_invalid_response: {
    status: 502,
    title: 'Invalid upstream response',
    proxyError: 'http_protocol_error',
    logLevel: 'error',
    retryAfterSeconds: 5,
  },
};

/** What the gate answers in the app's place. */
export interface Reply {
  readonly status: number;
  readonly contentType: string;
  /** Latin1. */
  readonly body: string;
  /** Further field lines, name and value. */
  readonly headers?: readonly (readonly [string, string])[];
}

/** A request turned away, or answered by the gate itself: expected, counted, cheap. */
export interface Refusal {
  readonly code: RefusalCode;
  readonly reason: Reason;
  /** For the log line only; never sent, never a label. No secrets, no header values. */
  readonly detail?: string;
  /** 405 only: the methods that would be allowed (RFC 9110 §10.2.1). */
  readonly allow?: readonly string[];
  /** Overrides the catalogue's `Retry-After`, in whole seconds. */
  readonly retryAfterSeconds?: number;
  /** Instead of problem details, where the sender waits for something of its own. */
  readonly reply?: Reply;
}

/** Builds a refusal; `detail` is for the operator's log only. */
export function refuse(code: RefusalCode, reason: Reason, detail?: string): Refusal {
  return detail === undefined ? { code, reason } : { code, reason, detail };
}
