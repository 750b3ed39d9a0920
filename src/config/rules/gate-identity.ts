/** Which routes ask the same of a request. */
import { methodsOf, type RouteConfig } from '../schema/config.ts';

/** What the router needs to know of a route. */
export interface Routing {
  readonly match: RouteConfig['match'] & { readonly methods: readonly string[] };
  readonly gateIdentity: string;
}

/**
 * Equal for two routes exactly where whatever passes the gates of one passes those of the other, with the same effect: the same mode, users,
 * certificates and openness. A route with a webhook equals itself only, as each route remembers the ids of its own deliveries.
 * What happens behind the gates does not count: upstream, timeouts and headers.
 */
export function toGateIdentity({ name, mode, allow, basic, clientCertificate, webhook }: RouteConfig): string {
  return JSON.stringify([mode, allow, basic, clientCertificate, webhook === undefined ? undefined : name]);
}

/** As the router takes it. */
export function toRouting(route: RouteConfig): Routing {
  return { match: { ...route.match, methods: methodsOf(route) }, gateIdentity: toGateIdentity(route) };
}
