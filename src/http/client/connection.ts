/** A connection to a server, with one exchange at a time: opened, used, kept alive, closed. */
import type { Socket } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { LEASE_MARGIN_MS } from '../../core/event.ts';
import type { RawHeaders } from '../../core/head.ts';
import { freeChunk, pauseUntilDrained, type ReadPause, writeCounted } from '../../core/reading.ts';
import type { Reason } from '../../core/refusal.ts';
import type { BodyConsumer, BodyStream } from '../../core/request.ts';
import { onEvent, runDetached, waitForTurn } from '../../core/safe-events.ts';
import { DialFailure, type FailureKind, Opening, toCode, toFailureKind } from '../dial/dial.ts';
import type { OpenSocket } from './open-socket.ts';
import {
  ConnectionReader,
  type HeadParser,
  type ParserEvents,
  type ReadBuffers,
  type ResponseHead,
  ResponseParser,
} from './response-parser.ts';
import type { UpstreamLimits, UpstreamListener, UpstreamRequest } from './upstream.ts';

/** A request in the pool, with the listener for its response. */
export interface Job {
  readonly request: UpstreamRequest;
  readonly listener: UpstreamListener;
  /** The connection that sends it now. */
  connection: Connection | undefined;
  /** Set once a byte of it may have reached the server. */
  isSent: boolean;
}

/** The part of the pool that a connection uses. */
export interface ConnectionOwner {
  readonly limits: UpstreamLimits;
  readonly open: OpenSocket;
  /** Of the server, in failures before its response; empty: not named. */
  readonly name: string;
  /** The read buffers of all connections, and the latest heads of this server's responses. */
  readonly buffers: ReadBuffers;
  readonly heads: HeadParser;
  readonly clock: Clock;
  /** The exchange is over, and the connection is free for another. */
  onFree(connection: Connection): void;
  /** The connection switched to another protocol, and does not return to the pool. */
  onUpgraded(): void;
  /** The server announced that it keeps the connection (`Keep-Alive`). */
  onKept(): void;
  /** The server closed the connection so long after its only response, which did not announce it. */
  onLeft(after: Milliseconds): void;
  /** The connection is closed. */
  onClosed(connection: Connection, isUpgraded: boolean): void;
  /** A reused connection was dead before it received any byte of a response: the job can be sent again. */
  onDeadOnReuse(job: Job): void;
}

/** How long before the server's idle timeout a connection is closed, so that no request crosses the server's close. */
const IDLE_MARGIN_MS: Milliseconds = 1_000;
/** So much of a request fits into the buffers of any server. */
const MAX_SMALL_BYTES = 16_384;
const CLOSED = 'ECONNRESET';
/** After so many in a read, other connections are served first: Node would read up to 2 MiB of this one, in which a chunk takes as much time as a hundred bytes. */
const MAX_CHUNKS_IN_TURN = 256;
/** An alert may follow the handshake, such as the one about a missing client certificate. */
const TLS_ERROR = /^ERR_(?:SSL|TLS)_/;

/** A connection from connect to close. */
export class Connection implements ParserEvents {
  readonly #owner: ConnectionOwner;
  readonly #parser: ResponseParser;
  readonly #reader: ConnectionReader;
  readonly #opening: Opening;
  readonly #startedAt: Milliseconds;
  #job: Job | undefined;
  /** Set once it is open. */
  #socket: Socket | undefined;
  /** The body that is still being sent. */
  #bodyWriter: BodyWriter | undefined;
  /** The peer may not have read all that was sent; the rest is discarded. */
  #mayBeUnread = false;
  #isClosed = false;
  /** Responses that left it open. */
  #served = 0;
  /** When the last of them ended. */
  #freeSince: Milliseconds = 0;
  /** With its framing. */
  #responseBytes = 0;
  #hasHead = false;
  #keepsAlive = false;
  #isUpgraded = false;
  /** The listener takes no more of the response for now. */
  #pause: ReadPause | undefined;
  #idleTimeout: Milliseconds;
  #deadline: Milliseconds;

