/** The forward proxy: where its clients may connect, how it passes on admitted requests or opens tunnels, and its metrics. */
import type { Socket } from 'node:net';
import type { Registry } from '@prometheus-io/client';
import type { Admitted } from '../../core/admitted.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { HOP_BY_HOP, isTraceField, TRACE } from '../../core/field-policy.ts';
import { findConnectionOptions, toFoldedName } from '../../core/head.ts';
import { freeChunk, pauseUntilDrained, writeCounted } from '../../core/reading.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import type { BodyStream, ClientResponse, ParsedHead, UpgradeRequest } from '../../core/request.ts';
import { afterWrite, onceEvent, onEvent } from '../../core/safe-events.ts';
import type { FindAddressProblem, OwnPorts } from '../../http/dial/address-rules.ts';
import { type DestinationRule, findDestinationRule } from '../../http/dial/destination.ts';
import { DialFailure, dial, Opening, takeTurns } from '../../http/dial/dial.ts';
import { type Resolve, resolveChecked } from '../../http/dial/resolve.ts';
import { createFamilies } from '../../telemetry/metrics/series.ts';
import type { RequestTrace } from '../../telemetry/tracing/tracer.ts';
import type { DestinationGate } from '../pipeline/gates/gate.ts';
import type { Passed } from '../pipeline/record.ts';
import { ClientReads, type Forwarder, type ReadLimits } from '../upstream/forwarder.ts';
import { addFraming, addTrace } from '../upstream/headers.ts';
import type { ForwardOutcome } from '../upstream/outcome.ts';

const TRACE_REFUSAL = refuse('method_not_allowed', 'method_not_allowed', {
  allow: ['CONNECT', 'GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'],
  stage: 'route',
});

/** The way to the destinations. */
export class EgressProxy {
  readonly #parts;
  #tunnels = 0;

  constructor(parts: {
    readonly clock: Clock;
    readonly metrics: ProxyMetrics;
    readonly pseudonym: string;
    readonly limits: TunnelLimits & { readonly connectTimeout: Milliseconds };
    /** A forwarder to one of the addresses that were checked; `connectTimeout`: its share of the time for all. */
    readonly openForwarder: (
      address: string,
      port: number,
      connectTimeout: Milliseconds,
    ) => { readonly forwarder: Forwarder; readonly close: () => void };
  }) {
    this.#parts = parts;
  }

  /** The number of open tunnels; they count as requests in flight. */
  get tunnels(): number {
    return this.#tunnels;
  }

  /** Passes on an admitted request. */
  async pass(admitted: Admitted, response: ClientResponse, trace: RequestTrace | undefined): Promise<Passed> {
    const { head } = admitted;
    const refusal = this.#findProxyProblem(head);
    if (refusal !== undefined) return { refusal };
    return head.upgrade === undefined ? this.#forward(admitted, trace, response) : this.#tunnel(admitted, head.upgrade);
  }

