/** The response to the client: node:http's ServerResponse, or an HTTP/2 stream with the same interface. */
import type { Socket } from 'node:net';

/** The events of a response. `finish`: the operating system has taken all of it. */
export type ResponseEvent = 'drain' | 'finish' | 'close';

/** The members that both have in common, named as in node:http. */
export interface ClientResponse {
  readonly req: {
    /** 0 for HTTP/1.0, which has neither chunked coding nor interim responses. */
    readonly httpVersionMinor: number;
    /** Absent if other responses share the connection (HTTP/2). */
    readonly socket?: Socket;
  };
  readonly headersSent: boolean;
  readonly writableEnded: boolean;
  /** Bytes that are still buffered in this process. */
  readonly writableLength: number;
  /** The client disconnected, or the response was cut off. */
  readonly destroyed: boolean;
  /** The framing marks the end of the response, and can carry trailers. */
  readonly chunkedEncoding: boolean;
  /** Set it to false to close the connection after this response. */
  shouldKeepAlive: boolean;
  statusMessage: string;
  /** Sets a field for any head that is written; a field of the same name in the head overrides it. */
  setHeader(name: string, value: string): unknown;
  /** `fields`: raw pairs. Throws if the head cannot be sent. */
  writeHead(status: number, statusText: string | undefined, fields: string[]): unknown;
  flushHeaders(): void;
  writeContinue(): void;
  writeEarlyHints(hints: { link: string[] }): void;
  /**
   * Returns false to ask the caller to wait for `drain`. `onWritten`, if it is called, reports that the chunk is written and its
   * memory can be reused, or the error that prevented the write.
   */
  write(chunk: Buffer, onWritten?: (error?: Error | null) => void): boolean;
  addTrailers(trailers: readonly [string, string][]): void;
  end(): unknown;
  end(last: string | undefined, encoding: 'latin1'): unknown;
  /** Called before a refusal that is the client's fault; HTTP/2 limits how many there are. */
  onRejected?(): void;
  /** Cuts the response off, so that the client cannot take a partial response for a complete one. */
  destroy(): unknown;
  /** For `onEvent`, which guards the listener. */
  on(event: ResponseEvent, listener: () => void): unknown;
  off(event: ResponseEvent, listener: () => void): unknown;
}
