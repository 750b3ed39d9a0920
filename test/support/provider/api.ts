/** A listening provider API. */
import type { OutgoingHttpHeaders } from 'node:http';
import { systemClock } from '../../../src/core/clock.ts';
import { Secret } from '../../../src/core/secret.ts';
import { compileEgressRules } from '../../../src/http/dial/endpoint-url.ts';
import { ProviderApi } from '../../../src/provider/api/provider-api.ts';
import { EndpointCipher } from '../../../src/provider/endpoints/endpoint-record.ts';
import { StoredRegistry } from '../../../src/provider/endpoints/stored-registry.ts';
import type { DeliveryQueue } from '../../../src/provider/queue/delivery-queue.ts';
import { type Answer, send } from '../client.ts';
import { DEFAULTS, toConfigEndpoint } from './endpoints.ts';
import { MemoryQueue } from './memory-queue.ts';

/** What the hooks were called with. */
export interface Reported {
  readonly requests: [operation: string, status: number][];
  readonly accepted: [result: string, count: number][];
  readonly unrouted: [type: string, count: number][];
  readonly rejected: string[];
  readonly changes: [endpoint: string, change: string][];
  readonly errors: unknown[];
}

export interface TestApi<Queue extends DeliveryQueue = MemoryQueue> {
  readonly api: ProviderApi;
  readonly port: number;
  readonly queue: Queue;
  readonly registry: StoredRegistry;
  readonly reported: Reported;
  /** Sends JSON, unless the body is text already. */
  request(method: string, path: string, body?: unknown, headers?: OutgoingHttpHeaders): Promise<ApiAnswer>;
  stop(): void;
}

export interface ApiAnswer extends Answer {
  // biome-ignore lint/suspicious/noExplicitAny: the tests read members of many different bodies
  readonly json: any;
}

export interface TestApiOptions extends Partial<Omit<ConstructorParameters<typeof ProviderApi>[0], 'queue' | 'token'>> {
  readonly heapBytes?: number;
  readonly token?: string;
}

/** Starts the API on a free port over a queue in memory, with the endpoint `acme` in its config. */
export function startApi(options: TestApiOptions = {}): Promise<TestApi> {
  return startApiOver(new MemoryQueue(), options);
}

/** The same over any queue, which is open. */
export async function startApiOver<Queue extends DeliveryQueue>(
  queue: Queue,
  { token, heapBytes, ...over }: TestApiOptions = {},
): Promise<TestApi<Queue>> {
  const reported: Reported = { requests: [], accepted: [], unrouted: [], rejected: [], changes: [], errors: [] };
  const clock = over.clock ?? systemClock;
  const store = queue.endpoints;
  const registry = new StoredRegistry({
    store,
    clock,
    defaults: DEFAULTS,
    cipher: new EndpointCipher([]),
    onFatal: (error) => {
      throw error;
    },
    onChanged: () => undefined,
    logger: { info: () => undefined, warn: () => undefined, error: () => undefined },
    ...(heapBytes !== undefined && { heapBytes }),
  });
  registry.replaceConfig([toConfigEndpoint('acme', { events: ['invoice.*'] })], DEFAULTS);
  await registry.open();
  const api = new ProviderApi({
    queue,
    registry,
    receivers: over.receivers ?? registry,
    rules: compileEgressRules({ allowHttp: false, allowPrivate: [], deny: [] }),
    clock,
    running: { repairs: 0, erasures: 0 },
    isOpen: () => true,
    findRouteOf: () => undefined,
    settings: { maxEventSize: 262_144, rotationGrace: () => 86_400_000 },
    address: { hosts: ['127.0.0.1'], port: 0 },
    tls: undefined,
    password: undefined,
    token: token === undefined ? undefined : new Secret(Buffer.from(token)),
    maxBufferedBytes: 16 * 1_024 * 1_024,
    memory: {
      limit: undefined,
      workers: 1,
      ports: 1,
      shortage: undefined,
      isTight: false,
      isHeapTight: false,
      hasRoom: () => true,
      onBytes: () => undefined,
      onGarbage: () => undefined,
    },
    version: '1.2.3',
    hooks: {
      onRequest: (operation, status) => void reported.requests.push([operation, status]),
      onAccepted(stored, duplicates) {
        if (stored.length > 0) reported.accepted.push(['stored', stored.length]);
        if (duplicates > 0) reported.accepted.push(['duplicate', duplicates]);
        const unrouted = stored.filter(({ targets }) => targets.length === 0);
        if (unrouted[0] !== undefined) reported.unrouted.push([unrouted[0].type, unrouted.length]);
      },
      onRejected: (reason) => void reported.rejected.push(reason),
      onEndpointChanged: (endpoint, change) => void reported.changes.push([endpoint, change]),
      onError: (_, error) => void reported.errors.push(error),
    },
    ...over,
  });
  const { port } = await api.listen();
  return {
    api,
    port,
    queue,
    registry,
    reported,
    async request(method, path, body, headers = {}) {
      const text = body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
      const type = text === undefined ? {} : { 'Content-Type': 'application/json' };
      const answer = await send(port, {
        method,
        path,
        headers: { ...type, ...headers },
        ...(text !== undefined && { body: text }),
      });
      return { ...answer, json: isJson(answer) ? JSON.parse(answer.text) : undefined };
    },
    stop() {
      api.close();
      registry.close();
    },
  };
}

function isJson({ headers, text }: Answer): boolean {
  return text !== '' && /^application\/(?:problem\+)?json$/.test(headers['content-type'] ?? '');
}
