/** Takes the forward proxy's requests through its gates and to their destinations; every exit is answered and recorded once. */
import type { Duplex } from 'node:stream';
import type { Admitted } from '../../core/admitted.ts';
import type { Answer } from '../../core/answer.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import type { Arrival, Exchange, UpgradeWish } from '../../core/exchange.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import { runDetached } from '../../core/safe-events.ts';
import type { Journal } from '../../telemetry/journal/journal.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/metrics.ts';
import type { RouteMetrics } from '../../telemetry/metrics/route-metrics.ts';
import type { RouteTrace, Tracing } from '../../telemetry/tracing/span.ts';
import { record } from '../pipeline/record.ts';
import type { RequestRecord } from '../pipeline/request-record.ts';
import { writeRefusal, writeSocketRefusal } from '../pipeline/respond.ts';
import { type GuardedRoute, runGates } from '../pipeline/run-gates.ts';
import { toTrustLevel } from '../pipeline/trust-level.ts';
import { UnderWay } from '../pipeline/under-way.ts';
import { lingerOnClose } from '../server/linger.ts';
import type { Forwarder } from '../upstream/forwarder.ts';
import type { ForwardOutcome } from '../upstream/outcome.ts';
import { DialFailure, dial } from './dial.ts';
import { toForwardsLeft } from './proxy-headers.ts';
import { joinTunnel, type TunnelLimits } from './tunnel.ts';

/** What the proxy stands on. */
export interface ProxyPipelineParts {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly journal: Journal;
  readonly metrics: Metrics;
  readonly routeMetrics: RouteMetrics;
  readonly tracing: Tracing;
  readonly trace: RouteTrace;
  readonly guard: GuardedRoute;
  readonly challenge: string;
  readonly pseudonym: string;
  readonly limits: TunnelLimits & { readonly connectTimeout: Milliseconds };
  /** A forwarder to one of the addresses that were checked. */
  readonly openForwarder: (address: string, port: number) => { readonly forwarder: Forwarder; readonly close: () => void };
}

interface PipelineResult {
  readonly isAdmitted?: boolean;
  readonly refusal?: Refusal;
  readonly outcome?: ForwardOutcome;
}

const TRACE_REFUSAL: Refusal = {
  code: 'method_not_allowed',
  reason: 'method_not_allowed',
  allow: ['CONNECT', 'GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'],
};

/** The request pipeline of the forward proxy. */
export class ProxyPipeline {
  readonly #parts: ProxyPipelineParts;
  readonly #underWay = new UnderWay();
  /** The client's side of each: it takes the other with it. */
  readonly #tunnels = new Set<UpgradeWish>();

  constructor(parts: ProxyPipelineParts) {
    this.#parts = parts;
  }

