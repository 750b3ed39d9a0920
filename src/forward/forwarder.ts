/** Takes an admitted request to the app and the app's answer back to the sender, and says how it ended. */
import type { ServerResponse } from 'node:http';
import type { Admitted } from '../core/admitted.ts';
import type { Clock, Milliseconds } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import type { ContentStream } from '../core/exchange.ts';
import type { RawHeaders } from '../core/headers.ts';
import { type Reason, type Refusal, type RefusalCode, refuse } from '../core/refusal.ts';
import { type HeaderContext, HeaderPolicy } from './request-headers.ts';
import { AnswerPolicy } from './response-headers.ts';
import type { AnswerListener, Upstream, UpstreamExchange, UpstreamFailure, UpstreamFailureKind } from './upstream.ts';

/** What the forwarder needs of its route. */
export interface ForwardRoute {
  /** What the app is told beside the request. */
  readonly header: HeaderContext;
  /** `idempotent`: only what its method allows to repeat is sent again on a dead connection; `always`: POST, too. */
  readonly resend: 'idempotent' | 'always';
  /** Lower-cased names of response headers that are passed although a sender may switch itself off by them. */
  readonly allowResponseHeaders: ReadonlySet<string>;
}

/** How it ended. */
export type ForwardOutcome =
  /** The app's whole answer came; whether the sender was still there to take it does not matter. */
  | { readonly kind: 'answered'; readonly status: number; readonly upstreamMs: Milliseconds }
  /** Nothing was written to the sender yet: the refusal is still to be answered. */
  | { readonly kind: 'failed'; readonly refusal: Refusal; readonly failure: UpstreamFailure; readonly upstreamMs: Milliseconds }
  /** The app died within its answer: the sender's connection was cut, so that it cannot mistake the part for the whole. */
  | { readonly kind: 'broken'; readonly status: number; readonly failure: UpstreamFailure; readonly upstreamMs: Milliseconds }
  /** The sender left or sent too slowly, and the app was told by a cut connection; the refusal is for a sender that is still there. */
  | {
      readonly kind: 'aborted';
      readonly status: number;
      readonly refusal: Refusal | undefined;
      readonly upstreamMs: Milliseconds;
    };

/** Forwards for one route. */
export interface Forwarder {
  /** Never rejects. */
  forward(admitted: Admitted, response: ServerResponse): Promise<ForwardOutcome>;
}

/** What the outcome means for the event's claim. */
export function settlementOf(outcome: ForwardOutcome): 'confirm' | 'release' | 'hold' {
  switch (outcome.kind) {
    case 'answered':
      return outcome.status >= 200 && outcome.status < 300 ? 'confirm' : 'release';
    case 'failed':
      // The app may be at work on it still: only the lease's end makes it safe to hand the event out again.
      return outcome.failure.nothingSent ? 'release' : 'hold';
    case 'broken':
    case 'aborted':
      return 'hold';
  }
}

const REFUSAL_OF: Readonly<Record<UpstreamFailureKind, readonly [RefusalCode, Reason]>> = {
  connect: ['upstream_unreachable', 'upstream_connect'],
  timeout: ['upstream_timeout', 'upstream_timeout'],
  reset: ['upstream_unreachable', 'upstream_reset'],
  protocol: ['upstream_invalid_response', 'upstream_invalid_response'],
};
/** RFC 9110 §9.2.2. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'TRACE']);
const EARLY_HINTS = 103;
const TAKES_TRAILERS = /(?:^|,)[\t ]*trailers[\t ]*(?:,|$)/i;
/** How long a sender may take none of the answer. */
const SENDER_STALL_MS = 30_000;

/** Content this small goes out in one piece with the head: as one string it costs a fifth less of the answer than as buffers. */
const SMALL_CONTENT = 8_192;

