/** The closed sets that metric labels come from: nothing a stranger writes can add a series. */

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

/** Those that alerts and dashboards go by, shown before the first of them. */
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

/** Why a signature was refused, as far as it could be found out (docs/explain.md). */
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

/** As those of dedup. */
export const WATCHED_ORDER_OUTCOMES: readonly OrderOutcome[] = ['entered', 'stale', 'busy', 'unordered', 'bypassed'];

/** How credentials were judged: known from before, by a hash, or by the hash of another request that sent the same. */
export const PASSWORD_CHECKS = ['hit', 'miss', 'joined'] as const;
export type PasswordCheckLabel = (typeof PASSWORD_CHECKS)[number];

/** How an exchange with the app failed. */
export const UPSTREAM_ERRORS = ['connect', 'timeout', 'reset', 'protocol'] as const;
export type UpstreamErrorLabel = (typeof UPSTREAM_ERRORS)[number];

/** Which limit a request or connection ran into. */
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

/** Why the admin port did not answer somebody. */
export const ADMIN_DENIALS = ['no_token', 'wrong_token', 'not_loopback', 'foreign_host'] as const;
export type AdminDenialLabel = (typeof ADMIN_DENIALS)[number];

/** What an id was when it was forgotten on demand. */
export const FORGOTTEN_STATES = ['absent', 'in-progress', 'handled'] as const;
export type ForgottenLabel = (typeof FORGOTTEN_STATES)[number];

/** The route label of requests that no route took; no configured name can be the same. */
export const UNMATCHED = '_unmatched';

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);

/** The method, or `_OTHER`: methods are free text. */
export function toMethodLabel(method: string): string {
  return METHODS.has(method) ? method : '_OTHER';
}

/** The status as three digits; anything else an app may have sent is `000`. */
export function toCodeLabel(status: number): string {
  return Number.isInteger(status) && status >= 100 && status <= 599 ? String(status) : '000';
}

/** What became of spans. `dropped`: there was no room; `rejected`: the collector did not want them; `failed`: it could not be reached. */
export const SPAN_OUTCOMES = ['exported', 'dropped', 'rejected', 'failed'] as const;
export type SpanOutcome = (typeof SPAN_OUTCOMES)[number];

/** How far an exception reached that nothing handled. */
export const ESCAPE_SCOPES = ['guarded', 'process'] as const;
export type EscapeScope = (typeof ESCAPE_SCOPES)[number];
