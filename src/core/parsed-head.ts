/** A request whose head is valid and whose body is not read yet: the input of the gates. */

import type { BodyStream, RequestBody } from './body.ts';
import type { Client } from './client.ts';
import type { Clock, EpochMilliseconds, Milliseconds } from './clock.ts';
import type { HeaderFields, RawHeaders } from './headers.ts';
import type { BlockedWriter } from './read-pause.ts';
import type { RequestTarget } from './target.ts';

/** The data of any request, even of one whose head is rejected. */
export interface RequestInfo {
  /** Unique to this request; it links the response, the log line and the header that the app gets. */
  readonly requestId: string;
  readonly method: string;
  readonly client: Client;
  readonly receivedAt: EpochMilliseconds;
  /** Monotonic. */
  readonly startedAt: Milliseconds;
}

/** A request to change the connection's protocol (RFC 9110 §7.8), which the app may accept. */
export interface UpgradeRequest {
  /** As the client sent it, for example `websocket`. */
  readonly protocol: string;
  /** Accepts the upgrade with this status line and these fields. Returns the stream of what the client sends from then on. */
  grant(statusLine: string, fields: RawHeaders): BodyStream;
  /** Sends bytes in the new protocol. Returns false to ask the caller to wait until `writer` has drained; `onWritten` as in ClientResponse. */
  write(chunk: Buffer, onWritten?: (error?: Error | null) => void): boolean;
  readonly writer: BlockedWriter;
  /** Ends this direction; the client may still send. */
  end(): void;
  /** Closes the connection once the client has taken what was sent, or after `atMost`. */
  close(clock: Clock, atMost: Milliseconds): void;
  destroy(): void;
}

/** A request with a parsed head. */
export interface ParsedHead extends RequestInfo {
  readonly target: RequestTarget;
  readonly headers: HeaderFields;
  readonly body: RequestBody;
  readonly upgrade?: UpgradeRequest;
  /** The destination that a client of the forward proxy requests. */
  readonly destination?: { readonly host: string; readonly port: number };
}
