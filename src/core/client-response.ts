/** What a response is written through: node:http's ServerResponse, or an HTTP/2 stream that behaves like one. */
import type { Socket } from 'node:net';

/** Its events; `finish`: all of it is with the system. */
export type ResponseEvent = 'drain' | 'finish' | 'close';

/** What both have in common, by the names that node:http gives. */
export interface ClientResponse {
  readonly req: {
    /** 0 for HTTP/1.0, which knows neither chunks nor interim answers. */
    readonly httpVersionMinor: number;
    /** Absent where the connection is not the answer's alone. */
    readonly socket?: Socket;
  };
  readonly headersSent: boolean;
  readonly writableEnded: boolean;
  /** Bytes that are still held in this process. */
  readonly writableLength: number;
  /** The client is gone, or the answer was cut off. */
  readonly destroyed: boolean;
  /** The answer's end is marked by its framing, which can carry trailers. */
  readonly chunkedEncoding: boolean;
  /** Set to false where nothing may follow on the connection. */
  shouldKeepAlive: boolean;
  statusMessage: string;
  /** A field for whatever head is written; one of the head's own takes its place. */
  setHeader(name: string, value: string): unknown;
  /** `fields`: raw pairs. Throws what cannot be sent. */
  writeHead(status: number, statusText: string | undefined, fields: string[]): unknown;
  flushHeaders(): void;
  writeContinue(): void;
  writeEarlyHints(hints: { link: string[] }): void;
  /** False asks to wait for `drain`. `onWritten`, where it is called, says that the chunk's memory is free, or what kept it from being written. */
  write(chunk: Buffer, onWritten?: (error?: Error | null) => void): boolean;
  addTrailers(trailers: readonly [string, string][]): void;
  end(): unknown;
  end(last: string | undefined, encoding: 'latin1'): unknown;
  /** Cuts the answer off, so that the client cannot mistake the part for the whole. */
  destroy(): unknown;
  /** For `onEvent`, which guards the listener. */
  on(event: ResponseEvent, listener: () => void): unknown;
  off(event: ResponseEvent, listener: () => void): unknown;
}
