/** The events that a running gate logs, besides requests. */
import type { AdminLogEvent } from '../admin/log-events.ts';
import type { PipelineLogEvent } from '../gateway/pipeline/record.ts';
import type { ProviderLogEvent } from '../provider/telemetry/hooks.ts';
import type { Logger, TelemetryLogEvent } from '../telemetry/log/logger.ts';

/** The events of the composition root. */
type RuntimeLogEvent =
  | 'admin_token_reload_failed'
  | 'admin_token_reloaded'
  | 'config_reload_failed'
  | 'config_reloaded'
  | 'config_warning'
  | 'dedup_in_memory'
  | 'drain_incomplete'
  | 'draining'
  | 'endpoints_too_large'
  | 'identity_reload_failed'
  | 'identity_reloaded'
  | 'leaving'
  | 'listening'
  | 'memory_limits'
  | 'provider_reload_failed'
  | 'provider_reloaded'
  | 'remote_keys_expired'
  | 'remote_keys_failed'
  | 'remote_keys_loaded'
  | 'route_observed'
  | 'secret_reloaded'
  | 'secret_unavailable'
  | 'secret_warning'
  | 'settlement_lost'
  | 'signature_explained'
  | 'staying'
  | 'stopped'
  | 'store_down'
  | 'store_reload_failed'
  | 'store_reloaded'
  | 'store_up'
  | 'store_warning'
  | 'tls_reload_failed'
  | 'tls_reloaded'
  | 'tls_warning'
  | 'tracing_export_failed'
  | 'tracing_export_recovered'
  | 'upgrades_ignored'
  | 'users_reload_failed'
  | 'users_reloaded'
  | 'watch_failed'
  | 'worker_lost';

/** Every event that a gate logs. */
export type GateLogEvent = RuntimeLogEvent | PipelineLogEvent | AdminLogEvent | ProviderLogEvent | TelemetryLogEvent;

/** The log of a gate. */
export type GateLogger = Logger<GateLogEvent>;

/** Hints of warnings at the start. */
export const HINTS = {
  dedupInMemory:
    'event IDs are kept in the memory of this process only: with several replicas, or after a restart, a repeated delivery reaches the app again; set store.redis',
  routeObserved: 'this route only reports the requests that it would have rejected; set mode: enforce to reject them',
  upgradesIgnored: 'this version of Node cannot pass WebSockets on safely; update it to 22.21, 24.9 or later',
  workerLost: 'all workers drain, and the process then exits with code 1, so that Kubernetes restarts the container',
} as const;
