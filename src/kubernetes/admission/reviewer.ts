/** Handles reviews, and reports each one: log, metric, Event. */

import { isUtf8 } from 'node:buffer';
import { getHeapStatistics } from 'node:v8';
import type { Overrides } from '../../config/load/load.ts';
import type { Clock } from '../../core/clock.ts';
import { countMembers, type JsonBounds, parseJsonText } from '../../core/json-scan.ts';
import type { SidecarDefaults } from '../injector/injector-config.ts';
import { DENY_REASONS, type InjectContext, type Injection, type KubeVersion, SKIP_REASONS } from '../injector/outcome.ts';
import { objectAt, textAt } from '../injector/raw.ts';
import { type ReviewedRequest, respondToReview } from '../injector/review.ts';
import { SETTINGS } from '../injector/settings.ts';
import { findArgs, toSidecarOverrides } from '../injector/sidecar-config.ts';
import type { InjectorMetrics, RejectionLabel } from './injector-metrics.ts';
import type { AdmissionLogger } from './log-events.ts';

/** The largest pod that etcd stores (1.5 MiB) has up to 390,000 values, if each has four bytes of text; one with 100 containers has about 10,000. */
const MAX_VALUES = 393_216;
/** The most that was measured for a value: an object in an object, with a numeric key. A single byte of text is enough for one. */
const BYTES_PER_VALUE = 200;
/** Of the heap, for the values of one review. */
const HEAP_SHARE = 1 / 2;
/** Pods have about 15 levels, including managedFields. */
const BOUNDS: JsonBounds = { maxDepth: 64, maxValues: toMaxValues(getHeapStatistics().heap_size_limit) };

/** The HTTP response to a review. */
export interface ReviewReply {
  readonly status: number;
  /** JSON if the status is 200, otherwise a line of text. */
  readonly text: string;
  /** Why there was no review. The server counts and logs it, because the API server shows only the status. */
  readonly rejected?: RejectionLabel;
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

/** The only path of the webhook port. */
export const REVIEW_PATH = '/inject';
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
const INCOMPLETE = 'the body could not be read completely';
const REJECTED: Readonly<Record<RejectionLabel, readonly [status: number, line: string]>> = {
  path: [404, `not found: the path is ${REVIEW_PATH}`],
  method: [405, 'only POST is allowed'],
  content_type: [415, 'the body must be application/json without Content-Encoding'],
  length_required: [411, 'Content-Length is required'],
  caller_unknown: [403, 'no client certificate with a name in server.clientAuth.allowedNames'],
  client_limit: [429, 'this client exceeds a limit of server.perClient'],
  excluded_namespace: [403, 'the API server never calls the injector for this namespace'],
  expectation: [417, 'Expect is not supported'],
  header_fields: [431, 'too many header fields'],
  body_too_large: [413, INCOMPLETE],
  body_timeout: [408, INCOMPLETE],
  body_aborted: [400, INCOMPLETE],
  overloaded: [503, 'the injector is out of memory'],
  not_a_review: [400, 'the body is not an AdmissionReview of admission.k8s.io/v1 with a request'],
  too_complex: [413, 'the AdmissionReview has too many values or levels: reduce the lists of the pod'],
  internal: [500, 'internal error of the injector'],
};

/** The response to a request that is not reviewed. */
export function toRejection(rejected: RejectionLabel): ReviewReply {
  const [status, line] = REJECTED[rejected];
  return { status, text: `${line}\n`, rejected };
}

/** Creates the reviewer. It rejects only for internal errors. `isVerified`: the caller is authenticated as the API server. */
export function createReviewer(parts: {
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
}): (content: Buffer, isVerified: boolean) => Promise<ReviewReply> {
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
    if (request.uid === '') return toRejection(isBounded(content) ? 'not_a_review' : 'too_complex');
    if (excluded.has(request.namespace)) return toRejection('excluded_namespace');
    const advice = advised === undefined || !isVerified ? [] : await advise(advised);
    metrics.admission(injection.outcome, toReason(injection), clock.monotonic() - start);
    log(parts.logger, request, injection, advice);
    if (!request.isDryRun) for (const podEvent of toPodEvents(request, injection, advice)) parts.sendEvent(podEvent, isVerified);
    return { status: 200, text: JSON.stringify(addWarnings(response, advice)) };
  };
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
    overrides: toSidecarOverrides(findArgs(injection)) ?? {},
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

function log(logger: AdmissionLogger, request: ReviewedRequest, injection: ReportedInjection, advice: readonly string[]): void {
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

/** The most values of a review for a heap of so many bytes: 335,000 for the chart's memory limit of 256 MiB. */
export function toMaxValues(heapBytes: number): number {
  return Math.min(MAX_VALUES, Math.floor((heapBytes * HEAP_SHARE) / BYTES_PER_VALUE));
}

/** Whether the text is small enough to be parsed. */
function isBounded(content: Buffer): boolean {
  return typeof countMembers(content, BOUNDS) === 'number';
}

/** The value; undefined if the text is not JSON in UTF-8, is nested too deeply or has too many values. */
export function parseBounded(content: Buffer): unknown {
  if (!isBounded(content)) return undefined;
  try {
    return isUtf8(content) ? parseJsonText(content) : undefined;
  } catch {
    return undefined;
  }
}

// Adds warnings to a response, within the limits of the API server.

/** The API server truncates longer warnings if there are many (4096 bytes in total). */
const MAX_WARNING_LENGTH = 256;
const MAX_WARNINGS = 12;

/** Adds the warnings to an AdmissionReview. */
function addWarnings(review: object, warnings: readonly string[]): object {
  if (warnings.length === 0) return review;
  const response = objectAt(review, 'response');
  const earlier = Array.isArray(response['warnings']) ? response['warnings'] : [];
  const all = [...earlier, ...warnings.map((warning) => shorten(`sidegate: ${warning}`))];
  return { ...review, response: { ...response, warnings: all.slice(0, MAX_WARNINGS) } };
}

/** Truncates to one line, by code points, because half a surrogate pair is not valid UTF-8. */
export function shorten(text: string, maxLength = MAX_WARNING_LENGTH): string {
  // Bounds the work: the text is untrusted, and only its start can be kept.
  const characters = [...text.slice(0, 2 * (maxLength + 1)).replace(/[\p{Cc}\p{Cf}]/gu, ' ')];
  return characters.length <= maxLength ? characters.join('') : `${characters.slice(0, maxLength - 1).join('')}…`;
}
