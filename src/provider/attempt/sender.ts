/** Sends signed deliveries to endpoints (Standard Webhooks), only to addresses that the egress rules allow. */
import { createSecureContext, type SecureContext } from 'node:tls';
import type { Clock, EpochMilliseconds } from '../../core/clock.ts';
import { toErrorSummary, toErrorText } from '../../core/errors.ts';
import { type EgressRules, parseEndpointUrl } from '../../http/dial/endpoint-url.ts';
import type { OwnPorts } from '../../http/dial/own-ports.ts';
import type { EgressProxy } from '../../http/dial/proxy-tunnel.ts';
import type { Resolve } from '../../http/dial/resolve.ts';
import { TlsSessions } from '../../http/dial/tls-sessions.ts';
import { createDeliverySigner, type DeliverySigner } from '../../verify/sign/signing-keys.ts';
import type { ClientCertificate, Endpoint } from '../endpoints/endpoint.ts';
import { findHeaderProblem } from '../endpoints/endpoint-headers.ts';
import { EVENT_ID, readTraceHeaders } from '../events/event.ts';
import type { Delivery } from '../queue/delivery-queue.ts';
import type { AttemptResult, Sender } from './attempt.ts';
import { ConnectionPool, Exchange, type PooledTarget } from './connection.ts';

/** The settings that a reload can change. */
export interface SenderSettings {
  readonly rules: EgressRules;
  /** CAs in PEM that may issue certificates of endpoints; undefined: those of Node. */
  readonly ca?: string | undefined;
  readonly proxy?: EgressProxy | undefined;
}

/** The parts that the sender needs. */
export interface SenderParts extends SenderSettings {
  readonly clock: Clock;
  /** For `User-Agent`. */
  readonly version: string;
  readonly resolve: Resolve;
  /** Never connected to, even if their addresses are allowed. */
  readonly ownPorts: Pick<OwnPorts, 'has'>;
  /** Redirects a connection to a checked address; for tests. */
  readonly detour?: ((address: string) => string) | undefined;
}

/** An endpoint, ready to be sent to. */
interface CompiledEndpoint {
  readonly endpoint: Endpoint;
  readonly target: PooledTarget;
  /** The request line and the headers that are the same in every attempt. */
  readonly headStart: string;
  readonly signers: readonly DeliverySigner[];
}

/** Why nothing can be sent to an endpoint. It was valid when it was created; the rules have changed since, or the store was tampered with. */
interface UnusableEndpoint {
  readonly endpoint: Endpoint;
  readonly problem: string;
}

const SECOND_MS = 1_000;

/** A sender whose settings can change. */
export class HttpSender implements Sender {
  readonly #clock: Clock;
  readonly #version: string;
  #settings: SenderSettings;
  /** For endpoints without a client certificate. */
  #context: SecureContext;
  readonly #sessions: TlsSessions;
  readonly #pool: ConnectionPool;
  readonly #endpoints = new Map<string, CompiledEndpoint | UnusableEndpoint>();
  #isClosed = false;

  constructor({ version, ca, proxy, detour, ...parts }: SenderParts) {
    this.#clock = parts.clock;
    this.#version = version;
    this.#settings = { rules: parts.rules, ca };
    this.#context = createEndpointContext(ca);
    this.#sessions = new TlsSessions(parts.clock);
    this.#pool = new ConnectionPool({ ...parts, proxy, detour, sessions: this.#sessions });
  }

