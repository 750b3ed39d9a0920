/** Fakes the apps in the simulator: records what the gate would have sent, and responds as the fixture says. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { HeaderFields, type RawHeaders } from '../../core/headers.ts';
import type { CreateUpstream } from '../../gateway/runtime/upstreams.ts';
import type {
  AnswerListener,
  Upstream,
  UpstreamExchange,
  UpstreamFailure,
  UpstreamFailureKind,
  UpstreamOptions,
  UpstreamRequest,
} from '../../gateway/upstream/upstream.ts';

/** How the app deals with the next request. */
export type AppPlan =
  | { readonly status: number; readonly headers: RawHeaders; readonly body: Buffer; readonly after: Milliseconds }
  | { readonly fails: UpstreamFailureKind };

/** What the app got. */
export interface AppSight {
  readonly method: string;
  readonly path: string;
  readonly headers: HeaderFields;
  readonly body: Buffer;
}

/** An app that answers 200 at once. */
export const WILLING_APP: AppPlan = { status: 200, headers: [], body: Buffer.alloc(0), after: 0 };

const FAILURES: Readonly<Record<UpstreamFailureKind, Omit<UpstreamFailure, 'kind'>>> = {
  connect: { nothingSent: true, detail: 'the rehearsed app takes no connections' },
  timeout: { nothingSent: false, detail: 'the rehearsed app does not answer' },
  reset: { nothingSent: false, detail: 'the rehearsed app closes the connection' },
  protocol: { nothingSent: false, detail: 'the rehearsed app answers with what is no HTTP' },
};

/** All apps of a simulation; they differ only in how long each route waits. */
export class FakeApp {
  plan: AppPlan = WILLING_APP;
  #seen: AppSight[] = [];

  /** What was sent to it since it was last asked, in order. */
  takeSeen(): AppSight[] {
    return this.#seen.splice(0);
  }

  /** For the gate, in place of its pools. */
  readonly createUpstream: CreateUpstream = (options, clock) => ({
    send: (request, listener) => this.#send(request, listener, options, clock),
    close: () => undefined,
    destroy: () => undefined,
  });

  #send(
    request: UpstreamRequest,
    listener: AnswerListener,
    { answerTimeout }: UpstreamOptions,
    clock: Clock,
  ): ReturnType<Upstream['send']> {
    const { plan } = this;
    let isOver = false;
    const finish = (action: () => void): void => {
      if (!isOver) action();
      isOver = true;
    };
    const answer = (body: Buffer): void => {
      const { method, path, headers } = request;
      const isReached = !('fails' in plan) || plan.fails !== 'connect';
      if (isReached) this.#seen.push({ method, path, headers: new HeaderFields([...headers]), body });
      const delay = 'fails' in plan ? (plan.fails === 'timeout' ? answerTimeout : 0) : Math.min(plan.after, answerTimeout);
      const isLate = !('fails' in plan) && plan.after > answerTimeout;
      clock.after(delay, () => finish(() => tell(isLate ? { fails: 'timeout' } : plan, method, listener)));
    };
    const exchange: UpstreamExchange = {
      resume: () => undefined,
      abort: () => {
        isOver = true;
      },
    };
    if (Buffer.isBuffer(request.body)) answer(request.body);
    else collect(request.body, answer);
    return exchange;
  }
}

function collect(content: Exclude<UpstreamRequest['body'], Buffer>, onEnd: (body: Buffer) => void): void {
  const chunks: Buffer[] = [];
  content.start({
    write: (chunk) => {
      chunks.push(chunk);
      return true;
    },
    end: () => onEnd(Buffer.concat(chunks)),
    fail: () => undefined,
  });
}

function tell(plan: AppPlan, method: string, listener: AnswerListener): void {
  if ('fails' in plan) return listener.onFailure({ kind: plan.fails, ...FAILURES[plan.fails] });
  const { status, headers, body } = plan;
  const isBare = status === 204 || status === 304;
  listener.onHead(status, '', isBare ? headers : [...headers, 'Content-Length', String(body.length)]);
  if (body.length > 0 && !isBare && method !== 'HEAD') listener.onData(body);
  listener.onEnd([]);
}
