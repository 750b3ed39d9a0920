/** Endpoints on this machine, and their registry, for benchmarks. */
import { Secret } from '../../src/core/secret.ts';
import type { Endpoint, EndpointRegistry } from '../../src/provider/endpoints/endpoint.ts';

const HOUR = 3_600_000;

/** An endpoint with the defaults of the config. */
export function toLocalEndpoint(id: string, port: number, path: string): Endpoint {
  return {
    id,
    source: 'config',
    description: '',
    url: `http://127.0.0.1:${port}${path}`,
    events: [],
    tenant: undefined,
    allTenants: false,
    keys: [{ version: 'v1', secret: new Secret(Buffer.alloc(32, 7)) }],
    headers: [],
    timeout: 15_000,
    connectTimeout: 5_000,
    concurrency: 4,
    rateLimit: undefined,
    schedule: [5_000, 300_000, HOUR / 2, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR],
    retryClientErrors: [],
    orderBy: undefined,
    disabled: undefined,
    enabledAt: 0,
    clientCertificate: undefined,
    isOperational: false,
  };
}

/** A registry of endpoints that never change. */
export function toRegistry(endpoints: readonly Endpoint[]): EndpointRegistry {
  const byId = new Map(endpoints.map((endpoint) => [endpoint.id, endpoint]));
  return {
    get: (id) => byId.get(id),
    list: () => endpoints,
    route: () => endpoints.map(({ id }) => ({ endpoint: id })),
    routeOperational: () => [],
    disable: () => Promise.resolve(false),
  };
}
