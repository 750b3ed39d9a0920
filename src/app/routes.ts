/** Builds a route of the house from its config: gates in their order, forwarder, metrics. */
import { type Config, methodsOf, namesOf, type RouteConfig, type SnsConfig, type WebhookConfig } from '../config/config.ts';
import { toRouting } from '../config/gate-identity.ts';
import type { Clock, EpochMilliseconds } from '../core/clock.ts';
import { toBasicChallenge } from '../credentials/basic.ts';
import { createForwarder } from '../forward/forwarder.ts';
import type { IdentityContext } from '../forward/identity.ts';
import type { IdentitySigner } from '../forward/identity-token.ts';
import type { ReadLimits } from '../forward/relay.ts';
import { HeaderPolicy } from '../forward/request-headers.ts';
import type { Upstream } from '../forward/upstream.ts';
import type { HouseRoute } from '../gatehouse/gatehouse.ts';
import { createClientCertificateGate } from '../gates/client-certificate.ts';
import { createContentGate } from '../gates/content.ts';
import { createDedupGate } from '../gates/dedup.ts';
import { createEnvelopeGate } from '../gates/envelope.ts';
import type { Gate } from '../gates/gate.ts';
import type { KeyRing } from '../gates/key-ring.ts';
import { createMediaTypeGate } from '../gates/media-type.ts';
import { createOrderGate } from '../gates/order.ts';
import type { Settlements } from '../gates/settlements.ts';
import { createSignatureGate } from '../gates/signature.ts';
import { createSnsGate } from '../gates/sns.ts';
import { createTimestampGate, type RecencyOptions } from '../gates/timestamp.ts';
import type { WaitingRoom } from '../gates/waiting-room.ts';
import type { RouteLabels } from '../observe/families.ts';
import type { KeyEvidence } from '../observe/key-evidence.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { RouteMetrics } from '../observe/route-metrics.ts';
import type { RemoteCertificates } from '../remote/certificates.ts';
import { compileScheme } from '../schemes/compile.ts';
import { toHeaderNames } from '../schemes/head.ts';
import { toStatuses } from '../schemes/senders.ts';
import type { Attempts } from '../store/attempts.ts';
import type { NewestVersions } from '../store/newest-versions.ts';
import type { SeenIds } from '../store/seen-ids.ts';
import { buildBasicGate, toSourceLabels } from './basic-gate.ts';
import { buildOpenHandshake, buildSignedHandshake, isQueryAllowed } from './handshake.ts';
import type { Realms } from './realms.ts';

/** What routes share, across reloads. */
export interface RouteParts {
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly store: SeenIds;
  readonly versions: NewestVersions;
  readonly settlements: Settlements;
  readonly waitingRoom: WaitingRoom;
  readonly realms: Realms;
  readonly signer: IdentitySigner;
  readonly attempts: Attempts;
  readonly keyEvidence: KeyEvidence;
  readonly certificates: RemoteCertificates;
  readonly readLimits: ReadLimits;
}

/** What a route counts before its first request. */
export function toRouteLabels({ authz }: Config, route: RouteConfig): RouteLabels {
  const { name, webhook, basic, mode } = route;
  const sources = basic === undefined ? [] : toSourceLabels(basic);
  const scheme = webhook?.scheme ?? (basic === undefined ? 'none' : 'basic');
  const keys = [...(webhook === undefined ? [] : namesOf(webhook)), ...(webhook?.sns?.topics ?? []), ...sources];
  return {
    name,
    scheme,
    keys,
    methods: methodsOf(route),
    isObserved: mode === 'observe',
    // A question comes without content, so only those about other routes are ever answered with yes.
    authz: authz !== undefined && webhook === undefined,
    signsTime: webhook?.tolerance !== undefined,
    asksPassword: basic !== undefined,
    isOrdered: webhook?.order !== undefined,
  };
}

/** Compiles one route. */
export function buildRoute(config: RouteConfig, ring: KeyRing, upstream: Upstream, parts: RouteParts): HouseRoute {
  const metrics = parts.metrics.route(config.name);
  const { name, resend, basic, webhook, clientCertificate, forwardMethodOverride } = config;
  const identity: IdentityContext = {
    route: name,
    ...(basic === undefined ? undefined : { user: basic.forwardUser ? 'forward' : 'hide' }),
    signer: parts.signer,
  };
  return {
    name,
    ...toRouting(config),
    gates: [
      ...(clientCertificate === undefined ? [] : [createClientCertificateGate(clientCertificate)]),
      ...buildOpenHandshake(config, ring),
      ...(webhook === undefined ? [] : [buildContentGate(webhook)]),
      ...(basic === undefined ? [] : [buildBasicGate(basic, 'origin', metrics, parts)]),
      ...(webhook === undefined ? [] : buildWebhookGates(name, webhook, ring, metrics, parts)),
    ],
    isOpen: config.allow === 'anyone',
    mode: config.mode,
    challenges: toChallenges(config),
    forwarder: createForwarder(
      {
        policy: new HeaderPolicy({
          ...identity,
          ...(webhook === undefined ? undefined : { signatureHeaders: toHeaderNames(webhook.description) }),
          trustsTraces: config.trace.trust === 'always',
          forwardAuthorization: basic?.forwardAuthorization ?? true,
          forwardMethodOverride,
          ...(clientCertificate === undefined ? undefined : { certificate: clientCertificate.forward ? 'forward' : 'hide' }),
        }),
        resend,
        allowResponseHeaders: new Set(config.allowResponseHeaders),
        whenAway: 'upstream_away',
        readLimits: parts.readLimits,
      },
      upstream,
      parts.clock,
    ),
    verifiesContent: webhook !== undefined,
    forwardMethodOverride,
    ...(webhook === undefined ? undefined : { statuses: toStatuses(webhook.scheme) }),
    identity,
    metrics,
    trace: { trust: config.trace.trust, template: toTemplate(config.match), app: config.upstream },
  };
}

