/** All endpoints, from YAML and from the management API, as the rest of the provider sees them. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { DisabledReason, Endpoint } from './endpoint.ts';
import type { Target } from './target.ts';

/** The properties of an event that decide where it is delivered. */
export interface RoutedEvent {
  readonly type: string;
  readonly tenant?: string | undefined;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Looks up endpoints without I/O; changes are written through to the store, and changes by other replicas arrive within seconds. */
export interface EndpointRegistry {
  get(id: string): Endpoint | undefined;
  /** Whether an endpoint that is unknown here may be known to another replica, or later: its deliveries wait. */
  isElsewhere?(id: string): boolean;
  list(): readonly Endpoint[];
  /** Where an event goes. Disabled endpoints are included, marked `isSkipped`; operational ones are not. */
  route(event: RoutedEvent): readonly Target[];
  /** The operational endpoints that receive this type about endpoints of this tenant. */
  routeOperational(type: string, tenant: string | undefined): readonly Target[];
  /** Returns false if the endpoint was disabled already or does not exist. */
  disable(id: string, reason: DisabledReason, at: EpochMilliseconds): Promise<boolean>;
}
