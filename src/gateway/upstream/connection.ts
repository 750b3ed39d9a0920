/** A kept-alive connection to the app, with one exchange at a time. */
import { connect, type Socket } from 'node:net';
import type { BodyStream } from '../../core/body.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { LEASE_MARGIN_MS } from '../../core/event.ts';
import type { RawHeaders } from '../../core/headers.ts';
import { toAddressText } from '../../core/listen-address.ts';
import { lookUpForConnect } from '../../core/name-lookup.ts';
import { pauseUntilDrained, type ReadPause } from '../../core/read-pause.ts';
import { onEvent } from '../../core/safe-events.ts';
import type { ResponseHead, ResponseHeads } from '../../http/client/response-head.ts';
import { type ParserEvents, ResponseParser } from '../../http/client/response-parser.ts';
import { BodyWriter, writeRequest } from './body-writer.ts';
import { ConnectionReader, type ReadBuffers } from './read-buffers.ts';
import type { UpstreamFailure, UpstreamListener, UpstreamOptions, UpstreamRequest } from './upstream.ts';

/** A request in the pool, with the listener for its response. */
export interface Job {
  readonly request: UpstreamRequest;
  readonly listener: UpstreamListener;
  /** The connection that sends it now. */
  connection: Connection | undefined;
  /** Set once a byte of it may have reached the app. */
  isSent: boolean;
}

/** The part of the pool that a connection uses. */
export interface ConnectionOwner {
  readonly options: UpstreamOptions;
  /** The read buffers of its connections, and the latest heads of their responses. */
  readonly buffers: ReadBuffers;
  readonly heads: ResponseHeads;
  readonly clock: Clock;
  /** The exchange is over, and the connection is free for another. */
  onFree(connection: Connection): void;
  /** The connection switched to another protocol, and does not return to the pool. */
  onUpgraded(connection: Connection): void;
  /** The connection is closed. */
  onClosed(connection: Connection): void;
  /** A reused connection was dead before it received any byte of a response: the job can be sent again. */
  onDeadOnReuse(job: Job): void;
}

/** How long before the app's idle timeout a connection is closed, so that no request crosses the app's close. */
const IDLE_MARGIN_MS = 1_000;

/** A connection from connect to close. */
export class Connection implements ParserEvents {
  readonly #owner: ConnectionOwner;
  readonly #socket: Socket;
  readonly #parser: ResponseParser;
  readonly #reader: ConnectionReader;
  #job: Job | undefined;
  /** The body that is still being sent. */
  #bodyWriter: BodyWriter | undefined;
  #isConnected = false;
  #isClosed = false;
  #isReused = false;
  #hasResponseBytes = false;
  #hasHead = false;
  #keepsAlive = false;
  #isUpgraded = false;
  /** The listener takes no more of the response for now. */
  #pause: ReadPause | undefined;
  #idleTimeout: Milliseconds;
  #deadline: Milliseconds;

