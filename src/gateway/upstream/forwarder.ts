/** Forwards an admitted request to the app, and the app's response to the sender, and reports the outcome. */

import type { LimitsConfig } from '../../config/schema/config.ts';
import type { Admitted } from '../../core/admitted.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { acceptsTrailers, type RawHeaders } from '../../core/head.ts';
import {
  type BlockedWriter,
  findPause,
  MAX_UNCOUNTED_BYTES,
  type PauseOwner,
  pauseUntilDrained,
  type ReadPause,
  writeCounted,
} from '../../core/reading.ts';
import { type Reason, type RejectionCode, refuse, refuseBody } from '../../core/refusal.ts';
import type { BodyStream, ClientResponse, UpgradeRequest } from '../../core/request.ts';
import { type AddedListener, offEvent, onceEvent, runSoon } from '../../core/safe-events.ts';
import type { ReleaseBuffer } from '../../http/client/response-parser.ts';
import type { Upstream, UpstreamExchange, UpstreamFailure, UpstreamListener } from '../../http/client/upstream.ts';
import type { FailureKind } from '../../http/dial/dial.ts';
import type { RequestTrace } from '../../telemetry/tracing/tracer.ts';
import { ResponseHeaderPolicy } from './headers.ts';
import { type ForwardOutcome, settleByStatus } from './outcome.ts';

/** Builds the header of a request to the app. */
export interface RequestPolicy {
  /** Returns raw pairs in the order they are sent, including the framing header. */
  toUpstreamHeaders(admitted: Admitted, trace: RequestTrace | undefined): string[];
}

/** The settings of a route that the forwarder needs. */
export interface ForwardRoute {
  /** Builds the request header for the app. */
  readonly policy: RequestPolicy;
  /** Which requests are sent again if a reused connection was dead: `idempotent`, by their method, but no webhooks; `always`: all. */
  readonly resend: 'idempotent' | 'always';
  /** Lower-case names of response headers that are passed on although a sender may disable itself because of them. */
  readonly allowResponseHeaders: ReadonlySet<string>;
  /**
   * The refusal if no connection can be opened: an app in the same pod is temporarily away, another destination may not exist.
   */
  readonly connectFailureCode: 'upstream_away' | 'upstream_unreachable';
  readonly readLimits: ReadLimits;
}

/** Forwards the requests of one route. */
export interface Forwarder {
  /** Never rejects. */
  forward(admitted: Admitted, response: ClientResponse, trace?: RequestTrace): Promise<ForwardOutcome>;
}

/** The minimum rates for clients that read, from the config. */
export function toReadLimits(
  limits: Pick<LimitsConfig, 'sendTimeout' | 'streamMinRate' | 'bodyTimeout'>,
  onLimit: (limit: 'send_stall') => void,
): ReadLimits {
  const { sendTimeout, streamMinRate, bodyTimeout } = limits;
  return { sendTimeout, minRate: streamMinRate, enforcedAfter: bodyTimeout, onStall: () => onLimit('send_stall') };
}

/** RFC 9110 §9.2.2. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'TRACE']);

/** Creates the forwarder of a route. */
export function createForwarder(route: ForwardRoute, upstream: Upstream, clock: Clock): Forwarder {
  const responsePolicy = new ResponseHeaderPolicy(route.allowResponseHeaders);
  return {
    forward(admitted, response, trace) {
      const { head, claimed } = admitted;
      const { method, target, upgrade } = head;
      const headers = route.policy.toUpstreamHeaders(admitted, trace);
      // The app may have handled it before it closed the connection, and by any method a webhook must be handled once.
      const isAllowed = route.resend === 'always' || (claimed === undefined && IDEMPOTENT.has(method));
      // A stream cannot be sent a second time.
      const repeatable = isAllowed && Buffer.isBuffer(admitted.body);
      return new Promise((resolve) => {
        const { connectFailureCode, readLimits } = route;
        const relay = new Relay({ responsePolicy, connectFailureCode, readLimits, admitted, response, clock, resolve });
        const body = Buffer.isBuffer(admitted.body) ? admitted.body : relay.observe(admitted.body);
        const leaseEndsAt = claimed?.expiresAt;
        const request = { method, path: target.raw, headers, body, repeatable, isUpgrade: upgrade !== undefined, leaseEndsAt };
        relay.attach(upstream.send(request, relay));
      });
    },
  };
}

