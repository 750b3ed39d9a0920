/** The input of a diagnosis: the objects of a cluster, and what could not be read. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { SidecarDefaults } from '../injector/injector-config.ts';
import type { VariableReference } from '../injector/sidecar-config.ts';
import type { SidecarRules } from '../injector/sidecar-rules.ts';
import type {
  Controller,
  EndpointSlice,
  Ingress,
  Named,
  NetworkPolicy,
  Pod,
  PolicyBinding,
  Service,
  WebhookConfiguration,
} from './objects.ts';

/** A list, or why it could not be read, such as "you may not list pods". */
export type FoundObjects<T> =
  /** `unread`: why others could not be read. */
  { readonly items: readonly T[]; readonly unread?: string } | { readonly unknown: string };

/** Whether an object that a pod refers to exists. */
export type Presence = 'there' | 'missing' | { readonly unknown: string };

/** A ConfigMap with a gate's config. */
export type GateConfig =
  | { readonly state: 'missing' }
  | { readonly state: 'unknown'; readonly reason: string }
  | { readonly state: 'without-key'; readonly keys: readonly string[] }
  /** Messages with line numbers. */
  | { readonly state: 'broken'; readonly problems: readonly string[] }
  | {
      readonly state: 'valid';
      readonly hash: string;
      readonly workers: number;
      readonly routes: number;
      /** Names of the routes with `allow: anyone`. */
      readonly open: readonly string[];
      /** Names of the routes with `mode: observe`. */
      readonly observing: readonly string[];
      /** Whether replicas share their state. */
      readonly isShared: boolean;
      /** State that each replica keeps for itself if they do not share it, such as "handled IDs". */
      readonly remembered: readonly string[];
      /** The Secrets whose directories it reads. */
      readonly secrets: readonly string[];
      /** The file of the embedded queue, if it has one. */
      readonly queueFile: string | undefined;
      /** References to variables of the environment. */
      readonly variables?: readonly VariableReference[];
      /** Why it is invalid with the arguments of a sidecar, by these arguments as JSON. */
      readonly conflicts?: ReadonlyMap<string, readonly string[]>;
    };

/** How new sidecars are made at present. */
export interface Current {
  readonly version: string | undefined;
  readonly hash: string | undefined;
  /** The CPU limit of new sidecars, if the injector's config has one. */
  readonly cpuLimit?: string | undefined;
  /** The settings of new sidecars; undefined if they could not be read. */
  readonly defaults?: SidecarDefaults | undefined;
  /** The rules for the container `sidegate`; undefined if they could not be determined. */
  readonly rules: SidecarRules | undefined;
  /** Why the version or the hash is unknown. */
  readonly unknown: string | undefined;
}

/** The config hash and the version that a running sidecar reports. */
export type Live = { readonly hash: string; readonly version: string | undefined } | { readonly unknown: string };

/** Values by `namespace/name`. */
export type ByName<T> = ReadonlyMap<string, T>;

/** The cluster at one moment. */
export interface Facts {
  readonly now: EpochMilliseconds;
  /** Version of the API server; undefined if it could not be read. */
  readonly version: { readonly major: number; readonly minor: number } | undefined;
  readonly namespaces: FoundObjects<Named>;
  readonly pods: FoundObjects<Pod>;
  readonly controllers: Readonly<Record<ControllerKind, FoundObjects<Controller>>>;
  readonly services: FoundObjects<Service>;
  /** Of all namespaces, if they may be listed: one anywhere can have the address of any pod. */
  readonly endpointSlices: FoundObjects<EndpointSlice>;
  readonly ingresses: FoundObjects<Ingress>;
  readonly networkPolicies: FoundObjects<NetworkPolicy>;
  readonly webhooks: FoundObjects<WebhookConfiguration>;
  readonly policies: FoundObjects<Named>;
  readonly bindings: FoundObjects<PolicyBinding>;
  readonly mutatingPolicies: FoundObjects<Named>;
  readonly mutatingBindings: FoundObjects<PolicyBinding>;
  /** The injector's Deployment. */
  readonly injectors: FoundObjects<Named & { readonly status?: { readonly readyReplicas?: number } }>;
  readonly current: Current;
  readonly configs: ByName<GateConfig>;
  readonly secrets: ByName<Presence>;
  /** Empty unless requested. */
  readonly live: ByName<Live>;
}

/** Kinds of objects that create pods. */
export const CONTROLLER_KINDS = ['Deployment', 'ReplicaSet', 'StatefulSet', 'DaemonSet', 'Job', 'CronJob'] as const;
export type ControllerKind = (typeof CONTROLLER_KINDS)[number];

/** The items; none if they are unknown. */
export function itemsOf<T>(found: FoundObjects<T>): readonly T[] {
  return 'items' in found ? found.items : [];
}

/** The key of an object in `configs`, `secrets` and `live`. */
export function keyOf(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}

/** Computes once for an object of these facts: any tenant can make lists long, and many checks ask about each item. */
export function oncePer<T extends object, F extends object, R>(compute: (object: T, facts: F) => R): (object: T, facts: F) => R {
  const known = new WeakMap<F, Map<T, R>>();
  return (object, facts) => {
    const results = known.get(facts) ?? new Map<T, R>();
    known.set(facts, results);
    const before = results.get(object);
    if (before !== undefined) return before;
    const result = compute(object, facts);
    results.set(object, result);
    return result;
  };
}
