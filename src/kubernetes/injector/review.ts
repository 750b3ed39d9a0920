/** Answers an AdmissionReview (admission.k8s.io/v1): the patch, or a status that says why not. */
import { injectPod } from './inject.ts';
import { DOMAIN } from './names.ts';
import type { DenyReason, InjectContext, Injection } from './outcome.ts';
import { listAt, objectAt, type Raw, textAt } from './raw.ts';

/** What was asked, for Events, logs and metrics. */
export interface ReviewedRequest {
  readonly uid: string;
  readonly namespace: string;
  /** A pod of a controller has only the beginning of its name yet. */
  readonly name: string;
  readonly isDryRun: boolean;
  /** The controller that creates the pod. */
  readonly owner: OwnerReference | undefined;
}

/** Of metadata.ownerReferences. */
export interface OwnerReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
}

/** The answer, and what it says. */
export interface ReviewAnswer {
  readonly response: object;
  readonly injection: Injection;
  readonly request: ReviewedRequest;
}

/** Longer warnings may be cut by the API server, and too many are dropped (4096 bytes in all). */
const LONGEST_WARNING = 256;
const MOST_WARNINGS = 8;
/** Each name of a Secret becomes a volume and a mount: some kilobytes of annotation are enough for every pod, and megabytes are forged. */
const LONGEST_SETTINGS = 8_192;
/** People read it in one line of kubectl. */
const LONGEST_MESSAGE = 2_048;
/** What the author of the pod wrote wrong is a bad request; the rest is a pod that may not be. */
const BAD_REQUESTS: ReadonlySet<DenyReason> = new Set(['malformed', 'invalid_setting']);

/** Judges what the API server asks; never throws, whatever it is. */
export function answerReview(review: unknown, toContext: (namespace: string) => InjectContext): ReviewAnswer {
  const asked = objectAt(review, 'request');
  const pod = objectAt(asked, 'object');
  const request = toRequest(asked, pod);
  const injection = judge(review, asked, pod, () => toContext(request.namespace));
  const response = { uid: request.uid, ...toResponse(injection) };
  return { response: { apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', response }, injection, request };
}

function toRequest(asked: Raw, pod: Raw): ReviewedRequest {
  const metadata = objectAt(pod, 'metadata');
  const owners = listAt(metadata, 'ownerReferences').map(toOwner);
  const owner = owners.find(({ isController }) => isController) ?? owners[0];
  return {
    uid: textAt(asked, 'uid') ?? '',
    namespace: textAt(asked, 'namespace') ?? textAt(metadata, 'namespace') ?? 'default',
    name: textAt(metadata, 'name') ?? textAt(asked, 'name') ?? `${textAt(metadata, 'generateName') ?? ''}…`,
    isDryRun: asked['dryRun'] === true,
    owner: owner?.reference,
  };
}

function toOwner(owner: unknown): { readonly reference: OwnerReference; readonly isController: boolean } {
  const at = (key: string): string => textAt(owner, key) ?? '';
  const reference = { apiVersion: at('apiVersion'), kind: at('kind'), name: at('name'), uid: at('uid') };
  return {
    reference,
    isController: typeof owner === 'object' && owner !== null && 'controller' in owner && owner.controller === true,
  };
}

function judge(review: unknown, asked: Raw, pod: Raw, toContext: () => InjectContext): Injection {
  const version = textAt(review, 'apiVersion');
  if (textAt(review, 'kind') !== 'AdmissionReview' || version !== 'admission.k8s.io/v1' || textAt(asked, 'uid') === undefined)
    return {
      outcome: 'denied',
      reason: 'malformed',
      message: 'this is no AdmissionReview of admission.k8s.io/v1 with a request',
    };
  const { group, version: kindVersion, kind } = objectAt(asked, 'kind');
  const isPod = (group ?? '') === '' && kindVersion === 'v1' && kind === 'Pod';
  if (!isPod || textAt(asked, 'operation') !== 'CREATE' || (textAt(asked, 'subResource') ?? '') !== '')
    return { outcome: 'skipped', reason: 'not_a_pod_creation', message: 'only pods that are created are looked at' };
  const length = countSettings(pod);
  if (length > LONGEST_SETTINGS)
    return {
      outcome: 'denied',
      reason: 'invalid_setting',
      message: `the annotations ${DOMAIN}/… have ${length} characters in all; ${LONGEST_SETTINGS} are the most`,
    };
  const injection = injectPod(pod, toContext());
  if (injection.outcome !== 'denied' || injection.message.length <= LONGEST_MESSAGE) return injection;
  return { ...injection, message: shorten(injection.message, LONGEST_MESSAGE) };
}

function countSettings(pod: Raw): number {
  let length = 0;
  for (const [name, value] of Object.entries(objectAt(objectAt(pod, 'metadata'), 'annotations')))
    if (name.startsWith(`${DOMAIN}/`)) length += name.length + String(value).length;
  return length;
}

function toResponse(injection: Injection): object {
  switch (injection.outcome) {
    case 'denied': {
      const isBad = BAD_REQUESTS.has(injection.reason);
      const status = { code: isBad ? 400 : 403, reason: isBad ? 'BadRequest' : 'Forbidden', message: injection.message };
      return { allowed: false, status: { status: 'Failure', ...status } };
    }
    case 'skipped':
      return { allowed: true };
    case 'injected': {
      const patch = Buffer.from(JSON.stringify(injection.patch)).toString('base64');
      return { allowed: true, patchType: 'JSONPatch', patch, ...toWarnings(injection) };
    }
  }
}

function toWarnings({ warnings, summary }: Extract<Injection, { outcome: 'injected' }>): object {
  const all = [`sidegate: ${summary}`, ...warnings.map((warning) => `sidegate: ${warning}`)];
  return { warnings: all.slice(0, MOST_WARNINGS).map((warning) => shorten(warning, LONGEST_WARNING)) };
}

/** By code points: half a character would not be UTF-8. */
function shorten(text: string, longest: number): string {
  // Of the text as it may be, no more than can be kept is taken apart.
  const characters = [...text.slice(0, 2 * (longest + 1)).replace(/[\p{Cc}\p{Cf}]/gu, ' ')];
  return characters.length <= longest ? characters.join('') : `${characters.slice(0, longest - 1).join('')}…`;
}
