/** Forwards an admitted request to the app, and the app's response to the sender, and reports the outcome. */
import type { LimitsConfig } from '../../config/schema/config.ts';
import type { Admitted } from '../../core/admitted.ts';
import type { Clock } from '../../core/clock.ts';
import type { ClientResponse } from '../../core/request.ts';
import type { Upstream } from '../../http/client/upstream.ts';
import type { RequestTrace } from '../../telemetry/tracing/tracer.ts';
import type { ReadLimits } from './client-reads.ts';
import type { ForwardOutcome } from './outcome.ts';
import { Relay } from './relay.ts';
import { ResponseHeaderPolicy } from './response-headers.ts';

/** Builds the header of a request to the app. */
export interface RequestPolicy {
  /** Returns raw pairs in the order they are sent, including the framing header. */
  toUpstreamHeaders(admitted: Admitted, trace: RequestTrace | undefined): string[];
}

/** The settings of a route that the forwarder needs. */
export interface ForwardRoute {
  /** Builds the request header for the app. */
  readonly policy: RequestPolicy;
  /** Which requests are sent again if a reused connection was dead: `idempotent`, by their method, but no webhooks; `always`: all. */
  readonly resend: 'idempotent' | 'always';
  /** Lower-case names of response headers that are passed on although a sender may disable itself because of them. */
  readonly allowResponseHeaders: ReadonlySet<string>;
  /**
   * The refusal if no connection can be opened: an app in the same pod is temporarily away, another destination may not exist.
   */
  readonly connectFailureCode: 'upstream_away' | 'upstream_unreachable';
  readonly readLimits: ReadLimits;
}

/** Forwards the requests of one route. */
export interface Forwarder {
  /** Never rejects. */
  forward(admitted: Admitted, response: ClientResponse, trace?: RequestTrace): Promise<ForwardOutcome>;
}

/** The minimum rates for clients that read, from the config. */
export function toReadLimits(
  limits: Pick<LimitsConfig, 'sendTimeout' | 'streamMinRate' | 'bodyTimeout'>,
  onLimit: (limit: 'send_stall') => void,
): ReadLimits {
  const { sendTimeout, streamMinRate, bodyTimeout } = limits;
  return { sendTimeout, minRate: streamMinRate, enforcedAfter: bodyTimeout, onStall: () => onLimit('send_stall') };
}

/** RFC 9110 §9.2.2. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'TRACE']);

/** Creates the forwarder of a route. */
export function createForwarder(route: ForwardRoute, upstream: Upstream, clock: Clock): Forwarder {
  const responsePolicy = new ResponseHeaderPolicy(route.allowResponseHeaders);
  return {
    forward(admitted, response, trace) {
      const { head, claimed } = admitted;
      const { method, target, upgrade } = head;
      const headers = route.policy.toUpstreamHeaders(admitted, trace);
      // The app may have handled it before it closed the connection, and by any method a webhook must be handled once.
      const isAllowed = route.resend === 'always' || (claimed === undefined && IDEMPOTENT.has(method));
      // A stream cannot be sent a second time.
      const repeatable = isAllowed && Buffer.isBuffer(admitted.body);
      return new Promise((resolve) => {
        const { connectFailureCode, readLimits } = route;
        const relay = new Relay({ responsePolicy, connectFailureCode, readLimits, admitted, response, clock, resolve });
        const body = Buffer.isBuffer(admitted.body) ? admitted.body : relay.observe(admitted.body);
        const leaseEndsAt = claimed?.expiresAt;
        const request = { method, path: target.raw, headers, body, repeatable, isUpgrade: upgrade !== undefined, leaseEndsAt };
        relay.attach(upstream.send(request, relay));
      });
    },
  };
}
