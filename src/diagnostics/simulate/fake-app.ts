/** The fake app of the simulator: records what the gate sends, and responds as the fixture says. */

import type { CreateUpstream } from '../../app/upstreams.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { HeaderFields, type RawHeaders } from '../../core/head.ts';
import type {
  Upstream,
  UpstreamExchange,
  UpstreamFailure,
  UpstreamListener,
  UpstreamOptions,
  UpstreamRequest,
} from '../../http/client/upstream.ts';
import type { FailureKind } from '../../http/dial/dial.ts';

/** How the app responds to the next request. */
export type AppBehavior =
  | { readonly status: number; readonly headers: RawHeaders; readonly body: Buffer; readonly after: Milliseconds }
  | { readonly fails: AppFailure };

/** A request as the app received it. */
export interface AppRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: HeaderFields;
  readonly body: Buffer;
}

/** Responds 200 immediately. */
export const DEFAULT_BEHAVIOR: AppBehavior = { status: 200, headers: [], body: Buffer.alloc(0), after: 0 };

/** The failures that it can have. */
export const APP_FAILURES = {
  connect: { nothingSent: true, detail: 'the simulated app refuses connections' },
  timeout: { nothingSent: false, detail: 'the simulated app does not respond' },
  reset: { nothingSent: false, detail: 'the simulated app closes the connection' },
  protocol: { nothingSent: false, detail: 'the simulated app responds with invalid HTTP' },
} satisfies Readonly<Partial<Record<FailureKind, Omit<UpstreamFailure, 'kind'>>>>;
export type AppFailure = keyof typeof APP_FAILURES;

/** One app for all routes of a simulation; routes differ only in their timeouts. */
export class FakeApp {
  behavior: AppBehavior = DEFAULT_BEHAVIOR;
  #received: AppRequest[] = [];

  /** Returns the requests since the last call, in order. */
  takeReceived(): AppRequest[] {
    return this.#received.splice(0);
  }

  /** Gets a request from the simulated queue. Its response, or failure, is not for the sender. */
  receive(request: AppRequest): void {
    this.#received.push(request);
  }

  /** Replaces the gate's connection pools. */
  readonly createUpstream: CreateUpstream = (options, clock) => ({
    send: (request, listener) => this.#send(request, listener, options, clock),
    close: () => undefined,
    destroy: () => undefined,
  });

  #send(
    request: UpstreamRequest,
    listener: UpstreamListener,
    { responseTimeout }: UpstreamOptions,
    clock: Clock,
  ): ReturnType<Upstream['send']> {
    const { behavior } = this;
    let isOver = false;
    const finish = (action: () => void): void => {
      if (!isOver) action();
      isOver = true;
    };
    const respond = (body: Buffer): void => {
      const { method, path, headers } = request;
      const isReached = !('fails' in behavior) || behavior.fails !== 'connect';
      if (isReached) this.#received.push({ method, path, headers: new HeaderFields([...headers]), body });
      const delay =
        'fails' in behavior ? (behavior.fails === 'timeout' ? responseTimeout : 0) : Math.min(behavior.after, responseTimeout);
      const isLate = !('fails' in behavior) && behavior.after > responseTimeout;
      clock.after(delay, () => finish(() => play(isLate ? { fails: 'timeout' } : behavior, method, listener)));
    };
    const exchange: UpstreamExchange = {
      abort: () => {
        isOver = true;
      },
    };
    if (Buffer.isBuffer(request.body)) respond(request.body);
    else collect(request.body, respond);
    return exchange;
  }
}

function collect(content: Exclude<UpstreamRequest['body'], Buffer>, onEnd: (body: Buffer) => void): void {
  const chunks: Buffer[] = [];
  content.start({
    write: (chunk) => {
      chunks.push(chunk);
      return undefined;
    },
    end: () => onEnd(Buffer.concat(chunks)),
    fail: () => undefined,
  });
}

function play(behavior: AppBehavior, method: string, listener: UpstreamListener): void {
  if ('fails' in behavior) return listener.onFailure({ kind: behavior.fails, ...APP_FAILURES[behavior.fails] });
  const { status, headers, body } = behavior;
  const isWithoutBody = status === 204 || status === 304;
  listener.onHead(status, '', isWithoutBody ? headers : [...headers, 'Content-Length', String(body.length)]);
  if (body.length > 0 && !isWithoutBody && method !== 'HEAD') listener.onData(body);
  listener.onEnd([], false);
}