  #findProxyProblem({ headers, method }: ParsedHead): Refusal | undefined {
    // The pseudonym is unique to this process: another sidegate proxy in the chain is not a loop.
    if (headers.all('via').some((line) => line.includes(this.#parts.pseudonym)))
      return refuse('loop_detected', 'loop', { stage: 'route' });
    // TRACE would reveal the proxy's own fields to any client (RFC 9110 §9.3.8).
    if (method === 'TRACE' || parseMaxForwards(method, headers.get('max-forwards')) === 0) return TRACE_REFUSAL;
    return undefined;
  }

  async #forward(admitted: Admitted, trace: RequestTrace | undefined, response: ClientResponse): Promise<Passed> {
    const { clock, limits, metrics } = this.#parts;
    const { rule = '', addresses = [] } = admitted.destination ?? {};
    const port = admitted.head.destination?.port ?? 0;
    const sentAt = trace?.isRecorded === true ? clock.monotonic() : undefined;
    let outcome: ForwardOutcome | undefined;
    for (const { address, atMost } of takeTurns(addresses, limits.connectTimeout, clock)) {
      const { forwarder, close } = this.#parts.openForwarder(address, port, atMost);
      try {
        outcome = await forwarder.forward(admitted, response, trace);
      } finally {
        close();
      }
      // Try the next address, as for tunnels: nothing was sent to this one, and the body was not read.
      if (outcome.kind !== 'failed' || outcome.failure.kind !== 'connect') break;
    }
    if (outcome === undefined) throw new Error('the destination has no address');
    const bytesReceived = 'contentBytes' in outcome ? (outcome.contentBytes ?? 0) : 0;
    metrics.proxyBytes(rule, { bytesSent: admitted.head.body.received, bytesReceived });
    return { outcome, refusal: 'refusal' in outcome ? outcome.refusal : undefined, sentAt };
  }

  async #tunnel({ head, destination }: Admitted, client: UpgradeRequest): Promise<Passed> {
    const { clock, limits, metrics } = this.#parts;
    const { rule = '', addresses = [] } = destination ?? {};
    const startedAt = clock.monotonic();
    const opening = new Opening(limits.connectTimeout);
    if (client.writer.destroyed) opening.cancel();
    onceEvent(client.writer, 'close', () => opening.cancel());
    this.#tunnels++;
    try {
      const server = await dial(addresses, head.destination?.port ?? 0, opening, clock);
      // RFC 9110 §9.3.6: neither Content-Length nor Transfer-Encoding; the tunnel begins after the blank line.
      const content = client.grant('200 Connection established', []);
      const totals = await relayTunnel(client, content, server, limits, clock);
      metrics.proxyBytes(rule, totals);
      return { outcome: { kind: 'responded', status: 200, upstreamMs: clock.monotonic() - startedAt } };
    } catch (thrown) {
      if (!(thrown instanceof DialFailure)) throw thrown;
      if (thrown.kind === 'aborted')
        return { outcome: { kind: 'aborted', status: 0, refusal: undefined, upstreamMs: clock.monotonic() - startedAt } };
      const [code, reason] =
        thrown.kind === 'timeout'
          ? (['upstream_timeout', 'upstream_timeout'] as const)
          : (['upstream_unreachable', 'upstream_connect'] as const);
      return { refusal: refuse(code, reason, thrown.message) };
    } finally {
      this.#tunnels--;
    }
  }
}

/**
 * Builds the gate that checks the destination: first by the allow-list, then by every address that the name resolves to. It runs after the
 * password check: unauthenticated clients cause no DNS queries.
 */
export function createDestinationGate(options: {
  readonly rules: readonly DestinationRule[];
  readonly findProblem: FindAddressProblem;
  readonly resolve: Resolve;
  /** The gate's own ports, which are rejected even if the list allows them. */
  readonly own: OwnPorts;
}): DestinationGate {
  return {
    async check({ destination }) {
      if (destination === undefined) throw new Error('only the forward proxy has destinations');
      const rule = findDestinationRule(options.rules, destination);
      if (rule === undefined) return refuse('destination_denied', 'destination_not_allowed');
      const found = await resolveChecked(destination.host, options.resolve, options.findProblem);
      if ('addresses' in found) {
        if (found.addresses.some((address) => options.own.has(address, destination.port)))
          return refuse('destination_denied', 'destination_not_allowed', "the destination is one of sidegate's own ports");
        return { rule: rule.text, addresses: found.addresses };
      }
      if (found.problem === 'forbidden') return refuse('destination_denied', 'destination_not_public', found.detail);
      return refuse('upstream_unreachable', 'upstream_connect', { detail: found.detail, stage: 'app' });
    },
  };
}

/** Fields that are rewritten; Expect was already handled by the gate. */
const REWRITTEN = new Set(['host', 'via', 'content-length', 'expect', 'max-forwards']);
const HTTP_PORT = 80;

/**
 * Builds the header fields for a destination: the client's, without hop-by-hop fields. Forwards those meant for the origin, such as
 * Authorization (RFC 9110 §11.6.2), and reveals nothing about the client.
 */
export class ProxyHeaderPolicy {
  readonly #pseudonym: string;
  readonly #trustsTraces: boolean;

  /** `pseudonym`: this proxy's name in Via (RFC 9110 §7.6.3). `trustsTraces`: forwards the client's trace context. */
  constructor(pseudonym: string, trustsTraces: boolean) {
    this.#pseudonym = pseudonym;
    this.#trustsTraces = trustsTraces;
  }

