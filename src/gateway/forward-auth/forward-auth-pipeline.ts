/** Judges requests that other proxies ask about, by the gates of the routes that would take them; nothing is forwarded. */
import type { Duplex } from 'node:stream';
import type { Admitted } from '../../core/admitted.ts';
import type { Answer } from '../../core/answer.ts';
import type { Clock } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import type { Arrival, Exchange } from '../../core/exchange.ts';
import { REFUSALS, type Refusal, refuse } from '../../core/refusal.ts';
import type { RefusalEntry } from '../../core/refusal-entry.ts';
import { runDetached } from '../../core/safe-events.ts';
import type { Journal } from '../../telemetry/journal/journal.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/metrics.ts';
import type { RouteMetrics } from '../../telemetry/metrics/route-metrics.ts';
import type { Tracing } from '../../telemetry/tracing/span.ts';
import { recordQuestion } from '../pipeline/record.ts';
import type { PipelineRoute } from '../pipeline/request-pipeline.ts';
import type { RequestRecord } from '../pipeline/request-record.ts';
import { writeRefusal, writeSocketRefusal } from '../pipeline/respond.ts';
import { runGates } from '../pipeline/run-gates.ts';
import { toTrustLevel } from '../pipeline/trust-level.ts';
import { UnderWay } from '../pipeline/under-way.ts';
import { addIdentity } from '../upstream/identity.ts';
import { findMethodOverride } from '../upstream/request-headers.ts';
import { addTrace } from '../upstream/trace-headers.ts';

/** The dependencies of the pipeline. */
export interface ForwardAuthPipelineParts {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly journal: Journal;
  readonly metrics: Metrics;
  readonly tracing: Tracing;
  /** The data port's very routes. */
  readonly find: (original: Exchange) => PipelineRoute | Refusal;
}

/** How a question ended; `exchange` is the request in question, once that is known. */
interface Verdict extends RequestRecord {
  readonly by?: PipelineRoute;
  readonly admitted?: Admitted;
}

const OK = 200;
const UNAUTHORIZED = 401;
const FORBIDDEN = 403;
const SERVER_ERROR = 500;
/** Beside ours, what apps that are used to such endpoints read. */
const MORE_USER_FIELDS = ['Remote-User'];

/** The request pipeline of the forward-auth endpoint. */
export class ForwardAuthPipeline {
  readonly #parts: ForwardAuthPipelineParts;
  readonly #unmatched: RouteMetrics;
  readonly #underWay = new UnderWay();

  constructor(parts: ForwardAuthPipelineParts) {
    this.#parts = parts;
    this.#unmatched = parts.metrics.route(undefined);
  }

  /** Judges one request; never throws. */
  handle(original: Exchange, response: Answer): void {
    runDetached(this.#take(original, response));
  }

  /** Answers a question about a request that cannot be judged. */
  decline(question: Exchange, response: Answer, refusal: Refusal): void {
    this.#leave({ arrival: question, exchange: question, refusal }, response);
  }

  /** Answers a question whose own head is refused, or whose caller is not heard. */
  turnAway(arrival: Arrival, response: Answer, refusal: Refusal): void {
    this.#leave({ arrival, refusal }, response);
  }

  /** Answers bytes that are no request. */
  turnAwaySocket(arrival: Arrival, socket: Duplex, refusal: Refusal): void {
    writeSocketRefusal(socket, refusal, arrival.requestId, this.#parts.clock);
    recordQuestion({ arrival, refusal }, REFUSALS[refusal.code].status, this.#unmatched, this.#parts);
  }

  /** Resolves when no question is under way. */
  idle(): Promise<void> {
    return this.#underWay.idle();
  }

  async #take(original: Exchange, response: Answer): Promise<void> {
    this.#underWay.enter();
    const verdict = await this.#judge(original);
    try {
      this.#leave(verdict, response);
    } catch (thrown) {
      response.destroy();
      this.#parts.logger.error('internal_error', { requestId: original.requestId, error: toErrorText(thrown) });
    }
    this.#underWay.leave(response);
  }

  async #judge(original: Exchange): Promise<Verdict> {
    const facts = { arrival: original, exchange: original };
    const by = this.#parts.find(original);
    if ('code' in by) return { ...facts, refusal: by };
    const route = { ...facts, by, route: by.name, tracedAs: by.trace };
    // Let through by its other gates alone, it would reach the app with a signature that nobody checked.
    if (by.verifiesContent) return { ...route, refusal: refuse('content_needed', 'content_needed') };
    // The proxy that asks passes it to the app, which then runs a method that no route was looked up for.
    const override = by.forwardMethodOverride ? undefined : findMethodOverride(original.headers);
    if (override !== undefined) return { ...route, refusal: refuse('original_request_unclear', 'original_request', override) };
    try {
      const result = await runGates(by, original);
      const trustLevel = toTrustLevel(by, original, 'code' in result ? result : undefined);
      const trace = this.#parts.tracing.tracer.begin(by.trace.trust, trustLevel, original.headers);
      // The app hangs on this very span: it is another that sends it the request.
      original.facts.trace = trace && { ...trace, appParentId: trace.spanId };
      return 'code' in result ? { ...route, refusal: result } : { ...route, admitted: result };
    } catch (thrown) {
      return { ...route, refusal: refuse('internal_error', 'internal_error', toErrorText(thrown)) };
    }
  }

  #leave(verdict: Verdict, response: Answer): void {
    const { arrival, exchange, by, refusal, admitted } = verdict;
    const mustClose = exchange === undefined || !exchange.body.isCheapToDrain;
    let status = OK;
    if (refusal !== undefined) {
      const as = toCallersEntry(REFUSALS[refusal.code]);
      status = as.status;
      const { requestId } = arrival;
      writeRefusal(response, refusal, { requestId, challenges: by?.challenges ?? [], isHead: false, mustClose, as });
    } else if (by !== undefined && admitted !== undefined) writePass(response, by, admitted, mustClose);
    exchange?.body.free();
    recordQuestion(verdict, status, by?.metrics ?? this.#unmatched, this.#parts);
  }
}

/**
 * Proxies take 401 and 403 for a no, and nginx fails on all else. So whatever is wrong with the request becomes 403; trouble of
 * ours stays what it is: a proxy that asks nobody must not tell its client that it may not.
 */
function toCallersEntry({ close: _, ...entry }: RefusalEntry): RefusalEntry {
  const { status } = entry;
  return status === UNAUTHORIZED || status >= SERVER_ERROR ? entry : { ...entry, status: FORBIDDEN };
}

/** Empty: the proxy takes the fields only. Never stored: the next request may come with another password. */
function writePass(response: Answer, { identity }: PipelineRoute, admitted: Admitted, mustClose: boolean): void {
  if (response.headersSent || response.destroyed) return;
  const head = ['Cache-Control', 'no-store', 'Content-Length', '0'];
  addIdentity(head, admitted, identity, MORE_USER_FIELDS);
  addTrace(head, admitted.exchange.facts.trace);
  if (mustClose) response.shouldKeepAlive = false;
  response.writeHead(OK, undefined, head);
  response.end();
}
