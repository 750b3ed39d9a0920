/** A connection that asks for another protocol, most often WebSocket: held until the app grants it. */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { BodyConsumer, BodyStream } from '../../core/body.ts';
import type { Clock } from '../../core/clock.ts';
import type { RawHeaders } from '../../core/headers.ts';
import type { UpgradeRequest } from '../../core/parsed-head.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';
import { closeAfterResponse } from './linger.ts';

/** HTTP of any version, and TLS (RFC 2817) with HTTP in it: their requests would pass no gate. So the request goes on as it is, as the RFC allows. */
const NOT_RELAYED = /(?:^|,)(?:h2|http|tls)/i;
/** Netty ignores white space within a name. */
const IGNORED = /[\s"]/g;

/** Is this a wish that can be passed on? Others are served as if it had not been said (RFC 9110 §7.8). */
export function isRelayedUpgrade(method: string | undefined, protocol: string | undefined): boolean {
  return method === 'GET' && protocol !== undefined && !NOT_RELAYED.test(protocol.replace(IGNORED, ''));
}

/** An answer on a connection that node:http has let go of: the last thing on it, unless the wish is granted instead. */
export function createFinalResponse(request: IncomingMessage, socket: Duplex, clock: Clock): ServerResponse {
  const response = new ServerResponse(request);
  response.assignSocket(socket as Socket);
  response.shouldKeepAlive = false;
  onEvent(response, 'finish', () => closeAfterResponse(socket as Socket, clock));
  return response;
}

/** The wish behind a node:http upgrade event. */
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

  grant(statusLine: string, fields: RawHeaders): BodyStream {
    let head = `HTTP/1.1 ${statusLine}\r\n`;
    for (let i = 0; i < fields.length; i += 2) head += `${fields[i]}: ${fields[i + 1]}\r\n`;
    // From here on the connection is no HTTP any more.
    this.#response.detachSocket(this.#socket as Parameters<ServerResponse['detachSocket']>[0]);
    this.#socket.write(`${head}\r\n`, 'latin1');
    return new SocketContent(this.#socket, this.#early);
  }

  write(chunk: Buffer): boolean {
    return this.#socket.write(chunk);
  }

  onDrain(action: () => void): void {
    onceEvent(this.#socket, 'drain', action);
  }

  end(): void {
    this.#socket.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }
}

/** What comes in on the bare socket. */
class SocketContent implements BodyStream {
  readonly length = undefined;
  readonly #socket: Duplex;
  readonly #early: Buffer;
  #consumer: BodyConsumer | undefined;

  constructor(socket: Duplex, early: Buffer) {
    this.#socket = socket;
    this.#early = early;
  }

  start(consumer: BodyConsumer): void {
    const socket = this.#socket;
    this.#consumer = consumer;
    onEvent(socket, 'data', (chunk: Buffer) => {
      if (this.#consumer?.write(chunk) === false) socket.pause();
    });
    onEvent(socket, 'end', () => this.#take()?.end());
    onEvent(socket, 'close', () => this.#take()?.fail('sender_gone'));
    // Sent before the grant; nothing obliges a client to wait.
    if (this.#early.length > 0) consumer.write(this.#early);
    if (socket.destroyed) this.#take()?.fail('sender_gone');
  }

  resume(): void {
    this.#socket.resume();
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
