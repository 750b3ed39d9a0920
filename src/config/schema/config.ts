/** The config after parsing: typed, defaulted, frozen. */
import type * as z from 'zod';
import { HANDSHAKES } from '../../auth/handshakes/catalogue.ts';
import type { SocketAddress } from './scalars.ts';
import type { ConfigSchema } from './schema.ts';

/** T all the way down, read-only. */
type Frozen<T> = T extends (infer Item)[]
  ? readonly Frozen<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]: Frozen<T[Key]> }
    : T;

type Parsed = Frozen<z.output<typeof ConfigSchema>>;

/** A route with its app, wherever it is named. */
export type RouteConfig = Parsed['routes'][number] & { readonly upstream: SocketAddress };
export type Config = Omit<Parsed, 'routes'> & { readonly routes: readonly RouteConfig[] };
export type MatchConfig = RouteConfig['match'];
export type WebhookConfig = NonNullable<RouteConfig['webhook']>;
export type BasicConfig = NonNullable<RouteConfig['basic']>;
/** What a realm's users are read by. */
export type RealmConfig = Pick<BasicConfig, 'realm' | 'users' | 'allowPlainTextPasswords' | 'cache'>;
export type UserSourceConfig = NonNullable<BasicConfig['users']>[number];
export type SnsConfig = NonNullable<WebhookConfig['sns']>;
export type KeyConfig = WebhookConfig['keys'][number];
export type HandshakeConfig = NonNullable<WebhookConfig['handshake']>;
export type SecretSource = KeyConfig['secret'];
export type DedupConfig = Exclude<WebhookConfig['dedup'], 'off'>;
export type OrderConfig = NonNullable<WebhookConfig['order']>;
export type LimitsConfig = Config['limits'];
export type StoreConfig = Config['store'];
export type RedisConfig = NonNullable<StoreConfig['redis']>;
export type IdentityConfig = NonNullable<Config['identity']>;
export type SocketListen = Config['listen'];
export type AdminConfig = Config['admin'];
export type AuthzConfig = NonNullable<Config['authz']>;
export type TracingConfig = NonNullable<Config['tracing']>;
export type ProxyConfig = NonNullable<Config['proxy']>;
/** Of any port; only the data port says whether it speaks HTTP/2. */
export type ListenTlsConfig = NonNullable<ProxyConfig['tls']> & { readonly http2?: boolean };

/** What a source of users is called in logs and metrics. */
export function toSourceName({ name }: UserSourceConfig, index: number): string {
  return name ?? String(index + 1);
}

/** What a webhook's keys are called in logs and metrics. */
export function namesOf({ jwks, keys }: WebhookConfig): string[] {
  return [...jwks, ...keys].map(({ name }) => name);
}

const WEBHOOK_METHODS = ['POST'];
/** Not TRACE, which shows a request's credentials to whoever made it (RFC 9110 §9.3.8). */
const USUAL_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

/** The methods that a route's requests to the app may have. HEAD asks for what GET would give (RFC 9110 §9.3.2), so apps run the same handler. */
export function appMethodsOf({ match, webhook, mode }: RouteConfig): readonly string[] {
  const methods = match.methods ?? (webhook === undefined || mode === 'observe' ? USUAL_METHODS : WEBHOOK_METHODS);
  return methods.includes('GET') && !methods.includes('HEAD') ? [...methods, 'HEAD'] : methods;
}

/** The methods a route takes: those, and the one that its sender's handshake comes by. */
export function methodsOf(route: RouteConfig): readonly string[] {
  const { handshake } = route.webhook ?? {};
  const method = handshake === undefined ? undefined : HANDSHAKES[handshake.type].method;
  const methods = appMethodsOf(route);
  return method === undefined || methods.includes(method) ? methods : [...methods, method];
}

/** Does the route let each id through once, and so has to remember it? */
export function remembersIds({ webhook }: RouteConfig): boolean {
  return webhook !== undefined && webhook.dedup !== 'off';
}

/** Every section that asks for passwords, with its config path. */
export function realmsOf({
  routes,
  proxy,
}: Config): { readonly realm: RealmConfig; readonly path: readonly (string | number)[] }[] {
  const found = routes.flatMap(({ basic }, index) =>
    basic === undefined ? [] : [{ realm: basic, path: ['routes', index, 'basic'] }],
  );
  return proxy === undefined ? found : [...found, { realm: proxy.basic, path: ['proxy', 'basic'] }];
}
