/** All endpoints, from YAML and from the management API, as the rest of the provider sees them. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { DisabledReason, Endpoint } from './endpoint.ts';
import type { Target } from './target.ts';

/** The properties of an event that decide where it is delivered. */
export interface RoutedEvent {
  readonly type: string;
  readonly channel?: string | undefined;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Looks up endpoints without I/O; changes are written through to the store, and changes by other replicas arrive within seconds. */
export interface EndpointRegistry {
  get(id: string): Endpoint | undefined;
  /** Whether another replica may know an endpoint that is unknown here: its deliveries wait for that replica. */
  isElsewhere?(id: string): boolean;
  list(): readonly Endpoint[];
  /** Where an event goes. Disabled endpoints are included, marked `isSkipped`; operational ones are not. */
  route(event: RoutedEvent): readonly Target[];
  /** The operational endpoints that receive this type. */
  routeOperational(type: string): readonly Target[];
  /** Returns false if the endpoint was disabled already or does not exist. */
  disable(id: string, reason: DisabledReason, at: EpochMilliseconds): Promise<boolean>;
}
