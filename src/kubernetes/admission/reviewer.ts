/** Handles reviews, and reports each one: log, metric, Event. */

import type { Overrides } from '../../config/load/overrides.ts';
import type { Clock } from '../../core/clock.ts';
import type { SidecarDefaults } from '../injector/injector-config.ts';
import { DENY_REASONS, type InjectContext, type Injection, type KubeVersion, SKIP_REASONS } from '../injector/outcome.ts';
import { objectAt, textAt } from '../injector/raw.ts';
import { type ReviewedRequest, respondToReview } from '../injector/review.ts';
import { SETTINGS } from '../injector/settings.ts';
import { isBounded, parseBounded } from './bounded-json.ts';
import type { InjectorMetrics, RejectionLabel } from './injector-metrics.ts';
import type { AdmissionLogger } from './log-events.ts';
import { toSidecarOverrides } from './sidecar-flags.ts';
import { addWarnings, shorten } from './warnings.ts';

/** The HTTP response to a review. */
export interface ReviewReply {
  readonly status: number;
  /** JSON if the status is 200, otherwise a line of text. */
  readonly text: string;
}

/** The parts of an injected pod that warnings depend on. */
export interface AdvisedPod {
  readonly request: ReviewedRequest;
  /** The ConfigMap of its gate. */
  readonly configMap: string | undefined;
  /** The volume of its queue. */
  readonly queueVolume: string | undefined;
  /** Overrides in the arguments of its gate. */
  readonly overrides: Overrides;
}

/** The content of an Event. */
export interface PodEvent {
  readonly request: ReviewedRequest;
  readonly type: 'Normal' | 'Warning';
  readonly reason: 'SidegateInjected' | 'SidegateDenied' | 'SidegateWarning';
  readonly note: string;
}

/** The dependencies of the reviewer. */
export interface ReviewerParts {
  readonly clock: Clock;
  readonly logger: AdmissionLogger;
  readonly metrics: InjectorMetrics;
  readonly defaults: SidecarDefaults;
  /** Version of sidegate. */
  readonly version: string;
  /** The version of the oldest part of the cluster. */
  readonly kube: () => KubeVersion;
  /** Namespaces for which the API server never calls the injector. */
  readonly excludedNamespaces: readonly string[];
  /** Computes further warnings; never rejects and is bounded in time. Only for verified callers, because it reveals the contents of the cluster. */
  readonly advise: (pod: AdvisedPod) => Promise<readonly string[]>;
  /** Sends an Event; returns at once. */
  readonly sendEvent: (podEvent: PodEvent, isVerified: boolean) => void;
}

const INTERCEPTION_MODES = ['service', 'rename', 'same-port', 'env'] as const satisfies readonly Extract<
  Injection,
  { outcome: 'injected' }
>['interception'][];

/** All results of a review, with their reasons; for an injection the reason is the interception mode. */
export const ADMISSIONS: readonly (readonly [result: string, reason: string])[] = [
  ...INTERCEPTION_MODES.map((interception) => ['injected', interception] as const),
  ...SKIP_REASONS.map((reason) => ['skipped', reason] as const),
  ...DENY_REASONS.map((reason) => ['denied', reason] as const),
];
/** Responses to requests that are not reviewed. */
const REPLIES = {
  not_a_review: { status: 400, text: 'the body is not an AdmissionReview of admission.k8s.io/v1 with a request\n' },
  too_complex: { status: 413, text: 'the AdmissionReview has too many values or levels: reduce the lists of the pod\n' },
  excluded_namespace: { status: 403, text: 'the API server never calls the injector for this namespace\n' },
} as const satisfies Partial<Readonly<Record<RejectionLabel, ReviewReply>>>;

