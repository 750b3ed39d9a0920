/** The forward-auth endpoint: checks requests for other proxies, with the gates of the routes that match them. */
import type { Admitted } from '../../core/admitted.ts';
import type { ClientResponse } from '../../core/client-response.ts';
import type { ParsedHead } from '../../core/parsed-head.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import { REFUSALS, type RefusalEntry } from '../../core/refusal-catalogue.ts';
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
/** Besides sidegate's own, the field that apps behind such endpoints commonly read. */
const MORE_USER_FIELDS = ['Remote-User'];

/** The request pipeline of the forward-auth endpoint; `handle` takes the original request, which is not forwarded. */
export function createForwardAuthPipeline(parts: ForwardAuthParts): RequestLifecycle<PipelineRoute> {
  return new RequestLifecycle(new ForwardAuthPort(parts), parts.metrics.route(undefined), parts);
}

class ForwardAuthPort implements Port<PipelineRoute> {
  readonly countsDecisionsItself = true;
  readonly #parts: ForwardAuthParts;

  constructor(parts: ForwardAuthParts) {
    this.#parts = parts;
  }

  find(original: ParsedHead): PipelineRoute | Refusal {
    return this.#parts.find(original);
  }

  precheck(route: PipelineRoute, { headers }: ParsedHead): Refusal | undefined {
    // If only its other gates allowed it, it would reach the app with an unverified signature.
    if (route.verifiesContent) return refuse('content_needed', 'content_needed');
    // The calling proxy forwards it to the app, which then runs another method than the route was found by.
    const override = route.forwardMethodOverride ? undefined : findMethodOverride(headers);
    return override === undefined ? undefined : refuse('original_request_unclear', 'original_request', override);
  }

  /** This span is the parent of the app's span, as another proxy sends the request to the app. */
  toTrace(trace: RequestTrace): RequestTrace {
    return { ...trace, appParentId: trace.spanId };
  }

  /** Responds without a body, as the proxy uses the headers only, and uncached, as the next request may have another password. */
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
    const entry = toCallerEntry(REFUSALS[code]);
    return { status: entry.status, entry, alwaysHasBody: true };
  }

  record(requestRecord: RequestRecord): void {
    const { refusal, status, route } = requestRecord;
    const sentStatus = status ?? (refusal === undefined ? OK : REFUSALS[refusal.code].status);
    recordAuthRequest(requestRecord, sentStatus, this.#parts, ({ method, reason, durationMs }, exemplar) =>
      this.#parts.metrics.authRequest(route?.name, { method, status: sentStatus, reason }, durationMs, exemplar),
    );
  }
}

/**
 * Proxies interpret 401 and 403 as a refusal, and nginx fails on any other status. So every client error becomes 403; a server error
 * stays one: a proxy must not report a failed check to its client as forbidden.
 */
function toCallerEntry({ close: _, ...entry }: RefusalEntry): RefusalEntry {
  const { status } = entry;
  return status === UNAUTHORIZED || status >= SERVER_ERROR ? entry : { ...entry, status: FORBIDDEN };
}
