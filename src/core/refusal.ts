/** Why a request is rejected: a public code for the sender, and a more specific reason for operators. */
import type { EpochMilliseconds } from './clock.ts';

/** A request that is rejected, or that sidegate responds to itself: expected, counted, cheap. */
export class Refusal {
  readonly code: RefusalCode;
  readonly reason: Reason;
  readonly detail: string | undefined;
  readonly allow: readonly string[] | undefined;
  readonly accept: readonly string[] | undefined;
  readonly retryAfterSeconds: number | undefined;
  /** Sent instead of problem details, for senders that expect a specific response. */
  readonly reply: HandshakeReply | undefined;
  readonly claimedAt: EpochMilliseconds | undefined;
  readonly stage: StageName | undefined;
  /** Makes the type nominal: only `instanceof` distinguishes a refusal from a pass, so no object literal can take its place. */
  declare protected readonly nominal: true;

  constructor(code: RefusalCode, reason: Reason, details: RefusalDetails, reply?: HandshakeReply) {
    const { detail, allow, accept, retryAfterSeconds, claimedAt, stage } = details;
    this.code = code;
    this.reason = reason;
    this.detail = detail;
    this.allow = allow;
    this.accept = accept;
    this.retryAfterSeconds = retryAfterSeconds;
    this.reply = reply;
    this.claimedAt = claimedAt;
    this.stage = stage;
  }
}

/** Details of a refusal in addition to its code and reason. */
interface RefusalDetails {
  /** For the log line only; never sent, never a label. No secrets and no header values. */
  readonly detail?: string | undefined;
  /** For 405 only: the allowed methods (RFC 9110 §10.2.1). */
  readonly allow?: readonly string[];
  /** For 415 only: the accepted media types (RFC 9110 §15.5.16). */
  readonly accept?: readonly string[];
  /** Overrides the catalogue's `Retry-After`, in whole seconds. */
  readonly retryAfterSeconds?: number;
  /** The time that the client claims to have signed, if no key verified it. Only for display. */
  readonly claimedAt?: EpochMilliseconds | undefined;
  /** The stage that stopped the request, if it is not that of the gate which rejects it. */
  readonly stage?: StageName | undefined;
}

/** A response that sidegate sends instead of the app's. */
export interface HandshakeReply {
  readonly status: number;
  readonly contentType: string;
  /** Latin1. */
  readonly body: string;
  /** Additional field lines, name and value. */
  readonly headers?: readonly (readonly [string, string])[];
}

/** The decision of a gate: a refusal, or `undefined` to pass the request on. The common case allocates nothing. */
export type GateDecision = Refusal | undefined;

/** Builds a refusal. A string is its detail, for the log only. */
export function refuse(code: RejectionCode, reason: Reason, details?: string | RefusalDetails): Refusal {
  return new Refusal(code, reason, typeof details === 'string' ? { detail: details } : (details ?? {}));
}

/** Why a body did not arrive: no memory for it, too slow, or wrong. */
export function refuseBody(reason: Reason, details?: RefusalDetails): Refusal {
  if (reason === 'buffer_full' || reason === 'chunks_full') return refuse('overloaded', reason, details);
  return refuse(reason === 'body_timeout' ? 'request_timeout' : 'malformed_request', reason, details);
}

/** Why a sender need not send an event again: the store says that this event, or a newer one, was handled; or it was a handshake. */
export type Proof =
  | {
      readonly state: 'handled';
      readonly isSameEvent: true;
      readonly reason: 'duplicate' | 'id_reused' | 'replayed_under_new_id';
    }
  | { readonly state: 'stale' }
  | { readonly state: 'handshake'; readonly reply: HandshakeReply };

/** Builds the response with a 2xx status to an event that does not reach the app. Few files may import it (a lint rule enforces it). */
export function acknowledge(proof: Proof, detail?: string): Refusal {
  switch (proof.state) {
    case 'handled':
      return new Refusal('duplicate', proof.reason, { detail });
    case 'stale':
      return new Refusal('stale', 'stale', { detail });
    case 'handshake':
      return new Refusal('handshake', 'handshake', { detail }, proof.reply);
  }
}

/** The codes with a 2xx status, by which a sender learns that it need not send the event again. Only `acknowledge` creates them. */
export type Acknowledgement = 'duplicate' | 'stale' | 'handshake';

/** All codes that a sender can get; stable and public (docs/refusals.md). */
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
  | Acknowledgement
  | 'handshake_refused'
  | 'kind_not_listed'
  | 'in_progress'
  | 'event_conflict'
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

/** The codes of errors. */
export type RejectionCode = Exclude<RefusalCode, Acknowledgement>;

/**
 * The reason for operators: more specific than the code, and only in logs and metrics. A closed set, because it is a metric
 * label.
 */
export type Reason =
  | 'ok'
  | 'route_not_found'
  | 'method_not_allowed'
  | 'unsupported_media_type'
  | 'content_encoding'
  | 'body_too_large'
  | 'body_timeout'
  | 'body_aborted'
  | 'small_chunks'
  | 'chunks_full'
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
  | 'kind_not_listed'
  | 'kinds_exhausted'
  | 'id_reused'
  | 'handshake'
  | 'handshake_refused'
  | 'handshake_unfinished'
  | 'sender_not_allowed'
  | 'in_progress'
  | 'resource_busy'
  | 'waiters_full'
  | 'lease_expired'
  | 'rules_changed'
  | 'envelope_mismatch'
  | 'dedup_unavailable'
  | 'order_unavailable'
  | 'queue_unavailable'
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

/** The stages of a request that operators see, in their order. The content is one only for a request that it stopped; `queued` replaces `app` with `ack: onAccept`. */
export const STAGES = ['arrived', 'route', 'content', 'login', 'timestamp', 'signature', 'dedup', 'queued', 'app'] as const;
export type StageName = (typeof STAGES)[number];

// The catalogue: how each code appears to the sender and in the log.

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
    retryAfterSeconds: 1,
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
