/** The clients that the benchmark compares: the sender, and Node's own client. */
import { createHmac, createSecretKey } from 'node:crypto';
import { Agent, type RequestOptions, request as requestHttp } from 'node:http';
import { request as requestHttps, Agent as TlsAgent } from 'node:https';
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import { compileEgressRules } from '../../src/http/dial/endpoint-url.ts';
import { HttpSender } from '../../src/provider/attempt/sender.ts';
import type { Endpoint } from '../../src/provider/endpoints/endpoint.ts';
import type { Delivery } from '../../src/provider/queue/delivery-queue.ts';

/** Sends one delivery; rejects unless it is acknowledged. `slot`: the endpoint. */
export type Send = (slot: number) => Promise<void>;

/** Where the receiver is. */
export interface Receiver {
  readonly url: string;
  /** The CA of its certificate; undefined: plain HTTP. */
  readonly ca: string | undefined;
}

const SECRET = Buffer.alloc(32, 7);
const KEY = createSecretKey(SECRET);
const BODY = Buffer.from(JSON.stringify({ type: 'invoice.paid', id: 'msg_1', created: 1, data: { text: 'x'.repeat(950) } }));
const TIMEOUT_MS = 15_000;

/** The sender, as the lanes use it: one endpoint for each slot. */
export function createOwn({ url, ca }: Receiver, slots: number): Send {
  const sender = new HttpSender({
    clock: systemClock,
    version: '0.0.0',
    rules: compileEgressRules({ allowHttp: true, allowPrivate: ['127.0.0.0/8'], deny: [] }),
    resolve: () => Promise.reject(new Error('there are no names')),
    ownPorts: { has: () => false },
    ca,
  });
  const endpoints = Array.from({ length: slots }, (_, slot) => toEndpoint(`ep_${slot}`, url));
  const { signal } = new AbortController();
  let sent = 0;
  return async (slot) => {
    const { outcome, detail } = await sender.send(toDelivery(`msg_${sent++}`), endpoints[slot] as Endpoint, signal);
    if (outcome !== 'delivered') throw new Error(`${outcome}: ${detail}`);
  };
}

/** Node's client with a kept-alive agent, and nothing else; or with the signature that a receiver needs. */
export function createBare({ url, ca }: Receiver, slots: number, isSigned: boolean): Send {
  const agent =
    ca === undefined
      ? new Agent({ keepAlive: true, maxSockets: slots })
      : new TlsAgent({ keepAlive: true, maxSockets: slots, ca });
  const open = ca === undefined ? requestHttp : requestHttps;
  let sent = 0;
  return () =>
    new Promise((resolve, reject) => {
      const id = `msg_${sent++}`;
      const seconds = String(Math.floor(systemClock.now() / 1_000));
      const signature = isSigned
        ? createHmac('sha256', KEY).update(`${id}.${seconds}.`).update(BODY).digest('base64')
        : 'K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=';
      const options: RequestOptions = {
        agent,
        method: 'POST',
        headers: {
          'User-Agent': 'bare',
          'Content-Type': 'application/json',
          'Content-Length': BODY.length,
          'Webhook-Id': id,
          'Webhook-Timestamp': seconds,
          'Webhook-Signature': `v1,${signature}`,
        },
      };
      const request = open(url, options, (response) => {
        response.resume();
        response.on('end', () => (response.statusCode === 200 ? resolve() : reject(new Error(String(response.statusCode)))));
      });
      request.on('error', reject);
      request.end(BODY);
    });
}

function toDelivery(event: string): Delivery {
  return {
    event,
    endpoint: 'ep_1',
    type: 'invoice.paid',
    createdAt: 0,
    attempt: 0,
    tries: 0,
    isReplay: false,
    due: 0,
    body: BODY,
    metadata: '{}',
  };
}

function toEndpoint(id: string, url: string): Endpoint {
  return {
    id,
    source: 'api',
    description: '',
    url,
    events: [],
    tenant: undefined,
    allTenants: false,
    keys: [{ version: 'v1', secret: new Secret(SECRET) }],
    headers: [],
    timeout: TIMEOUT_MS,
    connectTimeout: TIMEOUT_MS,
    concurrency: 1,
    rateLimit: undefined,
    schedule: [],
    retryClientErrors: [],
    orderBy: undefined,
    disabled: undefined,
    enabledAt: 0,
    clientCertificate: undefined,
    isOperational: false,
  };
}
