/** The closed sets of label values: no untrusted input can add a series. */

/** How a dedup operation ended. */
export const DEDUP_OUTCOMES = [
  'new',
  'duplicate',
  'in_progress',
  'taken_over',
  'confirmed',
  'released',
  'held',
  'fenced',
  'id_reused',
  'replayed_under_new_id',
  'unidentified',
  'bypassed',
  'unavailable',
  'settle_retried',
  'settle_lost',
] as const;
export type DedupOutcome = (typeof DEDUP_OUTCOMES)[number];

/** The outcomes that alerts and dashboards use; exported from the start. */
export const WATCHED_DEDUP_OUTCOMES: readonly DedupOutcome[] = [
  'new',
  'duplicate',
  'taken_over',
  'confirmed',
  'id_reused',
  'replayed_under_new_id',
  'unidentified',
  'bypassed',
  'unavailable',
];

/** Causes of rejected signatures (docs/explain.md). */
export const EXPLAIN_CAUSES = [
  'headers_missing',
  'headers_malformed',
  'headers_swapped',
  'header_family',
  'signature_header',
  'signature_prefix',
  'signature_encoding',
  'signature_algorithm',
  'signed_pieces',
  'other_preset',
  'timestamp_unit',
  'clock_skew',
  'late',
  'url',
  'key_expired',
  'key_not_yet_valid',
  'other_route_key',
  'secret_encoding',
  'secret_prefix',
  'secret_whitespace',
  'body_whitespace',
  'body_line_ends',
  'body_bom',
  'body_charset',
  'body_reserialised',
  'body_escapes',
  'body_compression',
  'body_form',
  'body_base64',
  'body_empty',
  'unknown',
  'skipped',
] as const;
export type ExplainCause = (typeof EXPLAIN_CAUSES)[number];

/** How an ordered event ended. */
export const ORDER_OUTCOMES = [
  'entered',
  'stale',
  'busy',
  'unordered',
  'confirmed',
  'released',
  'held',
  'fenced',
  'bypassed',
  'unavailable',
  'settle_retried',
  'settle_lost',
] as const;
export type OrderOutcome = (typeof ORDER_OUTCOMES)[number];

/** The same for `order`. */
export const WATCHED_ORDER_OUTCOMES: readonly OrderOutcome[] = ['entered', 'stale', 'busy', 'unordered', 'bypassed'];

/** How a password was checked: from the cache, by hashing, or by sharing the hash of a concurrent request. */
export const PASSWORD_CHECKS = ['hit', 'miss', 'joined'] as const;
export type PasswordCheckLabel = (typeof PASSWORD_CHECKS)[number];

/** How a request to the app failed. */
export const UPSTREAM_ERRORS = ['connect', 'timeout', 'reset', 'protocol'] as const;
export type UpstreamErrorLabel = (typeof UPSTREAM_ERRORS)[number];

/** The limits that a request or connection can reach. */
export const LIMITS = [
  'head_timeout',
  'body_idle',
  'body_rate',
  'body_total',
  'body_size',
  'header_bytes',
  'header_fields',
  'target',
  'connections',
  'client_connections',
  'client_requests',
  'client_in_flight',
  'unverified_in_flight',
  'upgrades',
  'client_upgrades',
  'send_stall',
  'in_flight_queue',
  'queue_timeout',
  'waiters',
  'buffer',
  'buffer_share',
  'heap',
  'login_attempts',
  'memory',
] as const;
export type LimitLabel = (typeof LIMITS)[number];

/** Why a request to the admin port was not authorized. */
export const ADMIN_DENIALS = ['no_token', 'wrong_token', 'not_loopback', 'foreign_host'] as const;
export type AdminDenialLabel = (typeof ADMIN_DENIALS)[number];

/** The state of an ID when it was forgotten on request. */
export const FORGOTTEN_STATES = ['absent', 'in-progress', 'handled'] as const;
export type ForgottenLabel = (typeof FORGOTTEN_STATES)[number];

/** The route label of requests that matched no route; not a valid route name. */
export const UNMATCHED = '_unmatched';

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);

/** The method, or `_OTHER`: clients can send any token as the method. */
export function toMethodLabel(method: string): string {
  return METHODS.has(method) ? method : '_OTHER';
}

/** The status as three digits; `000` if the app sent an invalid one. */
export function toCodeLabel(status: number): string {
  return Number.isInteger(status) && status >= 100 && status <= 599 ? String(status) : '000';
}

/** Outcomes of spans. `dropped`: the queue was full; `rejected`: by the collector; `failed`: the collector could not be reached. */
export const SPAN_OUTCOMES = ['exported', 'dropped', 'rejected', 'failed'] as const;
export type SpanOutcome = (typeof SPAN_OUTCOMES)[number];

/** Where an unhandled exception was caught. */
export const ESCAPE_SCOPES = ['guarded', 'process'] as const;
export type EscapeScope = (typeof ESCAPE_SCOPES)[number];
