/** Endpoints, deliveries and results of attempts, for tests of the sending side. */
import type { AttemptResult } from '../../../src/provider/attempt/attempt.ts';
import type { Endpoint } from '../../../src/provider/endpoints/endpoint.ts';
import type { Delivery } from '../../../src/provider/queue/delivery-queue.ts';

const [S, M, H] = [1_000, 60_000, 3_600_000];
/** The default of `provider.schedule`. */
export const DEFAULT_SCHEDULE = [5 * S, 5 * M, 30 * M, 2 * H, 5 * H, 10 * H, 14 * H, 20 * H, 24 * H];

/** An enabled endpoint for all events. */
export function anEndpoint(id: string, overrides: Partial<Endpoint> = {}): Endpoint {
  return {
    id,
    source: 'api',
    description: '',
    url: `https://${id}.example/hooks/token?key=value`,
    events: [],
    tenant: undefined,
    allTenants: false,
    keys: [],
    headers: [],
    timeout: 15_000,
    connectTimeout: 5_000,
    concurrency: 4,
    rateLimit: undefined,
    schedule: DEFAULT_SCHEDULE,
    retryClientErrors: [],
    orderBy: undefined,
    disabled: undefined,
    enabledAt: 1_000,
    clientCertificate: undefined,
    isOperational: false,
    ...overrides,
  };
}

/** A first attempt of an event. */
export function aDelivery(event: string, overrides: Partial<Delivery> = {}): Delivery {
  return {
    event,
    endpoint: 'acme',
    type: 'invoice.paid',
    createdAt: 1_800_000_000_000,
    attempt: 0,
    tries: 0,
    version: 0,
    isReplay: false,
    due: 1_800_000_000_000,
    body: Buffer.from('{}'),
    metadata: '{}',
    ...overrides,
  };
}

/** The result of a response with this status. */
export function responded(status: number, overrides: Partial<AttemptResult> = {}): AttemptResult {
  return { outcome: toOutcome(status), startedAt: 1_800_000_000_000, duration: 20, status, isSent: true, ...overrides };
}

/** The result of an attempt without a response. */
export function failed(outcome: AttemptResult['outcome'], overrides: Partial<AttemptResult> = {}): AttemptResult {
  return { outcome, startedAt: 1_800_000_000_000, duration: 20, isSent: outcome === 'timeout', ...overrides };
}

function toOutcome(status: number): AttemptResult['outcome'] {
  if (status < 300) return 'delivered';
  if (status < 400) return 'redirect';
  if (status === 410) return 'gone';
  if (status === 429) return 'throttled';
  return status < 500 ? 'client_error' : 'server_error';
}
