/** The apps of routes with an inbox, as endpoints: lanes send to them like to any other, but they cannot be listed, changed or disabled. */
import type { Milliseconds } from '../../core/clock.ts';
import type { Endpoint, EndpointRegistry } from '../endpoints/endpoint.ts';
import type { EndpointDefaults } from '../endpoints/endpoint-record.ts';
import { INBOX_PREFIX, isInboxEndpoint, toInboxEndpoint } from '../events/event.ts';

export interface InboxRoute {
  readonly route: string;
  readonly timeout: Milliseconds;
  /** `ack: onAccept`. Without it, the route gets what was stored while it had it. */
  readonly stores: boolean;
}

/** The endpoints of `registry`, and those of the inbox. */
export class InboxRegistry implements EndpointRegistry {
  readonly #registry: EndpointRegistry;
  readonly #isShared: boolean;
  #apps = new Map<string, Endpoint>();
  #defaults: EndpointDefaults | undefined;
  /** Those that have, or had, deliveries, or can get some. */
  readonly #used = new Set<string>();

  /** `isShared`: other replicas, whose routes may differ, use the same queue. */
  constructor(registry: EndpointRegistry, isShared: boolean) {
    this.#registry = registry;
    this.#isShared = isShared;
  }

  /** For operators: without routes that no longer exist, as a retry would fail. */
  readonly receivers: Pick<EndpointRegistry, 'get' | 'list'> = {
    get: (id) => (this.isMissing(id) ? undefined : this.get(id)),
    list: () => this.list().filter(({ id }) => !this.isMissing(id)),
  };

  replace(routes: readonly InboxRoute[], defaults: EndpointDefaults): void {
    this.#defaults = defaults;
    this.#apps = new Map(routes.map((each) => [toInboxEndpoint(each.route), toAppEndpoint(each, defaults)]));
    this.addUsed(routes.filter(({ stores }) => stores).map(({ route }) => toInboxEndpoint(route)));
  }

  addUsed(ids: readonly string[]): void {
    for (const id of ids) this.#used.add(id);
  }

  isUsed(id: string): boolean {
    return this.#used.has(id);
  }

  /** No webhook route has the name. */
  isMissing(id: string): boolean {
    return isInboxEndpoint(id) && !this.#apps.has(id);
  }

  get(id: string): Endpoint | undefined {
    return isInboxEndpoint(id) ? (this.#apps.get(id) ?? this.#toMissing(id)) : this.#registry.get(id);
  }

  isElsewhere(id: string): boolean {
    return isInboxEndpoint(id) ? this.#isShared : (this.#registry.isElsewhere?.(id) ?? false);
  }

  list(): readonly Endpoint[] {
    return [...this.#registry.list(), ...[...this.#used].flatMap((id) => this.get(id) ?? [])];
  }

  catchUp = async (id: string, version: number): Promise<void> => this.#registry.catchUp?.(id, version);

  routeOperational: EndpointRegistry['routeOperational'] = (type, tenant) => this.#registry.routeOperational(type, tenant);

  async disable(...[id, ...how]: Parameters<EndpointRegistry['disable']>): Promise<boolean> {
    // The app in the same pod is never given up: its failures are what the inbox is for.
    return isInboxEndpoint(id) ? false : this.#registry.disable(id, ...how);
  }

  /** Its attempts fail, so that its deliveries die by the schedule, as those of an app that is broken do. */
  #toMissing(id: string): Endpoint | undefined {
    if (this.#isShared || this.#defaults === undefined) return undefined;
    const route = id.slice(INBOX_PREFIX.length);
    return toAppEndpoint({ route, timeout: this.#defaults.timeout }, { ...this.#defaults, concurrency: 1 });
  }
}

function toAppEndpoint({ route, timeout }: Pick<InboxRoute, 'route' | 'timeout'>, defaults: EndpointDefaults): Endpoint {
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
