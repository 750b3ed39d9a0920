/** The connection settings of the shared store, with files and environment variables already read. */
import type { Milliseconds } from '../../core/clock.ts';
import type { Secret } from '../../core/secret.ts';

/** A Redis node. */
export interface RedisNode {
  readonly host: string;
  readonly port: number;
}

/** One server, a Sentinel group or a Cluster. */
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

/** TLS to Redis; an empty object trusts the system's CAs. */
export interface RedisTls {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Secret;
  readonly serverName?: string;
}

/** All connection settings. */
export interface RedisStoreOptions {
  readonly topology: RedisTopology;
  readonly username?: string;
  readonly password?: Secret;
  readonly db?: number;
  readonly tls?: RedisTls;
  readonly keyPrefix: string;
  readonly connectTimeout: Milliseconds;
  /** Maximum time of a call; then the store counts as down. */
  readonly commandTimeout: Milliseconds;
}
