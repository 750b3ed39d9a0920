/** The exchange with the app on node:http: keep-alive connections, timeouts, and one retry if a reused connection was closed. */
import { Agent, type ClientRequest, type IncomingMessage, request as openRequest } from 'node:http';
import type { Socket } from 'node:net';
import type { CancelTimer, Clock } from '../src/core/clock.ts';
import type {
  Upstream,
  UpstreamExchange,
  UpstreamFailure,
  UpstreamListener,
  UpstreamOptions,
  UpstreamRequest,
} from '../src/http/client/upstream.ts';

/** Builds the pool of connections to one app. */
export function createNodeHttpUpstream(options: UpstreamOptions, clock: Clock): Upstream {
  const agent = new Agent({
    keepAlive: true,
    maxSockets: options.maxConnections,
    maxFreeSockets: options.maxConnections,
    timeout: options.idleTimeout,
    scheduling: 'lifo',
  });
  return {
    send: (request, listener) => new Attempt({ options, clock, agent, request, listener }),
    close() {
      // Busy connections finish their exchange and are then closed.
      agent.maxFreeSockets = 0;
      for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
    },
    destroy: () => agent.destroy(),
  };
}

interface AttemptParts {
  readonly options: UpstreamOptions;
  readonly clock: Clock;
  readonly agent: Agent;
  readonly request: UpstreamRequest;
  readonly listener: UpstreamListener;
}

/** Protocol errors of Node's parser, including its error for heads that are too large. */
const PARSE_ERROR = /^HPE_/;

class Attempt implements UpstreamExchange {
  readonly #parts: AttemptParts;
  #outgoing: ClientRequest;
  #answer: IncomingMessage | undefined;
  #cancelTimer: CancelTimer;
  #isConnected = false;
  #isOver = false;
  #wasRepeated = false;

  constructor(parts: AttemptParts) {
    this.#parts = parts;
    this.#cancelTimer = () => undefined;
    this.#outgoing = this.#open();
  }

  abort(): void {
    this.#isOver = true;
    this.#cancelTimer();
    this.#outgoing.destroy();
  }

  #open(): ClientRequest {
    const { options, agent, request } = this.#parts;
    const outgoing = openRequest({
      agent: this.#wasRepeated ? false : agent,
      host: options.host,
      port: options.port,
      method: request.method,
      path: request.path,
      // Sent unchanged: order, case and repetition are kept.
      headers: request.headers as string[],
      maxHeaderSize: options.maxHeadBytes,
      setHost: false,
    });
    outgoing.on('socket', (socket) => this.#onSocket(socket));
    outgoing.on('information', ({ statusCode, rawHeaders }) => this.#parts.listener.onInformation(statusCode, rawHeaders));
    outgoing.on('response', (answer) => this.#onAnswer(answer));
    outgoing.on('upgrade', (_answer, socket) => {
      socket.destroy();
      this.#fail({ kind: 'protocol', nothingSent: false, detail: 'the app switched protocols unasked' });
    });
    outgoing.on('error', (error: NodeJS.ErrnoException) => this.#onError(error));
    outgoing.end(request.body);
    return outgoing;
  }

  #onSocket(socket: Socket): void {
    const { options } = this.#parts;
    if (!socket.connecting) return this.#onConnected();
    this.#setTimer(options.connectTimeout, {
      kind: 'connect',
      nothingSent: true,
      detail: `no connection within ${options.connectTimeout} ms`,
    });
    socket.once('connect', () => this.#onConnected());
  }

  #onConnected(): void {
    const { responseTimeout } = this.#parts.options;
    this.#isConnected = true;
    this.#setTimer(responseTimeout, { kind: 'timeout', nothingSent: false, detail: `no answer within ${responseTimeout} ms` });
  }

  #onAnswer(answer: IncomingMessage): void {
    const { listener, options } = this.#parts;
    this.#answer = answer;
    const stalled: UpstreamFailure = {
      kind: 'timeout',
      nothingSent: false,
      detail: `the response stalled for ${options.responseTimeout} ms`,
    };
    this.#setTimer(options.responseTimeout, stalled);
    answer.on('data', (chunk: Buffer) => {
      if (this.#isOver) return;
      this.#setTimer(options.responseTimeout, stalled);
      listener.onData(chunk)?.hold(answer);
    });
    answer.on('end', () => {
      // Node also emits the end of a truncated response, so completeness is checked.
      if (answer.complete) this.#finish(() => listener.onEnd(answer.rawTrailers, false));
    });
    answer.on('error', () => undefined);
    answer.on('close', () => this.#fail({ kind: 'reset', nothingSent: false, detail: 'the response is incomplete' }));
    listener.onHead(answer.statusCode ?? 0, answer.statusMessage ?? '', answer.rawHeaders);
  }

  #onError(error: NodeJS.ErrnoException): void {
    if (this.#isOver) return;
    if (!this.#isConnected) return this.#fail({ kind: 'connect', nothingSent: true, detail: error.code ?? error.message });
    if (PARSE_ERROR.test(error.code ?? '')) return this.#fail({ kind: 'protocol', nothingSent: false, detail: error.code ?? '' });
    // The app closed an idle connection while the request was sent. No byte of a response arrived, so idempotent requests are sent again.
    if (this.#outgoing.reusedSocket && this.#answer === undefined && this.#parts.request.repeatable && !this.#wasRepeated) {
      this.#wasRepeated = true;
      this.#isConnected = false;
      this.#outgoing = this.#open();
      return;
    }
    this.#fail({ kind: 'reset', nothingSent: false, detail: error.code ?? error.message });
  }

  #setTimer(delay: number, failure: UpstreamFailure): void {
    this.#cancelTimer();
    this.#cancelTimer = this.#parts.clock.after(delay, () => this.#fail(failure));
  }

  #fail(failure: UpstreamFailure): void {
    this.#finish(() => this.#parts.listener.onFailure(failure));
    this.#outgoing.destroy();
  }

  #finish(tell: () => void): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelTimer();
    tell();
  }
}
