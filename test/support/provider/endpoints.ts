/** Endpoints for tests of the provider. */
import { Secret } from '../../../src/core/secret.ts';
import type { Endpoint } from '../../../src/provider/endpoints/endpoint.ts';
import type { EndpointDefaults, EndpointRecord, EndpointSettings } from '../../../src/provider/endpoints/endpoint-record.ts';

export const SECRET_TEXT = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

export const DEFAULTS: EndpointDefaults = { timeout: 15_000, connectTimeout: 5_000, concurrency: 4, schedule: [5_000, 300_000] };

/** The settings of an endpoint. */
export function toSettings(over: Partial<EndpointSettings> = {}): EndpointSettings {
  return {
    url: 'https://acme.example/hooks',
    description: '',
    events: [],
    allTenants: false,
    headers: {},
    retryClientErrors: [],
    operational: false,
    ...over,
  };
}

/** A stored endpoint. */
export function toRecord(settings: Partial<EndpointSettings> = {}, over: Partial<EndpointRecord> = {}): EndpointRecord {
  const keys = [{ version: 'v1' as const, secret: new Secret(Buffer.alloc(24, 7)) }];
  return { settings: toSettings(settings), keys, disabled: undefined, enabledAt: 1, createdAt: 1, updatedAt: 1, ...over };
}

/** An endpoint of the config. */
export function toConfigEndpoint(id: string, over: Partial<Endpoint> = {}): Endpoint {
  return {
    id,
    source: 'config',
    description: '',
    url: 'https://config.example/hooks',
    events: [],
    tenant: undefined,
    allTenants: false,
    keys: toRecord().keys,
    headers: [],
    ...DEFAULTS,
    rateLimit: undefined,
    retryClientErrors: [],
    orderBy: undefined,
    disabled: undefined,
    enabledAt: 0,
    clientCertificate: undefined,
    isOperational: false,
    ...over,
  };
}
