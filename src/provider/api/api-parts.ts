/** The form of the operations of the API, and the dependencies, limits and views that they share. */
import { type Clock, type Milliseconds, toInstant } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { parseJsonText } from '../../core/json-scan.ts';
import type { EgressRules } from '../../http/dial/endpoint-url.ts';
import { type ApiRequest, type ApiResponse, defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import { toInvalid, toProblem } from '../../http-api/problem.ts';
import type { SigningSecret } from '../../verify/sign/signing-keys.ts';
import type { Endpoint, EndpointRegistry, RoutedEvent } from '../endpoints/endpoint.ts';
import type { StoredRegistry } from '../endpoints/stored-registry.ts';
import type { AttemptRecord, DeliveryQueue, Found, NewEvent } from '../queue/delivery-queue.ts';
import type { ApiHooks } from '../telemetry/hooks.ts';
import type { AttemptView } from './schemas.ts';

export interface OperationParts {
  readonly queue: DeliveryQueue;
  readonly registry: StoredRegistry;
  /** The endpoints of `registry`, and the apps of routes with an inbox: their deliveries can be shown and repaired, too. */
  readonly receivers: Pick<EndpointRegistry, 'get' | 'list'>;
  readonly rules: EgressRules;
  readonly clock: Clock;
  readonly hooks: ApiHooks;
  /** The webhook route of this process that accepts deliveries with the secret; undefined if there is none. */
  readonly findRouteOf: (secret: SigningSecret) => string | undefined;
  readonly settings: {
    readonly maxEventSize: number;
    /** It may change with a reload. */
    readonly rotationGrace: () => Milliseconds;
  };
  /** Whether the queue was opened. Before that, no endpoint of the API is known. */
  readonly isOpen: () => boolean;
  /** Requests under way that keep the store busy. */
  readonly running: { repairs: number; erasures: number };
}

/** The largest body of requests other than those with events. */
const MAX_SMALL_BODY = 64 * 1024;

interface Unbound<Query, Body> extends Omit<Operation<Query, Body>, 'body' | 'handle'> {
  readonly body?: Omit<NonNullable<Operation<Query, Body>['body']>, 'maxBytes'> & {
    /** By default `MAX_SMALL_BODY`. */
    readonly toMaxBytes?: (maxEventSize: number) => number;
  };
  handle(request: ApiRequest<Query, Body>, parts: OperationParts): ApiResponse | Promise<ApiResponse>;
}

/** Checks the types of one operation, and forgets them for the table. */
export function define<Query = undefined, Body = undefined>({ body, handle, ...operation }: Unbound<Query, Body>) {
  return (parts: OperationParts): Operation => {
    const maxBytes = body?.toMaxBytes?.(parts.settings.maxEventSize) ?? MAX_SMALL_BODY;
    const bounded = body && { body: { ...body, maxBytes } };
    const run = async (request: ApiRequest<Query, Body>): Promise<ApiResponse> => {
      if (!parts.isOpen()) throw new SidegateError('system', 'queue_unavailable', 'the queue is not open yet');
      const { endpoint, receiver = endpoint } = request.params;
      // While the store is down, what this replica knows has to do.
      if (receiver !== undefined) await parts.registry.catchUp(receiver).catch(() => undefined);
      return handle(request, parts);
    };
    return defineOperation<Query, Body>({ ...operation, ...bounded, handle: run });
  };
}

export const UNKNOWN_ENDPOINT = toProblem('not_found', 'there is no endpoint with this ID');
export const UNKNOWN_EVENT = toProblem('not_found', 'no event with this ID is stored');

/** The endpoint, or why nothing can be sent to it. */
export function findEnabled(registry: Pick<EndpointRegistry, 'get'>, id: string): Endpoint | ApiResponse {
  const found = registry.get(id);
  if (found?.disabled !== undefined) return toProblem('conflict', 'the endpoint is disabled: enable it first');
  return found ?? UNKNOWN_ENDPOINT;
}

/** The body of an event of the app is an envelope that this program built. */
export function toRouted({ type, tenant, body }: Pick<NewEvent, 'type' | 'tenant' | 'body'>): RoutedEvent {
  return { type, tenant, data: (parseJsonText(body) as Pick<RoutedEvent, 'data'>).data };
}

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