// The response from the app to the sender.

/** All other failures: no connection could be opened. */
const REFUSALS: Readonly<Partial<Record<FailureKind, readonly [RejectionCode, Reason]>>> = {
  timeout: ['upstream_timeout', 'upstream_timeout'],
  reset: ['upstream_unreachable', 'upstream_reset'],
  protocol: ['upstream_invalid_response', 'upstream_invalid_response'],
};
const SWITCHING_PROTOCOLS = 101;
const EARLY_HINTS = 103;

/**
 * A link with parameters (RFC 8288 §3) that Node accepts over HTTP/1.1. Node's own expression takes exponential time to reject one: 40
 * parameters and a quote would block the event loop for years. It accepts all links that this one accepts, in linear time.
 */
const LINK = /^<[^<>\r\n]*>(?:[\t ]*;[\t ]*[^;="\s]+(?:=(?:"[^;"\s]*"|[^;"\s]+))?)*$/;

/** A body up to this size is written in one piece with the head: one string takes a fifth less of the CPU of a response than buffers. */
const MAX_SINGLE_WRITE = 8_192;
const MAX_HINT_BYTES = 8_192;

/** Follows an exchange from sending the request to the end of the response. */
class Relay implements UpstreamListener {
  readonly #parts;
  readonly #response: ClientResponse;
  readonly #startedAt: Milliseconds;
  #exchange: UpstreamExchange | undefined;
  #status = 0;
  #contentLength: number | undefined;
  /** The whole body, if it is small and arrived at once. */
  #smallBody: Buffer | undefined;
  #hasBody = false;
  #contentBytes = 0;
  /** Set once the app accepts another protocol. */
  #upgrade: UpgradeRequest | undefined;
  /** Set while a closed response means that the client has disconnected. */
  #onSenderGone: AddedListener | undefined;
  #onClosed: () => void = () => undefined;
  readonly #reads: ClientReads;
  /** The request body is still being sent. */
  #isSending = false;
  #hasHints = false;
  readonly #flushHead = (): void => {
    if (!this.#hasBody && this.#status !== 0 && this.#canWrite()) this.#response.flushHeaders();
  };

  constructor(parts: {
    readonly responsePolicy: ResponseHeaderPolicy;
    /** The refusal code if no connection can be opened. */
    readonly connectFailureCode: RejectionCode;
    readonly admitted: Admitted;
    readonly response: ClientResponse;
    readonly clock: Clock;
    readonly readLimits: ReadLimits;
    readonly resolve: (outcome: ForwardOutcome) => void;
  }) {
    this.#parts = parts;
    this.#response = parts.response;
    this.#startedAt = parts.clock.monotonic();
    this.#reads = new ClientReads(parts.readLimits, parts.admitted.head.body);
  }

  attach(exchange: UpstreamExchange): void {
    this.#exchange = exchange;
    // The app handles a webhook to the end, and its claim is settled, even if the sender disconnects; other requests are canceled.
    if (this.#parts.admitted.claimed !== undefined) return;
    if (this.#response.destroyed) this.#abort('sender_gone');
    else this.#onSenderGone = onceEvent(this.#response, 'close', () => this.#abort('sender_gone'));
  }

  /** Returns the same stream, and observes how it ends. */
  observe(body: BodyStream): BodyStream {
    this.#isSending = true;
    return {
      length: body.length,
      owner: body.owner,
      stop: () => body.stop(),
      fail: (reason) => body.fail(reason),
      start: (consumer) =>
        body.start({
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
    const { httpVersionMinor, socket } = this.#response.req;
    // Other 1xx responses are hop-by-hop or unknown. Hints (RFC 8297) are for the client, unless it uses HTTP/1.0 (RFC 9110 §15.2).
    if (status !== EARLY_HINTS || !this.#canWrite() || httpVersionMinor === 0) return;
    const all = headers.filter((_, i) => i % 2 === 1 && headers[i - 1]?.toLowerCase() === 'link');
    const links = socket === undefined ? all : all.filter((link) => LINK.test(link));
    const bytes = links.reduce((sum, { length }) => sum + length, 0);
    // No pause counts what waits of them. Browsers use only the first ones.
    if (links.length === 0 || bytes > MAX_HINT_BYTES || this.#hasHints) return;
    this.#hasHints = true;
    try {
      this.#response.writeEarlyHints({ link: links });
    } catch {
      // Node rejects invalid Link values; a hint is not worth an error.
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
    // The stream of what the client sends reports it only until the client has ended its side.
    onceEvent(upgrade.writer, 'close', () => this.#abort('sender_gone'));
    const granted = [...fields, 'Connection', 'Upgrade', 'Upgrade', protocol];
    return this.observe(upgrade.grant('101 Switching Protocols', granted));
  }

  onHead(status: number, statusText: string, headers: RawHeaders): void {
    settleByStatus(this.#parts.admitted.claimed?.claim, status);
    const { fields, contentLength } = this.#parts.responsePolicy.toSenderHead(status, headers);
    this.#status = status;
    this.#contentLength = contentLength;
    if (!this.#canWrite()) return;
    // The app responded before it had read the whole request: the rest of the request must not block the connection.
    if (this.#isSending) this.#response.shouldKeepAlive = false;
    try {
      this.#response.writeHead(status, statusText, fields);
      // A body that arrives together with the head is written in one piece with it; a head that arrives alone is sent at once.
      runSoon(this.#flushHead);
    } catch (thrown) {
      this.#reject(toErrorText(thrown));
    }
  }

  onData(chunk: Buffer, releaseBuffer?: ReleaseBuffer): ReadPause | undefined {
    this.#contentBytes += chunk.length;
    this.#reads.onSent(chunk.length);
    const upgrade = this.#upgrade;
    if (upgrade !== undefined) return upgrade.write(chunk, releaseBuffer) ? undefined : this.#reads.waitFor(upgrade.writer);
    if (!this.#canWrite()) {
      releaseBuffer?.();
      return this.#discard();
    }
    this.#hasBody = true;
    if (chunk.length === this.#contentLength && chunk.length <= MAX_SINGLE_WRITE) {
      this.#smallBody = chunk;
      return undefined;
    }
    return writeCounted(this.#response, chunk, releaseBuffer) ? undefined : this.#reads.waitFor(this.#response);
  }

  /** A sender that disconnects does not abort the work of the app: the rest of the response is read, as long as the claim lasts. */
  #discard(): undefined {
    const { admitted, clock } = this.#parts;
    if (clock.monotonic() >= (admitted.claimed?.expiresAt ?? 0)) this.#abort('sender_gone');
  }

  onEnd(trailers: RawHeaders, isRequestWritten: boolean): void {
    if (this.#upgrade !== undefined) {
      const { clock, readLimits } = this.#parts;
      this.#upgrade.close(clock, readLimits.sendTimeout);
      return this.#onClosed();
    }
    // For node:http, the connection of an ended response is idle: the gate would close it at once on shutdown.
    const pause = findPause(this.#response);
    if (pause === undefined) this.#end(trailers);
    else pause.onOver(() => this.#end(trailers));
    const [status, contentBytes, upstreamMs] = [this.#status, this.#contentBytes, this.#elapsed()];
    this.#resolve({ kind: 'responded', status, contentBytes, isRequestWritten, upstreamMs });
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
    const [code, reason] = REFUSALS[failure.kind] ?? ([this.#parts.connectFailureCode, 'upstream_connect'] as const);
    this.#resolve({ kind: 'failed', refusal: refuse(code, reason, failure.detail), failure, upstreamMs });
  }

  #end(trailers: RawHeaders): void {
    if (!this.#canWrite()) return;
    // RFC 9110 §6.5.1: only to a client that accepts trailers, and only if the response is chunked.
    const { headers } = this.#parts.admitted.head;
    if (trailers.length > 0 && this.#response.chunkedEncoding && acceptsTrailers(headers)) this.#addTrailers(trailers);
    if (this.#smallBody === undefined) this.#response.end();
    else this.#response.end(this.#smallBody.toString('latin1'), 'latin1');
    this.#reads.onEnded(this.#response);
  }

  #addTrailers(trailers: RawHeaders): void {
    try {
      this.#response.addTrailers(this.#parts.responsePolicy.toSenderTrailers(trailers));
    } catch {
      // The body is complete without the trailers that Node rejects.
    }
  }

  /** Node rejects this head and has written nothing: treat it as if the app had not responded. */
  #reject(detail: string): void {
    this.#exchange?.abort();
    this.#status = 0;
    // Node keeps the rejected text, and would reject the response of sidegate because of it.
    this.#response.statusMessage = '';
    this.onFailure({ kind: 'protocol', nothingSent: false, detail });
  }

  /** Ends the exchange because of the sender; later events of either side are ignored. */
  #abort(reason: Reason): void {
    this.#exchange?.abort();
    if (this.#upgrade !== undefined) {
      this.#upgrade.destroy();
      return this.#onClosed();
    }
    const status = this.#status;
    // A refusal cannot follow a partial response.
    if (status !== 0) this.#response.destroy();
    const refusal = status !== 0 || this.#response.destroyed ? undefined : refuseBody(reason);
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

  #elapsed(): Milliseconds {
    return this.#parts.clock.monotonic() - this.#startedAt;
  }
}

/** RFC 9110 §7.8: the single protocol that the app names, if the client asked for it. The client would misinterpret any other. */
function findGrantedProtocol(headers: RawHeaders, asked: string): string | undefined {
  const granted = headers.filter((_, i) => i % 2 === 1 && headers[i - 1]?.toLowerCase() === 'upgrade');
  const names = asked.toLowerCase().split(',');
  const [protocol] = granted;
  return granted.length === 1 && names.some((name) => name.trim() === protocol?.toLowerCase()) ? protocol : undefined;
}

/** The minimum rate at which a client must read. */
export interface ReadLimits {
  /** The maximum time without any progress. */
  readonly sendTimeout: Milliseconds;
  /** Bytes per second, enforced once `enforcedAfter` was spent on waiting for the client. */
  readonly minRate: number;
  readonly enforcedAfter: Milliseconds;
  /** A client was disconnected because of one of them. */
  readonly onStall: () => void;
}

/** Bounds how slowly one client may read what it is sent: a response, or the bytes of an upgraded connection or a tunnel. */
export class ClientReads {
  readonly #limits: ReadLimits;
  readonly #client: PauseOwner;
  #sentBytes = 0;
  /** How long its writer has waited for the client so far. */
  #waited: Milliseconds = 0;

  constructor(limits: ReadLimits, client: PauseOwner) {
    this.#limits = limits;
    this.#client = client;
  }

  onSent(bytes: number): void {
    this.#sentBytes += bytes;
    this.#client.pauses.onBytes(bytes);
  }

  /** Counts what waits of a response that has ended: its head, for one, may be large. The response closes once it is sent. */
  onEnded(response: BlockedWriter): void {
    if (response.writableLength > MAX_UNCOUNTED_BYTES) this.waitFor(response);
  }

  /** Pauses until the client takes more. A client that takes nothing for too long, or too little, is disconnected. */
  waitFor(writer: BlockedWriter): ReadPause | undefined {
    const current = findPause(writer);
    if (current !== undefined) return current;
    const disconnect = (isEvicted: boolean): void => {
      if (!isEvicted) this.#limits.onStall();
      writer.destroy();
    };
    const pause = pauseUntilDrained(writer, this.#client, this.#limits.sendTimeout, disconnect);
    pause?.onOver(() => {
      this.#waited += this.#client.pauses.clock.monotonic() - pause.startedAt;
      if (this.#isTooSlow()) disconnect(false);
    });
    return pause;
  }

  /** A client that reads a few bytes at a time could otherwise hold its slot indefinitely. */
  #isTooSlow(): boolean {
    const { minRate, enforcedAfter } = this.#limits;
    return this.#waited > enforcedAfter && this.#sentBytes < (this.#waited / 1_000) * minRate;
  }
}
