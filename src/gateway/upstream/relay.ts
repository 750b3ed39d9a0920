/** Carries one answer from the app to the sender. */
import type { Admitted } from '../../core/admitted.ts';
import type { BodyStream } from '../../core/body.ts';
import type { ClientResponse } from '../../core/client-response.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { acceptsTrailers, type RawHeaders } from '../../core/headers.ts';
import type { UpgradeRequest } from '../../core/parsed-head.ts';
import { type Reason, type Refusal, type RefusalCode, refuse } from '../../core/refusal.ts';
import { type AddedListener, afterWrite, offEvent, onceEvent, onEvent, runSoon } from '../../core/safe-events.ts';
import type { ForwardOutcome } from './outcome.ts';
import type { ReleaseBuffer } from './read-buffers.ts';
import type { ResponseHeaderPolicy } from './response-headers.ts';
import type { UpstreamExchange, UpstreamFailure, UpstreamFailureKind, UpstreamListener } from './upstream.ts';

const REFUSALS: Readonly<Record<Exclude<UpstreamFailureKind, 'connect'>, readonly [RefusalCode, Reason]>> = {
  timeout: ['upstream_timeout', 'upstream_timeout'],
  reset: ['upstream_unreachable', 'upstream_reset'],
  protocol: ['upstream_invalid_response', 'upstream_invalid_response'],
};
const SWITCHING_PROTOCOLS = 101;
const EARLY_HINTS = 103;
/** How slowly a client may read a response. */
export interface ReadLimits {
  /** Longest time without any progress. */
  readonly sendTimeout: Milliseconds;
  /** Bytes per second, judged once the response has waited for the client for `judgedAfter`. */
  readonly minRate: number;
  readonly judgedAfter: Milliseconds;
}

/** Content this small goes out in one piece with the head: as one string it costs a fifth less of the answer than as buffers. */
const MAX_SINGLE_WRITE = 8_192;

/** What a relay stands on. */
export interface RelayParts {
  readonly responsePolicy: ResponseHeaderPolicy;
  /** What a sender is told where nobody takes the connection. */
  readonly connectFailureCode: RefusalCode;
  readonly admitted: Admitted;
  readonly response: ClientResponse;
  readonly clock: Clock;
  readonly readLimits: ReadLimits;
  readonly resolve: (outcome: ForwardOutcome) => void;
}

/** From the request's leaving to the answer's end. */
export class Relay implements UpstreamListener {
  readonly #parts: RelayParts;
  readonly #response: ClientResponse;
  readonly #startedAt: Milliseconds;
  #exchange: UpstreamExchange | undefined;
  #status = 0;
  #contentLength: number | undefined;
  /** All of the content, where it is small and came at once. */
  #smallBody: Buffer | undefined;
  #hasBody = false;
  #contentBytes = 0;
  /** Where another protocol was granted. */
  #upgrade: UpgradeRequest | undefined;
  /** While the response's end means that whoever asked is gone. */
  #onSenderGone: AddedListener | undefined;
  #onClosed: () => void = () => undefined;
  #isWaiting = false;
  /** How long the response has waited for its client so far. */
  #waited: Milliseconds = 0;
  /** The request's content is still on its way. */
  #isSending = false;
  readonly #flushHead = (): void => {
    if (!this.#hasBody && this.#status !== 0 && this.#canWrite()) this.#response.flushHeaders();
  };

  constructor(parts: RelayParts) {
    this.#parts = parts;
    this.#response = parts.response;
    this.#startedAt = parts.clock.monotonic();
  }