  send(delivery: Delivery, endpoint: Endpoint, signal: AbortSignal): Promise<AttemptResult> {
    return new Promise((resolve) => {
      const exchange = new Exchange(this.#clock, endpoint, signal, resolve);
      try {
        this.#start(exchange, delivery, endpoint);
      } catch (thrown) {
        // A bug must not stop the lane.
        exchange.onFailure('blocked', toErrorSummary(thrown).error);
      }
    });
  }

  /** Uses these settings for new connections, and closes idle ones, which the old settings allowed. */
  replace(settings: SenderSettings): void {
    this.#settings = settings;
    this.#context = createEndpointContext(settings.ca);
    this.#pool.replace({ rules: settings.rules, proxy: settings.proxy });
    this.retain(new Set());
  }

  retain(endpoints: ReadonlySet<string>): void {
    for (const [id, compiled] of this.#endpoints)
      if (!endpoints.has(id)) {
        this.#retire(compiled);
        this.#endpoints.delete(id);
      }
  }

  close(): void {
    this.#isClosed = true;
    this.retain(new Set());
  }

  #start(exchange: Exchange, delivery: Delivery, endpoint: Endpoint): void {
    if (this.#isClosed || exchange.signal.aborted) return exchange.onFailure('aborted', 'the attempt was canceled');
    const compiled = this.#find(endpoint);
    if ('problem' in compiled) return exchange.onFailure('blocked', compiled.problem);
    const head = formatHead(compiled, delivery, exchange.startedAt);
    if (head === undefined)
      return exchange.onFailure('blocked', 'the delivery cannot be signed: it has no valid ID, or the endpoint no valid key');
    exchange.head = head;
    exchange.body = delivery.body;
    this.#pool.send(compiled.target, exchange);
  }

  /** The registry returns the same object until the endpoint changes. */
  #find(endpoint: Endpoint): CompiledEndpoint | UnusableEndpoint {
    const known = this.#endpoints.get(endpoint.id);
    if (known?.endpoint === endpoint) return known;
    if (known !== undefined) this.#retire(known);
    const compiled = this.#compile(endpoint);
    this.#endpoints.set(endpoint.id, compiled);
    return compiled;
  }

  #compile(endpoint: Endpoint): CompiledEndpoint | UnusableEndpoint {
    const url = parseEndpointUrl(endpoint.url, this.#settings.rules);
    if ('problem' in url) return { endpoint, problem: url.problem };
    const problem = findHeaderProblem(endpoint.headers);
    if (problem !== undefined) return { endpoint, problem: problem.problem };
    try {
      const { host, port, isTls, authority, path } = url;
      const { clientCertificate, keys } = endpoint;
      const own = clientCertificate && createEndpointContext(this.#settings.ca, clientCertificate);
      const context = isTls ? (own ?? this.#context) : undefined;
      const headers = endpoint.headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
      const fixed = `Host: ${authority}\r\nUser-Agent: sidegate/${this.#version}\r\nAccept: */*\r\nContent-Type: application/json\r\n`;
      return {
        endpoint,
        target: { host, port, context, idle: [], isRetired: false },
        headStart: `POST ${path} HTTP/1.1\r\n${fixed}${headers}`,
        signers: keys.map(createDeliverySigner),
      };
    } catch (thrown) {
      return { endpoint, problem: toErrorText(thrown) };
    }
  }

  #retire(compiled: CompiledEndpoint | UnusableEndpoint): void {
    if ('problem' in compiled) return;
    this.#pool.retire(compiled.target);
    this.#sessions.forget(compiled.target);
  }
}

/** The whole request head; undefined if the delivery cannot be signed. */
function formatHead({ headStart, signers }: CompiledEndpoint, delivery: Delivery, now: EpochMilliseconds): string | undefined {
  const { event, body, metadata } = delivery;
  if (!EVENT_ID.test(event)) return undefined;
  const seconds = Math.floor(now / SECOND_MS);
  const signed = `${event}.${seconds}.`;
  let signatures = '';
  for (const signer of signers)
    if (now < signer.expiresAt) signatures += signatures === '' ? signer.sign(signed, body) : ` ${signer.sign(signed, body)}`;
  if (signatures === '') return undefined;
  let head = `${headStart}Content-Length: ${body.length}\r\nWebhook-Id: ${event}\r\nWebhook-Timestamp: ${seconds}\r\nWebhook-Signature: ${signatures}\r\n`;
  for (const [name, value] of readTraceHeaders(metadata)) head += `${name}: ${value}\r\n`;
  return `${head}\r\n`;
}

/** TLS 1.2 or later. Throws for a certificate or key that OpenSSL rejects. */
export function createEndpointContext(ca: string | undefined, certificate?: ClientCertificate): SecureContext {
  return createSecureContext({
    ca,
    minVersion: 'TLSv1.2',
    ...(certificate !== undefined && { cert: certificate.cert, key: certificate.key.expose() }),
  });
}
