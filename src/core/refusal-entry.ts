/** What the catalogue says of each refusal. */

/** How loudly a refusal is logged: `info` is the sender's trouble, `warn` and `error` are ours. */
export type RefusalLogLevel = 'info' | 'warn' | 'error';

/** Error types of RFC 9209 §2.3 that a refusal may show. */
type ProxyError =
  | 'http_request_denied'
  | 'proxy_loop_detected'
  | 'http_request_error'
  | 'proxy_internal_response'
  | 'proxy_internal_error'
  | 'destination_unavailable'
  | 'http_response_timeout'
  | 'http_protocol_error';

/** What one code means to the world outside. */
export interface RefusalEntry {
  /** HTTP status (RFC 9110 §15). */
  readonly status: number;
  /** Public, constant text: it must tell an attacker nothing that the status does not. */
  readonly title: string;
  readonly logLevel: RefusalLogLevel;
  /** The error type of RFC 9209 §2.3 for `Proxy-Status`: it tells our answers from the app's. Absent on what is no error. */
  readonly proxyError?: ProxyError;
  /** `Retry-After` in whole seconds, where trying again makes sense. */
  readonly retryAfterSeconds?: number;
  /** The request's end cannot be trusted, or its body is left unread: answer and close (RFC 9112 §6.3). */
  readonly close?: true;
}
