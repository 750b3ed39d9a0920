/** Answers one review after another, and tells of each: log, metric, Event. */

import type { Overrides } from '../../config/load/overrides.ts';
import type { Clock } from '../../core/clock.ts';
import type { SidecarDefaults } from '../injector/injector-config.ts';
import { DENY_REASONS, type InjectContext, type Injection, type KubeVersion, SKIP_REASONS } from '../injector/outcome.ts';
import { objectAt, textAt } from '../injector/raw.ts';
import { type ReviewedRequest, respondToReview } from '../injector/review.ts';
import { SETTINGS } from '../injector/settings.ts';
import { parseBounded } from './bounded-json.ts';
import type { InjectorMetrics } from './injector-metrics.ts';
import type { AdmissionLogger } from './log-events.ts';
import { toSidecarOverrides } from './sidecar-flags.ts';
import { addWarnings, shorten } from './warnings.ts';

/** What is answered to a review. */
export interface ReviewReply {
  readonly status: number;
  /** JSON where the status is 200, else a line of text. */
  readonly text: string;
}

/** A pod that gets the sidecar, as far as warnings go. */
export interface AdvisedPod {
  readonly request: ReviewedRequest;
  /** The ConfigMap of its gate. */
  readonly configMap: string | undefined;
  /** What its gate is told beside that. */
  readonly overrides: Overrides;
}

/** Something that somebody should hear of. */
export interface News {
  readonly request: ReviewedRequest;
  readonly type: 'Normal' | 'Warning';
  readonly reason: 'SidegateInjected' | 'SidegateDenied' | 'SidegateWarning';
  readonly note: string;
}

/** What the reviewer stands on. */
export interface ReviewerParts {
  readonly clock: Clock;
  readonly logger: AdmissionLogger;
  readonly metrics: InjectorMetrics;
  readonly defaults: SidecarDefaults;
  /** Sidegate's own. */
  readonly version: string;
  /** Of the oldest part of the cluster, as it is known by now. */
  readonly kube: () => KubeVersion;
  /** Namespaces that the API server never asks about. */
  readonly excludedNamespaces: readonly string[];
  /** What else is worth a warning; never rejects, never takes long. Only for verified callers: it tells what the cluster holds. */
  readonly advise: (pod: AdvisedPod) => Promise<readonly string[]>;
  /** Returns at once. */
  readonly tell: (news: News, isVerified: boolean) => void;
}

const TAKEOVERS = ['service', 'rename', 'same-port', 'env'] as const satisfies readonly Extract<
  Injection,
  { outcome: 'injected' }
>['takeover'][];

/** All results that a review can have, with their reasons; of an injection it is the takeover. */
export const ADMISSIONS: readonly (readonly [result: string, reason: string])[] = [
  ...TAKEOVERS.map((takeover) => ['injected', takeover] as const),
  ...SKIP_REASONS.map((reason) => ['skipped', reason] as const),
  ...DENY_REASONS.map((reason) => ['denied', reason] as const),
];
const NO_REVIEW: ReviewReply = { status: 400, text: 'the content is no AdmissionReview of admission.k8s.io/v1 with a request\n' };

const EXCLUDED: ReviewReply = { status: 403, text: 'the API server does not ask about this namespace\n' };

/** Builds it; rejects only where it is at fault itself. `isVerified`: the caller proved that it is the API server. */
export function createReviewer(parts: ReviewerParts): (content: Buffer, isVerified: boolean) => Promise<ReviewReply> {
  const { clock, metrics, defaults, version, kube, advise } = parts;
  const excluded = new Set(parts.excludedNamespaces);
  return async (content, isVerified) => {
    const start = clock.monotonic();
    const { response, injection, request, advised } = answer(content, (namespace) => ({
      defaults,
      version,
      kube: kube(),
      namespace,
    }));
    // Without the request's own uid the API server would not take the answer for one.
    if (request.uid === '') {
      metrics.turnedAway('not_a_review');
      return NO_REVIEW;
    }
    if (excluded.has(request.namespace)) {
      metrics.turnedAway('excluded_namespace');
      return EXCLUDED;
    }
    const advice = advised === undefined || !isVerified ? [] : await advise(advised);
    metrics.admission(injection.outcome, toReason(injection), clock.monotonic() - start);
    log(parts, request, injection, advice);
    if (!request.isDryRun) for (const news of toNews(request, injection, advice)) parts.tell(news, isVerified);
    return { status: 200, text: JSON.stringify(addWarnings(response, advice)) };
  };
}

/** What is said of an injection, without the patch: parts of the pod hang on it. */
type Told = Injection | Omit<Extract<Injection, { outcome: 'injected' }>, 'patch'>;

interface Answered {
  readonly response: object;
  readonly injection: Told;
  readonly request: ReviewedRequest;
  readonly advised: AdvisedPod | undefined;
}

/**
 * All that needs the review, in one go: once this returns nobody holds what was parsed. As nothing is waited for in here, one review
 * is parsed at a time, however many are under way.
 */
function answer(content: Buffer, toContext: (namespace: string) => InjectContext): Answered {
  const review = parseBounded(content);
  const { response, injection, request } = respondToReview(review, toContext);
  if (injection.outcome !== 'injected') return { response, injection, request, advised: undefined };
  const { patch: _, ...told } = injection;
  const advised = { request, configMap: toConfigMap(review), overrides: toSidecarOverrides(injection) };
  return { response, injection: told, request, advised };
}

function toConfigMap(review: unknown): string | undefined {
  const metadata = objectAt(objectAt(objectAt(review, 'request'), 'object'), 'metadata');
  return textAt(objectAt(metadata, 'annotations'), `sidegate.dev/${SETTINGS.config.name}`);
}

function toReason(injection: Told): string {
  return injection.outcome === 'injected' ? injection.takeover : injection.reason;
}

function log({ logger }: ReviewerParts, request: ReviewedRequest, injection: Told, advice: readonly string[]): void {
  const { uid, namespace, name, isDryRun, owner } = request;
  const facts = {
    uid,
    namespace,
    // A review may name what it likes; the log stays readable.
    pod: shorten(name),
    owner: owner === undefined ? undefined : shorten(`${owner.kind}/${owner.name}`),
    dryRun: isDryRun,
    reason: toReason(injection),
  };
  if (injection.outcome === 'injected') {
    const warnings = [...injection.warnings, ...advice].map(shorten);
    logger.info('pod_injected', { ...facts, did: injection.summary, ...(warnings.length === 0 ? undefined : { warnings }) });
  } else if (injection.outcome === 'denied') logger.warn('pod_denied', { ...facts, message: injection.message });
  else logger.info('pod_skipped', facts);
}

function toNews(request: ReviewedRequest, injection: Told, advice: readonly string[]): News[] {
  if (injection.outcome === 'skipped') return [];
  if (injection.outcome === 'denied') return [{ request, type: 'Warning', reason: 'SidegateDenied', note: injection.message }];
  const warnings = [...injection.warnings, ...advice];
  return [
    { request, type: 'Normal', reason: 'SidegateInjected', note: injection.summary },
    ...warnings.map((note): News => ({ request, type: 'Warning', reason: 'SidegateWarning', note })),
  ];
}
