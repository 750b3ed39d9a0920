/** The config after parsing: typed, defaulted, frozen. */
import type { z } from 'zod';
import type { ConfigSchema } from './schema.ts';

/** T all the way down, read-only. */
type Frozen<T> = T extends (infer Item)[]
  ? readonly Frozen<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]: Frozen<T[Key]> }
    : T;

export type Config = Frozen<z.output<typeof ConfigSchema>>;
export type RouteConfig = Config['routes'][number];
export type MatchConfig = RouteConfig['match'];
export type WebhookConfig = RouteConfig['webhook'];
export type KeyConfig = WebhookConfig['keys'][number];
export type SecretSource = KeyConfig['secret'];
export type DedupConfig = Exclude<WebhookConfig['dedup'], 'off'>;
export type LimitsConfig = Config['limits'];
export type StoreConfig = Config['store'];
export type RedisConfig = NonNullable<StoreConfig['redis']>;
export type SocketListen = Config['listen'];
