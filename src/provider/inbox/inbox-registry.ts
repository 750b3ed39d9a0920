/** The apps of routes with an inbox, as endpoints: lanes send to them like to any other, but they cannot be listed, changed or disabled. */
import type { Milliseconds } from '../../core/clock.ts';
import type { Endpoint, EndpointRegistry } from '../endpoints/endpoint.ts';
import type { EndpointDefaults } from '../endpoints/endpoint-record.ts';
import { isInboxEndpoint, toInboxEndpoint } from '../events/inbox-request.ts';

/** A route whose deliveries are stored. */
export interface InboxRoute {
  readonly route: string;
  readonly timeout: Milliseconds;
  /** In bytes. */
  readonly maxBody: number;
}

/** The endpoints of `registry`, and those of the inbox. */
export class InboxRegistry implements EndpointRegistry {
  readonly #registry: EndpointRegistry;
  readonly #isShared: boolean;
  #apps = new Map<string, Endpoint>();

  /** `isShared`: other replicas, whose routes may differ, use the same queue. */
  constructor(registry: EndpointRegistry, isShared: boolean) {
    this.#registry = registry;
    this.#isShared = isShared;
  }

  /** Replaces the routes. Deliveries of a route that no longer exists are skipped, and can be retried when it exists again. */
  replace(routes: readonly InboxRoute[], defaults: EndpointDefaults): void {
    this.#apps = new Map(
      routes.map((route) => {
        const endpoint = toAppEndpoint(route, defaults);
        return [endpoint.id, endpoint];
      }),
    );
  }

  get(id: string): Endpoint | undefined {
    return isInboxEndpoint(id) ? this.#apps.get(id) : this.#registry.get(id);
  }

  isElsewhere(id: string): boolean {
    return isInboxEndpoint(id) ? this.#isShared : (this.#registry.isElsewhere?.(id) ?? false);
  }

  list(): readonly Endpoint[] {
    return [...this.#registry.list(), ...this.#apps.values()];
  }

  route: EndpointRegistry['route'] = (event) => this.#registry.route(event);

  routeOperational: EndpointRegistry['routeOperational'] = (type, tenant) => this.#registry.routeOperational(type, tenant);

  async disable(...[id, reason, at]: Parameters<EndpointRegistry['disable']>): Promise<boolean> {
    // The app in the same pod is never given up: its failures are what the inbox is for.
    return isInboxEndpoint(id) ? false : this.#registry.disable(id, reason, at);
  }
}

function toAppEndpoint({ route, timeout }: InboxRoute, defaults: EndpointDefaults): Endpoint {
  return {
    ...defaults,
    id: toInboxEndpoint(route),
    source: 'config',
    description: `app of the route ${route}`,
    url: '',
    events: [],
    allTenants: false,
    keys: [],
    headers: [],
    timeout,
    // The app's own mistakes are usually fixed by the next deployment.
    retryClientErrors: 'all',
    enabledAt: 0,
    isOperational: false,
  };
}
