/** Writes requests: their heads, and streamed bodies no faster than the server reads them. */
import type { Socket } from 'node:net';
import { freeChunk } from '../../core/buffers.ts';
import { type ReadPause, writeCounted } from '../../core/read-pause.ts';
import type { Reason } from '../../core/refusal.ts';
import type { BodyConsumer, BodyStream } from '../../core/request.ts';
import type { UpstreamRequest } from './upstream.ts';

/** Copying a small body is cheaper than writing a second buffer. */
const MAX_COPIED_BYTES = 16_384;

/** Writes one stream to one socket. */
export class BodyWriter implements BodyConsumer {
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
export function writeRequest(socket: Socket, request: UpstreamRequest): void {
  const { body } = request;
  const head = toHeadText(request);
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

/** Formats the request head. Its parts were validated when they were received, so no line can be split. */
function toHeadText({ method, path, headers }: UpstreamRequest): string {
  let text = `${method} ${path} HTTP/1.1\r\n`;
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return `${text}\r\n`;
}
