/** Builds a route of the house from its config: gates in their order, forwarder, metrics. */
import type { RouteConfig } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import { createForwarder } from '../forward/forwarder.ts';
import type { Upstream } from '../forward/upstream.ts';
import type { HouseRoute } from '../gatehouse/gatehouse.ts';
import { createContentGate } from '../gates/content.ts';
import { createDedupGate, type WaitingRoom } from '../gates/dedup.ts';
import { createEnvelopeGate } from '../gates/envelope.ts';
import type { Gate } from '../gates/gate.ts';
import type { KeyRing } from '../gates/key-ring.ts';
import type { Settlements } from '../gates/settlements.ts';
import { createSignatureGate } from '../gates/signature.ts';
import { createTimestampGate } from '../gates/timestamp.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { RouteMetrics } from '../observe/route-metrics.ts';
import { SCHEMES } from '../schemes/catalogue.ts';
import type { SeenIds } from '../store/seen-ids.ts';

/** What routes share, across reloads. */
export interface RouteParts {
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly store: SeenIds;
  readonly settlements: Settlements;
  readonly waitingRoom: WaitingRoom;
}

/** Compiles one route. */
export function buildRoute(config: RouteConfig, ring: KeyRing, upstream: Upstream, parts: RouteParts): HouseRoute {
  const metrics = parts.metrics.route(config.name);
  const { name, resend } = config;
  return {
    name,
    match: config.match,
    gates: buildGates(config, ring, metrics, parts),
    // Config admits only names that need no escaping in a quoted-string (RFC 9110 §5.6.4).
    challenge: `Webhook-Signature realm="${name}"`,
    forwarder: createForwarder(
      { name, resend, allowResponseHeaders: new Set(config.allowResponseHeaders) },
      upstream,
      parts.clock,
    ),
    metrics,
  };
}

/** Cheap and header-only first; nothing touches the store before the signature holds. */
function buildGates(config: RouteConfig, ring: KeyRing, metrics: RouteMetrics, parts: RouteParts): Gate[] {
  const { webhook } = config;
  const scheme = SCHEMES[webhook.scheme];
  const { maxBody, tolerance, allowDotInId } = webhook;
  const gates = [
    createContentGate(webhook),
    createTimestampGate(scheme, { tolerance, allowDotInId, onSkew: (skew) => metrics.skew(skew) }),
    createSignatureGate(scheme, ring, { maxBody, onKeyUsed: (key, at) => metrics.keyUsed(key, at) }),
  ];
  if (webhook.envelope.requireMatchingId) gates.push(createEnvelopeGate());
  if (webhook.dedup !== 'off') {
    const { store, settlements, clock, waitingRoom } = parts;
    const onEvent = parts.metrics.dedup.bind(parts.metrics);
    const onDuration = parts.metrics.dedupDuration.bind(parts.metrics);
    gates.push(
      createDedupGate({ route: config.name, ...webhook.dedup }, { store, settlements, clock, waitingRoom, onEvent, onDuration }),
    );
  }
  return gates;
}
