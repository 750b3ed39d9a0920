/** The dependencies that all operations of the API share. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { EndpointRules } from '../endpoints/endpoint-rules.ts';
import type { EndpointRegistry } from '../endpoints/registry.ts';
import type { StoredRegistry } from '../endpoints/stored-registry.ts';
import type { DeliveryQueue } from '../queue/delivery-queue.ts';
import type { AcceptResult, EventRejection } from '../telemetry/provider-metrics.ts';

/** Reports what happens, for metrics and logs. */
export interface ApiHooks {
  /** `operation`: its ID in the OpenAPI document, or `none` for requests that match no operation. */
  onRequest(operation: string, status: number, duration: Milliseconds): void;
  onAccepted(result: AcceptResult, count: number): void;
  /** Events were stored that no endpoint selects; `type`: of one of them. */
  onUnrouted(type: string, count: number): void;
  /** A request to accept events was rejected. */
  onRejected(reason: EventRejection): void;
  /** An endpoint was created, changed, enabled, disabled or deleted by hand. */
  onEndpointChanged(endpoint: string, change: EndpointChange): void;
  /** A request failed because of a bug or a fault of the environment. */
  onError(operation: string, error: unknown): void;
}

export type EndpointChange = 'created' | 'updated' | 'deleted' | 'rotated' | 'enabled' | 'disabled';

/** The settings of the config that the operations need. */
export interface ApiSettings {
  /** Bytes of the body of one event. */
  readonly maxEventSize: number;
  /** It may change with a reload. */
  readonly rotationGrace: () => Milliseconds;
}

/** The dependencies of the operations. */
export interface OperationParts {
  readonly queue: DeliveryQueue;
  readonly registry: StoredRegistry;
  /** The endpoints of `registry`, and the apps of routes with an inbox: their deliveries can be shown and repaired, too. */
  readonly receivers: Pick<EndpointRegistry, 'get' | 'list'>;
  readonly rules: EndpointRules;
  readonly clock: Clock;
  readonly hooks: ApiHooks;
  readonly settings: ApiSettings;
}

/** The largest body of requests other than those with events. */
export const MAX_SMALL_BODY = 64 * 1024;
