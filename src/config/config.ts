/** The config after parsing: typed, defaulted, frozen. */
import type { EpochMilliseconds, Milliseconds } from '../core/clock.ts';
import type { AmbiguousForm } from '../core/target.ts';

/** A size in bytes. */
export type Bytes = number;

/** Where a server listens. IPv6 hosts are without brackets. */
export interface SocketAddress {
  readonly host: string;
  readonly port: number;
}

/** Where a secret's text comes from. File paths are absolute after loading (relative ones count from the config file). */
export type SecretSource =
  | { readonly env: string; readonly encoding?: 'utf8' | 'base64' | 'hex' | undefined }
  | { readonly file: string; readonly encoding?: 'utf8' | 'base64' | 'hex' | undefined };

export interface KeyConfig {
  readonly name: string;
  readonly secret: SecretSource;
  readonly notAfter?: EpochMilliseconds | undefined;
}

export interface DedupConfig {
  readonly retention: Milliseconds;
  readonly lease: Milliseconds;
  readonly inProgress: 'wait' | 'reject';
  readonly waitAtMost: Milliseconds;
  readonly onStoreError: 'refuse' | 'forward';
}

export interface WebhookConfig {
  readonly scheme: 'standard-webhooks';
  readonly keys: readonly KeyConfig[];
  readonly tolerance: Milliseconds;
  readonly maxBody: Bytes;
  /** Media types without parameters, lower case. */
  readonly contentTypes: readonly string[];
  readonly envelope: { readonly requireMatchingId: boolean };
  readonly dedup: 'off' | DedupConfig;
  /** Let a query string through, which the signature does not cover. */
  readonly allowQuery: boolean;
  /** Let a Content-Encoding through, which the signature does not cover. */
  readonly allowContentEncoding: boolean;
  /** Let a `.` stand in the id, which lets bytes move between id, timestamp and body. */
  readonly allowDotInId: boolean;
}

export interface MatchConfig {
  readonly path?: string | undefined;
  readonly pathPrefix?: string | undefined;
  /** Lower case, without port. */
  readonly host?: string | undefined;
  readonly methods: readonly string[];
  /** Ambiguous forms this route lets through. */
  readonly allowInPath: readonly AmbiguousForm[];
}

export interface RouteConfig {
  readonly name: string;
  readonly match: MatchConfig;
  readonly upstream: SocketAddress;
  readonly timeout: Milliseconds;
  readonly connectTimeout: Milliseconds;
  /** `idempotent`: a request on a reused connection that died before any answer is sent again only if its method allows it; `always`: also POST. */
  readonly resend: 'idempotent' | 'always';
  /** Response headers that are let through although a sender may switch itself off by them (lower case). */
  readonly allowResponseHeaders: readonly string[];
  readonly webhook: WebhookConfig;
}

export interface RedisTlsConfig {
  readonly caFile?: string | undefined;
  readonly certFile?: string | undefined;
  readonly keyFile?: string | undefined;
  readonly serverName?: string | undefined;
}

export interface RedisConfig {
  /** redis:// or rediss://, with user, password and database; exactly one of url, urlFile, sentinel, cluster. */
  readonly url?: string | undefined;
  readonly urlFile?: string | undefined;
  readonly sentinel?:
    | {
        readonly name: string;
        readonly nodes: readonly SocketAddress[];
        readonly username?: string | undefined;
        readonly passwordFile?: string | undefined;
      }
    | undefined;
  readonly cluster?: { readonly nodes: readonly SocketAddress[] } | undefined;
  readonly username?: string | undefined;
  readonly passwordFile?: string | undefined;
  readonly passwordEnv?: string | undefined;
  readonly db?: number | undefined;
  readonly tls?: RedisTlsConfig | undefined;
  readonly keyPrefix: string;
  readonly connectTimeout: Milliseconds;
  readonly commandTimeout: Milliseconds;
}

export interface StoreConfig {
  readonly redis?: RedisConfig | undefined;
  readonly memory: { readonly maxIds: number };
}

export interface LimitsConfig {
  readonly headTimeout: Milliseconds;
  readonly bodyIdleTimeout: Milliseconds;
  /** Bytes per second. */
  readonly bodyMinRate: Bytes;
  readonly bodyTimeout: Milliseconds;
  readonly keepAliveTimeout: Milliseconds;
  readonly maxHeaderBytes: Bytes;
  readonly maxHeaderFields: number;
  readonly maxTarget: Bytes;
  readonly maxConnections: number;
  readonly maxInFlight: number;
  readonly maxQueued: number;
  readonly queueTimeout: Milliseconds;
  /** How many requests may wait for another's outcome at once. */
  readonly maxWaiting: number;
  /** Content of all requests held at once. */
  readonly maxBufferedBytes: Bytes;
  /** Share of the heap limit (0-1) above which new requests are shed. */
  readonly heapShed: number;
}

export interface Config {
  readonly listen: SocketListen;
  readonly admin: { readonly address: SocketAddress };
  readonly store: StoreConfig;
  readonly limits: LimitsConfig;
  readonly shutdown: { readonly grace: Milliseconds; readonly drain: Milliseconds };
  readonly log: { readonly level: 'debug' | 'info' | 'warn' | 'error' };
  readonly routes: readonly RouteConfig[];
}

export interface SocketListen {
  readonly address: SocketAddress;
  /** CIDR ranges or single addresses. */
  readonly trustedProxies: readonly string[];
}
