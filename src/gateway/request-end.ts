/** The end of a request, however it came to it: its response if nobody sent one, its record, and its memory. */
import type { Duplex } from 'node:stream';
import { toErrorText } from '../core/errors.ts';
import { REFUSALS, type Refusal } from '../core/refusal.ts';
import type { ClientResponse, ParsedHead, RequestInfo } from '../core/request.ts';
import { offEvent, onEvent } from '../core/safe-events.ts';
import { lingerOnClose } from '../http/server/linger.ts';
import type { AuthRequestMetrics } from './forward-auth/auth-request-metrics.ts';
import { toCallerFormat } from './forward-auth/auth-response.ts';
import { type RecordedRoute, type RecordParts, type RequestRecord, record, recordAuthRequest } from './pipeline/record.ts';
import { type RefusalFormat, TurnEnd, toFormat, writeRefusal, writeSocketRefusal } from './pipeline/respond.ts';
import type { RouteMetrics } from './pipeline/route-metrics.ts';
import type { ServerMetrics } from './server-metrics.ts';

/** The parts of a port that ends requests. */
export interface EndParts extends RecordParts {
  readonly metrics: Pick<ServerMetrics, 'limitHit'>;
  /** For requests without a route. */
  readonly unrouted: RouteMetrics;
  /** Set for the forward-auth endpoint: another proxy forwards the requests, and asks about them. */
  readonly authRequests?: AuthRequestMetrics;
  /** Called after the response to a request that was rejected, or would have been without observe mode; must not block or throw. */
  readonly onRefused?: ((route: string, head: ParsedHead, refusal: Refusal) => void) | undefined;
}

/** A request that may be allowed no longer while it lasts. */
export interface Revocable {
  readonly head: ParsedHead;
  /** Whether the gates of `now` would decide in the same way. */
  isAllowedBy(now: RecordedRoute | Refusal): boolean;
  revoke(): void;
}

const BAD_REQUEST = 400;
const INTERNAL_ERROR = 500;

/** Ends the requests of one port, and counts those that have not ended yet. */
export class RequestEnds {
  readonly parts: EndParts;
  /** Those that can be revoked. */
  readonly revocable = new Set<Revocable>();
  readonly #turnEnd = new TurnEnd();
  #inFlight = 0;
  #onIdle: (() => void)[] = [];

  constructor(parts: EndParts) {
    this.parts = parts;
  }

