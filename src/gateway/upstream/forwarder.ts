/** Takes an admitted request to the app and the app's answer back to the sender, and says how it ended. */
import type { LimitsConfig } from '../../config/schema/config.ts';
import type { Admitted } from '../../core/admitted.ts';
import type { ClientResponse } from '../../core/client-response.ts';
import type { Clock } from '../../core/clock.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import type { ForwardOutcome } from './outcome.ts';
import { type ReadLimits, Relay } from './relay.ts';
import { ResponseHeaderPolicy } from './response-headers.ts';
import type { Upstream } from './upstream.ts';

/** Writes the header of a request to the app. */
export interface RequestPolicy {
  /** Raw pairs in the order they are sent, framing among them. */
  toUpstreamHeaders(admitted: Admitted, trace: RequestTrace | undefined): string[];
}

/** What the forwarder needs of its route. */
export interface ForwardRoute {
  /** What the app is told. */
  readonly policy: RequestPolicy;
  /** `idempotent`: only what its method allows to repeat is sent again on a dead connection; `always`: POST, too. */
  readonly resend: 'idempotent' | 'always';
  /** Lower-cased names of response headers that are passed although a sender may switch itself off by them. */
  readonly allowResponseHeaders: ReadonlySet<string>;
  /** What a sender is told where nobody takes the connection: an app beside the gate is away for a while, what is elsewhere may not be there at all. */
  readonly connectFailureCode: 'upstream_away' | 'upstream_unreachable';
  readonly readLimits: ReadLimits;
}

/** Forwards for one route. */
export interface Forwarder {
  /** Never rejects. */
  forward(admitted: Admitted, response: ClientResponse, trace?: RequestTrace): Promise<ForwardOutcome>;
}

/** How slowly clients may read, by the config. */
export function toReadLimits(limits: Pick<LimitsConfig, 'sendTimeout' | 'streamMinRate' | 'bodyTimeout'>): ReadLimits {
  const { sendTimeout, streamMinRate, bodyTimeout } = limits;
  return { sendTimeout, minRate: streamMinRate, judgedAfter: bodyTimeout };
}

/** RFC 9110 §9.2.2. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'TRACE']);
/** Builds the forwarder of a route. */
export function createForwarder(route: ForwardRoute, upstream: Upstream, clock: Clock): Forwarder {
  const responsePolicy = new ResponseHeaderPolicy(route.allowResponseHeaders);
  return {
    forward(admitted, response, trace) {
      const { method, target, upgrade } = admitted.head;
      const headers = route.policy.toUpstreamHeaders(admitted, trace);
      // A stream is gone once it was sent.
      const repeatable = Buffer.isBuffer(admitted.body) && (route.resend === 'always' || IDEMPOTENT.has(method));
      return new Promise((resolve) => {
        const { connectFailureCode, readLimits } = route;
        const relay = new Relay({ responsePolicy, connectFailureCode, readLimits, admitted, response, clock, resolve });
        const body = Buffer.isBuffer(admitted.body) ? admitted.body : relay.observe(admitted.body);
        const request = { method, path: target.raw, headers, body, repeatable, isUpgrade: upgrade !== undefined };
        relay.attach(upstream.send(request, relay));
      });
    },
  };
}
