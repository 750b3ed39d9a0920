/** Builds a route of the request pipeline from its config: gates in their order, forwarder, metrics. */
import { toRouting } from '../config/rules/gate-identity.ts';
import {
  appMethodsOf,
  type Config,
  fetchesCertificates,
  fieldSettingsOf,
  methodsOf,
  namesOf,
  type RouteConfig,
  type SnsConfig,
  type WebhookConfig,
} from '../config/schema/config.ts';
import type { Clock, EpochMilliseconds } from '../core/clock.ts';
import type { AppRoute } from '../gateway/exchange.ts';
import type { Capacity } from '../gateway/pipeline/capacity.ts';
import type { ClaimWaiters } from '../gateway/pipeline/claims.ts';
import { createCertificateKeys } from '../gateway/pipeline/gates/certificate-keys.ts';
import { createClientCertificateGate } from '../gateway/pipeline/gates/client-certificate.ts';
import { createContentGate } from '../gateway/pipeline/gates/content.ts';
import { createDedupGate } from '../gateway/pipeline/gates/dedup.ts';
import { createEnvelopeGate } from '../gateway/pipeline/gates/envelope.ts';
import type { ClaimGate, ContentGate, EventGate, HeadGate, WebhookGates } from '../gateway/pipeline/gates/gate.ts';
import { createOpenHandshakeGate, createSignedHandshakeGate } from '../gateway/pipeline/gates/handshakes.ts';
import { createKindGate } from '../gateway/pipeline/gates/kind.ts';
import { createOrderGate } from '../gateway/pipeline/gates/order.ts';
import { createSignatureGate, type FetchKeys } from '../gateway/pipeline/gates/signature.ts';
import { createSnsGate } from '../gateway/pipeline/gates/sns.ts';
import type { RecencyOptions } from '../gateway/pipeline/gates/timestamp.ts';
import type { RouteMetrics } from '../gateway/pipeline/route-metrics.ts';
import type { Settlements } from '../gateway/pipeline/settlements.ts';
import { createForwarder, type Forwarder, type ReadLimits, type RequestPolicy } from '../gateway/upstream/forwarder.ts';
import { type HeaderContext, HeaderPolicy } from '../gateway/upstream/headers.ts';
import type { IdentitySigner } from '../gateway/upstream/identity.ts';
import type { Upstream } from '../http/client/upstream.ts';
import type { CreateInbox, Inbox } from '../provider/inbox/inbox-forwarder.ts';
import type { NewestVersions } from '../state/newest-versions.ts';
import type { SeenIds } from '../state/seen-ids.ts';
import type { KeyEvidence } from '../telemetry/log/key-evidence.ts';
import type { Attempts } from '../users/attempts.ts';
import { toBasicChallenge } from '../users/basic.ts';
import { hasTokenInUrl } from '../verify/handshakes/catalogue.ts';
import type { OfferedTokens } from '../verify/handshakes/offered-tokens.ts';
import type { RemoteCertificates } from '../verify/keys/certificates.ts';
import type { KeyRing } from '../verify/keys/key-ring.ts';
import { toAcceptedStatus, toAcknowledgement, toStatuses } from '../verify/presets/senders.ts';
import { coversQuery, coversQueryOf, mayBeEmpty, readsQuery } from '../verify/schemes/coverage.ts';
import { toVerifyKey } from '../verify/schemes/keys.ts';
import type { BodyStorage } from './body-storage.ts';
import type { CompiledRoute, CompiledWebhook } from './compiled-route.ts';
import type { GateRouteLabels, Metrics } from './metrics.ts';
import { buildBasicGate, type Realms, toSourceLabels } from './realms.ts';

/** The dependencies that routes share, across reloads. */
export interface RouteParts {
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly store: SeenIds;
  readonly versions: NewestVersions;
  readonly settlements: Settlements;
  readonly waiters: ClaimWaiters;
  readonly capacity: Capacity;
  readonly realms: Realms;
  readonly signer: IdentitySigner;
  readonly attempts: Attempts;
  readonly keyEvidence: KeyEvidence;
  readonly certificates: RemoteCertificates;
  readonly offeredTokens: OfferedTokens;
  readonly readLimits: ReadLimits;
  readonly bodies: BodyStorage;
  /** Undefined without a provider: a rule of the config requires one for `ack: onAccept`, and a reload cannot remove it. */
  readonly createInbox: CreateInbox;
}

