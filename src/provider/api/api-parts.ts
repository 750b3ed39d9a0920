/** The dependencies, limits and views that all operations of the API share. */
import { type Clock, type Milliseconds, toInstant } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import type { EgressRules } from '../../http/dial/endpoint-url.ts';
import { type ApiResponse, toJson } from '../../http-api/operation.ts';
import { toInvalid } from '../../http-api/problem.ts';
import type { EndpointRegistry } from '../endpoints/endpoint.ts';
import type { StoredRegistry } from '../endpoints/stored-registry.ts';
import type { AttemptRecord, DeliveryQueue, Found } from '../queue/delivery-queue.ts';
import type { ApiHooks } from '../telemetry/hooks.ts';
import type { AttemptView } from './schemas.ts';

/** The dependencies of the operations. */
export interface OperationParts {
  readonly queue: DeliveryQueue;
  readonly registry: StoredRegistry;
  /** The endpoints of `registry`, and the apps of routes with an inbox: their deliveries can be shown and repaired, too. */
  readonly receivers: Pick<EndpointRegistry, 'get' | 'list'>;
  readonly rules: EgressRules;
  readonly clock: Clock;
  readonly hooks: ApiHooks;
  readonly settings: {
    /** Bytes of the body of one event. */
    readonly maxEventSize: number;
    /** It may change with a reload. */
    readonly rotationGrace: () => Milliseconds;
  };
}

/** The largest body of requests other than those with events. */
export const MAX_SMALL_BODY = 64 * 1024;

/** An attempt as the API shows it. */
export function toAttemptView({ at, duration, status, outcome, detail }: AttemptRecord): AttemptView {
  return { at: toInstant(at), durationMs: duration, status, outcome, detail };
}

/** A page of a list of the queue. */
export async function toPage<T>(page: Promise<Found<T>>, toView: (record: T) => object): Promise<ApiResponse> {
  try {
    const { found, next } = await page;
    return toJson(200, { data: found.map(toView), iterator: next ?? null, done: next === undefined });
  } catch (thrown) {
    if (!(thrown instanceof SidegateError) || thrown.code !== 'invalid_position') throw thrown;
    return toInvalid([{ field: 'iterator', message: 'not the iterator of a page' }]);
  }
}
