/** All metrics of the admission server (docs/injector.md). */
import { Registry } from '@prometheus-io/client';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { ESCAPE_SCOPES, type EscapeScope } from '../../telemetry/log/escaped-errors.ts';
import { type ExpositionFormat, toExposition } from '../../telemetry/metrics/openmetrics.ts';
import { collectProcessMetrics, createBuildInfo } from '../../telemetry/metrics/process-metrics.ts';
import { createFamilies, type Families, watchGauge } from '../../telemetry/metrics/series.ts';

/** Why a request got no review response; the API server then applies its failurePolicy. */
const REJECTIONS = [
  'path',
  'method',
  'content_type',
  'length_required',
  'caller_unknown',
  'client_limit',
  'excluded_namespace',
  'expectation',
  'header_fields',
  'body_too_large',
  'body_timeout',
  'body_aborted',
  'overloaded',
  'not_a_review',
  'too_complex',
  'internal',
] as const;
export type RejectionLabel = (typeof REJECTIONS)[number];

/** Why a connection to the webhook port was closed early. */
const CONNECTION_LIMITS = ['rate', 'client', 'total'] as const;
export type AdmissionConnectionLimit = (typeof CONNECTION_LIMITS)[number];

/** Changes of the served certificate. The CA's rotation is in the rotation controller's log. */
export const CERTIFICATE_STEPS = ['server_loaded'] as const;
type CertificateStep = (typeof CERTIFICATE_STEPS)[number];

/** The outcome of an Event. */
export const EVENT_OUTCOMES = ['sent', 'repeated', 'dropped', 'failed', 'forbidden', 'unverified'] as const;
export type EventOutcome = (typeof EVENT_OUTCOMES)[number];

/** The outcome of a look-up for a warning. */
export const LOOKUP_OUTCOMES = ['found', 'absent', 'forbidden', 'failed', 'late'] as const;
export type LookupOutcome = (typeof LOOKUP_OUTCOMES)[number];

/** The outcome of an attempt. */
type Success = 'success' | 'failure';

/** The admission server's metrics. */
export interface InjectorMetrics {
  /** `result` and `reason` are from closed sets; durations cover completed reviews. */
  admission(result: string, reason: string, duration: Milliseconds): void;
  rejected(reason: RejectionLabel): void;
  inFlight(delta: 1 | -1): void;
  handshakeFailed(): void;
  escapedError(scope: EscapeScope): void;
  connectionClosed(limit: AdmissionConnectionLimit): void;
  certificate(step: CertificateStep): void;
  /** A check of the Secret, the webhook configuration and the certificate has finished. */
  certificateCheck(result: Success, at: EpochMilliseconds): void;
  /** The validity of the served certificate; alerts use the remaining share of it. */
  serverLasts(from: EpochMilliseconds, to: EpochMilliseconds): void;
  caEnds(at: EpochMilliseconds): void;
  event(outcome: EventOutcome): void;
  lookup(outcome: LookupOutcome): void;
  /** Sets the function that returns readiness when metrics are scraped. */
  watchReady(read: () => boolean): void;
  /** The metrics in Prometheus' text format, or OpenMetrics. */
  exposition(format?: ExpositionFormat): Promise<{ contentType: string; text: string }>;
}

const BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const SUCCESS: readonly Success[] = ['success', 'failure'];