  constructor(owner: ConnectionOwner, job: Job) {
    const { limits, clock } = owner;
    this.#owner = owner;
    this.#reader = new ConnectionReader(owner.buffers);
    this.#parser = new ResponseParser(this, limits.maxHeadBytes, owner.heads);
    this.#job = job;
    job.connection = this;
    this.#idleTimeout = limits.idleTimeout;
    this.#startedAt = clock.monotonic();
    this.#deadline = this.#endOf(limits.connectTimeout);
    this.#opening = new Opening(this.#deadline - this.#startedAt);
    runDetached(this.#open());
  }

  /** Sends a request on a free connection. */
  send(job: Job): void {
    this.#job = job;
    job.connection = this;
    this.#write(job);
  }

  /** Closes the connection immediately, and informs only the pool. */
  destroy(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#takeJob();
    this.#bodyWriter?.stop();
    if (this.#mayBeUnread) discardUnread(this.#socket);
    this.#opening.cancel();
    this.#socket?.destroy();
    this.#owner.onClosed(this, this.#isUpgraded);
  }

  /** It has served a request that was not its first one. */
  get isReused(): boolean {
    return this.#served > 1;
  }

  /** When its last response ended; 0 if it has had none. */
  get freeSince(): Milliseconds {
    return this.#freeSince;
  }

  /** Returns whether the current step (connect, response, next chunk, or idle time) has timed out. */
  isOverdue(now: Milliseconds): boolean {
    // While the sender is slow, the server does not time out: a pause has a deadline, and so has a body that arrives (BodyWatch).
    const isSenderSlow = this.#pause?.isOver === false || (this.#bodyWriter !== undefined && !this.#hasHead);
    return now >= this.#deadline && (this.#isUpgraded || !isSenderSlow);
  }

  /** Ends what has timed out or was aborted. */
  check(now: Milliseconds): void {
    if (this.#job?.request.signal?.aborted === true) this.#fail('aborted', 'the request was canceled');
    else if (this.isOverdue(now)) this.expire();
  }

  /** Ends what has timed out. */
  expire(): void {
    const { responseTimeout, idleResponseTimeout } = this.#owner.limits;
    if (this.#job === undefined) this.destroy();
    else if (this.#socket === undefined)
      this.#fail(this.#opening.phase, `no connection within ${Math.round(this.#opening.timeout)} ms`);
    else if (this.#hasHead) this.#fail('timeout', `the response stalled for ${idleResponseTimeout} ms`);
    else this.#fail('timeout', `no response within ${responseTimeout} ms`);
  }

  /** Called by the parser, as the next three. */
  onInformation(status: number, headers: RawHeaders): void {
    this.#job?.listener.onInformation(status, headers);
  }

  onHead(head: ResponseHead): void {
    this.#hasHead = true;
    this.#keepsAlive = head.keepsAlive;
    if (head.idleSeconds !== undefined) {
      this.#idleTimeout = toIdleTimeout(head.idleSeconds, this.#owner.limits.idleTimeout);
      this.#owner.onKept();
    }
    this.#job?.listener.onHead(head.status, head.statusText, head.headers);
  }

  onUpgrade(headers: RawHeaders): void {
    this.#hasHead = true;
    this.#isUpgraded = true;
    this.#owner.onUpgraded();
    const body = this.#job?.listener.onUpgrade?.(headers);
    if (body === undefined) return this.#fail('protocol', 'the server switched to an unrequested protocol');
    this.#send(this.#socket as Socket, body, true);
  }

  /** The next read overwrites the bytes. */
  onBody(chunk: Buffer): void {
    if (this.#job === undefined) return;
    const releaseBuffer = this.#reader.lend(chunk);
    const kept = releaseBuffer === undefined ? Buffer.from(chunk) : chunk;
    const pause = this.#job.listener.onData(kept, releaseBuffer);
    if (pause === undefined || this.#isClosed) return;
    this.#pause = pause;
    pause.hold(this.#socket as Socket, () => {
      this.#deadline = this.#endOf(this.#owner.limits.idleResponseTimeout);
    });
  }

  async #open(): Promise<void> {
    const reads = this.#reader.toOnRead((bytes) => this.#onRead(bytes));
    try {
      const socket = await this.#owner.open(this.#opening, reads);
      if (this.#isClosed) socket.destroy();
      else this.#onOpen(socket);
    } catch (thrown) {
      const isExpected = thrown instanceof DialFailure;
      this.#fail(isExpected ? thrown.kind : this.#opening.phase, isExpected ? thrown.message : toCode(thrown));
    }
  }

  #onOpen(socket: Socket): void {
    this.#socket = socket;
    onEvent(socket, 'end', () => this.#onEnd());
    onEvent(socket, 'error', (error) => this.#onLost(toCode(error)));
    onEvent(socket, 'close', () => this.#onLost(CLOSED));
    if (socket.destroyed) this.#onLost(CLOSED);
    else if (this.#job !== undefined) this.#write(this.#job);
  }

  #write(job: Job): void {
    const { request } = job;
    const { body, leaseEndsAt } = request;
    const socket = this.#socket as Socket;
    this.#responseBytes = 0;
    this.#hasHead = false;
    this.#deadline = this.#endOf(this.#owner.limits.responseTimeout);
    // Checked here, where the first byte is sent: it may have waited for a connection, or for a first one that was dead.
    if (leaseEndsAt !== undefined && this.#deadline + LEASE_MARGIN_MS > leaseEndsAt)
      return this.#fail('timeout', 'the lease ends before the app would time out');
    const head = toHeadText(request);
    if (head === undefined) return this.#fail('protocol', 'a header that was added to the request is malformed');
    job.isSent = true;
    this.#mayBeUnread = this.#owner.limits.discardsUnread === true;
    this.#parser.expect(request.method, request.isUpgrade === true);
    writeRequest(socket, head, body);
    if (!Buffer.isBuffer(body)) this.#send(socket, body, false);
  }

  #send(socket: Socket, body: BodyStream, isTunnel: boolean): void {
    const { responseTimeout, idleResponseTimeout } = this.#owner.limits;
    const onProgress = (): void => {
      if (isTunnel) this.#deadline = this.#endOf(idleResponseTimeout);
    };
    this.#bodyWriter = new BodyWriter(socket, body, !isTunnel && body.length === undefined, {
      onProgress,
      startPause: () => {
        const atMost = this.#hasHead ? idleResponseTimeout : responseTimeout;
        const pause = pauseUntilDrained(socket, body.owner, atMost, (isEvicted) => {
          // Its sender can send it again later. If it has sent the whole body, only the server can be at fault.
          if (isEvicted) body.fail('buffer_full');
          this.#fail('timeout', `no more of the request was read for ${atMost} ms`);
        });
        pause?.onOver(onProgress);
        return pause;
      },
      onWritten: () => {
        this.#bodyWriter = undefined;
        if (isTunnel) socket.end();
        else if (!this.#hasHead) this.#deadline = this.#endOf(responseTimeout);
      },
      onBroken: () => this.destroy(),
    });
    onProgress();
    this.#bodyWriter.start();
  }

  /** Returns whether it takes the next read now. */
  #onRead(bytes: Buffer): boolean {
    try {
      this.#parse(bytes);
    } catch (thrown) {
      // A bug that is triggered by a response must not end the process.
      this.#fail('protocol', toErrorText(thrown));
    }
    if (this.#parser.chunks < MAX_CHUNKS_IN_TURN) return true;
    waitForTurn(this.#owner, () => {
      if (this.#pause?.isOver !== false) this.#socket?.resume();
    });
    return false;
  }

  #parse(bytes: Buffer): void {
    if (this.#isClosed) return;
    if (this.#socket === undefined) return this.#fail('protocol', 'the server sent bytes before the request');
    this.#responseBytes += bytes.length;
    const progress = this.#parser.push(bytes);
    // The listener may have aborted the exchange.
    if (this.#isClosed) return;
    if (progress === 'malformed') this.#fail('protocol', this.#parser.problem);
    else if (progress !== 'more') this.#complete(progress === 'complete');
    else if (this.#hasHead) this.#onProgress(this.#owner.limits);
  }

  /** Before the head is complete, nothing counts as progress, so that a server cannot hold the connection by sending single bytes. */
  #onProgress({ idleResponseTimeout, maxResponseBytes }: UpstreamLimits): void {
    this.#deadline = this.#endOf(idleResponseTimeout);
    if (maxResponseBytes !== undefined && this.#responseBytes > maxResponseBytes)
      this.#fail('protocol', `the response has more than ${maxResponseBytes} bytes`);
  }

  /** Called only after all bytes were parsed: bytes after the response would be read as the next response (response desync). */
  #complete(isClean: boolean): void {
    const socket = this.#socket as Socket;
    this.#reader.endResponse();
    const isRequestWritten = this.#bodyWriter === undefined && socket.writableLength === 0;
    const job = this.#takeJob();
    // A server can respond before it reads a body, and never read it.
    this.#mayBeUnread &&= !isRequestWritten || (job?.request.body.length ?? 0) > MAX_SMALL_BYTES;
    job?.listener.onEnd(this.#parser.trailers, isRequestWritten);
    const now = this.#owner.clock.monotonic();
    const { maxAge } = this.#owner.limits;
    const isOld = maxAge !== undefined && now - this.#startedAt >= maxAge;
    // Request bytes that the server has not read would precede the next request.
    if (!isClean || !this.#keepsAlive || !isRequestWritten || isOld) return this.destroy();
    this.#pause?.release(socket);
    this.#pause = undefined;
    this.#deadline = now + this.#idleTimeout;
    this.#served++;
    this.#freeSince = now;
    this.#owner.onFree(this);
  }

  #onEnd(): void {
    if (this.#isClosed) return;
    if (this.#parser.end()) this.#complete(false);
    else this.#onLost(CLOSED);
  }

  #onLost(code: string): void {
    const job = this.#job;
    if (this.#isClosed) return;
    if (this.#served === 1 && (job === undefined || this.#responseBytes === 0))
      this.#owner.onLeft(this.#owner.clock.monotonic() - this.#freeSince);
    if (job === undefined) return this.destroy();
    if (this.#served === 0 || this.#responseBytes > 0 || !job.request.repeatable)
      return this.#fail(this.#toKind(code, job), `the connection was lost (${code})`);
    this.#takeJob();
    // Before `destroy` gives the freed slot to a waiting job. At most once, because a new connection is not a reused one.
    this.#owner.onDeadOnReuse(job);
    this.destroy();
  }

  /** A request that was sent counts also if the process has no memory left: it would be repeated without end. */
  #toKind(code: string, { isSent }: Job): FailureKind {
    const kind = TLS_ERROR.test(code) ? 'tls' : 'reset';
    return isSent ? kind : toFailureKind(code, kind);
  }

  #fail(kind: FailureKind, text: string): void {
    const job = this.#takeJob();
    const { name } = this.#owner;
    const detail = this.#hasHead || name === '' ? text : `${name}: ${text}`;
    this.destroy();
    job?.listener.onFailure({ kind, nothingSent: !job.isSent, detail });
  }

  #takeJob(): Job | undefined {
    const job = this.#job;
    this.#job = undefined;
    if (job !== undefined) job.connection = undefined;
    return job;
  }

  /** The end of a step that takes at most so long, and no longer than the exchange. */
  #endOf(atMost: Milliseconds): Milliseconds {
    const end = this.#owner.clock.monotonic() + atMost;
    const endsAt = this.#job?.request.endsAt;
    return endsAt === undefined || end < endsAt ? end : endsAt;
  }
}

/** The idle timeout for the peer's hint (`Keep-Alive: timeout=`). Uses half of a hint that is too short for the margin. */
function toIdleTimeout(hintSeconds: number, atMost: Milliseconds): Milliseconds {
  const hint = hintSeconds * 1_000;
  return Math.min(atMost, Math.max(hint - IDLE_MARGIN_MS, hint / 2));
}

interface TcpHandle {
  close: unknown;
  readonly reset?: unknown;
}

/** The kernel keeps what the server did not read for minutes after the socket is closed, unless it is reset. */
function discardUnread(socket: Socket | undefined): void {
  const { _handle: handle } = (socket ?? {}) as { readonly _handle?: (TcpHandle & { readonly _parent?: TcpHandle }) | null };
  // With TLS, it is the one below. While a shutdown is under way, it cannot be reset.
  const tcp = handle?._parent ?? handle;
  if (tcp?.reset !== undefined && socket?.writableEnded === false) tcp.close = tcp.reset;
}

// The request: its head, and a streamed body no faster than the server reads it.

/** Copying a small body is cheaper than writing a second buffer. */
const MAX_COPIED_BYTES = 16_384;

/** Writes one stream to one socket. */
class BodyWriter implements BodyConsumer {
  readonly #socket: Socket;
  readonly #body: BodyStream;
  readonly #isChunked: boolean;
  readonly #events;
  #isOver = false;

  constructor(
    socket: Socket,
    body: BodyStream,
    isChunked: boolean,
    events: {
      /** Bytes were written. */
      onProgress(): void;
      /** The server reads no more for now. */
      startPause(): ReadPause | undefined;
      onWritten(): void;
      /** The sender disconnected or was too slow: the server must not take the partial request for a complete one. */
      onBroken(reason: Reason): void;
    },
  ) {
    this.#isChunked = isChunked;
    this.#socket = socket;
    this.#body = body;
    this.#events = events;
  }

  /** Starts the stream. Separate from the constructor, because a body that has already arrived is written immediately. */
  start(): void {
    this.#body.start(this);
  }

  write(chunk: Buffer): ReadPause | undefined {
    // Also after an error: the socket is closed then, and nothing uses the memory any more.
    const onWritten = (): void => freeChunk(chunk);
    const hasRoom = this.#isChunked ? this.#writeChunk(chunk, onWritten) : writeCounted(this.#socket, chunk, onWritten);
    this.#events.onProgress();
    // The operating system may have taken the whole chunk once its parts were written together.
    if (hasRoom || this.#socket.writableLength === 0) return undefined;
    return this.#events.startPause();
  }

  end(): void {
    if (this.#isChunked) this.#socket.write('0\r\n\r\n', 'latin1');
    this.#isOver = true;
    this.#events.onWritten();
  }

  fail(reason: Reason): void {
    this.#isOver = true;
    this.#events.onBroken(reason);
  }

  /** Stops writing and discards the rest of the body. */
  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#body.stop();
  }

  #writeChunk(chunk: Buffer, onWritten: () => void): boolean {
    // An empty chunk would be the last one (RFC 9112 §7.1).
    if (chunk.length === 0) return true;
    this.#socket.cork();
    this.#socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1');
    const hasRoom = writeCounted(this.#socket, chunk, onWritten);
    this.#socket.write('\r\n', 'latin1');
    this.#socket.uncork();
    return hasRoom;
  }
}

/** Writes the head of a request, and its body unless that is a stream. */
function writeRequest(socket: Socket, head: string, body: UpstreamRequest['body']): void {
  if (!Buffer.isBuffer(body) || body.length === 0) socket.write(head, 'latin1');
  else if (body.length <= MAX_COPIED_BYTES) {
    const bytes = Buffer.allocUnsafe(head.length + body.length);
    bytes.write(head, 0, 'latin1');
    body.copy(bytes, head.length);
    socket.write(bytes);
  } else {
    socket.cork();
    socket.write(head, 'latin1');
    socket.write(body);
    socket.uncork();
  }
}

/** Characters that split a line, or become others where they are written as Latin-1. */
const NOT_A_VALUE = /[^\t\x20-\x7e\x80-\xff]/;

/** Formats the request head. Its parts were validated when they were received; undefined if a value that was added since would split a line. */
function toHeadText({ method, path, headers }: UpstreamRequest): string | undefined {
  let text = `${method} ${path} HTTP/1.1\r\n`;
  for (let i = 0; i < headers.length; i += 2) {
    const value = headers[i + 1] ?? '';
    if (NOT_A_VALUE.test(value)) return undefined;
    text += `${headers[i]}: ${value}\r\n`;
  }
  return `${text}\r\n`;
}
