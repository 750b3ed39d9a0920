/** Passes on the admitted requests of the forward proxy: to their destinations, or through tunnels. */
import type { Admitted } from '../../core/admitted.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import type { ClientResponse, ParsedHead, UpgradeRequest } from '../../core/request.ts';
import { onceEvent } from '../../core/safe-events.ts';
import { DialFailure, dial, Opening, takeTurns } from '../../http/dial/dial.ts';
import type { RequestTrace } from '../../telemetry/tracing/tracer.ts';
import type { Passed } from '../pipeline/record.ts';
import type { Forwarder } from '../upstream/forwarder.ts';
import type { ForwardOutcome } from '../upstream/outcome.ts';
import { parseMaxForwards } from './proxy-headers.ts';
import type { ProxyMetrics } from './proxy-metrics.ts';
import { relayTunnel, type TunnelLimits } from './tunnel.ts';

const TRACE_REFUSAL = refuse('method_not_allowed', 'method_not_allowed', {
  allow: ['CONNECT', 'GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'],
  stage: 'route',
});

/** The way to the destinations. */
export class EgressProxy {
  readonly #parts;
  /** The client side of each tunnel; destroying it closes the other side too. */
  readonly #tunnels = new Set<UpgradeRequest>();

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
    return this.#tunnels.size;
  }

  /** Closes all tunnels. */
  destroy(): void {
    for (const client of this.#tunnels) client.destroy();
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
    this.#tunnels.add(client);
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
      this.#tunnels.delete(client);
    }
  }
}
