/** The parts of a provider that its benchmarks share. */
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import { compileEgressRules } from '../../src/http/dial/endpoint-url.ts';
import { NO_PRESSURE } from '../../src/http/server/memory-guard.ts';
import { HttpSender } from '../../src/provider/attempt/sender.ts';
import type { Endpoint, EndpointRegistry } from '../../src/provider/endpoints/endpoint.ts';
import { createEventId, toBody } from '../../src/provider/events/event.ts';
import type { LaneParts } from '../../src/provider/lanes/end-attempt.ts';
import type { NewEvent } from '../../src/provider/queue/delivery-queue.ts';
import type { LaneHooks } from '../../src/provider/telemetry/hooks.ts';

/** The defaults of the config; no endpoint is disabled. */
export const LANE_SETTINGS: LaneParts['settings'] = {
  maxConcurrency: 64,
  maxConnections: 512,
  disable: 'off',
  maxWaitingBytes: 32 * 1_024 * 1_024,
  maxSlowBytes: 64 * 1_024 * 1_024,
  drainTimeout: 0,
};

const ignore = (): void => undefined;
export const IGNORE: LaneHooks = {
  onAttempt: ignore,
  onExhausted: ignore,
  onSkipped: ignore,
  onDisabled: ignore,
  onBreaker: ignore,
  onFailing: ignore,
  onOperationalEventLost: ignore,
};

const TEXT = 'x'.repeat(880);

/** An event of about 1 KiB that says when it was created. */
export function toEvent(targets: NewEvent['targets']): NewEvent {
  const id = createEventId();
  const now = Date.now();
  const body = toBody({ type: 'invoice.paid', id, created: Math.floor(now / 1_000), data: { at: now, text: TEXT } });
  return { id, type: 'invoice.paid', createdAt: now, body, metadata: '{}', targets };
}

/** A sender that may send to this machine. */
export function createLocalSender(): HttpSender {
  return new HttpSender({
    clock: systemClock,
    version: '0',
    rules: compileEgressRules({ allowHttp: true, allowPrivate: ['127.0.0.0/8'], deny: [] }),
    resolve: () => Promise.resolve([]),
    ownPorts: { has: () => false },
    memory: NO_PRESSURE,
  });
}

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
    routeOperational: () => [],
    disable: () => Promise.resolve(false),
  };
}
