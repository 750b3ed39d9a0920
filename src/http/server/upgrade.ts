/** A request to upgrade the connection, most often to WebSocket, or to open a tunnel: held until it is accepted. */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { RawHeaders } from '../../core/head.ts';
import { freeChunk, type PauseOwner, ReadPause, writeCounted } from '../../core/reading.ts';
import type { Reason } from '../../core/refusal.ts';
import type { BodyConsumer, BodyStream, UpgradeRequest } from '../../core/request.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';
import type { BodyWatch } from './limits.ts';
import { closeAfterResponse, destroySoon } from './linger.ts';

/**
 * HTTP in any version, and TLS (RFC 2817) with HTTP in it: their requests would bypass the gates. Such a request is served
 * without the upgrade, as the RFC allows.
 */
const NOT_RELAYED = /(?:^|,)(?:h2|http|tls)/i;
/** Netty ignores whitespace within a name. */
const IGNORED = /[\s"]/g;

/** Returns whether the upgrade can be forwarded. Otherwise the request is served as if it did not ask for one (RFC 9110 §7.8). */
export function isRelayedUpgrade(method: string | undefined, protocol: string | undefined): boolean {
  return method === 'GET' && protocol !== undefined && !NOT_RELAYED.test(protocol.replace(IGNORED, ''));
}

/**
 * A connection that node:http has released because of an upgrade request or CONNECT. A pipeline cannot get it before `hold` counts what the
 * client sends while it waits.
 */
export class ReleasedConnection {
  /** The last response on the connection, unless the upgrade is accepted. */
  readonly response: ServerResponse;
  readonly #socket: Socket;
  readonly #early: Buffer;
  readonly #bodies: BodyWatch;

  /** `early`: what was read behind the head. */
  constructor(request: IncomingMessage, socket: Socket, early: Buffer, bodies: BodyWatch) {
    this.#socket = socket;
    this.#early = early;
    this.#bodies = bodies;
    // As node:http sets it for its own connections, but not node:https: one side may end while the other still sends.
    socket.allowHalfOpen = true;
    this.response = new ServerResponse(request);
    this.response.assignSocket(socket);
    this.response.shouldKeepAlive = false;
    onEvent(this.response, 'finish', () => closeAfterResponse(socket, bodies.clock));
  }

  /** Call it once the client is known. */
  hold(owner: PauseOwner): UpgradeRequest {
    const socket = this.#socket;
    const content = new SocketStream(socket, owner, this.#bodies.limits.streamTimeout);
    if (this.#early.length > 0) content.receive(this.#early);
    onceEvent(this.response, 'finish', () => content.stop());
    return new SocketUpgrade(socket, this.response, content);
  }
}

/** An upgrade request, or CONNECT. */
class SocketUpgrade implements UpgradeRequest {
  readonly protocol: string;
  readonly #socket: Socket;
  readonly #response: ServerResponse;
  readonly #content: SocketStream;

  constructor(socket: Socket, response: ServerResponse, content: SocketStream) {
    this.protocol = response.req.headers.upgrade ?? '';
    this.#socket = socket;
    this.#response = response;
    this.#content = content;
  }

  grant(statusLine: string, fields: RawHeaders): BodyStream {
    let head = `HTTP/1.1 ${statusLine}\r\n`;
    for (let i = 0; i < fields.length; i += 2) head += `${fields[i]}: ${fields[i + 1]}\r\n`;
    // From here on, the connection no longer carries HTTP.
    this.#response.detachSocket(this.#socket);
    this.#socket.write(`${head}\r\n`, 'latin1');
    return this.#content;
  }

  get writer(): Duplex {
    return this.#socket;
  }

  write(chunk: Buffer, onWritten?: (error?: Error | null) => void): boolean {
    return writeCounted(this.#socket, chunk, onWritten);
  }

  end(): void {
    this.#socket.end();
  }

  /** The client might neither read what was sent nor close its side. */
  close(clock: Clock, atMost: Milliseconds): void {
    const socket = this.#socket;
    if (socket.writableFinished) return closeAfterResponse(socket, clock);
    destroySoon(socket, clock, atMost);
    onceEvent(socket, 'finish', () => closeAfterResponse(socket, clock));
    socket.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }
}

/** The bytes that arrive on the raw socket. Clients need not wait until the upgrade is accepted; the first bytes are kept, and end the reading. */
class SocketStream implements BodyStream {
  readonly length = undefined;
  readonly owner: PauseOwner;
  readonly #socket: Socket;
  readonly #maxWait: Milliseconds;
  /** The bytes that arrived before there was a consumer. */
  readonly #early: Buffer[] = [];
  #wait: ReadPause | undefined;
  #consumer: BodyConsumer | undefined;
  #isOver = false;

  constructor(socket: Socket, owner: PauseOwner, maxWait: Milliseconds) {
    this.owner = owner;
    this.#socket = socket;
    this.#maxWait = maxWait;
    onEvent(socket, 'data', (chunk: Buffer) => {
      owner.pauses.onBytes(chunk.length);
      this.receive(chunk);
    });
    onEvent(socket, 'close', () => this.fail('sender_gone'));
  }

  receive(chunk: Buffer): void {
    const socket = this.#socket;
    if (this.#consumer !== undefined) this.#consumer.write(chunk)?.hold(socket);
    else if (this.#isOver) freeChunk(chunk);
    else {
      this.#early.push(chunk);
      this.#wait ??= new ReadPause(this.owner, chunk.length, this.#maxWait, () => this.#disconnect());
      this.#wait.hold(socket);
    }
  }

  start(consumer: BodyConsumer): void {
    const socket = this.#socket;
    this.#consumer = consumer;
    onEvent(socket, 'end', () => this.#finish()?.end());
    this.#wait?.end();
    for (const chunk of this.#early.splice(0)) this.receive(chunk);
    // It may have ended while it waited.
    if (socket.destroyed) this.fail('sender_gone');
    else if (socket.readableEnded) this.#finish()?.end();
  }

  fail(reason: Reason): void {
    this.#finish()?.fail(reason);
  }

  stop(): void {
    this.#finish();
    this.#socket.resume();
  }

  #disconnect(): void {
    // The pause ends now, and what the socket has buffered is freed: what waits refers to it.
    this.#isOver = true;
    this.#early.length = 0;
    this.#socket.destroy();
  }

  #finish(): BodyConsumer | undefined {
    const consumer = this.#consumer;
    this.#consumer = undefined;
    this.#isOver = true;
    this.#early.length = 0;
    this.#wait?.end();
    return consumer;
  }
}
