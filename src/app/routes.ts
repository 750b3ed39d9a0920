/** Builds each route of the request pipeline from its config, with gates in their order, forwarder and metrics, and the services that all routes share. */
import { availableParallelism } from 'node:os';
import { toRouting } from '../config/rules/gate-identity.ts';
import {
  appMethodsOf,
  type Config,
  fetchesCertificates,
  fieldSettingsOf,
  isDecidedByHead,
  methodsOf,
  namesOf,
  type RouteConfig,
  type SnsConfig,
  type WebhookConfig,
} from '../config/schema/config.ts';
import { type Clock, type EpochMilliseconds, toInstant } from '../core/clock.ts';
import { toClientNetwork, toSite } from '../core/ip-address.ts';
import { Captures } from '../diagnostics/explain/captures.ts';
import type { AppRoute } from '../gateway/exchange.ts';
import { Capacity } from '../gateway/pipeline/capacity.ts';
import { ClaimWaiters, Settlements } from '../gateway/pipeline/claims.ts';
import { createCertificateKeys } from '../gateway/pipeline/gates/certificate-keys.ts';
import { createClientCertificateGate } from '../gateway/pipeline/gates/client-certificate.ts';
import { createContentGate } from '../gateway/pipeline/gates/content.ts';
import { createDedupGate } from '../gateway/pipeline/gates/dedup.ts';
import { createEnvelopeGate } from '../gateway/pipeline/gates/envelope.ts';
import type { ClaimGate, ContentGate, EventGate, HeadGate, WebhookGates } from '../gateway/pipeline/gates/gate.ts';
import { createOpenHandshakeGate, createSignedHandshakeGate } from '../gateway/pipeline/gates/handshakes.ts';
import { createKindGate } from '../gateway/pipeline/gates/kind.ts';
import { createOrderGate } from '../gateway/pipeline/gates/order.ts';
import { createSignatureGate, type FetchKeys, type RecencyOptions } from '../gateway/pipeline/gates/signature.ts';
import { createSnsGate } from '../gateway/pipeline/gates/sns.ts';
import type { RouteMetrics } from '../gateway/pipeline/route-metrics.ts';
import {
  createForwarder,
  type Forwarder,
  type ReadLimits,
  type RequestPolicy,
  toReadLimits,
} from '../gateway/upstream/forwarder.ts';
import { type HeaderContext, HeaderPolicy, IdentitySigner } from '../gateway/upstream/headers.ts';
import type { Upstream } from '../http/client/upstream.ts';
import { buildMemory, readContainerMemory, type ServerMemory, toMemoryBudget } from '../http/server/memory.ts';
import type { MemoryGuard } from '../http/server/memory-guard.ts';
import type { CreateInbox, Inbox } from '../provider/inbox/inbox-forwarder.ts';
import type { NewestVersions } from '../state/newest-versions.ts';
import type { SeenIds } from '../state/seen-ids.ts';
import { AttemptJournal } from '../telemetry/journal/attempt-journal.ts';
import { Journal } from '../telemetry/journal/journal.ts';
import { watchEscapedErrors } from '../telemetry/log/escaped-errors.ts';
import { KeyEvidence } from '../telemetry/log/key-evidence.ts';
import { EventLoopMonitor } from '../telemetry/metrics/process-metrics.ts';
import type { Attempts } from '../users/attempts.ts';
import { toBasicChallenge } from '../users/basic.ts';
import { hasTokenInUrl } from '../verify/handshakes/catalogue.ts';
import { OfferedTokens } from '../verify/handshakes/offered-tokens.ts';
import { RemoteCertificates } from '../verify/keys/certificates.ts';
import { toAcceptedStatus, toAcknowledgement, toStatuses } from '../verify/presets/senders.ts';
import { coversQuery, coversQueryOf, mayBeEmpty, readsQuery } from '../verify/schemes/coverage.ts';
import { type KeyRing, toVerifyKey } from '../verify/schemes/keys.ts';
import { BodyStorage } from './body-storage.ts';
import type { PreparedConfig } from './check.ts';
import type { CompiledRoute, CompiledWebhook } from './compiled-route.ts';
import type { GateContext } from './context.ts';
import type { GateLogger } from './log-events.ts';
import { createMetrics, type GateRouteLabels, type Metrics } from './metrics.ts';
import { buildProvider, type RunningProvider } from './provider.ts';
import { buildBasicGate, Realms, toSourceLabels } from './realms.ts';
import { Reloads } from './reloads.ts';
import { createHttpsGet, RemoteKeys } from './remote-keys.ts';
import { type OpenedStore, openStore } from './store.ts';
import { type BuiltTracing, buildTracing } from './tracing.ts';
import { toPasswordMemory } from './users.ts';