  /** The number of requests in flight. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Resolves when none is in flight. */
  idle(): Promise<void> {
    if (this.#inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle.push(resolve);
    });
  }

  /** Counts a new request, until `end` or `abandon`. */
  begin(): void {
    this.#inFlight++;
  }

  /** Ends a request that has begun. */
  end(ended: RequestRecord, response: ClientResponse): void {
    try {
      this.#finish(ended, response, this.#turnEnd);
    } catch (thrown) {
      ended.head?.body.free();
      return this.abandon(ended.info, response, thrown);
    }
    // It waits for the responses that are written at the end of the turn.
    this.#leave(response);
  }

  /** Ends a request after an exception. Even if logging fails, the sender must not wait for a response and the process must keep running. */
  abandon({ requestId }: RequestInfo, response: ClientResponse, thrown: unknown): void {
    response.destroy();
    this.parts.logger.error('internal_error', { requestId, error: toErrorText(thrown) });
    this.#leave(response);
  }

  /** Ends a request whose head was rejected. */
  reject(rejected: RequestRecord, response: ClientResponse): void {
    this.#finish(rejected, response, undefined);
  }

  /** Responds to bytes that are not a request. */
  rejectSocket(rejected: RequestRecord, socket: Duplex, refusal: Refusal): void {
    const format = this.#toFormat(refusal, undefined);
    writeSocketRefusal(socket, refusal, { requestId: rejected.info.requestId, format }, this.parts.clock);
    this.#record(rejected, format.status);
  }

  #finish(ended: RequestRecord, response: ClientResponse, turnEnd: TurnEnd | undefined): void {
    const { refusal } = ended;
    const format = refusal && this.#toFormat(refusal, ended.route);
    if (refusal !== undefined && isClientFault(ended, refusal)) response.onRejected?.();
    if (refusal !== undefined) this.#writeRefusal(ended, refusal, response, { format, turnEnd });
    try {
      this.#record(ended, format?.status);
      this.#reportRefused(ended, refusal ?? ended.admitted?.observed);
    } finally {
      freeBody(ended);
    }
  }

  #toFormat(refusal: Refusal, route: RequestRecord['route']): RefusalFormat {
    return this.parts.authRequests === undefined ? toFormat(refusal, route) : toCallerFormat(refusal);
  }

  #writeRefusal(
    { info, head, route }: RequestRecord,
    refusal: Refusal,
    response: ClientResponse,
    { format, turnEnd }: { format: RefusalFormat | undefined; turnEnd: TurnEnd | undefined },
  ): void {
    if (refusal.code === 'body_too_large') this.parts.metrics.limitHit('body_size');
    const mustClose = head === undefined || !head.body.isCheapToDrain;
    if (mustClose) lingerOnClose(response.req.socket, this.parts.clock);
    const { requestId, method } = info;
    const isHead = method === 'HEAD' && format?.alwaysHasBody !== true;
    writeRefusal(response, refusal, { requestId, challenges: route?.challenges ?? [], isHead, mustClose, format, turnEnd });
  }

  #record(ended: RequestRecord, sentStatus: number | undefined): void {
    const { authRequests, unrouted } = this.parts;
    if (authRequests === undefined) record(ended, sentStatus, ended.route?.metrics ?? unrouted, this.parts);
    else
      recordAuthRequest(ended, sentStatus, this.parts, (status, { method, reason, durationMs }, exemplar) =>
        authRequests.authRequest(ended.route?.name, { method, status, reason }, durationMs, exemplar),
      );
  }

  #reportRefused({ head, route }: RequestRecord, refusal: Refusal | undefined): void {
    if (route !== undefined && head !== undefined && refusal !== undefined) this.parts.onRefused?.(route.name, head, refusal);
  }

  /** Ends a request once its response is flushed to the operating system: bytes buffered here would be lost with the connection. */
  #leave(response: ClientResponse): void {
    const { socket } = response.req;
    const isFlushed = !response.headersSent || (response.writableEnded && response.writableLength === 0);
    if (isFlushed || response.destroyed || socket?.destroyed === true) return this.#count();
    let isInFlight = true;
    const leave = (): void => {
      if (!isInFlight) return;
      isInFlight = false;
      if (socket !== undefined && onSocketClose !== undefined) offEvent(socket, 'close', onSocketClose);
      this.#count();
    };
    // A response that waits behind another one on the same connection gets no event when the connection closes.
    const onSocketClose = socket && onEvent(socket, 'close', leave);
    onEvent(response, 'finish', leave);
    onEvent(response, 'close', leave);
  }

  #count(): void {
    this.#inFlight--;
    if (this.#inFlight === 0) for (const resolve of this.#onIdle.splice(0)) resolve();
  }
}

/** Whether the gate rejected the request for what it is, and not because of the app, a store or other clients. */
function isClientFault({ admitted }: RequestRecord, { code, reason }: Refusal): boolean {
  if (reason === 'client_limit') return true;
  if (admitted !== undefined) return false;
  const { status } = REFUSALS[code];
  return status >= BAD_REQUEST && status < INTERNAL_ERROR;
}

function freeBody(ended: RequestRecord): void {
  const body = ended.head?.body;
  // For large bodies, waiting for the garbage collector costs more CPU than everything else.
  if (isBodyUnused(ended)) body?.discard();
  else body?.free();
}

/** Whether no connection to the app can still be writing the body. */
function isBodyUnused({ admitted, outcome, refusal }: RequestRecord): boolean {
  if (outcome?.kind === 'responded') return outcome.isRequestWritten === true;
  // After an exception it is unknown how far the request got.
  return admitted === undefined && refusal?.code !== 'internal_error';
}
