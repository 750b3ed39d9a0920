/** The forward-auth endpoint: judges requests that other proxies ask about, by the gates of the routes that would take them. */
import type { Admitted } from '../../core/admitted.ts';
import type { ClientResponse } from '../../core/client-response.ts';
import type { ParsedHead } from '../../core/parsed-head.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import type { RefusalEntry } from '../../core/refusal-catalogue.ts';
import { REFUSALS } from '../../core/refusal-catalogue.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import { type LifecycleParts, type Port, RequestLifecycle } from '../pipeline/lifecycle.ts';
import { recordAuthRequest } from '../pipeline/record.ts';
import type { PipelineRoute } from '../pipeline/request-pipeline.ts';
import type { PassResult, RequestRecord } from '../pipeline/request-record.ts';
import type { RefusalFormat } from '../pipeline/respond.ts';
import type { RoutesMetrics } from '../pipeline/route-metrics.ts';
import { addIdentity } from '../upstream/identity.ts';
import { findMethodOverride } from '../upstream/request-headers.ts';
import { addTrace } from '../upstream/trace-headers.ts';
import type { AuthRequestMetrics } from './auth-request-metrics.ts';

/** The dependencies of the pipeline. */
export interface ForwardAuthParts extends LifecycleParts {
  readonly metrics: LifecycleParts['metrics'] & RoutesMetrics & AuthRequestMetrics;
  /** The routes of the data port. */
  readonly find: (original: ParsedHead) => PipelineRoute | Refusal;
}

const OK = 200;
const UNAUTHORIZED = 401;
const FORBIDDEN = 403;
const SERVER_ERROR = 500;
/** Beside ours, what apps that are used to such endpoints read. */
const MORE_USER_FIELDS = ['Remote-User'];

/** The request pipeline of the forward-auth endpoint; `handle` takes the original request, which is not forwarded. */
export function createForwardAuthPipeline(parts: ForwardAuthParts): RequestLifecycle<PipelineRoute> {
  return new RequestLifecycle(new ForwardAuthPort(parts), parts.metrics.route(undefined), parts);
}

class ForwardAuthPort implements Port<PipelineRoute> {
  readonly #parts: ForwardAuthParts;

  constructor(parts: ForwardAuthParts) {
    this.#parts = parts;
  }

  find(original: ParsedHead): PipelineRoute | Refusal {
    return this.#parts.find(original);
  }

  precheck(route: PipelineRoute, { headers }: ParsedHead): Refusal | undefined {
    // Allowed by its other gates alone, it would reach the app with a signature that nobody checked.
    if (route.verifiesContent) return refuse('content_needed', 'content_needed');
    // The proxy that asks passes it to the app, which then runs a method that no route was looked up for.
    const override = route.forwardMethodOverride ? undefined : findMethodOverride(headers);
    return override === undefined ? undefined : refuse('original_request_unclear', 'original_request', override);
  }

  /** The parent of the app's span is this very span: another proxy sends the request to the app. */
  toTrace(trace: RequestTrace): RequestTrace {
    return { ...trace, appParentId: trace.spanId };
  }

  /** Empty: the proxy takes the headers only. Never stored: the next request may have another password. */
  async pass(
    { identity }: PipelineRoute,
    admitted: Admitted,
    trace: RequestTrace | undefined,
    response: ClientResponse,
  ): Promise<PassResult> {
    if (response.headersSent || response.destroyed) return {};
    const head = ['Cache-Control', 'no-store', 'Content-Length', '0'];
    addIdentity(head, admitted, identity, MORE_USER_FIELDS);
    addTrace(head, trace);
    if (!admitted.head.body.isCheapToDrain) response.shouldKeepAlive = false;
    response.writeHead(OK, undefined, head);
    response.end();
    return {};
  }

  toFormat({ code }: Refusal): RefusalFormat {
    const entry = toCallersEntry(REFUSALS[code]);
    return { status: entry.status, entry, alwaysHasBody: true };
  }

  record(requestRecord: RequestRecord): void {
    const { refusal, status, route } = requestRecord;
    const answered = status ?? (refusal === undefined ? OK : REFUSALS[refusal.code].status);
    recordAuthRequest(requestRecord, answered, this.#parts, ({ method, reason, durationMs }, exemplar) =>
      this.#parts.metrics.authRequest(route?.name, { method, status: answered, reason }, durationMs, exemplar),
    );
  }
}

/**
 * Proxies read 401 and 403 as a refusal, and nginx fails on any other status. So whatever is wrong with the request becomes 403; a fault
 * of ours stays one: a proxy that could not ask must not tell its client that it may not.
 */
function toCallersEntry({ close: _, ...entry }: RefusalEntry): RefusalEntry {
  const { status } = entry;
  return status === UNAUTHORIZED || status >= SERVER_ERROR ? entry : { ...entry, status: FORBIDDEN };
}
