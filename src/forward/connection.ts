/** One kept-alive connection to the app, carrying one exchange at a time. */
import { connect, type Socket } from 'node:net';
import type { Milliseconds } from '../core/clock.ts';
import type { RawHeaders } from '../core/headers.ts';
import { type AnswerEvents, type AnswerHead, AnswerParser } from './answer-parser.ts';
import type { AnswerListener, UpstreamFailure, UpstreamOptions, UpstreamRequest } from './upstream.ts';

/** A request on its way, with who hears the answer. */
export interface Job {
  readonly request: UpstreamRequest;
  readonly listener: AnswerListener;
  /** It was sent once already, on a connection that turned out dead. */
  wasRepeated: boolean;
}

/** The pool, as a connection sees it. */
export interface ConnectionOwner {
  now(): Milliseconds;
  /** The exchange is over and the connection can take another. */
  onFree(connection: Connection): void;
  /** The connection is gone. */
  onGone(connection: Connection): void;
  /** A reused connection was dead before any byte of an answer: the job may go again. */
  onDeadOnReuse(job: Job): void;
}

/** Copying so little costs less than a second buffer in the write. */
const COPIED_BODY = 16_384;
const NEVER = Number.POSITIVE_INFINITY;

/** A connection from connect to close. */
export class Connection implements AnswerEvents {
  readonly #owner: ConnectionOwner;
  readonly #options: UpstreamOptions;
  readonly #socket: Socket;
  readonly #parser: AnswerParser;
  #job: Job | undefined;
  #isConnected = false;
  #isGone = false;
  #isReused = false;
  #hasAnswerBytes = false;
  #keepsAlive = false;
  #isPaused = false;
  #idleTimeout: Milliseconds;
  #deadline: Milliseconds;

  constructor(owner: ConnectionOwner, options: UpstreamOptions, job: Job) {
    this.#owner = owner;
    this.#options = options;
    this.#parser = new AnswerParser(this, options.maxHeadBytes);
    this.#job = job;
    this.#idleTimeout = options.idleTimeout;
    this.#deadline = owner.now() + options.connectTimeout;
    this.#socket = connect({ host: options.host, port: options.port, noDelay: true, keepAlive: true });
    this.#socket.on('connect', () => this.#onConnect());
    this.#socket.on('data', (chunk: Buffer) => this.#onData(chunk));
    this.#socket.on('end', () => this.#onClosed('the app closed the connection'));
    this.#socket.on('error', (error: NodeJS.ErrnoException) => this.#onClosed(error.code ?? error.message));
    this.#socket.on('close', () => this.#onClosed('the connection is closed'));
  }

  /** What it carries now. */
  get job(): Job | undefined {
    return this.#job;
  }

  /** Sends a request on a connection that is free. */
  send(job: Job): void {
    this.#job = job;
    this.#isReused = true;
    this.#write(job.request);
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#deadline = this.#owner.now() + this.#options.answerTimeout;
    this.#socket.resume();
  }

  /** Ends it at once, telling nobody. */
  destroy(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    this.#job = undefined;
    this.#socket.destroy();
    this.#owner.onGone(this);
  }

  /** Called now and then: has whatever is awaited taken too long? */
  checkDeadline(now: Milliseconds): void {
    if (now < this.#deadline) return;
    if (this.#job === undefined) this.destroy();
    else if (!this.#isConnected)
      this.#fail({ kind: 'connect', nothingSent: true, detail: `no connection within ${this.#options.connectTimeout} ms` });
    else this.#fail({ kind: 'timeout', nothingSent: false, detail: `nothing came within ${this.#options.answerTimeout} ms` });
  }

  onInformation(status: number, headers: RawHeaders): void {
    this.#job?.listener.onInformation(status, headers);
  }

  onHead(head: AnswerHead): void {
    this.#keepsAlive = head.keepsAlive;
    // A second's margin: the app counts from its own moment, and a request must not meet its close half-way.
    if (head.idleSeconds !== undefined)
      this.#idleTimeout = Math.min(this.#options.idleTimeout, Math.max(head.idleSeconds - 1, 0) * 1000);
    this.#job?.listener.onHead(head.status, head.statusText, head.headers);
  }

  onContent(chunk: Buffer): void {
    if (this.#job === undefined || this.#job.listener.onData(chunk) || this.#isPaused) return;
    this.#isPaused = true;
    // The sender is slow, not the app.
    this.#deadline = NEVER;
    this.#socket.pause();
  }

  onComplete(trailers: RawHeaders): void {
    const job = this.#job;
    this.#job = undefined;
    job?.listener.onEnd(trailers);
    // What the app has not read of the request would stand before the next one.
    if (!this.#keepsAlive || this.#socket.writableLength > 0 || this.#isGone) return this.destroy();
    if (this.#isPaused) this.#socket.resume();
    this.#isPaused = false;
    this.#deadline = this.#owner.now() + this.#idleTimeout;
    this.#owner.onFree(this);
  }

  onProtocolError(detail: string): void {
    this.#fail({ kind: 'protocol', nothingSent: false, detail });
  }

  #onConnect(): void {
    this.#isConnected = true;
    if (this.#job !== undefined) this.#write(this.#job.request);
  }

  #write(request: UpstreamRequest): void {
    this.#hasAnswerBytes = false;
    this.#deadline = this.#owner.now() + this.#options.answerTimeout;
    this.#parser.expect(request.method);
    const head = toHeadText(request);
    const { body } = request;
    if (body.length === 0) {
      this.#socket.write(head, 'latin1');
    } else if (body.length <= COPIED_BODY) {
      const bytes = Buffer.allocUnsafe(head.length + body.length);
      bytes.write(head, 0, 'latin1');
      body.copy(bytes, head.length);
      this.#socket.write(bytes);
    } else {
      this.#socket.cork();
      this.#socket.write(head, 'latin1');
      this.#socket.write(body);
      this.#socket.uncork();
    }
  }

  #onData(chunk: Buffer): void {
    if (this.#isGone) return;
    this.#hasAnswerBytes = true;
    if (!this.#isPaused && this.#job !== undefined) this.#deadline = this.#owner.now() + this.#options.answerTimeout;
    // More than was asked for would be taken for the next request's answer.
    if (this.#parser.push(chunk)) this.destroy();
  }

  #onClosed(detail: string): void {
    if (this.#isGone) return;
    const job = this.#job;
    if (job === undefined) return this.destroy();
    if (this.#isConnected && this.#parser.end()) return this.destroy();
    if (!this.#isConnected) return this.#fail({ kind: 'connect', nothingSent: true, detail });
    if (this.#isReused && !this.#hasAnswerBytes && job.request.repeatable && !job.wasRepeated) {
      this.destroy();
      job.wasRepeated = true;
      return this.#owner.onDeadOnReuse(job);
    }
    this.#fail({ kind: 'reset', nothingSent: false, detail });
  }

  #fail(failure: UpstreamFailure): void {
    const job = this.#job;
    this.destroy();
    job?.listener.onFailure(failure);
  }
}

/** The head as it goes out; its parts were checked where they came in, so no line can be split. */
function toHeadText({ method, path, headers }: UpstreamRequest): string {
  let text = `${method} ${path} HTTP/1.1\r\n`;
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return `${text}\r\n`;
}
