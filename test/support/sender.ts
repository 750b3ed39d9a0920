/** A sender, and endpoints and deliveries for it. */
import { onTestFinished } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import { compileEgressRules, type EgressSettings } from '../../src/http/dial/endpoint-url.ts';
import { NO_PRESSURE } from '../../src/http/server/memory-guard.ts';
import type { AttemptResult, Sender } from '../../src/provider/attempt/attempt.ts';
import { HttpSender } from '../../src/provider/attempt/sender.ts';
import type { Endpoint } from '../../src/provider/endpoints/endpoint.ts';
import type { Delivery } from '../../src/provider/queue/delivery-queue.ts';

/** The signing secret of `toEndpoint`. */
export const SENDER_SECRET = Buffer.alloc(32, 7);
/** Rules for receivers on this machine. */
export const LOCAL_EGRESS: EgressSettings = { allowHttp: true, allowPrivate: ['127.0.0.0/8'], deny: [] };

/** An endpoint with short limits. */
export function toEndpoint(over: Partial<Endpoint> = {}): Endpoint {
  return {
    id: 'ep_1',
    source: 'api',
    description: '',
    url: 'https://acme.example/hooks',
    events: [],
    tenant: undefined,
    allTenants: false,
    keys: [{ version: 'v1', secret: new Secret(SENDER_SECRET) }],
    headers: [],
    timeout: 2_000,
    connectTimeout: 2_000,
    concurrency: 4,
    rateLimit: undefined,
    schedule: [1_000],
    retryClientErrors: [],
    orderBy: undefined,
    disabled: undefined,
    enabledAt: 0,
    clientCertificate: undefined,
    isOperational: false,
    ...over,
  };
}

/** A delivery; its ID is also in its body. */
export function toDelivery(over: Partial<Delivery> = {}): Delivery {
  const event = over.event ?? 'msg_1';
  return {
    event,
    endpoint: 'ep_1',
    type: 'invoice.paid',
    createdAt: 0,
    attempt: 0,
    tries: 0,
    version: 0,
    isReplay: false,
    due: 0,
    body: Buffer.from(JSON.stringify({ type: 'invoice.paid', id: event, created: 1, data: { note: 'Grüße 🎉' } })),
    metadata: '{}',
    ...over,
  };
}

/** The names that a test resolves, and how often each was looked up. */
export function toResolve(names: Readonly<Record<string, readonly string[] | (() => readonly string[])>>) {
  const counts: Record<string, number> = {};
  const resolve = async (host: string): Promise<readonly string[]> => {
    counts[host] = (counts[host] ?? 0) + 1;
    const found = names[host];
    if (found === undefined) throw Object.assign(new Error(`${host} is unknown`), { code: 'ENOTFOUND' });
    return typeof found === 'function' ? found() : found;
  };
  return { resolve, counts };
}

/** Opens a sender that is closed after the test. It may send to loopback, and nowhere else: names are unknown. */
export function openSender(
  over: Partial<ConstructorParameters<typeof HttpSender>[0]> & { readonly egress?: Partial<EgressSettings> } = {},
): HttpSender {
  const { egress, ...parts } = over;
  const sender = new HttpSender({
    clock: systemClock,
    version: '1.2.3',
    rules: compileEgressRules({ ...LOCAL_EGRESS, ...egress }),
    resolve: toResolve({}).resolve,
    ownPorts: { has: () => false },
    memory: NO_PRESSURE,
    ...parts,
  });
  onTestFinished(() => sender.close());
  return sender;
}

/** By sender and settings: an endpoint stays the same object until it changes. */
const endpoints = new WeakMap<Sender, Map<string, Endpoint>>();

function keepEndpoint(sender: Sender, over: Partial<Endpoint>): Endpoint {
  const kept = endpoints.get(sender) ?? new Map<string, Endpoint>();
  endpoints.set(sender, kept);
  const key = JSON.stringify(over);
  const endpoint = kept.get(key) ?? toEndpoint(over);
  kept.set(key, endpoint);
  return endpoint;
}

/** Sends one delivery. */
export function sendTo(
  sender: Sender,
  endpoint: Partial<Endpoint>,
  delivery: Partial<Delivery> = {},
  signal = new AbortController().signal,
): Promise<AttemptResult> {
  return sender.send(toDelivery(delivery), keepEndpoint(sender, endpoint), signal);
}
