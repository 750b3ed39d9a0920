/** A request to a server, the listener for its response, and the limits of both: an app, an endpoint, or a service of the config. */

import type { Milliseconds } from '../../core/clock.ts';
import type { RawHeaders } from '../../core/head.ts';
import type { ReadPause } from '../../core/reading.ts';
import type { BodyStream } from '../../core/request.ts';
import type { FailureKind } from '../dial/dial.ts';
import type { ReleaseBuffer } from './response-parser.ts';

/** A complete request. `headers` include the framing header and are sent unchanged, in order. */
export interface UpstreamRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: RawHeaders;
  /** A stream is sent as it arrives: framed by Content-Length if its length is known, otherwise chunked, as `headers` say. */
  readonly body: Buffer | BodyStream;
  /** The request asks for another protocol. It uses a separate connection, which belongs to the listener once the server accepts. */
  readonly isUpgrade?: boolean;
  /** The request may be sent twice: it is idempotent (RFC 9110 §9.2.2), or the route allows it. */
  readonly repeatable: boolean;
  /** Monotonic time from which another request may have the claim: no byte is sent unless the app can time out before it. */
  readonly leaseEndsAt?: Milliseconds | undefined;
  /** Monotonic time at which the whole exchange must have ended, besides the limits of each of its steps. */
  readonly endsAt?: Milliseconds | undefined;
  /** Aborting it fails the exchange with `aborted`, as precisely as timeouts. */
  readonly signal?: AbortSignal | undefined;
}

/** A failed exchange. */
export interface UpstreamFailure {
  readonly kind: FailureKind;
  /** No byte of the request can have reached the server: a retry is safe, and a claim can be released. */
  readonly nothingSent: boolean;
  /** For the log. */
  readonly detail: string;
}

/**
 * Receives the response: onInformation*, onHead, onData*, then exactly one of onEnd and onFailure (which may come at any
 * time).
 */
export interface UpstreamListener {
  /** A 1xx response other than 100 and 101. */
  onInformation(status: number, headers: RawHeaders): void;
  onHead(status: number, statusText: string, headers: RawHeaders): void;
  /**
   * The server accepted another protocol: onData and onEnd deliver what it sends, and the returned stream is sent to it. Return
   * undefined to reject the upgrade.
   */
  onUpgrade?(headers: RawHeaders): BodyStream | undefined;
  /**
   * The listener owns the chunk; it must call `releaseBuffer` once it no longer needs the memory. The response is not read during the
   * pause that it returns; bytes that were already read still arrive.
   */
  onData(chunk: Buffer, releaseBuffer?: ReleaseBuffer): ReadPause | undefined;
  /** `isRequestWritten`: the kernel has taken the whole request, so that the memory of its body is not used any more. */
  onEnd(trailers: RawHeaders, isRequestWritten: boolean): void;
  onFailure(failure: UpstreamFailure): void;
}

/** An exchange in flight. */
export interface UpstreamExchange {
  /** Cancels the exchange: the connection is destroyed, and the listener gets no further calls. */
  abort(): void;
}

/** The limits of the connections to one server. */
export interface UpstreamLimits {
  readonly connectTimeout: Milliseconds;
  /**
   * From when the request is written until the whole response head has arrived; 1xx responses and single bytes do not extend it.
   * It also limits the wait for a connection, and for the server to read more of a stream.
   */
  readonly responseTimeout: Milliseconds;
  /** The longest gap between two chunks of a response body. */
  readonly idleResponseTimeout: Milliseconds;
  /**
   * How long an idle connection is kept. Must be below the keep-alive timeout of the server (Node's default is 5 s), or requests
   * race with its close.
   */
  readonly idleTimeout: Milliseconds;
  /** The age from which a connection takes no further request, so that a new one follows changes of the DNS; undefined: none. */
  readonly maxAge?: Milliseconds | undefined;
  /** The maximum number of connections; further requests wait in order. */
  readonly maxConnections: number;
  /** The maximum size of a response head in bytes. */
  readonly maxHeadBytes: number;
  /** The maximum size of a response in bytes, with its framing, if it does not arrive at once; undefined: none. */
  readonly maxResponseBytes?: number | undefined;
  /** Resets a connection that closes during an exchange, or after a large body: the server may never read it. */
  readonly discardsUnread?: boolean;
  /** The latest response heads are remembered. Servers that others choose could fill the heap with them. */
  readonly remembersHeads?: boolean;
}

/** The limits, and a host of the config: an app. */
export interface UpstreamOptions extends UpstreamLimits {
  readonly host: string;
  readonly port: number;
}

/** Kept-alive connections to one server. */
export interface Upstream {
  send(request: UpstreamRequest, listener: UpstreamListener): UpstreamExchange;
  /** Closes idle connections now, and busy ones when they are done. */
  close(): void;
  /** Closes all connections now; listeners get no further calls. */
  destroy(): void;
}