/** Builds the forwarder of a route. */
export function createForwarder(route: ForwardRoute, upstream: Upstream, clock: Clock): Forwarder {
  const requestPolicy = new HeaderPolicy(route.header);
  const answerPolicy = new AnswerPolicy(route.allowResponseHeaders);
  return {
    forward(admitted, response) {
      const { method, target } = admitted.exchange;
      const headers = requestPolicy.toUpstreamHeaders(admitted);
      // A stream is gone once it was sent.
      const repeatable = Buffer.isBuffer(admitted.body) && (route.resend === 'always' || IDEMPOTENT.has(method));
      return new Promise((resolve) => {
        const relay = new Relay({ answerPolicy, admitted, response, clock, resolve });
        const body = Buffer.isBuffer(admitted.body) ? admitted.body : relay.watch(admitted.body);
        relay.follow(upstream.send({ method, path: target.raw, headers, body, repeatable }, relay));
      });
    },
  };
}

interface RelayParts {
  readonly answerPolicy: AnswerPolicy;
  readonly admitted: Admitted;
  readonly response: ServerResponse;
  readonly clock: Clock;
  readonly resolve: (outcome: ForwardOutcome) => void;
}

/** Carries one answer from the app to the sender. */
class Relay implements AnswerListener {
  readonly #parts: RelayParts;
  readonly #response: ServerResponse;
  readonly #startedAt: Milliseconds;
  #exchange: UpstreamExchange | undefined;
  #status = 0;
  #contentLength: number | undefined;
  /** All of the content, where it is small and came at once. */
  #whole: Buffer | undefined;
  #hasContent = false;
  #isWaiting = false;
  /** The request's content is still on its way. */
  #isSending = false;
  readonly #flushHead = (): void => {
    if (!this.#hasContent && this.#status !== 0 && this.#canWrite()) this.#response.flushHeaders();
  };
  readonly #onSenderGone = (): void => this.#abort('sender_gone');

  constructor(parts: RelayParts) {
    this.#parts = parts;
    this.#response = parts.response;
    this.#startedAt = parts.clock.monotonic();
  }