/** The labels of the series that a route has before its first request. */
export function toRouteLabels({ authz }: Config, route: RouteConfig): GateRouteLabels {
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
    // Auth requests have no content, so those for webhook routes are never allowed.
    authz: authz !== undefined && webhook === undefined,
    signsTime: webhook?.tolerance !== undefined,
    requiresPassword: basic !== undefined,
    isOrdered: webhook?.order !== undefined,
  };
}

/** Compiles one route. */
export function buildRoute(route: CompiledRoute, ring: KeyRing, upstream: Upstream, parts: RouteParts): AppRoute {
  const { config } = route;
  const metrics = parts.metrics.route(config.name);
  const { name, basic, webhook, clientCertificate, forwardMethodOverride } = config;
  const fields: HeaderContext = { route: name, signer: parts.signer, ...fieldSettingsOf(config) };
  const policy = new HeaderPolicy(fields);
  const inbox = webhook && buildInbox(name, webhook, policy, parts);
  const storing = webhook?.ack === 'onAccept' ? inbox : undefined;
  return {
    to: 'app',
    name,
    ...toRouting(config),
    gates: {
      certificate: clientCertificate && createClientCertificateGate(clientCertificate),
      handshake: buildOpenHandshake(route, ring, parts),
      content: webhook && buildContentGate(webhook),
      password: basic && buildBasicGate(basic, 'origin', metrics, parts),
      webhook: route.webhook && {
        ...buildWebhookGates(name, route.webhook, ring, metrics, parts),
        claims: buildClaimGates(name, route.webhook.config, inbox, parts),
      },
    },
    isOpen: config.allow === 'anyone',
    mode: config.mode,
    challenges: toChallenges(config),
    capacity: parts.capacity,
    forwarder: storing?.forwarder ?? buildForwarder(config, policy, upstream, parts),
    forwardTime: storing !== undefined ? 0 : config.connectTimeout + config.timeout,
    verifiesContent: webhook !== undefined,
    forwardMethodOverride,
    ...(webhook === undefined
      ? undefined
      : { statuses: toStatuses(webhook.scheme), acknowledgement: toAcknowledgement(webhook.scheme) }),
    identity: fields,
    metrics,
    trace: { trust: config.trace.trust, template: toTemplate(config.match), app: config.upstream },
    bodies: parts.bodies.open(route),
  };
}

function buildInbox(
  route: string,
  { scheme, dedup, ack, description }: WebhookConfig,
  policy: RequestPolicy,
  parts: RouteParts,
): Inbox | undefined {
  const trustsUnsignedId = dedup !== 'off' && dedup.unsignedId === 'trust';
  const accepted = { status: toAcceptedStatus(scheme), text: toAcknowledgement(scheme) };
  const repeatsBytes = description.repeatsBytes === true;
  return parts.createInbox({ route, stores: ack === 'onAccept', trustsUnsignedId, repeatsBytes, ...accepted }, policy);
}

function buildForwarder(config: RouteConfig, policy: RequestPolicy, upstream: Upstream, parts: RouteParts): Forwarder {
  const route = {
    policy,
    resend: config.resend,
    allowResponseHeaders: new Set(config.allowResponseHeaders),
    connectFailureCode: 'upstream_away',
    readLimits: parts.readLimits,
  } as const;
  return createForwarder(route, upstream, parts.clock);
}

/** `http.route` of spans: has few values, as they come from the config. */
function toTemplate({ path, pathPrefix = '' }: RouteConfig['match']): string {
  return path ?? `${pathPrefix.replace(/\/$/, '')}/*`;
}

/** Basic first: many clients stop at the first scheme that they do not know (RFC 9110 §11.6.1). */
function toChallenges({ name, basic, webhook }: RouteConfig): string[] {
  return [
    ...(basic === undefined ? [] : [toBasicChallenge(basic.realm)]),
    // Config admits only names that need no escaping in a quoted-string (RFC 9110 §5.6.4).
    ...(webhook === undefined ? [] : [`Webhook-Signature realm="${name}"`]),
  ];
}

function buildContentGate(webhook: WebhookConfig): ContentGate {
  const bindsMediaType = isContentSigned(webhook);
  const checksBody = bindsMediaType && webhook.sns === undefined;
  return createContentGate({
    ...webhook,
    allowQuery: isQueryAllowed(webhook),
    bindsMediaType,
    checksBody,
    coversQueryOf: (method) => coversQueryOf(webhook.description, method),
    mayBeEmpty: (method) => mayBeEmpty(webhook.description, method),
  });
}

/** A token authenticates the sender but not the message, so there is nothing to bind. */
function isContentSigned({ description }: WebhookConfig): boolean {
  return description.signed.length > 0 || description.isSignedInContent === true;
}

