/** How the shared store is reached, with files and variables already read. */
import type { Milliseconds } from '../../core/clock.ts';
import type { Secret } from '../../core/secret.ts';

/** A Redis node. */
export interface RedisNode {
  readonly host: string;
  readonly port: number;
}

/** Where the data is: one server, a Sentinel group or a Cluster. */
export type RedisTopology =
  | { readonly kind: 'standalone'; readonly node: RedisNode }
  | {
      readonly kind: 'sentinel';
      readonly name: string;
      readonly nodes: readonly RedisNode[];
      readonly username?: string;
      readonly password?: Secret;
    }
  | { readonly kind: 'cluster'; readonly nodes: readonly RedisNode[] };

/** TLS to Redis; an empty object trusts the system's authorities. */
export interface RedisTls {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Secret;
  readonly serverName?: string;
}

/** All that is needed to connect. */
export interface RedisStoreOptions {
  readonly topology: RedisTopology;
  readonly username?: string;
  readonly password?: Secret;
  readonly db?: number;
  readonly tls?: RedisTls;
  readonly keyPrefix: string;
  readonly connectTimeout: Milliseconds;
  /** How long a claim may take before the store counts as down. */
  readonly commandTimeout: Milliseconds;
}
