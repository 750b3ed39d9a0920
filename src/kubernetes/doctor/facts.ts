/** All that a diagnosis is made of: what a cluster was found to hold, and what could not be learnt. */
import type { EpochMilliseconds } from '../../core/clock.ts';
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

/** A list, or why it could not be had: "may not list pods". */
export type Found<T> = { readonly items: readonly T[] } | { readonly unknown: string };

/** What became of an object that a pod names. */
export type Presence = 'there' | 'missing' | { readonly unknown: string };

/** A ConfigMap with a gate's config. */
export type GateConfig =
  | { readonly state: 'missing' }
  | { readonly state: 'unknown'; readonly reason: string }
  | { readonly state: 'without-key'; readonly keys: readonly string[] }
  /** Sentences with places. */
  | { readonly state: 'broken'; readonly problems: readonly string[] }
  | {
      readonly state: 'sound';
      readonly hash: string;
      readonly routes: number;
      /** The names of those with `allow: anyone`. */
      readonly open: readonly string[];
      /** The names of those with `mode: observe`. */
      readonly observing: readonly string[];
      /** Whatever it remembers is shared by all replicas. */
      readonly isShared: boolean;
      /** What each replica remembers for itself where it is not: "ids that were delivered". */
      readonly remembered: readonly string[];
      /** The Secrets whose folders it reads. */
      readonly secrets: readonly string[];
    };

/** What sidecars are made as at present. */
export interface Current {
  readonly version: string | undefined;
  readonly hash: string | undefined;
  /** What a container `sidegate` may be; undefined where nothing that could be read says. */
  readonly rules: SidecarRules | undefined;
  /** Why the version or the hash is not known. */
  readonly unknown: string | undefined;
}

/** What a running sidecar says of itself. */
export type Live = { readonly hash: string } | { readonly unknown: string };

/** By `namespace/name`. */
export type ByName<T> = ReadonlyMap<string, T>;

/** The cluster at one moment. */
export interface Facts {
  readonly now: EpochMilliseconds;
  /** Of the API server; undefined where it would not say. */
  readonly version: { readonly major: number; readonly minor: number } | undefined;
  readonly namespaces: Found<Named>;
  readonly pods: Found<Pod>;
  readonly controllers: Readonly<Record<ControllerKind, Found<Controller>>>;
  readonly services: Found<Service>;
  /** Those that no Service's selector makes. */
  readonly ownEndpointSlices: Found<EndpointSlice>;
  readonly ingresses: Found<Ingress>;
  readonly networkPolicies: Found<NetworkPolicy>;
  readonly webhooks: Found<WebhookConfiguration>;
  readonly policies: Found<Named>;
  readonly bindings: Found<PolicyBinding>;
  readonly mutatingPolicies: Found<Named>;
  readonly mutatingBindings: Found<PolicyBinding>;
  /** The injector's own Deployment. */
  readonly injectors: Found<Named & { readonly status?: { readonly readyReplicas?: number } }>;
  readonly current: Current;
  readonly configs: ByName<GateConfig>;
  readonly secrets: ByName<Presence>;
  /** Empty where nobody asked. */
  readonly live: ByName<Live>;
}

/** Kinds that make pods, as their objects have them. */
export const CONTROLLER_KINDS = ['Deployment', 'ReplicaSet', 'StatefulSet', 'DaemonSet', 'Job', 'CronJob'] as const;
export type ControllerKind = (typeof CONTROLLER_KINDS)[number];

/** The items, none where they are not known. */
export function itemsOf<T>(found: Found<T>): readonly T[] {
  return 'items' in found ? found.items : [];
}

/** What `configs`, `secrets` and `live` go by. */
export function keyOf(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}
