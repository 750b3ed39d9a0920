/** Why a request is rejected: a public code for the sender, a finer reason for operators. */

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

/** A response of sidegate's own, in place of the app's. */
export interface Reply {
  readonly status: number;
  readonly contentType: string;
  /** Latin1. */
  readonly body: string;
  /** Further field lines, name and value. */
  readonly headers?: readonly (readonly [string, string])[];
}

/** What a refusal may say beside its code and reason. */
export interface RefusalDetails {
  /** For the log line only; never sent, never a label. No secrets, no header values. */
  readonly detail?: string | undefined;
  /** 405 only: the methods that would be allowed (RFC 9110 §10.2.1). */
  readonly allow?: readonly string[];
  /** Overrides the catalogue's `Retry-After`, in whole seconds. */
  readonly retryAfterSeconds?: number;
  /** Instead of problem details, where the sender waits for something of its own. */
  readonly reply?: Reply;
}

/** A request that is rejected, or answered by sidegate itself: expected, counted, cheap. */
export class Refusal {
  readonly code: RefusalCode;
  readonly reason: Reason;
  readonly detail: string | undefined;
  readonly allow: readonly string[] | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly reply: Reply | undefined;
  /** Makes the type nominal: `instanceof` tells a refusal from a pass, so no object literal may take its place. */
  declare protected readonly nominal: true;

  constructor(code: RefusalCode, reason: Reason, { detail, allow, retryAfterSeconds, reply }: RefusalDetails = {}) {
    this.code = code;
    this.reason = reason;
    this.detail = detail;
    this.allow = allow;
    this.retryAfterSeconds = retryAfterSeconds;
    this.reply = reply;
  }
}

/** Builds a refusal; a text is its detail, for the operator's log only. */
export function refuse(code: RefusalCode, reason: Reason, details?: string | RefusalDetails): Refusal {
  return new Refusal(code, reason, typeof details === 'string' ? { detail: details } : details);
}

/** What a gate decides: a refusal, or `undefined` to pass the request on. The common case allocates nothing. */
export type GateDecision = Refusal | undefined;
