/** The input and the outcomes of an injection, and the closed lists of reasons in metrics and Events. */

import type { SidecarDefaults } from './injector-config.ts';
import type { InterceptionMode } from './kubernetes-values.ts';
import type { PatchOperation } from './patch.ts';

/** The version of the oldest among API server and kubelets. */
export interface KubeVersion {
  readonly major: number;
  readonly minor: number;
}

/** An object with a template of pods. */
export interface TemplateOwner {
  /** Undefined if it is not known. */
  readonly apiVersion?: string;
  readonly kind: string;
  /** Names of the volumeClaimTemplates of a StatefulSet, which become volumes of its pods. */
  readonly claims: readonly string[];
}

/** The input of an injection besides the pod. */
export interface InjectContext {
  readonly defaults: SidecarDefaults;
  /** Version of sidegate. */
  readonly version: string;
  readonly kube: KubeVersion;
  readonly namespace: string;
  /** Whether the pod has not passed the admission of a cluster. */
  readonly isOffline?: boolean;
  /** Whether the pod is a Job's template, which has no owner reference yet. */
  readonly isJob?: boolean;
  /** The object whose template the pod is; undefined for a pod, whose owner is in its metadata. */
  readonly template?: TemplateOwner;
}

/** Why a pod was not changed. */
export const SKIP_REASONS = ['not_labelled', 'already_injected', 'not_a_pod_creation'] as const;
type SkipReason = (typeof SKIP_REASONS)[number];

/** Why a pod was denied. */
export const DENY_REASONS = [
  'malformed',
  'invalid_setting',
  'host_network',
  'windows',
  'knative',
  'name_taken',
  'port_taken',
  'app_unclear',
  'job_never_completes',
  'probe_unreachable',
  'version_too_old',
  'sidecar_damaged',
  'sidecar_ends',
  'shared_processes',
] as const;
export type DenyReason = (typeof DENY_REASONS)[number];

/** The pod gets the sidecar, stays unchanged, or is denied. */
export type Injection =
  | {
      readonly outcome: 'injected';
      readonly patch: readonly PatchOperation[];
      readonly warnings: readonly string[];
      readonly summary: string;
      readonly interception: InterceptionMode;
    }
  | { readonly outcome: 'skipped'; readonly reason: SkipReason; readonly message: string }
  | { readonly outcome: 'denied'; readonly reason: DenyReason; readonly message: string };

/** Whether the cluster is at least 1.`minor`. */
export function isAtLeast({ major, minor }: KubeVersion, wanted: number): boolean {
  return major > 1 || (major === 1 && minor >= wanted);
}

// The findings of an injection: reasons to deny the pod, and warnings for its owner.

/** Of each kind; a response shows fewer. A pod can have thousands of ports and mounts. */
const MAX_FINDINGS = 64;

/** Collects all findings, so that they can be fixed at once. */
export class Findings {
  readonly #denials: { readonly reason: DenyReason; readonly message: string }[] = [];
  readonly #warnings: string[] = [];

  deny(reason: DenyReason, message: string): void {
    if (this.#denials.length < MAX_FINDINGS) this.#denials.push({ reason, message });
  }

  warn(message: string): void {
    if (this.#warnings.length < MAX_FINDINGS) this.#warnings.push(message);
  }

  get warnings(): readonly string[] {
    return this.#warnings;
  }

  /** The reason of the first denial, and the messages of all. */
  get denial(): { readonly reason: DenyReason; readonly message: string } | undefined {
    const [first] = this.#denials;
    if (first === undefined) return undefined;
    return { reason: first.reason, message: this.#denials.map(({ message }) => message).join('; ') };
  }
}
