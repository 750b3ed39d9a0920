/** The config after parsing: typed, defaulted, frozen. */
import type * as z from 'zod';
import type { FieldSettings } from '../../core/field-policy.ts';
import { HANDSHAKES } from '../../verify/handshakes/catalogue.ts';
import { toHeaderNames } from '../../verify/schemes/head.ts';
import type { SocketAddress } from './scalars.ts';
import type { ConfigSchema } from './schema.ts';

/** T, read-only at every depth. */
type Frozen<T> = T extends (infer Item)[]
  ? readonly Frozen<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]: Frozen<T[Key]> }
    : T;

type Parsed = Frozen<z.output<typeof ConfigSchema>>;

/** A route with its app, from the route itself or from the top level. */
export type RouteConfig = Parsed['routes'][number] & { readonly upstream: SocketAddress };
export type Config = Omit<Parsed, 'routes'> & { readonly routes: readonly RouteConfig[] };
export type MatchConfig = RouteConfig['match'];
export type WebhookConfig = NonNullable<RouteConfig['webhook']>;
export type BasicConfig = NonNullable<RouteConfig['basic']>;
/** HTTP Basic on a port with one realm. */
export type PortBasicConfig = ProxyConfig['basic'];
/** The settings that determine a realm's users, and how often they may be guessed. */
export type RealmConfig = Pick<BasicConfig, 'realm' | 'users' | 'allowPlainTextPasswords' | 'cache' | 'limit'>;
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
export type ProviderConfig = NonNullable<Config['provider']>;
export type ProviderEndpointConfig = ProviderConfig['endpoints'][number];
export type ProviderQueueConfig = ProviderConfig['queue'];
export type IdentityConfig = NonNullable<Config['identity']>;
export type AdminConfig = Config['admin'];
export type AuthzConfig = NonNullable<Config['authz']>;
export type TracingConfig = NonNullable<Config['tracing']>;
export type ProxyConfig = NonNullable<Config['proxy']>;
/** TLS of any port; only the data port has `http2`. */
export type ListenTlsConfig = NonNullable<ProxyConfig['tls']> & { readonly http2?: boolean };

/** The name of a user source in logs and metrics. */
export function toSourceName({ name }: UserSourceConfig, index: number): string {
  return name ?? String(index + 1);
}

/** Whether the keys of a webhook are those of certificates that its deliveries name. */
export function fetchesCertificates({ jwks, keys, description }: WebhookConfig): boolean {
  return description.certificate !== undefined && keys.length + jwks.length === 0;
}

/** The names of a webhook's keys in logs and metrics: a certificate has that of its host. */
export function namesOf(webhook: WebhookConfig): string[] {
  const { jwks, keys, description } = webhook;
  if (fetchesCertificates(webhook)) return [...(description.certificate?.hosts ?? [])];
  return [...jwks, ...keys].map(({ name }) => name);
}

const WEBHOOK_METHODS = ['POST'];
/** Without TRACE, whose response repeats the credentials of the request (RFC 9110 §9.3.8). */
const DEFAULT_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

/** The methods of requests that a route may forward. GET includes HEAD, as apps run the same handler for both (RFC 9110 §9.3.2). */
export function appMethodsOf({ match, webhook, mode }: RouteConfig): readonly string[] {
  const methods = match.methods ?? (webhook === undefined || mode === 'observe' ? DEFAULT_METHODS : WEBHOOK_METHODS);
  return methods.includes('GET') && !methods.includes('HEAD') ? [...methods, 'HEAD'] : methods;
}

/** The methods that a route accepts: those that it may forward, and the method of its sender's handshake. */
export function methodsOf(route: RouteConfig): readonly string[] {
  const { handshake } = route.webhook ?? {};
  const method = handshake === undefined ? undefined : HANDSHAKES[handshake.type].method;
  const methods = appMethodsOf(route);
  return method === undefined || methods.includes(method) ? methods : [...methods, method];
}

/** Whether the head of a request is enough for a decision: an auth request has neither the body nor the certificate of its client. */
export function isDecidedByHead({ webhook, clientCertificate }: RouteConfig): boolean {
  return webhook === undefined && clientCertificate === undefined;
}

/** The settings of a route that decide which fields of a client its app receives. */
export function fieldSettingsOf({ basic, webhook, clientCertificate, forwardMethodOverride, trace }: RouteConfig): FieldSettings {
  return {
    ...(basic === undefined ? undefined : { user: basic.forwardUser ? 'forward' : 'hide' }),
    ...(webhook === undefined ? undefined : { signatureHeaders: toHeaderNames(webhook.description) }),
    ...(clientCertificate === undefined ? undefined : { certificate: clientCertificate.forward ? 'forward' : 'hide' }),
    trustsTraces: trace.trust === 'always',
    forwardAuthorization: basic?.forwardAuthorization ?? true,
    forwardMethodOverride,
  };
}

/** Whether the route forwards each ID once, so that it has to remember handled IDs. */
export function remembersIds({ webhook }: RouteConfig): boolean {
  return webhook !== undefined && webhook.dedup !== 'off';
}

/** The users of the provider's API; undefined if it has none, or if this process has no API. */
export function apiBasicOf({ provider }: Config): PortBasicConfig | undefined {
  return provider?.roles.includes('accept') === true ? provider.basic : undefined;
}

/** Every section with a realm, with its config path. */
export function realmsOf(config: Config): { readonly realm: RealmConfig; readonly path: readonly (string | number)[] }[] {
  const sections = [
    ...config.routes.map(({ basic }, index) => ({ realm: basic, path: ['routes', index, 'basic'] })),
    { realm: config.proxy?.basic, path: ['proxy', 'basic'] },
    { realm: config.admin.basic, path: ['admin', 'basic'] },
    { realm: apiBasicOf(config), path: ['provider', 'basic'] },
  ];
  return sections.flatMap(({ realm, path }) => (realm === undefined ? [] : [{ realm, path }]));
}