  toUpstreamHeaders(admitted: Admitted, trace?: RequestTrace): string[] {
    const { headers, destination, method } = admitted.head;
    const { host, port } = destination as NonNullable<typeof destination>;
    const named = findConnectionOptions(headers);
    const name = host.includes(':') ? `[${host}]` : host;
    // Host is set to the target's host and port (RFC 9112 §3.2.2).
    const out = ['Host', port === HTTP_PORT ? name : `${name}:${port}`];
    headers.names.forEach((field, i) => {
      const folded = toFoldedName(field);
      if (TRACE.has(folded) || (isTraceField(folded) && !this.#trustsTraces)) return;
      if (HOP_BY_HOP.has(folded) || REWRITTEN.has(folded) || named?.has(field) === true) return;
      out.push(headers.raw[i * 2] as string, headers.raw[i * 2 + 1] as string);
    });
    out.push('Via', [...headers.all('via'), `1.1 ${this.#pseudonym}`].join(', '));
    const maxForwards = parseMaxForwards(method, headers.get('max-forwards'));
    if (maxForwards !== undefined && maxForwards > 0) out.push('Max-Forwards', String(maxForwards - 1));
    addTrace(out, trace);
    addFraming(out, admitted);
    out.push('Connection', 'close');
    return out;
  }
}

/** How often the request may still be forwarded; applies to TRACE and OPTIONS only (RFC 9110 §7.6.2). */
function parseMaxForwards(method: string, value: string | undefined): number | undefined {
  if ((method !== 'TRACE' && method !== 'OPTIONS') || value === undefined || !/^[0-9]{1,9}$/.test(value)) return undefined;
  return Number(value);
}

/** How long a tunnel may last. */
interface TunnelLimits {
  /** How slowly the client may take what is sent to it. */
  readonly reads: ReadLimits;
  readonly idleTimeout: Milliseconds;
  readonly maxDuration: Milliseconds;
}

/** The number of bytes relayed. */
interface TunnelTotals {
  readonly bytesSent: number;
  readonly bytesReceived: number;
}

const SWEEP_MS = 1_000;

/**
 * Relays bytes between a client and a destination until either closes, both are idle, or the maximum duration is reached. Resolves when the
 * tunnel is over. `content`: what the client sends; `client`: writes to it.
 */
export function relayTunnel(
  client: UpgradeRequest,
  content: BodyStream,
  server: Socket,
  limits: TunnelLimits,
  clock: Clock,
): Promise<TunnelTotals> {
  return new Promise((resolve) => {
    const startedAt = clock.monotonic();
    let lastByteAt = startedAt;
    let bytesSent = 0;
    let bytesReceived = 0;
    const reads = new ClientReads(limits.reads, content.owner);
    const stopSweep = clock.every(SWEEP_MS, () => {
      const now = clock.monotonic();
      if (now - lastByteAt >= limits.idleTimeout || now - startedAt >= limits.maxDuration) server.destroy();
    });
    onEvent(server, 'data', (chunk: Buffer) => {
      lastByteAt = clock.monotonic();
      bytesReceived += chunk.length;
      if (client.writer.destroyed) return freeChunk(chunk);
      reads.onSent(chunk.length);
      // Memory that a broken TLS connection may still use is left to the garbage collector.
      const onWritten = afterWrite(() => freeChunk(chunk));
      if (!client.write(chunk, onWritten)) reads.waitFor(client.writer)?.hold(server);
    });
    // The content reports it only until the client has ended its side.
    onceEvent(client.writer, 'close', () => server.destroy());
    // One side may end while the other still sends.
    onEvent(server, 'end', () => client.end());
    onEvent(server, 'error', () => server.destroy());
    onEvent(server, 'close', () => {
      stopSweep();
      content.stop();
      // After a clean end the client may finish reading; otherwise it must not mistake partial data for complete data.
      if (server.readableEnded) client.close(clock, limits.reads.sendTimeout);
      else client.destroy();
      resolve({ bytesSent, bytesReceived });
    });
    content.start({
      write: (chunk) => {
        lastByteAt = clock.monotonic();
        bytesSent += chunk.length;
        const isTaken = writeCounted(server, chunk, () => freeChunk(chunk));
        return isTaken ? undefined : pauseUntilDrained(server, content.owner, limits.idleTimeout);
      },
      end: () => server.end(),
      fail: () => server.destroy(),
    });
  });
}

/** The metrics of the forward proxy. */
export interface ProxyMetrics {
  /** Counts the bytes of a finished tunnel or request; `rule`: the name of the rule that allowed it. */
  proxyBytes(rule: string, totals: { readonly bytesSent: number; readonly bytesReceived: number }): void;
}

/** Registers the metrics. */
export function createProxyMetrics(registers: Registry[]): ProxyMetrics {
  const proxyBytes = createFamilies(registers).counter(
    'sidegate_proxy_bytes_total{rule,direction}',
    'Bytes through the forward proxy: of tunnels, and the bodies of other requests and responses; by the rule that allowed them.',
  );
  return {
    proxyBytes(rule, { bytesSent, bytesReceived }) {
      proxyBytes.series(rule, 'sent').add(bytesSent);
      proxyBytes.series(rule, 'received').add(bytesReceived);
    },
  };
}