  attach(exchange: UpstreamExchange): void {
    this.#exchange = exchange;
    // A webhook's work goes on without its sender, and is settled; whoever asked for anything else asks no more.
    if (this.#parts.admitted.claimed === undefined)
      this.#onSenderGone = onceEvent(this.#response, 'close', () => this.#abort('sender_gone'));
  }

  /** The same stream, with an ear on how it ends. */
  observe(content: BodyStream): BodyStream {
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

  onUpgrade(headers: RawHeaders): BodyStream | undefined {
    const { responsePolicy, admitted } = this.#parts;
    const upgrade = admitted.head.upgrade as UpgradeRequest;
    const protocol = findGrantedProtocol(headers, upgrade.protocol);
    if (protocol === undefined) return undefined;
    const { fields } = responsePolicy.toSenderHead(SWITCHING_PROTOCOLS, headers);
    this.#upgrade = upgrade;
    this.#stopListening();
    const closed = new Promise<void>((resolve) => {
      this.#onClosed = resolve;
    });
    this.#resolve({ kind: 'upgraded', status: SWITCHING_PROTOCOLS, closed, upstreamMs: this.#elapsed() });
    return this.observe(upgrade.grant('101 Switching Protocols', [...fields, 'Connection', 'Upgrade', 'Upgrade', protocol]));
  }

  onHead(status: number, statusText: string, headers: RawHeaders): void {
    const { fields, contentLength } = this.#parts.responsePolicy.toSenderHead(status, headers);
    this.#status = status;
    this.#contentLength = contentLength;
    if (!this.#canWrite()) return;
    // Answered before it had all of the request: what is left of that must not hold the connection.
    if (this.#isSending) this.#response.shouldKeepAlive = false;
    try {
      this.#response.writeHead(status, statusText, fields);
      // Content that came along goes out in one piece with the head; a head that came alone does not wait for it.
      runSoon(this.#flushHead);
    } catch (thrown) {
      this.#reject(toErrorText(thrown));
    }
  }

  onData(chunk: Buffer, releaseBuffer?: ReleaseBuffer): boolean {
    if (this.#upgrade !== undefined) return this.#writeUpgraded(this.#upgrade, chunk);
    this.#contentBytes += chunk.length;
    // A sender that left does not abort the app's work: the rest of the answer is read and thrown away.
    if (!this.#canWrite()) return true;
    this.#hasBody = true;
    if (chunk.length === this.#contentLength && chunk.length <= MAX_SINGLE_WRITE) {
      this.#smallBody = chunk;
      return true;
    }
    // Memory that a broken connection may still hold is left to the garbage collector.
    const onWritten = releaseBuffer && afterWrite(releaseBuffer);
    // A chunk is as large as what Node would hold back before it asks for a pause: what the system has taken already needs none.
    if (this.#response.write(chunk, onWritten) || this.#response.writableLength === 0) return true;
    this.#waitForSender();
    return false;
  }

  onEnd(trailers: RawHeaders): void {
    if (this.#upgrade !== undefined) {
      this.#upgrade.end();
      return this.#onClosed();
    }
    // For node:http an answer that was ended is over, and its connection idle: one of these is closed at once when the gate stops.
    if (this.#isWaiting) onceEvent(this.#response, 'drain', () => this.#end(trailers));
    else this.#end(trailers);
    this.#resolve({ kind: 'responded', status: this.#status, contentBytes: this.#contentBytes, upstreamMs: this.#elapsed() });
  }

  onFailure(failure: UpstreamFailure): void {
    if (this.#upgrade !== undefined) {
      this.#upgrade.destroy();
      return this.#onClosed();
    }
    const upstreamMs = this.#elapsed();
    if (this.#status !== 0) {
      this.#response.destroy();
      return this.#resolve({ kind: 'broken', status: this.#status, contentBytes: this.#contentBytes, failure, upstreamMs });
    }
    const [code, reason] =
      failure.kind === 'connect' ? ([this.#parts.connectFailureCode, 'upstream_connect'] as const) : REFUSALS[failure.kind];
    this.#resolve({ kind: 'failed', refusal: refuse(code, reason, failure.detail), failure, upstreamMs });
  }

  #end(trailers: RawHeaders): void {
    if (!this.#canWrite()) return;
    if (trailers.length > 0 && this.#acceptsTrailers()) this.#addTrailers(trailers);
    if (this.#smallBody === undefined) this.#response.end();
    else this.#response.end(this.#smallBody.toString('latin1'), 'latin1');
  }

  #addTrailers(trailers: RawHeaders): void {
    try {
      this.#response.addTrailers(this.#parts.responsePolicy.toSenderTrailers(trailers));
    } catch {
      // The content is complete without those that Node rejects.
    }
  }

  #writeUpgraded(upgrade: UpgradeRequest, chunk: Buffer): boolean {
    const isTaken = upgrade.write(chunk);
    if (!isTaken) upgrade.onDrain(() => this.#exchange?.resume());
    return isTaken;
  }

  /** The app is paused until the sender takes more; one that takes nothing for too long is cut off, and the answer read to its end. */
  #waitForSender(): void {
    // What is read already comes on even so.
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    const response = this.#response;
    const { clock, readLimits } = this.#parts;
    const since = clock.monotonic();
    const cancel = clock.after(readLimits.sendTimeout, () => response.destroy());
    const proceed = (): void => {
      this.#isWaiting = false;
      this.#waited += clock.monotonic() - since;
      cancel();
      offEvent(response, 'drain', onDrain);
      offEvent(response, 'close', onClose);
      if (this.#isReadTooSlowly(readLimits)) response.destroy();
      this.#exchange?.resume();
    };
    const onDrain = onEvent(response, 'drain', proceed);
    const onClose = onEvent(response, 'close', proceed);
  }

  /** A client that keeps a trickle going would hold its place with the app for as long as it likes. */
  #isReadTooSlowly({ minRate, judgedAfter }: ReadLimits): boolean {
    return this.#waited > judgedAfter && this.#contentBytes < (this.#waited / 1_000) * minRate;
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
    if (this.#upgrade !== undefined) {
      this.#upgrade.destroy();
      return this.#onClosed();
    }
    const status = this.#status;
    // Half an answer cannot be followed by a refusal.
    if (status !== 0) this.#response.destroy();
    const refusal = status !== 0 || this.#response.destroyed ? undefined : toSenderRefusal(reason);
    this.#resolve({ kind: 'aborted', status, contentBytes: this.#contentBytes, refusal, upstreamMs: this.#elapsed() });
  }

  #resolve(outcome: ForwardOutcome): void {
    this.#stopListening();
    this.#parts.resolve(outcome);
  }

  #stopListening(): void {
    if (this.#onSenderGone !== undefined) offEvent(this.#response, 'close', this.#onSenderGone);
    this.#onSenderGone = undefined;
  }

  #canWrite(): boolean {
    return !this.#response.destroyed && !this.#response.writableEnded;
  }

  /** RFC 9110 §6.5.1: only to whoever says that it takes them, and only where chunks carry them. */
  #acceptsTrailers(): boolean {
    return this.#response.chunkedEncoding && acceptsTrailers(this.#parts.admitted.head.headers);
  }

  #elapsed(): Milliseconds {
    return this.#parts.clock.monotonic() - this.#startedAt;
  }
}

function toSenderRefusal(reason: Reason): Refusal {
  return refuse(reason === 'body_timeout' ? 'request_timeout' : 'malformed_request', reason);
}

/** RFC 9110 §7.8: one that the client asked for, and said. Anything else would be read by the client as what it is not. */
function findGrantedProtocol(headers: RawHeaders, asked: string): string | undefined {
  const granted = headers.filter((_, i) => i % 2 === 1 && headers[i - 1]?.toLowerCase() === 'upgrade');
  const names = asked.toLowerCase().split(',');
  const [protocol] = granted;
  return granted.length === 1 && names.some((name) => name.trim() === protocol?.toLowerCase()) ? protocol : undefined;
}
