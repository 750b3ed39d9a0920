/** The events that the injector logs. */
import type { Logger, TelemetryLogEvent } from '../../telemetry/log/logger.ts';

type AdmissionLogEvent =
  | 'certificate_check_failed'
  | 'certificate_loaded'
  | 'client_ca_reload_failed'
  | 'client_ca_reloaded'
  | 'cluster_version'
  | 'cluster_version_unknown'
  | 'draining'
  | 'event_failed'
  | 'listening'
  | 'pod_denied'
  | 'pod_injected'
  | 'pod_skipped'
  | 'review_rejected'
  | 'stopped'
  | 'tls_handshake_failed'
  | 'watch_failed';

/** The log of the injector. */
export type AdmissionLogger = Logger<AdmissionLogEvent | TelemetryLogEvent>;