/** Creates the reviewer. It rejects only for internal errors. `isVerified`: the caller is authenticated as the API server. */
export function createReviewer(parts: ReviewerParts): (content: Buffer, isVerified: boolean) => Promise<ReviewReply> {
  const { clock, metrics, defaults, version, kube, advise } = parts;
  const excluded = new Set(parts.excludedNamespaces);
  return async (content, isVerified) => {
    const start = clock.monotonic();
    const { response, injection, request, advised } = review(content, (namespace) => ({
      defaults,
      version,
      kube: kube(),
      namespace,
    }));
    // The API server requires the request's uid in the response.
    if (request.uid === '') return reject(parts, isBounded(content) ? 'not_a_review' : 'too_complex', content);
    if (excluded.has(request.namespace)) return reject(parts, 'excluded_namespace', content);
    const advice = advised === undefined || !isVerified ? [] : await advise(advised);
    metrics.admission(injection.outcome, toReason(injection), clock.monotonic() - start);
    log(parts, request, injection, advice);
    if (!request.isDryRun) for (const podEvent of toPodEvents(request, injection, advice)) parts.sendEvent(podEvent, isVerified);
    return { status: 200, text: JSON.stringify(addWarnings(response, advice)) };
  };
}

/** The API server shows only the status, so the log says why. */
function reject({ metrics, logger }: ReviewerParts, reason: keyof typeof REPLIES, content: Buffer): ReviewReply {
  const reply = REPLIES[reason];
  metrics.rejected(reason);
  logger.warn('review_rejected', { reason, bytes: content.length, problem: reply.text.trim() });
  return reply;
}

/** An injection without its patch, which would keep parts of the pod in memory. */
type ReportedInjection = Injection | Omit<Extract<Injection, { outcome: 'injected' }>, 'patch'>;

interface Reviewed {
  readonly response: object;
  readonly injection: ReportedInjection;
  readonly request: ReviewedRequest;
  readonly advised: AdvisedPod | undefined;
}

/**
 * Does everything that needs the parsed review, so that it can be freed afterwards. The function is synchronous, so one review is parsed
 * at a time, regardless of how many are in flight.
 */
function review(content: Buffer, toContext: (namespace: string) => InjectContext): Reviewed {
  const parsed = parseBounded(content);
  const { response, injection, request } = respondToReview(parsed, toContext);
  if (injection.outcome !== 'injected') return { response, injection, request, advised: undefined };
  const { patch: _, ...reported } = injection;
  const advised = {
    request,
    configMap: toSetting(parsed, 'config'),
    queueVolume: toSetting(parsed, 'queueVolume'),
    overrides: toSidecarOverrides(injection),
  };
  return { response, injection: reported, request, advised };
}

function toSetting(review: unknown, key: keyof typeof SETTINGS): string | undefined {
  const metadata = objectAt(objectAt(objectAt(review, 'request'), 'object'), 'metadata');
  return textAt(objectAt(metadata, 'annotations'), `sidegate.dev/${SETTINGS[key].name}`);
}

function toReason(injection: ReportedInjection): string {
  return injection.outcome === 'injected' ? injection.interception : injection.reason;
}

function log({ logger }: ReviewerParts, request: ReviewedRequest, injection: ReportedInjection, advice: readonly string[]): void {
  const { uid, namespace, name, isDryRun, owner } = request;
  const facts = {
    uid,
    namespace,
    // Names in a review are untrusted; truncated, so that the log stays readable.
    pod: shorten(name),
    owner: owner === undefined ? undefined : shorten(`${owner.kind}/${owner.name}`),
    dryRun: isDryRun,
    reason: toReason(injection),
  };
  if (injection.outcome === 'injected') {
    const warnings = [...injection.warnings, ...advice].map(shorten);
    logger.info('pod_injected', { ...facts, summary: injection.summary, ...(warnings.length === 0 ? undefined : { warnings }) });
  } else if (injection.outcome === 'denied') logger.warn('pod_denied', { ...facts, message: injection.message });
  else logger.info('pod_skipped', facts);
}

function toPodEvents(request: ReviewedRequest, injection: ReportedInjection, advice: readonly string[]): PodEvent[] {
  if (injection.outcome === 'skipped') return [];
  if (injection.outcome === 'denied') return [{ request, type: 'Warning', reason: 'SidegateDenied', note: injection.message }];
  const warnings = [...injection.warnings, ...advice];
  return [
    { request, type: 'Normal', reason: 'SidegateInjected', note: injection.summary },
    ...warnings.map((note): PodEvent => ({ request, type: 'Warning', reason: 'SidegateWarning', note })),
  ];
}