/** The dependencies that routes share, across reloads. */
interface RouteParts {
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
    // Auth requests for other routes are never allowed.
    authz: authz !== undefined && isDecidedByHead(route),
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

// The services that all routes share, built once for the life of the gate: store, settlements, passwords, keys, telemetry.

/** The destinations of logs, metrics, journal entries, captures and spans. */
interface Telemetry {
  readonly clock: Clock;
  readonly logger: GateLogger;
  readonly journal: Journal;
  readonly attemptJournal: AttemptJournal;
  readonly captures: Captures;
  readonly metrics: Metrics;
  readonly tracing: BuiltTracing;
}

/** The services of a gate. */
export interface Services {
  readonly telemetry: Telemetry;
  readonly metrics: Metrics;
  readonly store: OpenedStore;
  /** Resolves once the store is connected, or is known to be down. */
  readonly storeTried: Promise<void>;
  /** Why the store cannot be used, with what Redis replied; undefined while it can. */
  readonly storeProblem: () => string | undefined;
  readonly settlements: Settlements;
  readonly realms: Realms;
  readonly signer: IdentitySigner;
  readonly remoteKeys: RemoteKeys;
  readonly routeParts: RouteParts;
  readonly eventLoopMonitor: EventLoopMonitor;
  readonly unwatchErrors: () => void;
  readonly memory: ServerMemory;
  readonly provider: RunningProvider | undefined;
  readonly reloads: Reloads;
}

/** Of IPv6, all networks of a site are one. */
const toClient = (address: string): string => toSite(toClientNetwork(address));

/** Builds the services; the store connects, but nothing is fetched and no port is opened yet. */
export function buildServices(ready: PreparedConfig, context: GateContext): Services {
  const { clock, logger, createUpstream } = context;
  const { limits, workers, ...config } = ready.loaded.config;
  const telemetry = buildTelemetry(ready, context);
  const { metrics } = telemetry;
  const { store, storeTried, storeProblem } = openReportedStore(ready, telemetry);
  const settlements = new Settlements(store.seenIds, clock, {
    onOutcome: (outcome, settled) => (settled.of === 'resource' ? metrics.order(outcome) : metrics.dedup(outcome)),
    onLost: ({ kind, key }, message) => logger.error('settlement_lost', { kind, key, message }),
  });
  const threads = limits.passwordThreads ?? Math.max(1, availableParallelism() - 1);
  const realms = new Realms({ threads, queue: limits.passwordQueue, memory: toPasswordMemory(limits) }, clock, {
    onCache: (outcome) => metrics.passwordCheck(outcome),
    onUsers: (realm, count) => metrics.users(realm, count),
    onRead: (isSuccessful) => metrics.usersReload(isSuccessful),
  });
  metrics.watchPendingPasswords(() => realms.pending);
  const signer = new IdentitySigner(clock);
  const get = context.httpsGet ?? createHttpsGet(clock, context.connectOverride);
  const ports = [config.routes[0], config.proxy, config.authz, config.provider].filter((port) => port !== undefined).length;
  const memory = buildMemory(limits, toMemoryBudget(limits, readContainerMemory(), workers, ports), clock, metrics.limitHit);
  metrics.watchBufferedBytes(() => memory.bodies.buffered);
  const { limit, maxBufferedBytes, maxLargeBodies } = memory.budget;
  logger.info('memory_limits', { containerBytes: limit, maxBufferedBytes, maxLargeBodies });
  const passwords = { realms, attempts: store.attempts };
  const provider = buildProvider(ready, context, { ...telemetry, ...passwords, memory: memory.guard });
  const routeParts = {
    clock,
    metrics,
    store: store.seenIds,
    versions: store.versions,
    settlements,
    capacity: new Capacity(limits, clock, { onInFlight: metrics.inFlight, onQueued: metrics.queued }),
    waiters: new ClaimWaiters(limits.maxWaiting, () => metrics.limitHit('waiters'), toClient),
    ...passwords,
    signer,
    keyEvidence: new KeyEvidence(clock, logger),
    certificates: new RemoteCertificates(get, clock),
    offeredTokens: new OfferedTokens(clock),
    readLimits: toReadLimits(limits, metrics.limitHit),
    bodies: buildBodies(ready, telemetry, memory.guard),
    createInbox: context.createInbox ?? ((options, policy) => provider?.provider.createInbox(options, policy)),
  };
  const remoteKeys = new RemoteKeys({ ...telemetry, get });
  const eventLoopMonitor = new EventLoopMonitor(clock);
  // The simulator's logger prints nothing, so an exception ends its command instead.
  const unwatchErrors = createUpstream === undefined ? watchEscapedErrors(telemetry) : () => undefined;
  return {
    telemetry,
    metrics,
    store,
    storeTried,
    storeProblem,
    settlements,
    realms,
    signer,
    remoteKeys,
    routeParts,
    eventLoopMonitor,
    unwatchErrors,
    memory,
    provider,
    reloads: new Reloads(clock, metrics),
  };
}

function buildBodies({ loaded }: PreparedConfig, { clock, metrics }: Telemetry, guard: MemoryGuard): BodyStorage {
  const bodies = new BodyStorage(clock, loaded.config.journal.maxBodyBytes, guard, metrics);
  guard.addShed(() => bodies.shed());
  metrics.watchStoredBodies(() => bodies.bytes);
  return bodies;
}

function buildTelemetry({ loaded, tracing: read }: PreparedConfig, context: GateContext): Telemetry {
  const { clock, logger, version, revision, createUpstream } = context;
  const { journal, tracing } = loaded.config;
  const metrics = createMetrics({ version, revision, processMetrics: createUpstream === undefined });
  return {
    clock,
    logger,
    journal: new Journal(journal),
    attemptJournal: new AttemptJournal(journal.size),
    captures: new Captures(clock, metrics.captured),
    metrics,
    tracing: buildTracing(tracing, read, { clock, logger, metrics, version }),
  };
}

function openReportedStore(
  ready: PreparedConfig,
  { clock, logger, metrics }: Telemetry,
): Pick<Services, 'store' | 'storeTried' | 'storeProblem'> {
  let onTried = (): void => undefined;
  const storeTried = new Promise<void>((resolve) => {
    onTried = resolve;
  });
  let problem: string | undefined;
  const store = openStore(ready.store, clock, {
    onUp() {
      onTried();
      problem = undefined;
      metrics.storeUp(true);
      logger.info('store_up');
    },
    onDown({ message, address, since, reply, hint }) {
      onTried();
      problem = `the store is down: ${reply === undefined ? 'not connected' : `Redis replied ${reply}`}`;
      metrics.storeUp(false);
      logger.error('store_down', { store: 'redis', address, since: toInstant(since), message, hint });
    },
    onWarning: (message) => logger.warn('store_warning', { message }),
    onFull: (limit) => metrics.limitHit(limit),
  });
  return { store, storeTried, storeProblem: () => problem };
}