/** `http.route` of spans: of few values, as it is the config's own. */
function toTemplate({ path, pathPrefix = '' }: RouteConfig['match']): string {
  return path ?? `${pathPrefix.replace(/\/$/, '')}/*`;
}

/** Basic first: many clients look no further than the first scheme they do not know (RFC 9110 §11.6.1). */
function toChallenges({ name, basic, webhook }: RouteConfig): string[] {
  return [
    ...(basic === undefined ? [] : [toBasicChallenge(basic.realm)]),
    // Config admits only names that need no escaping in a quoted-string (RFC 9110 §5.6.4).
    ...(webhook === undefined ? [] : [`Webhook-Signature realm="${name}"`]),
  ];
}

function buildContentGate(webhook: WebhookConfig): Gate {
  const bindsMediaType = isContentSigned(webhook);
  return createContentGate({ ...webhook, allowQuery: isQueryAllowed(webhook), bindsMediaType });
}

/** A token proves who sends, and nothing about the message, so there is nothing to bind. */
function isContentSigned({ description }: WebhookConfig): boolean {
  return description.signed.length > 0 || description.isSignedInContent === true;
}

/** Cheap and header-only first; nothing touches the store before the signature holds. */
function buildWebhookGates(
  route: string,
  webhook: WebhookConfig,
  ring: KeyRing,
  metrics: RouteMetrics,
  parts: RouteParts,
): Gate[] {
  const gates =
    webhook.sns === undefined
      ? buildSignatureGates(route, webhook, ring, metrics, parts)
      : [buildSnsGate(webhook, webhook.sns, metrics, parts)];
  if (webhook.envelope.requireMatchingId) gates.push(createEnvelopeGate());
  if (webhook.dedup !== 'off') {
    const { store, settlements, clock, waitingRoom } = parts;
    const onEvent = parts.metrics.dedup.bind(parts.metrics);
    const onDuration = parts.metrics.dedupDuration.bind(parts.metrics);
    gates.push(createDedupGate({ route, ...webhook.dedup }, { store, settlements, clock, waitingRoom, onEvent, onDuration }));
  }
  if (webhook.order !== undefined) {
    const onEvent = parts.metrics.order.bind(parts.metrics);
    gates.push(createOrderGate({ route, ...webhook.order }, { ...parts, onEvent }));
  }
  return gates;
}

function buildSignatureGates(
  route: string,
  webhook: WebhookConfig,
  ring: KeyRing,
  metrics: RouteMetrics,
  { keyEvidence }: RouteParts,
): Gate[] {
  const scheme = compileScheme(webhook.description);
  const { maxBody, allowDotInId, publicUrl = '' } = webhook;
  const recency = toRecency(webhook, metrics);
  const onKeyUsed = (key: string, at: EpochMilliseconds, first: string): void => {
    metrics.keyUsed(key, at);
    if (key !== first) keyEvidence.oldKeyUsed({ route, key, first, at, matches: metrics.keyUse(key).matches });
  };
  return [
    createTimestampGate(scheme, { ...recency, allowDotInId }),
    createSignatureGate(scheme, ring, { ...recency, maxBody, publicUrl, onKeyUsed }),
    ...(isContentSigned(webhook) ? [createMediaTypeGate(webhook.contentTypes)] : []),
    ...buildSignedHandshake(webhook, ring),
  ];
}

function buildSnsGate(webhook: WebhookConfig, sns: SnsConfig, metrics: RouteMetrics, { certificates }: RouteParts): Gate {
  const { maxBody } = webhook;
  const onKeyUsed = (topic: string, at: EpochMilliseconds): void => metrics.keyUsed(topic, at);
  return createSnsGate(
    { ...toRecency(webhook, metrics), ...sns, maxBody, onKeyUsed },
    { toKey: (url) => certificates.key(url), follow: (url) => certificates.follow(url) },
  );
}

function toRecency({ tolerance }: WebhookConfig, metrics: RouteMetrics): RecencyOptions {
  return { tolerance, onSkew: (skew) => metrics.skew(skew) };
}