  follow(exchange: UpstreamExchange): void {
    this.#exchange = exchange;
    // A webhook's work goes on without its sender, and is settled; whoever asked for anything else asks no more.
    if (this.#parts.admitted.exchange.facts.delivery === undefined) this.#response.once('close', this.#onSenderGone);
  }

  /** The same stream, with an ear on how it ends. */
  watch(content: ContentStream): ContentStream {
    this.#isSending = true;
    return {
      length: content.length,
      resume: () => content.resume(),
      stop: () => content.stop(),
      start: (consumer) =>
        content.start({
          write: (chunk) => consumer.write(chunk),
          end: () => {
            this.#isSending = false;
            consumer.end();
          },
          fail: (reason) => {
            consumer.fail(reason);
            this.#abort(reason);
          },
        }),
    };
  }

  onInformation(status: number, headers: RawHeaders): void {
    // Others are of the app's hop, or unknown; RFC 8297 hints are for the client, unless it is an old one (RFC 9110 §15.2).
    if (status !== EARLY_HINTS || !this.#canWrite() || this.#response.req.httpVersionMinor === 0) return;
    const links: string[] = [];
    for (let i = 0; i < headers.length; i += 2) if (headers[i]?.toLowerCase() === 'link') links.push(headers[i + 1] as string);
    try {
      if (links.length > 0) this.#response.writeEarlyHints({ link: links });
    } catch {
      // Node refuses odd Link values; a hint is nothing to fail for.
    }
  }

  onHead(status: number, statusText: string, headers: RawHeaders): void {
    const { fields, contentLength } = this.#parts.answerPolicy.toSenderHead(status, headers);
    this.#status = status;
    this.#contentLength = contentLength;
    if (!this.#canWrite()) return;
    // Answered before it had all of the request: what is left of that must not hold the connection.
    if (this.#isSending) this.#response.shouldKeepAlive = false;
    try {
      this.#response.writeHead(status, statusText, fields);
      // Content that came along goes out in one piece with the head; a head that came alone does not wait for it.
      queueMicrotask(this.#flushHead);
    } catch (thrown) {
      this.#reject(toErrorText(thrown));
    }
  }

  onData(chunk: Buffer): boolean {
    // A sender that left does not abort the app's work: the rest of the answer is read and thrown away.
    if (!this.#canWrite()) return true;
    this.#hasContent = true;
    if (chunk.length === this.#contentLength && chunk.length <= SMALL_CONTENT) {
      this.#whole = chunk;
      return true;
    }
    if (this.#response.write(chunk)) return true;
    this.#waitForSender();
    return false;
  }

  onEnd(trailers: RawHeaders): void {
    if (this.#canWrite()) {
      if (trailers.length > 0 && this.#takesTrailers())
        this.#response.addTrailers(this.#parts.answerPolicy.toSenderTrailers(trailers));
      if (this.#whole === undefined) this.#response.end();
      else this.#response.end(this.#whole.toString('latin1'), 'latin1');
    }
    this.#resolve({ kind: 'answered', status: this.#status, upstreamMs: this.#elapsed() });
  }

  onFailure(failure: UpstreamFailure): void {
    const upstreamMs = this.#elapsed();
    if (this.#status !== 0) {
      this.#response.destroy();
      return this.#resolve({ kind: 'broken', status: this.#status, failure, upstreamMs });
    }
    const [code, reason] = REFUSAL_OF[failure.kind];
    this.#resolve({ kind: 'failed', refusal: refuse(code, reason, failure.detail), failure, upstreamMs });
  }

  /** The app is paused until the sender takes more; one that takes nothing for too long is cut off, and the answer read to its end. */
  #waitForSender(): void {
    // What is read already comes on even so.
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    const response = this.#response;
    const cancel = this.#parts.clock.after(SENDER_STALL_MS, () => response.destroy());
    const go = (): void => {
      this.#isWaiting = false;
      cancel();
      response.off('drain', go);
      response.off('close', go);
      this.#exchange?.resume();
    };
    response.on('drain', go);
    response.on('close', go);
  }

  /** Node will not write this head, and nothing of it is written: it is as if no answer had come. */
  #reject(detail: string): void {
    this.#exchange?.abort();
    this.#status = 0;
    // Node keeps what it refused, and would refuse the gate's own answer for it.
    this.#response.statusMessage = '';
    this.onFailure({ kind: 'protocol', nothingSent: false, detail });
  }

  /** Ends the exchange for the sender's sake; later news of either side count no more. */
  #abort(reason: Reason): void {
    this.#exchange?.abort();
    const status = this.#status;
    // Half an answer cannot be followed by a refusal.
    if (status !== 0) this.#response.destroy();
    const refusal = status !== 0 || this.#response.destroyed ? undefined : toSenderRefusal(reason);
    this.#resolve({ kind: 'aborted', status, refusal, upstreamMs: this.#elapsed() });
  }

  #resolve(outcome: ForwardOutcome): void {
    this.#response.off('close', this.#onSenderGone);
    this.#parts.resolve(outcome);
  }

  #canWrite(): boolean {
    return !this.#response.destroyed && !this.#response.writableEnded;
  }

  /** RFC 9110 §6.5.1: only to whoever says that it takes them, and only where chunks carry them. */
  #takesTrailers(): boolean {
    const { headers } = this.#parts.admitted.exchange;
    return this.#response.chunkedEncoding && headers.all('te').some((line) => TAKES_TRAILERS.test(line));
  }

  #elapsed(): Milliseconds {
    return this.#parts.clock.monotonic() - this.#startedAt;
  }
}

function toSenderRefusal(reason: Reason): Refusal {
  return refuse(reason === 'body_timeout' ? 'request_timeout' : 'malformed_request', reason);
}
