/** Prepares an endpoint for sending: its target, the constant part of its request head, and its signing keys. */
import { createSecureContext, type SecureContext } from 'node:tls';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import type { ClientCertificate, Endpoint } from '../endpoints/endpoint.ts';
import { findHeaderProblem } from '../endpoints/endpoint-headers.ts';
import { type EgressRules, parseEndpointUrl } from '../endpoints/endpoint-url.ts';
import { EVENT_ID } from '../events/event.ts';
import { readTraceHeaders } from '../events/trace-metadata.ts';
import type { Delivery } from '../queue/delivery-queue.ts';
import type { PooledTarget } from './connection-pool.ts';
import { createDeliverySigner, type DeliverySigner } from './signing-keys.ts';

/** An endpoint, ready to be sent to. */
export interface CompiledEndpoint {
  readonly endpoint: Endpoint;
  readonly target: PooledTarget;
  /** The request line and the headers that are the same in every attempt. */
  readonly headStart: string;
  readonly signers: readonly DeliverySigner[];
}

/** Why nothing can be sent to an endpoint. It was valid when it was created; the rules have changed since, or the store was tampered with. */
export interface UnusableEndpoint {
  readonly endpoint: Endpoint;
  readonly problem: string;
}

/** The parts that all endpoints share. */
export interface CompileParts {
  readonly version: string;
  readonly rules: EgressRules;
  /** CAs in PEM; undefined: those of Node. */
  readonly ca: string | undefined;
  /** For endpoints without a client certificate. */
  readonly context: SecureContext;
}

const SECOND_MS = 1_000;

/** Compiles an endpoint. */
export function compileEndpoint(endpoint: Endpoint, parts: CompileParts): CompiledEndpoint | UnusableEndpoint {
  const url = parseEndpointUrl(endpoint.url, parts.rules);
  if ('problem' in url) return { endpoint, problem: url.problem };
  const problem = findHeaderProblem(endpoint.headers);
  if (problem !== undefined) return { endpoint, problem: problem.problem };
  try {
    const { host, port, isTls, authority, path } = url;
    const { clientCertificate, keys } = endpoint;
    const context = isTls ? toContext(clientCertificate, parts) : undefined;
    const headers = endpoint.headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    const fixed = `Host: ${authority}\r\nUser-Agent: sidegate/${parts.version}\r\nAccept: */*\r\nContent-Type: application/json\r\n`;
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

/** The whole request head; a problem if the delivery cannot be signed. */
export function formatHead(
  { headStart, signers }: CompiledEndpoint,
  delivery: Delivery,
  now: EpochMilliseconds,
): string | undefined {
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

function toContext(certificate: ClientCertificate | undefined, { ca, context }: CompileParts): SecureContext {
  return certificate === undefined ? context : createEndpointContext(ca, certificate);
}

/** TLS 1.2 or later. Throws for a certificate or key that OpenSSL rejects. */
export function createEndpointContext(ca: string | undefined, certificate?: ClientCertificate): SecureContext {
  return createSecureContext({
    ca,
    minVersion: 'TLSv1.2',
    ...(certificate !== undefined && { cert: certificate.cert, key: certificate.key.expose() }),
  });
}