/** Creates the metrics in a separate registry. */
export function createInjectorMetrics(options: {
  readonly version: string;
  /** The commit; undefined if it is unknown. */
  readonly revision?: string | undefined;
  /** Whether to include process_* and nodejs_*. */
  readonly processMetrics: boolean;
  /** All results with their reasons, initialized to 0. */
  readonly admissions: readonly (readonly [result: string, reason: string])[];
}): InjectorMetrics {
  const registry = new Registry();
  const registers = [registry];
  const families = createFamilies(registers, 'sidegate_injector_');
  const counters = createCounters(families);
  const gauges = createGauges(families);
  const durations = families.histogram('admission_duration_seconds', 'Time from the head of a review to its response.', BUCKETS);
  const duration = durations.series();
  const inFlight = gauges.inFlight.series();
  createBuildInfo(registers, options.version, options.revision);
  if (options.processMetrics) collectProcessMetrics(registry);
  initialize(counters, options.admissions);
  return {
    admission(result, reason, took) {
      counters.admissions.series(result, reason).add();
      duration.observe(took / 1000);
    },
    rejected: (reason) => counters.rejected.series(reason).add(),
    inFlight: (delta) => inFlight.add(delta),
    connectionClosed: (limit) => counters.closed.series(limit).add(),
    handshakeFailed: () => counters.handshakes.series().add(),
    escapedError: (scope) => counters.escapedErrors.series(scope).add(),
    certificate: (step) => counters.certificates.series(step).add(),
    certificateCheck(result, at) {
      counters.checks.series(result).add();
      if (result === 'success') gauges.checkedAt.series().value = at / 1000;
    },
    serverLasts(from, to) {
      gauges.serverStart.series().value = from / 1000;
      gauges.serverEnd.series().value = to / 1000;
    },
    caEnds(at) {
      gauges.caEnd.series().value = at / 1000;
    },
    event: (outcome) => counters.events.series(outcome).add(),
    lookup: (outcome) => counters.lookups.series(outcome).add(),
    watchReady: (read) =>
      watchGauge('sidegate_injector_ready', '1 while /readyz responds with 200.', registers, () => (read() ? 1 : 0)),
    exposition: (format = 'text') => toExposition(registry, format),
  };
}

function createCounters({ counter }: Families) {
  return {
    admissions: counter('admissions_total{result,reason}', 'Completed reviews, by result and reason.'),
    rejected: counter('requests_rejected_total{reason}', 'Requests that were rejected without a review, by reason.'),
    handshakes: counter('tls_handshakes_failed_total', 'Connections whose TLS handshake failed.'),
    escapedErrors: counter('escaped_errors_total{scope}', 'Unhandled exceptions, by scope.'),
    closed: counter(
      'connections_closed_total{limit}',
      'Connections closed because of a limit, of their client network or in total.',
    ),
    certificates: counter('certificate_rotations_total{step}', 'Certificates that were loaded.'),
    checks: counter(
      'certificate_checks_total{result}',
      'Checks of the certificate and of the CAs that the API server trusts, by result.',
    ),
    events: counter('events_total{outcome}', 'Events on the owners of pods, by outcome.'),
    lookups: counter('lookups_total{outcome}', 'Look-ups for warnings, by outcome.'),
  };
}

function createGauges({ gauge }: Families) {
  return {
    inFlight: gauge('admissions_in_flight', 'Reviews in progress.'),
    serverStart: gauge('certificate_not_before_timestamp_seconds', 'Start of the validity of the served certificate.'),
    serverEnd: gauge('certificate_not_after_timestamp_seconds', 'End of the validity of the served certificate.'),
    caEnd: gauge('ca_not_after_timestamp_seconds', 'End of the validity of the CA that signs.'),
    checkedAt: gauge('certificate_last_check_success_timestamp_seconds', 'Time of the last successful check of the certificate.'),
  };
}

/** Initializes all series to 0: an alert cannot fire on a series that only appears with its first failure. */
function initialize(
  counters: ReturnType<typeof createCounters>,
  admissions: readonly (readonly [result: string, reason: string])[],
): void {
  for (const [result, reason] of admissions) counters.admissions.series(result, reason);
  for (const reason of REJECTIONS) counters.rejected.series(reason);
  for (const scope of ESCAPE_SCOPES) counters.escapedErrors.series(scope);
  for (const step of CERTIFICATE_STEPS) counters.certificates.series(step);
  for (const result of SUCCESS) counters.checks.series(result);
  for (const outcome of EVENT_OUTCOMES) counters.events.series(outcome);
  for (const outcome of LOOKUP_OUTCOMES) counters.lookups.series(outcome);
  for (const limit of CONNECTION_LIMITS) counters.closed.series(limit);
  counters.handshakes.series();
}
