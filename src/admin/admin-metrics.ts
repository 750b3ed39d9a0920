/** The metrics of the admin port. */
import type { Registry } from '@prometheus-io/client';
import { createFamilies } from '../telemetry/metrics/series.ts';

/** Why a request to the admin port was not authorized. */
export const ADMIN_DENIALS = [
  'no_token',
  'wrong_token',
  'not_loopback',
  'foreign_host',
  'cross_origin',
  'read_only',
  'tls_required',
  'no_password',
] as const;
export type AdminDenialLabel = (typeof ADMIN_DENIALS)[number];

/** The state of an ID when it was forgotten on request. */
export const FORGOTTEN_STATES = ['absent', 'in-progress', 'handled'] as const;
type ForgottenLabel = (typeof FORGOTTEN_STATES)[number];

/** `dropped`: more arrived than are shared at once; `failed`: the store did not take them in time. */
const SHARED_OUTCOMES = ['sent', 'dropped', 'failed'] as const;
export type SharedLabel = (typeof SHARED_OUTCOMES)[number];

export interface AdminMetrics {
  idForgotten(was: ForgottenLabel): void;
  adminDenied(reason: AdminDenialLabel): void;
  /** Requests that were shared with other replicas, or could not be. */
  deliveriesShared(outcome: SharedLabel, count: number): void;
  /** A client of the console's stream read too slowly. */
  streamDropped(): void;
}

/** Registers the metrics. */
export function createAdminMetrics(registers: Registry[]): AdminMetrics {
  const { counter } = createFamilies(registers);
  const families = {
    forgottenIds: counter('sidegate_forgotten_ids_total{was}', 'Event IDs forgotten on request, by their previous state.'),
    adminDenials: counter('sidegate_admin_denied_total{reason}', 'Unauthorized requests to the admin port.'),
    shared: counter(
      'sidegate_console_shared_total{outcome}',
      'Recent requests that were shared with other replicas through the store while a console was open.',
    ),
    droppedStreams: counter(
      'sidegate_console_streams_dropped_total',
      'Clients of the stream of recent deliveries that were disconnected because they read too slowly.',
    ),
  };
  families.droppedStreams.series();
  for (const outcome of SHARED_OUTCOMES) families.shared.series(outcome);
  for (const was of FORGOTTEN_STATES) families.forgottenIds.series(was);
  for (const reason of ADMIN_DENIALS) families.adminDenials.series(reason);
  return {
    idForgotten: (was) => families.forgottenIds.series(was).add(),
    deliveriesShared: (outcome, count) => families.shared.series(outcome).add(count),
    streamDropped: () => families.droppedStreams.series().add(),
    adminDenied: (reason) => families.adminDenials.series(reason).add(),
  };
}
