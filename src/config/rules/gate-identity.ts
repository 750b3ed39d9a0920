/** Which routes run equivalent gates. */
import { methodsOf, type RouteConfig } from '../schema/config.ts';

/** The properties of a route that the router uses. */
export interface Routing {
  readonly match: RouteConfig['match'] & { readonly methods: readonly string[] };
  readonly gateIdentity: string;
}

/**
 * Equal for two routes if and only if a request that passes the gates of one passes those of the other with the same effect: they have
 * the same mode, users and certificates, and both or neither allow anyone. A route with a webhook equals only itself before and after a
 * reload that changes nothing but its keys, because each route remembers only the IDs of its deliveries. Settings that decide nothing do not
 * count: upstream, timeouts, headers, what is stored of a delivery and how long a password is remembered. A delivery that a key verified stays
 * verified if the key is removed afterwards.
 */
export function toGateIdentity({ name, mode, allow, basic, clientCertificate, webhook }: RouteConfig): string {
  const deciding = webhook && [name, { ...webhook, keys: undefined, storeBody: undefined }];
  return JSON.stringify([mode, allow, basic && { ...basic, cache: undefined }, clientCertificate, deciding]);
}

/** The route, as the router needs it. */
export function toRouting(route: RouteConfig): Routing {
  return { match: { ...route.match, methods: methodsOf(route) }, gateIdentity: toGateIdentity(route) };
}