  /** Takes one request through; never throws. */
  handle(exchange: Exchange, response: Answer): void {
    runDetached(this.#take(exchange, response));
  }

  /** Answers a request whose head is refused. */
  turnAway(arrival: Arrival, response: Answer, refusal: Refusal): void {
    this.#leave({ arrival, refusal }, response);
  }

  /** Answers bytes that are no request. */
  turnAwaySocket(arrival: Arrival, socket: Duplex, refusal: Refusal): void {
    writeSocketRefusal(socket, refusal, arrival.requestId, this.#parts.clock);
    record({ arrival, refusal }, this.#parts.routeMetrics, this.#parts);
  }

  /** Resolves when neither a request nor a tunnel is under way. */
  idle(): Promise<void> {
    return this.#underWay.idle();
  }

  /** How many requests are under way, tunnels among them. */
  get underWay(): number {
    return this.#underWay.count;
  }

  /** How many tunnels there are. */
  get tunnels(): number {
    return this.#tunnels.size;
  }

  /** Ends all tunnels. */
  destroy(): void {
    for (const client of this.#tunnels) client.destroy();
  }

  async #take(exchange: Exchange, response: Answer): Promise<void> {
    this.#underWay.enter();
    const result = await this.#pass(exchange, response);
    try {
      const { guard, trace: tracedAs } = this.#parts;
      this.#leave({ arrival: exchange, exchange, route: guard.name, tracedAs, ...result }, response);
    } catch (thrown) {
      response.destroy();
      this.#parts.logger.error('internal_error', { requestId: exchange.requestId, error: toErrorText(thrown) });
    }
    this.#underWay.leave(response);
  }

  async #pass(exchange: Exchange, response: Answer): Promise<PipelineResult> {
    const { guard, routeMetrics, trace, tracing } = this.#parts;
    try {
      const admitted = await runGates(guard, exchange);
      const trustLevel = toTrustLevel(guard, exchange, 'code' in admitted ? admitted : undefined);
      exchange.facts.trace = tracing.tracer.begin(trace.trust, trustLevel, exchange.headers);
      if ('code' in admitted) {
        routeMetrics.decision('deny', admitted.reason);
        return { refusal: admitted };
      }
      routeMetrics.decision('allow', 'ok');
      const refusal = this.#findProxyProblem(exchange);
      if (refusal !== undefined) return { isAdmitted: true, refusal };
      const { upgrade } = exchange;
      const result = await (upgrade === undefined ? this.#forward(admitted, response) : this.#tunnel(admitted, upgrade));
      return { isAdmitted: true, ...result };
    } catch (thrown) {
      return { refusal: refuse('internal_error', 'internal_error', toErrorText(thrown)) };
    }
  }

  #findProxyProblem({ headers, method }: Exchange): Refusal | undefined {
    // By a name of this very process: a second proxy of the same make is no loop.
    if (headers.all('via').some((line) => line.includes(this.#parts.pseudonym))) return refuse('loop_detected', 'loop');
    // It would show the proxy's own fields to whoever asks (RFC 9110 §9.3.8).
    if (method === 'TRACE' || toForwardsLeft(method, headers.get('max-forwards')) === 0) return TRACE_REFUSAL;
    return undefined;
  }

  async #forward(admitted: Admitted, response: Answer): Promise<PipelineResult> {
    const { destination, facts } = admitted.exchange;
    if (facts.trace?.isRecorded === true) facts.sentAt = this.#parts.clock.monotonic();
    let outcome: ForwardOutcome | undefined;
    for (const address of facts.way?.addresses ?? []) {
      outcome = await this.#forwardTo(address, destination?.port ?? 0, admitted, response);
      // The next address, as for tunnels: nothing was sent to this one, nor taken of the content.
      if (outcome.kind !== 'failed' || outcome.failure.kind !== 'connect') break;
    }
    if (outcome === undefined) throw new Error('the destination has no address');
    const bytesReceived = 'contentBytes' in outcome ? (outcome.contentBytes ?? 0) : 0;
    this.#parts.metrics.proxyBytes(facts.way?.rule ?? '', { bytesSent: admitted.exchange.body.received, bytesReceived });
    const refusal = 'refusal' in outcome ? outcome.refusal : undefined;
    return refusal === undefined ? { outcome } : { outcome, refusal };
  }

  async #forwardTo(address: string, port: number, admitted: Admitted, response: Answer): Promise<ForwardOutcome> {
    const { forwarder, close } = this.#parts.openForwarder(address, port);
    try {
      return await forwarder.forward(admitted, response);
    } finally {
      close();
    }
  }

  async #tunnel({ exchange }: Admitted, client: UpgradeWish): Promise<PipelineResult> {
    const { clock, limits, metrics } = this.#parts;
    const { destination, facts } = exchange;
    const startedAt = clock.monotonic();
    const { rule = '', addresses = [] } = facts.way ?? {};
    this.#tunnels.add(client);
    // Before the destination is dialled: the password may be revoked meanwhile.
    const stopWatching = facts.login?.onRevoked(() => client.destroy());
    try {
      const server = await dial(addresses, destination?.port ?? 0, limits.connectTimeout, clock);
      // RFC 9110 §9.3.6: neither Content-Length nor Transfer-Encoding; the tunnel begins behind the blank line.
      const content = client.grant('200 Connection established', []);
      const totals = await joinTunnel(client, content, server, limits, clock);
      metrics.proxyBytes(rule, totals);
      return { outcome: { kind: 'answered', status: 200, upstreamMs: clock.monotonic() - startedAt } };
    } catch (thrown) {
      if (!(thrown instanceof DialFailure)) throw thrown;
      const [code, reason] = thrown.isTimeout
        ? (['upstream_timeout', 'upstream_timeout'] as const)
        : (['upstream_unreachable', 'upstream_connect'] as const);
      return { refusal: refuse(code, reason, thrown.message) };
    } finally {
      stopWatching?.();
      this.#tunnels.delete(client);
    }
  }

  #leave(requestRecord: RequestRecord, response: Answer): void {
    const { arrival, exchange, refusal } = requestRecord;
    if (refusal !== undefined) {
      const mustClose = exchange === undefined || !exchange.body.isCheapToDrain;
      const challenges = [this.#parts.challenge];
      if (mustClose) lingerOnClose(response.req.socket, this.#parts.clock);
      writeRefusal(response, refusal, { requestId: arrival.requestId, challenges, isHead: arrival.method === 'HEAD', mustClose });
    }
    exchange?.body.free();
    record(requestRecord, this.#parts.routeMetrics, this.#parts);
  }
}
