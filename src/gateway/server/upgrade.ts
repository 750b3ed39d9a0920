/** A request to upgrade the connection, most often to WebSocket: held until the app accepts it. */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { BodyConsumer, BodyStream } from '../../core/body.ts';
import { freeChunk } from '../../core/chunk-memory.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { RawHeaders } from '../../core/headers.ts';
import type { UpgradeRequest } from '../../core/parsed-head.ts';
import { type PauseOwner, writeCounted } from '../../core/read-pause.ts';
import type { Reason } from '../../core/refusal.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';
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
 * Creates a response on a connection that node:http has released. It is the last on the connection, unless the upgrade is
 * accepted.
 */
export function createFinalResponse(request: IncomingMessage, socket: Duplex, clock: Clock): ServerResponse {
  const response = new ServerResponse(request);
  response.assignSocket(socket as Socket);
  response.shouldKeepAlive = false;
  onEvent(response, 'finish', () => closeAfterResponse(socket as Socket, clock));
  return response;
}

/** The upgrade request of a node:http `upgrade` event. */
export class SocketUpgrade implements UpgradeRequest {
  readonly protocol: string;
  readonly #socket: Duplex;
  readonly #response: ServerResponse;
  readonly #early: Buffer;

  constructor(protocol: string, socket: Duplex, response: ServerResponse, early: Buffer) {
    this.protocol = protocol;
    this.#socket = socket;
    this.#response = response;
    this.#early = early;
  }

  grant(statusLine: string, fields: RawHeaders, owner: PauseOwner): BodyStream {
    let head = `HTTP/1.1 ${statusLine}\r\n`;
    for (let i = 0; i < fields.length; i += 2) head += `${fields[i]}: ${fields[i + 1]}\r\n`;
    // From here on, the connection no longer carries HTTP.
    this.#response.detachSocket(this.#socket as Parameters<ServerResponse['detachSocket']>[0]);
    this.#socket.write(`${head}\r\n`, 'latin1');
    return new SocketStream(this.#socket, this.#early, owner);
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
    const socket = this.#socket as Socket;
    if (socket.writableFinished) return closeAfterResponse(socket, clock);
    destroySoon(socket, clock, atMost);
    onceEvent(socket, 'finish', () => closeAfterResponse(socket, clock));
    socket.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }
}

/** The bytes that arrive on the raw socket. */
class SocketStream implements BodyStream {
  readonly length = undefined;
  readonly owner: PauseOwner;
  readonly #socket: Duplex;
  readonly #early: Buffer;
  #consumer: BodyConsumer | undefined;

  constructor(socket: Duplex, early: Buffer, owner: PauseOwner) {
    this.owner = owner;
    this.#socket = socket;
    this.#early = early;
  }

  start(consumer: BodyConsumer): void {
    const socket = this.#socket;
    this.#consumer = consumer;
    onEvent(socket, 'data', (chunk: Buffer) => {
      this.owner.pauses.onBytes(chunk.length);
      if (this.#consumer === undefined) freeChunk(chunk);
      else this.#consumer.write(chunk)?.hold(socket);
    });
    onEvent(socket, 'end', () => this.#take()?.end());
    onEvent(socket, 'close', () => this.fail('sender_gone'));
    // Bytes that were sent before the upgrade was accepted; clients need not wait.
    if (this.#early.length > 0) consumer.write(this.#early)?.hold(socket);
    if (socket.destroyed) this.fail('sender_gone');
  }

  fail(reason: Reason): void {
    this.#take()?.fail(reason);
  }

  stop(): void {
    this.#take();
    this.#socket.resume();
  }

  #take(): BodyConsumer | undefined {
    const consumer = this.#consumer;
    this.#consumer = undefined;
    return consumer;
  }
}
