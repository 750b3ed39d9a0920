/** The data port: finds a request's route, waits for capacity, forwards to the app and settles the claim. */
import type { Admitted } from '../../core/admitted.ts';
import type { ClientResponse } from '../../core/client-response.ts';
import type { Milliseconds } from '../../core/clock.ts';
import type { ParsedHead } from '../../core/parsed-head.ts';
import { type Reason, type Refusal, refuse } from '../../core/refusal.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import type { LimitLabel } from '../server/server-metrics.ts';
import type { Forwarder } from '../upstream/forwarder.ts';
import type { IdentityContext } from '../upstream/identity.ts';
import type { Capacity, CapacityResult } from './capacity.ts';
import { type LifecycleParts, type LifecycleRoute, type Port, RequestLifecycle } from './lifecycle.ts';
import type { PassResult } from './request-record.ts';
import { type RefusalFormat, type SenderExpectations, toFormat } from './respond.ts';
import type { Routable } from './route-groups.ts';
import type { RoutesMetrics } from './route-metrics.ts';
import { RouteTable } from './router.ts';
import { settle } from './settle.ts';

/** A route, compiled and ready. */
export interface PipelineRoute extends LifecycleRoute, Routable, SenderExpectations {
  readonly forwarder: Forwarder;
  /** How long forwarding may take until the app has responded; 0 if deliveries are stored instead. */
  readonly forwardTime: Milliseconds;
  /** A gate verifies the content, so the head alone is not enough for a decision. */
  readonly verifiesContent: boolean;
  /** Forwards headers that make the app treat a request as one with another method. */
  readonly forwardMethodOverride: boolean;
  readonly identity: IdentityContext;
}

/** The dependencies of the pipeline. */
export interface RequestPipelineParts extends LifecycleParts {
  readonly metrics: LifecycleParts['metrics'] & RoutesMetrics;
  readonly capacity: Capacity;
  /** Called after the response to a request that was rejected, or would have been without observe mode; must not block or throw. */
  readonly onRefused?: ((route: string, head: ParsedHead, refusal: Refusal) => void) | undefined;
}

/** The limit that was hit, and the reason that is logged. */
const OVERLOADS: Readonly<Record<Exclude<CapacityResult, 'entered' | 'closed'>, readonly [LimitLabel, Reason]>> = {
  queue_full: ['in_flight_queue', 'queue_full'],
  unverified_share: ['unverified_in_flight', 'queue_full'],
  client_share: ['client_in_flight', 'client_limit'],
  route_share: ['route_in_flight', 'queue_full'],
  queue_timeout: ['queue_timeout', 'queue_timeout'],
};

/** The request pipeline of the data port. */
export class RequestPipeline extends RequestLifecycle<PipelineRoute> {
  readonly #port: DataPort;

  constructor(parts: RequestPipelineParts) {
    const port = new DataPort(parts);
    super(port, parts.metrics.route(undefined), parts);
    this.#port = port;
  }

  /** Replaces the routes; requests in flight finish with the ones they started with. */
  swap(routes: readonly PipelineRoute[]): void {
    this.#port.table = new RouteTable(routes);
  }

  /** The current route of a request, or why there is none. */
  find(head: ParsedHead): PipelineRoute | Refusal {
    return this.#port.find(head);
  }
}

class DataPort implements Port<PipelineRoute> {
  readonly #parts: RequestPipelineParts;
  table: RouteTable<PipelineRoute> = new RouteTable<PipelineRoute>([]);

  constructor(parts: RequestPipelineParts) {
    this.#parts = parts;
  }

  find({ method, target, headers, client }: ParsedHead): PipelineRoute | Refusal {
    const forwardedHost = client.viaTrustedProxy ? headers.all('x-forwarded-host').at(-1) : undefined;
    return this.table.find({ method, host: headers.get('host'), target, headers, forwardedHost });
  }

  async pass(
    route: PipelineRoute,
    admitted: Admitted,
    trace: RequestTrace | undefined,
    response: ClientResponse,
  ): Promise<PassResult> {
    const { clock, capacity } = this.#parts;
    const { client, body, upgrade } = admitted.head;
    const claim = admitted.claimed?.claim;
    const isVerified = !route.isOpen && admitted.observed === undefined;
    // Before it takes a slot: an unverified client that sends no body would hold it.
    const failure = isVerified ? undefined : await body.arriving?.();
    if (failure !== undefined) return { refusal: failure };
    const slot = capacity.toSlot({ address: client.address, isVerified, route: route.share });
    const entering = capacity.enter(slot);
    const entered = entering instanceof Promise ? await entering : entering;
    if (entered !== 'entered') {
      // Claimed, but no byte went to the app: the sender's retry must be forwarded.
      claim?.release();
      if (!Buffer.isBuffer(admitted.body)) admitted.body.stop();
      return { refusal: this.#toRefusal(entered) };
    }
    // It waited for a slot, or the process was paused: the lease could end, and another request be forwarded, while the app still works.
    if (admitted.claimed !== undefined && clock.monotonic() + route.forwardTime >= admitted.claimed.expiresAt) {
      capacity.leave(slot);
      claim?.release();
      return { refusal: refuse('in_progress', 'lease_expired') };
    }
    // A claim ends with its lease, but other responses last as long as their clients like.
    if (admitted.claimed === undefined) capacity.follow(slot, response, route.forwardTime);
    const sentAt = trace?.isRecorded === true ? clock.monotonic() : undefined;
    let outcome: Awaited<ReturnType<Forwarder['forward']>>;
    try {
      outcome = await route.forwarder.forward(admitted, response, trace);
      settle(claim, outcome);
    } finally {
      capacity.leave(slot);
    }
    // An upgraded connection holds no slot: it lasts as long as its client likes.
    if (outcome.kind === 'upgraded') {
      const stopWatching = admitted.sender.user?.login?.onRevoked(() => upgrade?.destroy());
      await outcome.closed;
      stopWatching?.();
    }
    return { outcome, refusal: 'refusal' in outcome ? outcome.refusal : undefined, sentAt };
  }

  toFormat(refusal: Refusal, route: PipelineRoute | undefined): RefusalFormat {
    return toFormat(refusal, route);
  }

  onRefused({ name }: PipelineRoute, head: ParsedHead, refusal: Refusal): void {
    this.#parts.onRefused?.(name, head, refusal);
  }

  #toRefusal(result: Exclude<CapacityResult, 'entered'>): Refusal {
    if (result === 'closed') return refuse('draining', 'draining');
    const [limit, reason] = OVERLOADS[result];
    this.#parts.metrics.limitHit(limit);
    return refuse('overloaded', reason);
  }
}
