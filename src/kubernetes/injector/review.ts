/** Responds to an AdmissionReview (admission.k8s.io/v1) with the patch, or with a status that gives the reason for a denial. */
import { injectPod } from './inject.ts';
import { MAX_NAME_LENGTH } from './kubernetes-values.ts';
import { DOMAIN } from './names.ts';
import type { DenyReason, InjectContext, Injection } from './outcome.ts';
import { listAt, objectAt, type Raw, textAt } from './raw.ts';

/** The reviewed request, for Events, logs and metrics. */
export interface ReviewedRequest {
  readonly uid: string;
  readonly namespace: string;
  /** For a pod of a controller, only the prefix of its name is known. */
  readonly name: string;
  readonly isDryRun: boolean;
  /** The controller that creates the pod. */
  readonly owner: OwnerReference | undefined;
}

/** An item of metadata.ownerReferences. */
export interface OwnerReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
}

/** The response to a review, with the outcome that it contains. */
interface AdmissionResponse {
  readonly response: object;
  readonly injection: Injection;
  readonly request: ReviewedRequest;
}

/** The API server may truncate longer warnings, and drops warnings beyond 4096 bytes in total. */
const MAX_WARNING_LENGTH = 256;
const MAX_WARNINGS = 8;
/** Each name of a Secret becomes a volume and a mount. A few kilobytes of annotations are enough for any pod; megabytes are an attack. */
const MAX_SETTINGS_LENGTH = 8_192;
/** Of the patch as JSON. A patch of a common pod has 3,000 characters; one with the most Secrets in its annotations, 600,000. */
const MAX_PATCH_LENGTH = 1_048_576;
/** kubectl shows it in one line. */
const MAX_MESSAGE_LENGTH = 2_048;
/** Mistakes of the pod's author are bad requests; all other denials are forbidden pods. */
const BAD_REQUESTS: ReadonlySet<DenyReason> = new Set(['malformed', 'invalid_setting']);

/** Responds to a review from the API server. Never throws, for any value. */
export function respondToReview(review: unknown, toContext: (namespace: string) => InjectContext): AdmissionResponse {
  const asked = objectAt(review, 'request');
  const pod = objectAt(asked, 'object');
  const request = toRequest(asked, pod);
  const decided = decide(review, asked, pod, () => toContext(request.namespace));
  const patch = decided.outcome === 'injected' ? JSON.stringify(decided.patch) : '';
  const injection = patch.length > MAX_PATCH_LENGTH ? toOversized(patch.length) : decided;
  const response = { uid: request.uid, ...toResponse(injection, patch) };
  return { response: { apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', response }, injection, request };
}

function toOversized(length: number): Injection {
  const message = `the patch that adds the sidecar would have ${length} characters; the maximum is ${MAX_PATCH_LENGTH}: use fewer containers, Secrets and probe headers`;
  return { outcome: 'denied', reason: 'malformed', message };
}

/** Undefined if it is longer than any valid name: names are kept for Events and logs. */
function nameAt(from: unknown, key: string): string | undefined {
  const name = textAt(from, key);
  return name !== undefined && name.length <= MAX_NAME_LENGTH ? name : undefined;
}

function toRequest(asked: Raw, pod: Raw): ReviewedRequest {
  const metadata = objectAt(pod, 'metadata');
  const owners = listAt(metadata, 'ownerReferences').map(toOwner);
  const owner = owners.find(({ isController }) => isController) ?? owners[0];
  return {
    uid: nameAt(asked, 'uid') ?? '',
    namespace: nameAt(asked, 'namespace') ?? nameAt(metadata, 'namespace') ?? 'default',
    name: nameAt(metadata, 'name') ?? nameAt(asked, 'name') ?? `${nameAt(metadata, 'generateName') ?? ''}…`,
    isDryRun: asked['dryRun'] === true,
    owner: owner?.reference,
  };
}

function toOwner(owner: unknown): { readonly reference: OwnerReference; readonly isController: boolean } {
  const at = (key: string): string => nameAt(owner, key) ?? '';
  const reference = { apiVersion: at('apiVersion'), kind: at('kind'), name: at('name'), uid: at('uid') };
  return {
    reference,
    isController: typeof owner === 'object' && owner !== null && 'controller' in owner && owner.controller === true,
  };
}

function decide(review: unknown, asked: Raw, pod: Raw, toContext: () => InjectContext): Injection {
  const version = textAt(review, 'apiVersion');
  if (textAt(review, 'kind') !== 'AdmissionReview' || version !== 'admission.k8s.io/v1' || nameAt(asked, 'uid') === undefined)
    return {
      outcome: 'denied',
      reason: 'malformed',
      message: 'not an AdmissionReview of admission.k8s.io/v1 with a request',
    };
  const { group, version: kindVersion, kind } = objectAt(asked, 'kind');
  const isPod = (group ?? '') === '' && kindVersion === 'v1' && kind === 'Pod';
  if (!isPod || textAt(asked, 'operation') !== 'CREATE' || (textAt(asked, 'subResource') ?? '') !== '')
    return { outcome: 'skipped', reason: 'not_a_pod_creation', message: 'only the creation of pods is handled' };
  const length = countSettings(pod);
  if (length > MAX_SETTINGS_LENGTH)
    return {
      outcome: 'denied',
      reason: 'invalid_setting',
      message: `the annotations ${DOMAIN}/… have ${length} characters in total; the maximum is ${MAX_SETTINGS_LENGTH}`,
    };
  const injection = injectPod(pod, toContext());
  if (injection.outcome !== 'denied' || injection.message.length <= MAX_MESSAGE_LENGTH) return injection;
  return { ...injection, message: shorten(injection.message, MAX_MESSAGE_LENGTH) };
}

function countSettings(pod: Raw): number {
  let length = 0;
  for (const [name, value] of Object.entries(objectAt(objectAt(pod, 'metadata'), 'annotations')))
    if (name.startsWith(`${DOMAIN}/`)) length += name.length + String(value).length;
  return length;
}

function toResponse(injection: Injection, patch: string): object {
  switch (injection.outcome) {
    case 'denied': {
      const isBad = BAD_REQUESTS.has(injection.reason);
      const status = { code: isBad ? 400 : 403, reason: isBad ? 'BadRequest' : 'Forbidden', message: injection.message };
      return { allowed: false, status: { status: 'Failure', ...status } };
    }
    case 'skipped':
      return { allowed: true };
    case 'injected': {
      return { allowed: true, patchType: 'JSONPatch', patch: Buffer.from(patch).toString('base64'), ...toWarnings(injection) };
    }
  }
}

function toWarnings({ warnings, summary }: Extract<Injection, { outcome: 'injected' }>): object {
  const all = [`sidegate: ${summary}`, ...warnings.map((warning) => `sidegate: ${warning}`)];
  return { warnings: all.slice(0, MAX_WARNINGS).map((warning) => shorten(warning, MAX_WARNING_LENGTH)) };
}

/** Truncates by code points, because half a surrogate pair is not valid UTF-8. */
function shorten(text: string, maxLength: number): string {
  // Bounds the work: the text is untrusted, and only its start can be kept.
  const characters = [...text.slice(0, 2 * (maxLength + 1)).replace(/[\p{Cc}\p{Cf}]/gu, ' ')];
  return characters.length <= maxLength ? characters.join('') : `${characters.slice(0, maxLength - 1).join('')}…`;
}
