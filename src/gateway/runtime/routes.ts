/** Builds a route of the request pipeline from its config: gates in their order, forwarder, metrics. */

import type { RemoteCertificates } from '../../auth/keys/certificates.ts';
import type { KeyRing } from '../../auth/keys/key-ring.ts';
import { toBasicChallenge } from '../../auth/passwords/basic.ts';
import { compileScheme } from '../../auth/schemes/compile.ts';
import { toHeaderNames } from '../../auth/schemes/head.ts';
import { toStatuses } from '../../auth/schemes/senders.ts';
import { toRouting } from '../../config/rules/gate-identity.ts';
import {
  type Config,
  methodsOf,
  namesOf,
  type RouteConfig,
  type SnsConfig,
  type WebhookConfig,
} from '../../config/schema/config.ts';
import type { Clock, EpochMilliseconds } from '../../core/clock.ts';
import type { SeenIds } from '../../state/claims/seen-ids.ts';
import type { Attempts } from '../../state/login-attempts/attempts.ts';
import type { NewestVersions } from '../../state/ordering/newest-versions.ts';
import type { KeyEvidence } from '../../telemetry/log/key-evidence.ts';
import type { RouteLabels } from '../../telemetry/metrics/families.ts';
import type { Metrics } from '../../telemetry/metrics/metrics.ts';
import type { RouteMetrics } from '../../telemetry/metrics/route-metrics.ts';
import type { ClaimWaiters } from '../pipeline/claim-waiters.ts';
import { createClientCertificateGate } from '../pipeline/gates/client-certificate.ts';
import { createContentGate } from '../pipeline/gates/content.ts';
import { createDedupGate } from '../pipeline/gates/dedup.ts';
import { createEnvelopeGate } from '../pipeline/gates/envelope.ts';
import type { Gate } from '../pipeline/gates/gate.ts';
import { createMediaTypeGate } from '../pipeline/gates/media-type.ts';
import { createOrderGate } from '../pipeline/gates/order.ts';
import { createSignatureGate } from '../pipeline/gates/signature.ts';
import { createSnsGate } from '../pipeline/gates/sns.ts';
import { createTimestampGate, type RecencyOptions } from '../pipeline/gates/timestamp.ts';
import type { PipelineRoute } from '../pipeline/request-pipeline.ts';
import type { Settlements } from '../pipeline/settlements.ts';
import { createForwarder } from '../upstream/forwarder.ts';
import type { IdentityContext } from '../upstream/identity.ts';
import type { IdentitySigner } from '../upstream/identity-token.ts';
import type { ReadLimits } from '../upstream/relay.ts';
import { HeaderPolicy } from '../upstream/request-headers.ts';
import type { Upstream } from '../upstream/upstream.ts';
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
  readonly waiters: ClaimWaiters;
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
export function buildRoute(config: RouteConfig, ring: KeyRing, upstream: Upstream, parts: RouteParts): PipelineRoute {
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
    const { store, settlements, clock, waiters } = parts;
    const onEvent = parts.metrics.dedup.bind(parts.metrics);
    const onDuration = parts.metrics.dedupDuration.bind(parts.metrics);
    gates.push(createDedupGate({ route, ...webhook.dedup }, { store, settlements, clock, waiters, onEvent, onDuration }));
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
