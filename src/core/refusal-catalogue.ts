/** The catalogue of refusals: what each code means for the sender and the log. */
import type { Acknowledgement, RefusalCode } from './refusal.ts';

/** The log level of a refusal: `info` is the sender's fault, `warn` and `error` need the operator. */
export type RefusalLogLevel = 'info' | 'warn' | 'error';

/** The error types of RFC 9209 §2.3 that a refusal may report. */
type ProxyError =
  | 'http_request_denied'
  | 'proxy_loop_detected'
  | 'http_request_error'
  | 'proxy_internal_response'
  | 'proxy_internal_error'
  | 'destination_unavailable'
  | 'http_response_timeout'
  | 'http_protocol_error';

/** How a refusal code appears to the sender. */
export interface RefusalEntry {
  /** HTTP status (RFC 9110 §15). */
  readonly status: number;
  /** Public, constant text. It must not reveal more to an attacker than the status does. */
  readonly title: string;
  readonly logLevel: RefusalLogLevel;
  /**
   * The error type of RFC 9209 §2.3 for `Proxy-Status`, which distinguishes sidegate's responses from the app's. Absent if the
   * refusal is not an error.
   */
  readonly proxyError?: ProxyError;
  /** `Retry-After` in whole seconds, if a retry makes sense. */
  readonly retryAfterSeconds?: number;
  /** The end of the request is uncertain, or its body is left unread: respond and close the connection (RFC 9112 §6.3). */
  readonly close?: true;
}

/** An error never gets a 2xx, by which a sender would take the event for handled. */
type ErrorStatus =
  | 400
  | 401
  | 403
  | 404
  | 405
  | 407
  | 408
  | 413
  | 414
  | 415
  | 417
  | 422
  | 429
  | 431
  | 500
  | 502
  | 503
  | 504
  | 508;
type CatalogueEntry<Code> = RefusalEntry & { readonly status: Code extends Acknowledgement ? 200 : ErrorStatus };

/** One entry for each code; a missing entry does not compile. */
export const REFUSALS: { readonly [Code in RefusalCode]: CatalogueEntry<Code> } = {
  route_not_found: { status: 404, title: 'Route not found', proxyError: 'http_request_denied', logLevel: 'info' },
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
    title: 'Request timeout',
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
  destination_denied: { status: 403, title: 'Destination not allowed', proxyError: 'http_request_denied', logLevel: 'info' },
  loop_detected: { status: 508, title: 'Loop detected', proxyError: 'proxy_loop_detected', logLevel: 'error' },
  tls_required: { status: 403, title: 'TLS required', proxyError: 'http_request_denied', logLevel: 'info' },
  caller_denied: { status: 403, title: 'Caller not allowed', proxyError: 'http_request_denied', logLevel: 'warn' },
  original_request_unclear: {
    status: 403,
    title: 'Invalid original request',
    proxyError: 'http_request_denied',
    logLevel: 'warn',
  },
  content_needed: { status: 403, title: 'Request body required', proxyError: 'http_request_denied', logLevel: 'info' },
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
  stale: { status: 200, title: 'Newer version already handled', logLevel: 'info' },
  handshake: { status: 200, title: 'Handshake completed', logLevel: 'info' },
  handshake_refused: { status: 403, title: 'Handshake rejected', proxyError: 'http_request_denied', logLevel: 'info' },
  in_progress: {
    status: 503,
    title: 'In progress',
    proxyError: 'proxy_internal_response',
    logLevel: 'info',
    retryAfterSeconds: 5,
  },
  kind_not_listed: { status: 422, title: 'Event kind not accepted', proxyError: 'http_request_denied', logLevel: 'warn' },
  event_conflict: {
    status: 503,
    title: 'Temporarily unavailable',
    proxyError: 'proxy_internal_response',
    logLevel: 'warn',
    retryAfterSeconds: 30,
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
    // If the pod is shutting down, the retry must use another connection.
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