/** Runs before the content gate. */
function buildOpenHandshake(
  { config, webhook }: CompiledRoute,
  ring: KeyRing,
  { offeredTokens }: RouteParts,
): HeadGate | undefined {
  const { open, openBody } = webhook?.handshake ?? {};
  if (open === undefined && openBody === undefined) return undefined;
  const offer = offeredTokens.add.bind(offeredTokens, config.name);
  return createOpenHandshakeGate({ open, openBody }, ring, { methods: appMethodsOf(config), offer });
}

function buildWebhookGates(
  route: string,
  webhook: CompiledWebhook,
  ring: KeyRing,
  metrics: RouteMetrics,
  parts: RouteParts,
): Omit<WebhookGates, 'claims'> {
  const { sns, envelope, kinds } = webhook.config;
  const { signed } = webhook.handshake;
  return {
    event:
      sns === undefined
        ? buildSignatureGate(route, webhook, ring, metrics, parts)
        : buildSnsGate(webhook.config, sns, metrics, parts),
    verified: [
      ...(signed === undefined ? [] : [createSignedHandshakeGate(signed, ring)]),
      ...(kinds === undefined ? [] : [createKindGate(new Set(kinds))]),
      ...(envelope.requireMatchingId ? [createEnvelopeGate()] : []),
    ],
  };
}

function buildClaimGates(
  route: string,
  { dedup, order, description }: WebhookConfig,
  inbox: Inbox | undefined,
  parts: RouteParts,
): ClaimGate[] {
  const { store, settlements, clock, waiters, metrics } = parts;
  const gates: ClaimGate[] = [];
  if (dedup !== 'off') {
    const onEvent = metrics.dedup.bind(metrics);
    const onDuration = metrics.dedupDuration.bind(metrics);
    const shared = { store, settlements, clock, waiters, onEvent, onDuration };
    gates.push(
      createDedupGate({ route, ...dedup, repeatsBytes: description.repeatsBytes === true }, { ...shared, stored: inbox }),
    );
  }
  // After dedup: otherwise a retry of the newest event would be forwarded again.
  if (order !== undefined) {
    const onEvent = metrics.order.bind(metrics);
    gates.push(createOrderGate({ route, ...order }, { ...parts, onEvent }));
  }
  return gates;
}

function buildSignatureGate(
  route: string,
  { config, scheme }: CompiledWebhook,
  ring: KeyRing,
  metrics: RouteMetrics,
  { keyEvidence, certificates }: RouteParts,
): EventGate {
  const { maxBody, allowDotInId, allowQuery, publicUrl = '' } = config;
  const onKeyUsed = (key: string, at: EpochMilliseconds, first: string): void => {
    metrics.keyUsed(key, at);
    if (key !== first) keyEvidence.oldKeyUsed({ route, key, first, at, matches: metrics.keyUse(key).matches });
  };
  return createSignatureGate(scheme, ring, {
    ...toRecency(config, metrics),
    allowDotInId,
    allowQuery,
    maxBody,
    publicUrl,
    onKeyUsed,
    fetchKeys: buildCertificateKeys(config, certificates),
  });
}

/** Keys of the route take precedence over the certificate that a delivery names. */
function buildCertificateKeys(config: WebhookConfig, certificates: RemoteCertificates): FetchKeys | undefined {
  const { description } = config;
  const { certificate } = description;
  if (certificate === undefined || !fetchesCertificates(config)) return undefined;
  return createCertificateKeys(certificate, {
    toKey: (url, client, names) => certificates.key(url, client, names),
    toVerifyKey: (name, key) => toVerifyKey(name, key, description),
  });
}

function buildSnsGate(webhook: WebhookConfig, sns: SnsConfig, metrics: RouteMetrics, { certificates }: RouteParts): EventGate {
  const { maxBody } = webhook;
  const onKeyUsed = (topic: string, at: EpochMilliseconds): void => metrics.keyUsed(topic, at);
  return createSnsGate(
    { ...toRecency(webhook, metrics), ...sns, maxBody, onKeyUsed },
    { toKey: (url, client) => certificates.key(url, client), follow: (url, client) => certificates.follow(url, client) },
  );
}

function toRecency({ tolerance }: WebhookConfig, metrics: RouteMetrics): RecencyOptions {
  return { tolerance, onSkew: (skew) => metrics.skew(skew) };
}

/** Deliveries may have a query if the route allows it, the sender signs it, the scheme reads it strictly, or it can only be the handshake's token. */
function isQueryAllowed({ allowQuery, description, handshake }: WebhookConfig): boolean {
  return allowQuery || hasTokenInUrl(handshake) || coversQuery(description) || readsQuery(description);
}