  constructor(owner: ConnectionOwner, job: Job) {
    const { options } = owner;
    this.#owner = owner;
    this.#reader = new ConnectionReader(owner.buffers);
    this.#parser = new ResponseParser(this, options.maxHeadBytes, owner.heads);
    this.#job = job;
    job.connection = this;
    this.#idleTimeout = options.idleTimeout;
    this.#deadline = owner.clock.monotonic() + options.connectTimeout;
    this.#socket = connect({
      host: options.host,
      port: options.port,
      lookup: lookUpForConnect,
      noDelay: true,
      keepAlive: true,
      // A shared buffer: allocating 64 KiB for each read took a tenth of the CPU of an exchange (bench/forward-micro.ts).
      onread: this.#reader.toOnRead(
        (bytes) => this.#onRead(bytes),
        () => this.#socket.destroy(),
      ),
    });
    onEvent(this.#socket, 'connect', () => this.#onConnect());
    onEvent(this.#socket, 'end', () => this.#onEnd());
    onEvent(this.#socket, 'error', (error: NodeJS.ErrnoException) => this.#onLost(error.code ?? error.message));
    onEvent(this.#socket, 'close', () => this.#onLost('the connection is closed'));
  }

  /** Sends a request on a free connection. */
  send(job: Job): void {
    this.#job = job;
    job.connection = this;
    this.#isReused = true;
    this.#write(job);
  }

  /** Closes the connection immediately, and informs only the pool. */
  destroy(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#takeJob();
    this.#bodyWriter?.stop();
    this.#socket.destroy();
    this.#owner.onClosed(this);
  }

  /** Returns whether the current step (connect, response, next chunk, or idle time) has timed out. */
  isOverdue(now: Milliseconds): boolean {
    // While the sender is slow, the app does not time out: a pause has a deadline, and so has a body that arrives (BodyWatch).
    const isSenderSlow = this.#pause?.isOver === false || (this.#bodyWriter !== undefined && !this.#hasHead);
    return now >= this.#deadline && (this.#isUpgraded || !isSenderSlow);
  }

  /** Ends what has timed out. */
  expire(): void {
    const { host, port, connectTimeout, responseTimeout, idleResponseTimeout } = this.#owner.options;
    const detail = this.#hasHead
      ? `the response stalled for ${idleResponseTimeout} ms`
      : `no response from ${toAddressText(host, port)} within ${responseTimeout} ms`;
    if (this.#job === undefined) this.destroy();
    else if (!this.#isConnected) this.#onLost(`no connection within ${connectTimeout} ms`);
    else this.#fail({ kind: 'timeout', nothingSent: false, detail });
  }

  /** Called by the parser, as the next three. */
  onInformation(status: number, headers: RawHeaders): void {
    this.#job?.listener.onInformation(status, headers);
  }

  onHead(head: ResponseHead): void {
    this.#hasHead = true;
    this.#keepsAlive = head.keepsAlive;
    if (head.idleSeconds !== undefined) this.#idleTimeout = toIdleTimeout(head.idleSeconds, this.#owner.options.idleTimeout);
    this.#job?.listener.onHead(head.status, head.statusText, head.headers);
  }

  onUpgrade(headers: RawHeaders): void {
    this.#hasHead = true;
    this.#isUpgraded = true;
    this.#owner.onUpgraded(this);
    const body = this.#job?.listener.onUpgrade?.(headers);
    if (body === undefined)
      return this.#fail({ kind: 'protocol', nothingSent: false, detail: 'the app switched to an unrequested protocol' });
    this.#send(body, true);
  }

  /** The next read overwrites the bytes. */
  onBody(chunk: Buffer): void {
    if (this.#job === undefined) return;
    const releaseBuffer = this.#reader.lend(chunk);
    const kept = releaseBuffer === undefined ? Buffer.from(chunk) : chunk;
    const pause = this.#job.listener.onData(kept, releaseBuffer);
    if (pause === undefined || this.#isClosed) return;
    this.#pause = pause;
    pause.hold(this.#socket, () => {
      this.#deadline = this.#owner.clock.monotonic() + this.#owner.options.idleResponseTimeout;
    });
  }

  #onConnect(): void {
    this.#isConnected = true;
    if (this.#job !== undefined) this.#write(this.#job);
  }

  #write(job: Job): void {
    const { request } = job;
    const { body, leaseEndsAt } = request;
    this.#hasResponseBytes = false;
    this.#hasHead = false;
    this.#deadline = this.#owner.clock.monotonic() + this.#owner.options.responseTimeout;
    // Checked here, where the first byte is sent: it may have waited for a connection, or for a first one that was dead.
    if (leaseEndsAt !== undefined && this.#deadline + LEASE_MARGIN_MS > leaseEndsAt)
      return this.#fail({ kind: 'timeout', nothingSent: !job.isSent, detail: 'the lease ends before the app would time out' });
    job.isSent = true;
    this.#parser.expect(request.method, request.isUpgrade === true);
    writeRequest(this.#socket, request);
    if (!Buffer.isBuffer(body)) this.#send(body, false);
  }

  #send(body: BodyStream, isTunnel: boolean): void {
    const { responseTimeout, idleResponseTimeout } = this.#owner.options;
    const onProgress = (): void => {
      if (isTunnel) this.#deadline = this.#owner.clock.monotonic() + idleResponseTimeout;
    };
    this.#bodyWriter = new BodyWriter(this.#socket, body, !isTunnel && body.length === undefined, {
      onProgress,
      startPause: () => {
        const atMost = this.#hasHead ? idleResponseTimeout : responseTimeout;
        const detail = `the app read no more of the request for ${atMost} ms`;
        const pause = pauseUntilDrained(this.#socket, body.owner, atMost, (isEvicted) => {
          // Its sender can send it again later. If it has sent the whole body, only the app can be at fault.
          if (isEvicted) body.fail('buffer_full');
          this.#fail({ kind: 'timeout', nothingSent: false, detail });
        });
        pause?.onOver(onProgress);
        return pause;
      },
      onWritten: () => {
        this.#bodyWriter = undefined;
        if (isTunnel) this.#socket.end();
        else if (!this.#hasHead) this.#deadline = this.#owner.clock.monotonic() + responseTimeout;
      },
      onBroken: () => this.destroy(),
    });
    onProgress();
    this.#bodyWriter.start();
  }

  #onRead(bytes: Buffer): boolean {
    this.#hasResponseBytes = true;
    try {
      this.#parse(bytes);
    } catch (thrown) {
      // A bug that is triggered by a response must not end the process.
      this.#fail({ kind: 'protocol', nothingSent: false, detail: toErrorText(thrown) });
    }
    return true;
  }

  #parse(bytes: Buffer): void {
    const progress = this.#parser.push(bytes);
    // The listener may have aborted the exchange.
    if (this.#isClosed) return;
    if (progress === 'malformed') this.#fail({ kind: 'protocol', nothingSent: false, detail: this.#parser.problem });
    else if (progress !== 'more') this.#complete(progress === 'complete');
    // Before the head is complete, nothing counts as progress, so that an app cannot hold the connection by sending single bytes.
    else if (this.#hasHead) this.#deadline = this.#owner.clock.monotonic() + this.#owner.options.idleResponseTimeout;
  }

  /** Called only after all bytes were parsed: bytes after the response would be read as the next response (response desync). */
  #complete(isClean: boolean): void {
    this.#reader.endResponse();
    const isRequestWritten = this.#bodyWriter === undefined && this.#socket.writableLength === 0;
    this.#takeJob()?.listener.onEnd(this.#parser.trailers, isRequestWritten);
    // Request bytes that the app has not read would precede the next request.
    if (!isClean || !this.#keepsAlive || !isRequestWritten) return this.destroy();
    this.#pause?.release(this.#socket);
    this.#pause = undefined;
    this.#deadline = this.#owner.clock.monotonic() + this.#idleTimeout;
    this.#owner.onFree(this);
  }

  #onEnd(): void {
    if (this.#isClosed) return;
    if (this.#parser.end()) this.#complete(false);
    else this.#onLost('the app closed the connection');
  }

  #onLost(detail: string): void {
    if (this.#isClosed) return;
    const job = this.#job;
    if (job === undefined) return this.destroy();
    const { host, port } = this.#owner.options;
    if (!this.#isConnected)
      return this.#fail({ kind: 'connect', nothingSent: !job.isSent, detail: `${toAddressText(host, port)}: ${detail}` });
    if (!this.#isReused || this.#hasResponseBytes || !job.request.repeatable)
      return this.#fail({ kind: 'reset', nothingSent: false, detail });
    this.#takeJob();
    // Before `destroy` gives the freed slot to a waiting job. At most once, because a new connection is not a reused one.
    this.#owner.onDeadOnReuse(job);
    this.destroy();
  }

  #fail(failure: UpstreamFailure): void {
    const job = this.#takeJob();
    this.destroy();
    job?.listener.onFailure(failure);
  }

  #takeJob(): Job | undefined {
    const job = this.#job;
    this.#job = undefined;
    if (job !== undefined) job.connection = undefined;
    return job;
  }
}

/** The idle timeout for the peer's hint (`Keep-Alive: timeout=`). Uses half of a hint that is too short for the margin. */
export function toIdleTimeout(hintSeconds: number, atMost: Milliseconds): Milliseconds {
  const hint = hintSeconds * 1_000;
  return Math.min(atMost, Math.max(hint - IDLE_MARGIN_MS, hint / 2));
}
